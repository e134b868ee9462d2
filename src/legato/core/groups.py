"""Message groups of a queue: all messages of a group go to one consumer while it is attached."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from itertools import islice
from operator import attrgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

from legato.limits import GROUPS_MAX, RETURNED_MIN

_WAITING = attrgetter("waiting")
_LOOKED_AT = 16
"""So many owners are looked at for one that has nothing: not all of them for each new group."""


class Member(Protocol):
    """A consumer, as far as groups go."""

    @property
    def unsettled(self) -> Collection[int]:
        """The messages that it has."""


class Returned(Protocol):
    """A message that came back, as far as groups go."""

    @property
    def seq(self) -> int:
        """Its sequence number."""

    @property
    def waiting(self) -> bool:
        """Whether it still waits."""


M = TypeVar("M", bound=Returned)


class Span(NamedTuple):
    """Sequence numbers of one lane, the last one included."""

    first: int
    last: int


class Groups(Generic[M]):
    """The owner of each group (sticky, until the consumer closes or the group is closed).

    Others pass over the messages of a group that has an owner, and are beyond them when it is free again: it is known
    where those messages are, so that they look again there, and only there.

    Attributes:
        freed: groups that lost their owner after others had passed over messages that still wait. Nobody has them
            before all have looked again: who is beyond one message of a group would get a later one first.
    """

    __slots__ = ("_held", "_owners", "_passed", "_passed_returned", "freed")

    def __init__(self) -> None:
        self._owners: OrderedDict[str, Member] = OrderedDict()
        """The oldest first; of a `dict` that is searched for, past all that have left it."""
        self._held: dict[str, int] = {}
        self._passed: dict[int, dict[str, Span]] = {}
        """By lane and group: from where to where messages on disk were passed over that its owner has not had."""
        self._passed_returned: dict[str, dict[int, M]] = {}
        """By group and sequence: messages that came back and were passed over."""
        self.freed: dict[str, None] = {}

    def may_have(self, group: str, consumer: Member) -> bool:
        """Whether the next message of the group may go to `consumer` now."""
        return group not in self.freed and not self.is_others(group, consumer)

    def is_others(self, group: str, consumer: Member) -> bool:
        """Whether the group has another owner, or is held.

        A hold whose time is over still holds until `let_go`: before that, those that were passed over would be
        overtaken.
        """
        return group in self._held or self._owners.get(group, consumer) is not consumer

    def pass_over(self, group: str, lane: int, first: int, last: int) -> None:
        """A consumer passes over messages of the group on disk, of a lane and from `first` to `last`.

        Of a group that is held only that need not be known: when holds are over, all look again.
        """
        if group in self._owners or group in self.freed:
            spans = self._passed.setdefault(lane, {})
            known = spans.get(group)
            spans[group] = Span(first, last) if known is None else Span(min(known.first, first), max(known.last, last))

    def pass_over_returned(self, group: str, message: M) -> None:
        """A consumer passes over a message of the group that came back."""
        if group in self._owners or group in self.freed:
            passed = self._passed_returned.setdefault(group, {})
            passed[message.seq] = message
            if len(passed) >= RETURNED_MIN and not len(passed) & (len(passed) - 1):
                self._passed_returned[group] = {seq: each for seq, each in passed.items() if each.waiting}

    def give(self, group: str, consumer: Member, *, closes: bool) -> None:
        """The consumer got a message of the group, the last one if it closes it."""
        if closes:
            if group in self._owners:
                self._free(group)
            return
        if group not in self._owners and len(self._owners) >= GROUPS_MAX:
            self._forget_one()
        self._owners[group] = consumer

    def forget_passed(self, group: str, lane: int, through: int) -> None:
        """The owner of the group, who wants all of its messages, has got those of a lane up to `through`."""
        spans = self._passed.get(lane, {})
        if span := spans.get(group):
            if span.last <= through:
                del spans[group]
            elif span.first <= through:
                spans[group] = Span(through + 1, span.last)
        if passed := self._passed_returned.get(group):
            passed.pop(through, None)

    def _forget_one(self) -> None:
        """Forget the owner of one of the oldest groups: one that has nothing unsettled, if there is one among them.

        Those that have something count as the youngest from here on, so that the next time others are looked at.
        """
        owners = self._owners
        passed: list[str] = []
        for group, owner in islice(owners.items(), _LOOKED_AT):
            if not owner.unsettled:
                break
            passed.append(group)
        else:
            group = passed.pop(0)
        for each in passed:
            owners.move_to_end(each)
        self._free(group)

    def _free(self, group: str) -> None:
        del self._owners[group]
        returned = self._passed_returned.get(group, {})
        if any(group in spans for spans in self._passed.values()) or any(map(_WAITING, returned.values())):
            self.freed[group] = None
        else:
            self._passed_returned.pop(group, None)

    def take_passed(self, group: str) -> tuple[dict[int, Span], list[M]]:
        """Where messages of a group that is free were passed over, by lane, and which of those that came back.

        All look at them again: they are forgotten here.
        """
        found = {lane: spans.pop(group) for lane, spans in self._passed.items() if group in spans}
        return found, [each for each in self._passed_returned.pop(group, {}).values() if each.waiting]

    def claim(self, group: str, consumer: Member) -> None:
        """The consumer came back with a message of the group: that is its own again unless another has it."""
        if group not in self._owners:
            self.give(group, consumer, closes=False)

    def has_any(self, consumer: Member) -> bool:
        """Whether the consumer has a group."""
        return any(owner is consumer for owner in self._owners.values())

    def pass_on(self, consumer: Member, to: Member) -> None:
        """Pass the groups of `consumer` on to `to`."""
        for group, owner in self._owners.items():
            if owner is consumer:
                self._owners[group] = to

    def release(self, consumer: Member) -> bool:
        """The consumer leaves: its groups are free. Whether it had any: then all look again."""
        mine = [group for group, owner in self._owners.items() if owner is consumer]
        for group in mine:
            del self._owners[group]
            self.take_passed(group)
        return bool(mine)

    def hold(self, group: str, until_us: int) -> None:
        """Nothing of the group is dispatched before: one of its messages waits for its redelivery."""
        self._held[group] = max(until_us, self._held.get(group, 0))

    def let_go(self, now_us: int) -> bool:
        """Forget holds that are over; whether there were any."""
        over = [group for group, until_us in self._held.items() if until_us <= now_us]
        for group in over:
            del self._held[group]
        return bool(over)

    @property
    def next_release_us(self) -> int:
        """End of the first hold; 0 if there is none."""
        return min(self._held.values(), default=0)

"""Message groups of a queue: all messages of a group go to one consumer while it is attached."""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from legato.limits import GROUPS_MAX


class Member(Protocol):
    """A consumer, as far as groups go."""

    @property
    def unsettled(self) -> Collection[int]:
        """The messages that it has."""


class Groups:
    """The owner of each group (sticky, until the consumer closes or the group is closed).

    Attributes:
        freed: groups that lost their owner after others had passed over their messages: those are to look again.
            Nobody has them before: who passed over one message of a group would get a later one first.
    """

    __slots__ = ("_held", "_owners", "_passed_over", "freed")

    def __init__(self) -> None:
        self._owners: dict[str, Member] = {}
        self._held: dict[str, int] = {}
        self._passed_over: set[str] = set()
        """Of those that have an owner, the ones that others passed over messages of."""
        self.freed: dict[str, None] = {}

    def may_have(self, group: str, consumer: Member) -> bool:
        """Whether the next message of the group may go to `consumer` now.

        A hold whose time is over still holds until `let_go`: before that, those that were passed over would be
        overtaken.
        """
        if group in self._held or group in self.freed:
            return False
        owner = self._owners.get(group)
        return owner is None or owner is consumer

    def pass_over(self, group: str) -> bool:
        """A consumer passes over a message of the group; whether it is to note that, to look again later.

        Of a group that is held only it need not: when holds are over, all look again.
        """
        if group in self._owners:
            self._passed_over.add(group)
            return True
        return group in self.freed

    def give(self, group: str, consumer: Member, *, closes: bool) -> None:
        """The consumer got a message of the group, the last one if it closes it."""
        if closes:
            if group in self._owners:
                self._free(group)
            return
        if group not in self._owners and len(self._owners) >= GROUPS_MAX:
            self._forget_one()
        self._owners[group] = consumer

    def _forget_one(self) -> None:
        for group, owner in self._owners.items():
            if not owner.unsettled:
                self._free(group)
                return
        self._free(next(iter(self._owners)))

    def _free(self, group: str) -> None:
        del self._owners[group]
        if group in self._passed_over:
            self._passed_over.remove(group)
            self.freed[group] = None

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
        self._passed_over.difference_update(mine)
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

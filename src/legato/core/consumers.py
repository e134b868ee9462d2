"""Receivers: consumers take messages, reservations keep them for a time, browsers only look."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any

from legato import limits
from legato.core.lanes import LANE_SHIFT
from legato.core.message import Message, MessageRun

if TYPE_CHECKING:
    from legato.core.groups import Groups, Span
    from legato.core.lanes import Lane
    from legato.core.queues import Queue

Matcher = Callable[[bytes], bool]
"""Says of a message's bytes whether a selector matches."""


class Cursor:
    """A consumer's position in a lane, and the returned messages before it.

    When a group is free again that others passed over messages of, it goes back to the first of these if it is beyond
    that, and takes a second look up to the last, for the group only: once another consumer has the group, it goes on
    from where it was.

    Attributes:
        seen: up to where it looked.
        resumes_at: from where it goes on after a second look; 0 if it takes none.
        second_look_for: groups that it takes the second look for.
        second_look_until: where the last message of those is.
    """

    __slots__ = ("_again", "_offered", "resumes_at", "second_look_for", "second_look_until", "seen")

    def __init__(self, lane: Lane) -> None:
        self.seen = lane.start
        self.resumes_at = self.second_look_until = 0
        self.second_look_for: set[str] = set()
        waiting = {message.seq: message for message in lane.returned if message.waiting}
        self._again = list(waiting.values())
        self._offered = set(waiting)
        heapify(self._again)

    def offer(self, message: Message) -> None:
        """A message came back."""
        if message.seq not in self._offered:
            self._offered.add(message.seq)
            heappush(self._again, message)

    def head(self) -> Message | None:
        """The first message that came back and still waits."""
        again = self._again
        while again and not again[0].waiting:
            self.drop()
        return again[0] if again else None

    def drop(self) -> None:
        """`head` is not for this consumer, or not any more."""
        self._offered.discard(heappop(self._again).seq)

    def look_again(self, group: str, span: Span) -> None:
        """The group is free, of which messages were passed over there."""
        furthest = max(self.resumes_at, self.seen)
        if furthest >= span.first:
            self.resumes_at = furthest
            self.second_look_until = max(self.second_look_until, min(span.last, furthest))
            self.second_look_for.add(group)
            self.seen = min(self.seen, span.first - 1)

    def give_up_taken(self, groups: Groups[Message], consumer: Consumer, lane: int) -> None:
        """End the second look for groups that another consumer has by now; the rest of theirs counts as passed over."""
        for group in list(self.second_look_for):
            if groups.is_others(group, consumer):
                groups.pass_over(group, lane, self.seen + 1, self.second_look_until)
                self.second_look_for.remove(group)

    def goes_on(self) -> bool:
        """Whether a second look ends here, with nothing more to be found by it."""
        if self.second_look_for and self.seen < self.second_look_until:
            return False
        self.seen = max(self.seen, self.resumes_at)
        self.resumes_at = self.second_look_until = 0
        self.second_look_for.clear()
        return True


class Consumer:
    """A receiving link on a queue. `port` is the shell's own; the core only hands it back in effects.

    `container` and `name`, its link's, say who it is when it comes back after its connection was lost.

    `reports_presented` says that it tells us which messages reached its application (promise 4); of others we
    must assume that any delivered message may have been seen.
    """

    __slots__ = (
        "blocked",
        "container",
        "credit",
        "cursors",
        "drain_after",
        "draining",
        "first",
        "held",
        "held_until_us",
        "id",
        "matches",
        "name",
        "passes_over",
        "port",
        "priority",
        "queue",
        "reports_presented",
        "runs",
        "served",
        "takes_runs",
        "unsent_bytes",
        "window",
    )

    def __init__(
        self,
        number: int,
        queue: Queue,
        port: Any,
        container: str,
        reports_presented: bool,
        matches: Matcher | None = None,
        priority: int = 0,
        name: str = "",
    ) -> None:
        self.id = number
        self.queue = queue
        self.port = port
        self.container = container
        self.name = name
        self.reports_presented = reports_presented
        self.matches = matches
        self.priority = priority
        self.passes_over = False
        """Whether so many messages wait that it is not to have again that it needs a cursor to pass them once."""
        self.credit = 0
        self.window = 0
        """The most credit it ever gave: what it will give again as it acknowledges."""
        self.served = 0
        """What its queue's `delivered` was when it was given messages last."""
        self.draining = False
        self.drain_after: list[tuple[Lane, int]] = []
        """What was published before the drain was asked for and is not durable yet: it still comes."""
        self.blocked = False
        self.held_until_us = 0
        """It gets nothing before: a message that it gave back waits for its redelivery to it."""
        self.unsent_bytes = 0
        """Given since its socket was last known to take more."""
        self.held: dict[int, Message | MessageRun] = {}
        """What it has and did not settle, in the order of delivery, by its sequence; a run by its first one's."""
        self.runs = 0
        """How many of these are runs."""
        self.takes_runs = False
        """Whether messages may be given to it in runs."""
        self.first: deque[Message] = deque()
        """Messages that are its own already (names.HELD, or given back for redelivery): they come before all others."""
        self.cursors: dict[int, Cursor] = {}
        """By the lane's number, while the queue selects."""

    @property
    def ready(self) -> bool:
        """Whether it can be given a message now."""
        return (
            self.credit > 0
            and not self.blocked
            and self.unsent_bytes < limits.DELIVERY_BYTES_IN_ONE_GO
            and not self.held_until_us
        )

    @property
    def unsettled(self) -> dict[int, Message]:
        """Messages that it has and did not settle, in the order of delivery; runs are told apart."""
        if self.runs:
            held: dict[int, Message | MessageRun] = {}
            for seq, entry in self.held.items():
                if isinstance(entry, MessageRun):
                    held.update((message.seq, message) for message in entry.apart()[entry.settled :])
                else:
                    held[seq] = entry
            self.held, self.runs = held, 0
        return self.held  # type: ignore[return-value]

    @property
    def unsettled_count(self) -> int:
        """How many these are."""
        if not self.runs:
            return len(self.held)
        return sum(entry.count - entry.settled if isinstance(entry, MessageRun) else 1 for entry in self.held.values())

    def had_of(self, seqs: set[int]) -> set[int]:
        """Those of the messages that it has, or is to get before all others; runs stay whole."""
        found = {message.seq for message in self.first if message.seq in seqs}
        if not self.runs:
            return found | (seqs & self.held.keys())
        for entry in self.held.values():
            if isinstance(entry, MessageRun):
                found |= seqs.intersection(range(entry.seq + entry.settled, entry.seq + entry.count))
            elif entry.seq in seqs:
                found.add(entry.seq)
        return found

    def copies_of_unsettled(self) -> list[Message]:
        """Messages that say what is known of those that it has, whatever they are objects of."""
        found: list[Message] = []
        for entry in self.held.values():
            found += entry.messages()[entry.settled :] if isinstance(entry, MessageRun) else [entry]
        return found

    def cursor(self, lane: Lane) -> Cursor:
        """Cursor in a lane."""
        found = self.cursors.get(lane.number)
        if found is None:
            found = self.cursors[lane.number] = Cursor(lane)
        return found


class Reservation:
    """The messages, groups and turn of a consumer whose connection was lost.

    Attributes:
        consumer: it, no longer attached; groups that it had are still given to it, that is to nobody.
        messages: those that its application has seen and not settled, in order, by sequence number.
        until_us: how long, by the steady clock.
        leads: it was the one that an exclusive queue gives to.
    """

    __slots__ = ("consumer", "leads", "messages", "until_us")

    def __init__(self, consumer: Consumer, until_us: int, *, leads: bool) -> None:
        self.consumer = consumer
        self.until_us = until_us
        self.leads = leads
        self.messages: dict[int, Message] = {}


class Browser:
    """Shows the messages that wait when it attaches, without consuming them (Jakarta Messaging 4.1.6: a snapshot)."""

    __slots__ = ("after", "blocked", "credit", "draining", "matches", "port", "queue", "until")

    def __init__(self, queue: Queue, port: Any, matches: Matcher | None = None) -> None:
        self.queue = queue
        self.port = port
        self.matches = matches
        self.after = {lane.number: lane.number << LANE_SHIFT for lane in queue.order}
        """How far it is, by lane. It begins with all that there is: a lane's `start` passes over what consumers had or
        gave back when an assignment took what is behind that."""
        self.until = {lane.number: lane.last_seq for lane in queue.order}
        """What was published when it comes, by lane, highest priority first."""
        self.credit = 0
        self.draining = False
        self.blocked = False

    @property
    def early(self) -> bool:
        """Whether something of what it is to see is not durable yet."""
        lanes = self.queue.lanes
        return any(lanes[number].visible_seq < until for number, until in self.until.items())

    @property
    def unfinished(self) -> int | None:
        """The number of the first lane in which there is more to see."""
        return next((number for number, until in self.until.items() if self.after[number] < until), None)

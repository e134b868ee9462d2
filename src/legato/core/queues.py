"""A queue: lanes, receivers and counters. A subscription is a queue too."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING

from legato import limits
from legato.core.facts import Kind
from legato.core.groups import Groups
from legato.core.lanes import LANE_SHIFT, Lane, lane_number
from legato.core.message import Message
from legato.core.records import Archive, QueueRecord
from legato.core.settings import DEFAULT_SETTINGS, AddressSettings

if TYPE_CHECKING:
    from legato.core.consumers import Consumer, Reservation
    from legato.core.topics import Topic


class Queue:
    """One queue or subscription, durable state and window.

    Args:
        record: what the store knows of it.
        address: what settings and dead letters call it: the queue's name, or the topic's.
    """

    __slots__ = (
        "address",
        "bytes",
        "claims",
        "consumed",
        "consumers",
        "container",
        "deleted",
        "delivered",
        "grouped",
        "groups",
        "held_until_us",
        "id",
        "jobs",
        "kind",
        "lanes",
        "main",
        "matches",
        "mode_is_stale",
        "name",
        "no_local",
        "order",
        "paused",
        "recorded",
        "reservations",
        "returning",
        "ring",
        "selecting",
        "selector",
        "settings",
        "shared",
        "special",
        "starved",
        "stored",
        "taken_again",
        "taken_before",
        "temporary",
        "topic",
        "windowed",
    )

    def __init__(self, record: QueueRecord, address: str, settings: AddressSettings = DEFAULT_SETTINGS) -> None:
        self.id = record.queue
        self.name = record.name
        self.address = address
        self.kind = record.kind
        self.selector = record.selector
        self.no_local = record.no_local
        self.container = record.container
        self.temporary = record.temporary
        self.shared = record.shared
        self.paused = record.paused
        self.grouped = record.grouped
        self.bytes = record.bytes
        self.stored = record.stored
        self.consumed = record.consumed
        self.settings = settings
        self.deleted = False
        self.special = False
        """Whether publishing must look closer: it is deleted, has limits, or drops repeated message ids."""
        self.topic: Topic | None = None
        """Of a subscription."""
        self.matches: Callable[[bytes], bool] | None = None
        """Of a subscription: which of the topic's messages it wants."""
        waiting = self.stored > self.consumed
        self.main = Lane(self, 0, record.last_seq, record.dispatch_mark, waiting=waiting)
        self.lanes = {0: self.main}
        self.order = [self.main]
        """The lanes, highest priority first."""
        for number, (last_seq, mark) in record.lanes.items():
            self._add_lane(Lane(self, number, last_seq, mark, waiting=waiting))
        self.returning = 0
        """Messages that come back with the next commits: until then nothing is dispatched past them."""
        self.held_until_us = 0
        """Nothing is dispatched before: the head waits for its redelivery."""
        self.recorded = (record.stored, record.consumed)
        """Counters as of the last `QueueMarked`."""
        self.consumers: dict[Consumer, None] = {}
        """In the order in which they are served: one of thousands leaves at no cost of the others."""
        self.mode_is_stale = False
        """Whether a consumer left: what that changes for the others is looked at before anything is given to them."""
        self.ring: deque[Consumer] = deque()
        """Consumers that can be given a message now, next one first."""
        self.groups = Groups[Message]()
        self.selecting = False
        """Whether consumers want different messages; see `core.selecting`."""
        self.jobs = 0
        """Administrative work under way that looks through what waits."""
        self.windowed = False
        """Whether new messages may join the window: somebody receives, and nobody selects."""
        self.claims = False
        """Whether a lane may have claimed messages, which must be let go of when they are consumed."""
        self.starved = False
        """Whether a producer was told that there is no room."""
        self.delivered = 0
        self.reservations: dict[tuple[str, str], Reservation] = {}
        """What is kept for consumers whose connections were lost, by container and link."""
        self.taken_again: dict[int, tuple[str, str]] = {}
        """Messages that others had had when they left, and who took them, by container and link; bounded, so that a
        late acknowledgement can be told the truth (promise 5)."""
        self.taken_before = record.taken > 0
        """Whether the store knows more of them, from earlier epochs, that were not read yet."""
        self.review()

    @property
    def depth(self) -> int:
        """Messages stored and not consumed, in flight ones included."""
        return self.stored - self.consumed

    @property
    def acknowledged(self) -> int:
        """Messages that left it."""
        return self.consumed

    @property
    def in_flight(self) -> int:
        """Messages that consumers have and did not settle."""
        return sum(consumer.unsettled_count for consumer in self.consumers)

    @property
    def held(self) -> int:
        """Messages kept for consumers whose connections were lost."""
        return sum(len(reservation.messages) for reservation in self.reservations.values())

    @property
    def led(self) -> bool:
        """Whether an exclusive queue is kept for the consumer that it gives to."""
        return any(reservation.leads for reservation in self.reservations.values())

    @property
    def takes_runs(self) -> bool:
        """Whether who receives from it takes runs, and need not share them with others."""
        return len(self.consumers) == 1 and next(iter(self.consumers)).takes_runs

    def gives_to(self, consumer: Consumer) -> bool:
        """Whether one of its consumers may have more than it has: of an exclusive queue only the first one."""
        return not self.settings.exclusive or (next(iter(self.consumers), None) is consumer and not self.led)

    @property
    def limited(self) -> bool:
        """Whether it may become full."""
        return self.settings.when_full != "page" and bool(self.settings.max_messages or self.settings.max_bytes)

    @property
    def room(self) -> int | None:
        """How many more messages it takes, by what they weigh now on average; None if there is no limit."""
        if not self.limited:
            return None
        rooms = []
        if (free := self.room_messages) is not None:
            rooms.append(free)
        if self.settings.max_bytes:
            left = self.settings.max_bytes - self.bytes
            average = max(self.bytes // self.depth, 1) if self.depth > 0 else 1024
            rooms.append(max(left // average, 1) if left > 0 else 0)
        return max(min(rooms), 0)

    @property
    def room_messages(self) -> int | None:
        """How many more messages it takes by their number alone; None if that has no limit."""
        limited = self.limited and self.settings.max_messages
        return max(self.settings.max_messages - self.depth, 0) if limited else None

    @property
    def room_bytes(self) -> int | None:
        """How many more bytes it takes until it is full; None if they have no limit."""
        limited = self.limited and self.settings.max_bytes
        return max(self.settings.max_bytes - self.bytes, 0) if limited else None

    def review(self) -> None:
        """Settings or consumers changed."""
        settings = self.settings
        by_message_id = settings.duplicate_detection == "message-id" and settings.duplicate_window > 0
        self.special = self.deleted or self.limited or by_message_id
        self.windowed = bool(self.consumers) and not self.selecting

    def review_turn(self, consumer: Consumer) -> None:
        """Whether one of its consumers can be given something now may have changed."""
        may = consumer.ready and self.gives_to(consumer)
        if may and consumer not in self.ring:
            # Before those that were served after it: who drained, or had no credit for a while, keeps its turn.
            place = next((place for place, other in enumerate(self.ring) if other.served > consumer.served), None)
            self.ring.insert(len(self.ring) if place is None else place, consumer)
        elif not may and consumer in self.ring:
            self.ring.remove(consumer)

    def rewind(self) -> None:
        """Rewind the cursors: consumers look again through all that they passed over."""
        for consumer in self.consumers:
            consumer.cursors.clear()

    def look_again(self) -> None:
        """Consumers look again at what they passed over of groups that are free now."""
        for group in self.groups.freed:
            spans, returned = self.groups.take_passed(group)
            for consumer in self.consumers:
                for number, cursor in consumer.cursors.items():
                    if number in spans:
                        cursor.look_again(group, spans[number])
                    for message in returned:
                        if message.seq >> LANE_SHIFT == number:
                            cursor.offer(message)
        self.groups.freed.clear()

    def lane(self, seq: int) -> Lane:
        """The lane of a sequence number."""
        return self.lanes[seq >> LANE_SHIFT]

    def lane_for(self, priority: int) -> Lane:
        """The lane of a priority, made if there is none."""
        number = lane_number(priority)
        lane = self.lanes.get(number)
        if lane is None:
            lane = Lane(self, number, 0, 0, waiting=False)
            self._add_lane(lane)
        return lane

    def _add_lane(self, lane: Lane) -> None:
        self.lanes[lane.number] = lane
        self.order = sorted(self.lanes.values(), key=lambda lane: -lane.priority)

    def coming(self) -> list[tuple[Lane, int]]:
        """The lanes for which something is being committed, and up to where."""
        return [(lane, lane.last_seq) for lane in self.order if lane.last_seq > lane.visible_seq]

    def next_lane(self, archive: Archive) -> Lane | None:
        """The highest lane in which something waits; its head is in the heap, maybe in a run."""
        for lane in self.order:
            if lane.find(archive):
                return lane
        return None

    def put_back(self, message: Message) -> None:
        """A message returns to its original place."""
        lane = self.lanes[message.seq >> LANE_SHIFT]
        lane.put_back(message)
        if self.selecting:
            lane.claimed.add(message.seq)
            for consumer in self.consumers:
                consumer.cursor(lane).offer(message)

    def body(self, message: Message, archive: Archive) -> bytes:
        """The bytes of a message that came back without them."""
        if message.body is None:
            found = archive.messages(self.id, message.seq - 1, 1, 0)
            assert found, f"{message} is waiting but not in the store"
            assert found[0].seq == message.seq, f"{message} is waiting but not in the store"
            message.body = found[0].body
        return message.body

    def read_ahead(self, messages: Sequence[Message], archive: Archive, limit_bytes: int) -> None:
        """Read the bytes of the first one, and of those after it that wait near it and come next, up to so many."""
        head = messages[0]
        missing = {head.seq: head}
        last = head.seq
        for message in messages[1:]:
            if message.body is not None or not last < message.seq < head.seq + limits.FIRST_LOAD_MESSAGES:
                break
            last = message.seq
            missing[last] = message
        for stored in archive.messages(self.id, head.seq - 1, last - head.seq + 1, limit_bytes):
            if (found := missing.get(stored.seq)) is not None:
                found.body = stored.body

    def claim(self, seqs: set[int], archive: Archive) -> dict[int, Message]:
        """Take messages out of order, for a consumer whose application still holds them: those that are still here."""
        claimed: dict[int, Message] = {}
        for number, lane in self.lanes.items():
            if mine := {seq for seq in seqs if seq >> LANE_SHIFT == number}:
                claimed |= lane.claim(mine, archive)
        self.claims = self.claims or bool(claimed)
        return claimed

    def unclaim(self, seq: int) -> None:
        """A claimed message is no longer on disk."""
        self.lanes[seq >> LANE_SHIFT].claimed.discard(seq)

    def unload(self) -> None:
        """Nobody receives any more."""
        for lane in self.order:
            lane.unload()

    def held_of(self, seqs: set[int]) -> set[int]:
        """Those of the messages that a consumer has, or that are kept for one; each of these is looked at once."""
        found: set[int] = set()
        if not seqs:
            return found
        for consumer in self.consumers:
            found |= consumer.had_of(seqs)
        for reservation in self.reservations.values():
            found |= seqs & reservation.messages.keys()
        return found

    def taken_by(self, seq: int, archive: Archive) -> tuple[str, str] | None:
        """Consumer that took the message `seq` after others had it, by container and link; None if unknown."""
        if self.taken_before:
            self.taken_before = False
            newer, self.taken_again = self.taken_again, {}
            for taken in archive.taken(self.id):
                self.taken_again[taken.seq] = (taken.container, taken.link)
            for number, who in newer.items():
                self.remember_taken(number, *who)
        return self.taken_again.get(seq)

    def remember_taken(self, seq: int, container: str, link: str) -> None:
        """A message that others had had left: by whom, both empty if nobody consumed it."""
        if len(self.taken_again) >= limits.TAKEN_MESSAGES:
            del self.taken_again[next(iter(self.taken_again))]
        self.taken_again[seq] = (container, link)

    @property
    def is_schedule(self) -> bool:
        """Whether it is where messages wait for their time."""
        return self.kind == Kind.SCHEDULE


_number = attrgetter("id")


def in_order(queues: Iterable[Queue]) -> list[Queue]:
    """Queues of a set, by number: the same commands must give the same facts, wherever queues are in memory."""
    return sorted(queues, key=_number)

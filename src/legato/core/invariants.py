"""Invariants of the broker's memory and its store, true whenever no commit is pending.

The heap repeats what the store says: counters, marks, numbers, who holds what. Commands change both, in a dozen files.
Here it is said a second time, apart from them, and compared. A difference seldom does harm at the step that makes it;
it does at some later takeover. Therefore the simulator and the tests' `Scenario` look whenever the broker is at rest,
and a broker with `[server] check_invariants` now and then.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from legato import limits
from legato.core.broker import Broker
from legato.core.consumers import Consumer
from legato.core.facts import Kind
from legato.core.lanes import LANE_SHIFT, Lane
from legato.core.message import Message, MessageRun
from legato.core.queues import Queue
from legato.core.records import Archive, QueueRecord, StoredMessage
from legato.core.refused_numbers import RefusedNumbers
from legato.core.topics import Node, Topic

ALL = 1 << 62
"""As many messages as there are."""


class Violation(NamedTuple):
    """A violated invariant: the object, the invariant's name, and what was found."""

    subject: str
    invariant: str
    found: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.invariant} ({self.found})"


def violations(
    broker: Broker, archive: Archive, *, messages_max: int = ALL, queues: Iterable[Queue] | None = None
) -> list[Violation]:
    """Violations in the heap of `broker`, which must be `idle`, compared with `archive`.

    Args:
        archive: the broker's store, in the broker's epoch.
        messages_max: of each lane no more messages are read than this.
        queues: at which of them to look, besides what is no queue's; None: at all.
    """
    assert broker.idle, "between a commit's begin and its end heap and store differ"
    found = list(_of_broker(broker, archive))
    for queue in broker.directory.queues.values() if queues is None else queues:
        found += violations_of(broker, queue, archive, messages_max=messages_max)
    return found


def violations_of(broker: Broker, queue: Queue, archive: Archive, *, messages_max: int = ALL) -> list[Violation]:
    """The same of one queue or subscription."""
    look = _Look(broker, queue, archive, messages_max)
    look.run()
    return look.found


# -- what all queues share -------------------------------------------------------------------------------------


def _of_broker(broker: Broker, archive: Archive) -> Iterator[Violation]:
    yield from _of_names(broker)
    yield from _of_producers(broker, archive)
    yield from _of_transactions(broker, archive)
    for topic in broker.directory.topics.values():
        yield from _of_topic(topic, archive)
    for number, window in broker.duplicates.windows.items():
        last = archive.duplicates(number)[1]
        if window.pending or window.last != last:
            found = f"{len(window.pending)} pending, the last is {window.last}, in the store {last}"
            yield Violation(f"address {number}", "its duplicate ids are in the store", found)
    for assignment in broker.assignments.by_number.values():
        record = archive.queue_by_number(assignment.queue.id)
        here = (assignment.fence, assignment.acknowledged, assignment.last)
        if record is not None and here != (there := (record.fence, record.acknowledged, record.last_seq)):
            yield Violation(assignment.queue.name, "an assignment stands as in the store", f"{here}, {there}")
    schedule = broker.router.open_schedule
    if schedule is not None and (schedule.releasing or schedule.uncommitted):
        found = f"{sorted(schedule.releasing)}, {sorted(schedule.uncommitted)}"
        yield Violation("the schedule", "nothing is on its way into it or out of it", found)


def _of_names(broker: Broker) -> Iterator[Violation]:
    nodes: list[Node] = [*broker.directory.queues.values(), *broker.directory.topics.values()]
    named = {node.id: node for node in nodes}
    if named != broker.directory.by_number:
        found = f"numbers {sorted(named.keys() ^ broker.directory.by_number.keys())}"
        yield Violation("the broker", "what has a name has a number", found)
    for invariant, kept, true in (
        ("queues with reservations are known", broker.reservations.queues, lambda queue: queue.reservations),
        ("queues whose producers wait are known", broker.backpressure.starving, lambda queue: queue.starved),
        ("queues that hold something back are known", broker.redelivery.holding, _holds_back),
    ):
        missing = [queue.name for queue in broker.directory.queues.values() if true(queue) and queue not in kept]
        if missing:
            yield Violation("the broker", invariant, f"not {missing}")
    dead = [queue.name for queue in broker.reservations.queues | broker.backpressure.starving if queue.deleted]
    if dead:
        yield Violation("the broker", "a deleted queue keeps nothing and nobody", f"{dead}")


def _holds_back(queue: Queue) -> bool:
    held = any(consumer.held_until_us for consumer in queue.consumers)
    return bool(queue.held_until_us or held or queue.groups.next_release_us)


def _of_producers(broker: Broker, archive: Archive) -> Iterator[Violation]:
    for producer in broker.producers.attached.values():
        record = archive.producer(producer.name)
        if record is None:
            if producer.links:
                yield Violation(producer.name, "a producer that is attached is in the store", f"{producer.links} links")
            continue
        here = (producer.id, producer.last, _refused(producer.refused, producer.last))
        there = (record.producer, record.last_number, _refused(RefusedNumbers.of(record), record.last_number))
        if here != there:
            yield Violation(producer.name, "a producer's numbers are in the store", f"{here}, {there}")


def _refused(refused: RefusedNumbers, last: int) -> list[int]:
    return [number for number in refused if number > last - limits.REFUSED_NUMBERS_KEPT]


def _of_transactions(broker: Broker, archive: Archive) -> Iterator[Violation]:
    if broker.transactions.committing:
        yield Violation("the broker", "no transaction is being committed", f"{len(broker.transactions.committing)} are")
    for transaction in broker.open_transactions.by_id.values():
        subject = f"transaction {transaction.id.hex()}"
        if archive.outcome(transaction.id):
            yield Violation(subject, "a live transaction has no outcome", "it is committed")
        for consumer, message in transaction.consumed:
            if message.consumer is not consumer and not message.queue.deleted:
                yield Violation(subject, "what it received is its consumer's", f"{message}")


def _of_topic(topic: Topic, archive: Archive) -> Iterator[Violation]:
    record = archive.queue_by_number(topic.id)
    if record is None:
        yield Violation(topic.name, "it is in the store", "it is not")
        return
    if topic.stored != record.stored:
        yield Violation(topic.name, "publications are counted alike", f"{topic.stored}, in the store {record.stored}")
    if topic.last_seq < record.last_seq:
        yield Violation(topic.name, "numbers are given once", f"{topic.last_seq}, in the store {record.last_seq}")
    here = {queue.id for queue in topic.subscriptions.values()}
    there = {subscription.queue for subscription in archive.subscriptions(topic.id)}
    if here != there:
        yield Violation(topic.name, "all its subscriptions are in the heap", f"not {sorted(here ^ there)}")


# -- a queue ---------------------------------------------------------------------------------------------------


class _Look:
    """One look at a queue; `found` says what is not as it must be."""

    def __init__(self, broker: Broker, queue: Queue, archive: Archive, messages_max: int) -> None:
        self.found: list[Violation] = []
        self._broker = broker
        self._queue = queue
        self._archive = archive
        self._messages_max = messages_max
        self._stored: dict[int, StoredMessage | None] = {}
        """By sequence, as far as they were looked for; None of what is not there."""
        self._places: dict[int, list[str]] = {}
        """By sequence: where the heap has the message as an object."""

    def run(self) -> None:
        queue = self._queue
        record = self._archive.queue_by_number(queue.id)
        if record is None or record.name != queue.name:
            self._broken("it is in the store", "it is not")
            return
        self._compare(record)
        if queue.kind not in (Kind.QUEUE, Kind.SUBSCRIPTION):
            return
        complete = self._read()
        waiting = [message for message in self._stored.values() if message is not None]
        if complete and len(waiting) != queue.depth:
            self._broken("its depth is how many wait", f"{queue.depth}, {len(waiting)} wait")
        for lane in queue.order:
            self._look_at_lane(lane)
        for consumer in queue.consumers:
            self._look_at_consumer(consumer)
        self._look_at_reservations()
        for message in self._in_transactions():
            self._place(message, "a transaction")
        self._look_at_places(waiting)

    def _broken(self, invariant: str, found: object) -> None:
        self.found.append(Violation(self._queue.name, invariant, str(found)))

    def _alike(self, invariant: str, here: object, there: object) -> None:
        if here != there:
            self._broken(invariant, f"{here}, in the store {there}")

    def _compare(self, record: QueueRecord) -> None:
        queue = self._queue
        self._alike("what was stored is counted alike", queue.stored, record.stored)
        self._alike("what left is counted alike", queue.consumed, record.consumed)
        self._alike("bytes are counted alike", queue.bytes, record.bytes)
        self._alike("it is paused or not", queue.paused, record.paused)
        self._alike("it has groups or not", queue.grouped, record.grouped)
        if queue.returning:
            self._broken("nothing is on its way back", queue.returning)
        # Of a topic all subscriptions are noted, and each one in which there is no room speaks when there is.
        if queue.starved and queue.room and queue.topic is None:
            self._broken("producers are told of room", f"room for {queue.room}")
        if queue.kind == Kind.SCHEDULE:
            return
        lasts = {0: (record.last_seq, record.dispatch_mark), **record.lanes}
        for number, (last_seq, mark) in lasts.items():
            lane = queue.lanes.get(number)
            if lane is None:
                self._broken("all its lanes are in the heap", f"not {number}")
                continue
            if lane.last_seq < last_seq:
                self._broken("numbers are given once", f"{lane.last_seq}, in the store {last_seq}")
            self._alike("dispatch marks are in the store", (lane.mark, lane.mark_pending), (mark, mark))

    def _read(self) -> bool:
        """Read what waits; whether that is all."""
        complete = True
        for lane in self._queue.order:
            first = lane.number << LANE_SHIFT
            found = self._archive.messages(self._queue.id, first, self._messages_max, limits.WINDOW_BYTES)
            while found:
                for stored in found:
                    self._stored[stored.seq] = stored
                if len(self._stored) >= self._messages_max:
                    complete = False
                    break
                found = self._archive.messages(self._queue.id, found[-1].seq, self._messages_max, limits.WINDOW_BYTES)
        return complete

    def _find(self, seq: int) -> StoredMessage | None:
        if seq not in self._stored:
            found = self._archive.messages(self._queue.id, seq - 1, 1, 0)
            self._stored[seq] = found[0] if found and found[0].seq == seq else None
        return self._stored[seq]

    def _place(self, message: Message, where: str) -> None:
        self._places.setdefault(message.seq, []).append(where)
        stored = self._find(message.seq)
        if stored is None:
            self._broken("what the heap has is in the store", f"{message} in {where}")
            return
        self._alike("sizes are alike", message.size, len(stored.body))
        count = message.count - message.unrecorded
        if count != stored.count:
            self._broken("failed deliveries are counted alike", f"{message}, in the store {stored.count}")
        lane = self._queue.lane(message.seq)
        if message.seq not in lane.claimed and (self._queue.selecting or message.seq > lane.loaded_seq):
            self._broken("what the heap has is passed over on disk", f"{message} in {where}")

    # -- lanes -----------------------------------------------------------------------------------------------------

    def _look_at_lane(self, lane: Lane) -> None:
        if lane.visible_seq != lane.last_seq:
            self._broken("all that is stored is visible", f"{lane.visible_seq} of {lane.last_seq}")
        if not lane.flag_upto <= lane.mark:
            self._broken("what is flagged is marked", f"{lane.flag_upto}, {lane.mark}")
        if not lane.loaded_seq <= lane.visible_seq:
            self._broken("the window is of what is visible", f"{lane.loaded_seq}, {lane.visible_seq}")
        window = lane.window()
        seqs = [message.seq for message in window]
        if seqs != sorted(set(seqs)) or (seqs and seqs[-1] > lane.loaded_seq):
            self._broken("the window is in order", f"{seqs} up to {lane.loaded_seq}")
        if seqs and self._queue.selecting:
            self._broken("there is no window while consumers select", seqs)
        weight = sum(message.size for message in window)
        if lane.window_bytes != weight:
            self._broken("the window's bytes are counted", f"{lane.window_bytes}, not {weight}")
        returned = {message.seq: message for message in lane.returned if message.waiting}
        for message, where in (*_each(window, "the window"), *_each(returned.values(), "what came back")):
            self._place(message, where)
            if message.consumer is not None:
                self._broken("what waits is nobody's", message)
        stale = sorted(seq for seq in lane.claimed if self._find(seq) is None)
        if stale:
            self._broken("what is claimed is in the store", stale)

    # -- who has something -----------------------------------------------------------------------------------------

    def _look_at_consumer(self, consumer: Consumer) -> None:
        queue = self._queue
        name = f"consumer {consumer.id}"
        seqs = [seq for seq, entry in consumer.held.items() if entry.seq != seq]
        if seqs or consumer.runs != sum(isinstance(entry, MessageRun) for entry in consumer.held.values()):
            self._broken("what a consumer has is its own", f"{name}, {seqs}, {consumer.runs} runs")
        for message in consumer.copies_of_unsettled():
            self._place(message, name)
            if message.consumer is not consumer or message.waiting:
                self._broken("what a consumer has is its own", f"{name}, {message}")
            if message.seq > queue.lane(message.seq).mark:
                self._broken("what a consumer has is marked", f"{name}, {message}")
        for message in consumer.first:
            self._place(message, name)
            if message.consumer is not None or message.waiting:
                self._broken("what comes first is nobody else's", f"{name}, {message}")
        if consumer.credit < 0:
            self._broken("credit is not exceeded", f"{name}, {consumer.credit}")
        turns = queue.ring.count(consumer)
        may = consumer.ready and queue.gives_to(consumer)
        if turns != int(may):
            self._broken("who can be given a message has a turn", f"{name} has {turns}")

    def _look_at_reservations(self) -> None:
        for key, reservation in self._queue.reservations.items():
            consumer = reservation.consumer
            name = f"what is kept for consumer {consumer.id}"
            if key != (consumer.container, consumer.name) or consumer in self._queue.consumers:
                self._broken("what is kept is for who is away", name)
            for seq, message in reservation.messages.items():
                self._place(message, name)
                if message.seq != seq or message.consumer is not None or message.waiting or not message.presented:
                    self._broken("what is kept was presented and is nobody else's", f"{name}, {message}")

    def _in_transactions(self) -> Iterator[Message]:
        for transaction in self._broker.open_transactions.by_id.values():
            for _, message in transaction.consumed:
                if message.queue is self._queue:
                    yield message

    def _look_at_places(self, waiting: list[StoredMessage]) -> None:
        for seq, places in self._places.items():
            if len(places) > 1:
                self._broken("a message is in one place", f"{seq} in {places}")
        for stored in waiting:
            lane = self._queue.lane(stored.seq)
            read = self._queue.selecting or stored.seq > lane.loaded_seq
            if stored.seq not in self._places and (not read or stored.seq in lane.claimed):
                self._broken("what waits can be had", f"{stored.seq} is nowhere and will not be read")


def _each(messages: Iterable[Message], where: str) -> Iterator[tuple[Message, Any]]:
    return ((message, where) for message in messages)

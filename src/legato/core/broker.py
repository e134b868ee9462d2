"""The broker: commands in, facts and effects out; here, how facts become durable and then visible.

1. A command is a method call. It changes what the heap knows, adds facts to the current tick, and effects that
   need none.
2. `take_batch` hands the facts out to be committed; `committed` makes them visible; `failed` undoes what they
   announced. Nothing that depends on a fact is visible before `committed`: durable first, visible second.
3. Time is an argument, in microseconds. There is no chance and no I/O; the archive is read as of the last commit.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, assert_never

from legato import limits
from legato.core.assigning import Assigning
from legato.core.browsing import Browsing
from legato.core.capacity import Capacity
from legato.core.dispatch import mark_wanted
from legato.core.effects import (
    Confirm,
    ConfirmAcknowledged,
    ConfirmDuplicates,
    Discharged,
    DischargeRefused,
    Refuse,
    Room,
)
from legato.core.facts import (
    AnyFact,
    AssignmentAcknowledged,
    AssignmentFenced,
    BatchPublished,
    ConsumerAttached,
    DispatchMarked,
    DuplicateDropped,
    DuplicateIdDropped,
    DuplicateIdKept,
    EpochBegan,
    EpochEnded,
    MessageConsumed,
    MessageDeadLettered,
    MessageDelivered,
    MessageMoved,
    MessageOfFlow,
    MessagePresented,
    MessagePublished,
    MessageReleased,
    MessageReturned,
    MessagesAssigned,
    MessageSeen,
    MessageStored,
    MessageTaken,
    NumberRefused,
    ProducerForgotten,
    ProducerRegistered,
    QueueCreated,
    QueueDeleted,
    QueueGrouped,
    QueueMarked,
    QueuePaused,
    RunStored,
    ServingBegan,
    TransactionCommitted,
    TransactionRolledBack,
)
from legato.core.lanes import LANE_SHIFT
from legato.core.message import Message
from legato.core.message_states import REFUSE, enter
from legato.core.queues import Queue
from legato.core.records import Batch
from legato.core.refusals import FULL
from legato.core.staging import Staging
from legato.core.tick import Tick
from legato.core.topics import Topic
from legato.core.transactions import ROLLED_BACK, Transactions

__all__ = ["FULL", "Broker"]


class Broker(Transactions, Staging, Browsing, Capacity, Assigning):
    """The state machine of one epoch; see `State` for its arguments."""

    def take_batch(self, now_us: int) -> Batch | None:
        """What must be committed next, or None. Only one batch is out at a time."""
        if self._in_flight is not None:
            return None
        self.now_us = now_us
        tick = self._tick
        self._gather_marks(tick)
        if not tick:
            return None
        self._tick = Tick()
        self._in_flight = tick
        steady_us = self.steady.now_us
        return Batch(self.epoch, now_us, tick.facts, tick.bodies, tick.chunks, tick.ended, tick.runs, steady_us)

    @property
    def tick_is_full(self) -> bool:
        """Whether so much waits for the next commit that publishers should be slowed."""
        tick = self._tick
        return len(tick.facts) >= limits.BATCH_FACTS_MAX or tick.body_bytes >= limits.BATCH_BYTES_MAX

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be committed or for a commit to end."""
        return self._in_flight is None and not self._tick

    def committed(self, now_us: int) -> None:
        """The batch taken last is durable: its consequences become visible."""
        tick = self._in_flight
        assert tick is not None
        self.now_us = now_us
        self._in_flight = None
        touched: set[Queue] = set()
        confirms: list[Any] = []
        told: list[Any] = []
        for duplicate in tick.duplicates:
            if duplicate.token is not None:
                (told if duplicate.told else confirms).append(duplicate.token)
        self._ids_committed(tick.ids)
        for queue, seq in tick.marks:
            lane = queue.lane(seq)
            lane.mark = max(lane.mark, seq)
            touched.add(queue)
        # Before what was stored by itself: a window that reaches up to that would pass over a run that is before it.
        touched |= self._stages_committed(tick)
        for message in tick.stored:
            queue = message.queue
            if queue not in touched:
                touched.add(queue)
            queue.lanes[message.seq >> LANE_SHIFT].append(message)
            if (token := message.token) is not None:
                confirms.append(token)
                message.token = None
        for publication in tick.published:
            for message in publication.copies:
                message.queue.lanes[message.seq >> LANE_SHIFT].append(message)
                touched.add(message.queue)
            if publication.token is not None:
                confirms.append(publication.token)
        for message in tick.gone:
            message.queue.unclaim(message.seq)
        for lane, run in tick.passed:
            lane.release_run(run)
        for message in tick.kept:
            message.queue.returning -= 1
            touched.add(message.queue)
        for message in tick.returned:
            message.queue.returning -= 1
            message.queue.put_back(message)
            touched.add(message.queue)
        effects = self._effects
        if confirms:
            effects.append(Confirm(confirms))
        if told:
            effects.append(ConfirmDuplicates(told))
        if tick.acknowledged:
            effects.append(ConfirmAcknowledged(tick.acknowledged))
        for producer in tick.left:
            if producer.links == 0 and self._producers.get(producer.name) is producer:
                del self._producers[producer.name]
        self._producers_forgotten(tick)
        for number in tick.deleted:
            self._by_number.pop(number, None)
            self._windows.pop(number, None)
        for token, transaction, _ in tick.discharges:
            self._committing.discard(transaction.id)
            self._settle_sends(transaction, transaction.told)
            effects.append(Discharged(token))
        if self._schedule is not None:
            self._schedule_committed(self._schedule, tick)
        for queue in touched:
            if queue.limited:
                self._enforce(queue)
            self._dispatch(queue)
        self._announce_room(tick)
        self._show_early()

    def _announce_room(self, tick: Tick) -> None:
        """Producers that wait are told when what they wait for has left."""
        for fact in tick.facts if self._starving else ():
            if isinstance(fact, MessageConsumed | MessageDeadLettered | MessageMoved | MessagesAssigned):
                queue = self._by_number.get(fact.queue)
                if isinstance(queue, Queue):
                    self._announce_room_of(queue)

    def _announce_room_of(self, queue: Queue) -> None:
        if queue.starved and queue.room:
            queue.starved = False
            self._starving.discard(queue)
            self._effects.append(Room(queue))

    def failed(self, description: str) -> None:
        """The batch taken last could not be stored for lack of room: nothing of it happened.

        Publications are refused and transactions that publish are rolled back; what only consumes is tried again.
        """
        tick = self._in_flight
        assert tick is not None
        self._in_flight = None
        newer, self._tick = self._tick, Tick()
        retry = self._tick
        self._lose_ids(tick.ids)
        lost = tick.numbers()
        if tick.chunks or any(duplicate.is_lost(lost) for duplicate in newer.duplicates):
            # What came meanwhile may need what is lost: it is undone too.
            self._lose_ids(newer.ids)
            lost |= newer.numbers()
            tick.append(newer)
            newer = Tick()
        if tick.chunks:
            self._spoil(tick, description)
        rolled_back = {
            transaction.id: (token, transaction)
            for token, transaction, commits in tick.discharges
            if commits
            and (
                transaction.sends
                or transaction.buries
                or any(duplicate.is_lost(lost) for duplicate in transaction.duplicates)
            )
        }
        self._undo(tick, retry, rolled_back.keys(), description)
        if tick.released:
            retry.released = [seq for seq in tick.released if seq in self._scheduled.releasing]
        self._stages_failed(tick, description)
        self._undo_duplicates(tick, retry, lost, rolled_back.keys(), description)
        retry.marks = tick.marks
        retry.left = tick.left
        retry.forgotten = tick.forgotten
        retry.ended = tick.ended
        retry.deleted = tick.deleted
        retry.created = tick.created
        for message in tick.returned:
            retry.returned.append(message)
        retry.kept = tick.kept
        retry.acknowledged = tick.acknowledged
        retry.discharges = [d for d in tick.discharges if d[1].id not in rolled_back]
        stay = [message for _, transaction in rolled_back.values() for _, message in transaction.consumed]
        # By their places: who began to select knew of some by these only.
        kept = {(message.queue, message.seq) for message in (*retry.returned, *stay)}
        retry.gone = [message for message in tick.gone if (message.queue, message.seq) not in kept]
        retry.passed = tick.passed
        for token, transaction in rolled_back.values():
            self._committing.discard(transaction.id)
            for _, message in transaction.consumed:
                enter(message, REFUSE)
                message.queue.consumed -= 1
                message.queue.bytes += message.size
            self._give_up(transaction, "failed")
            self._effects.append(DischargeRefused(token, FULL, description))
        for asked in [d for d in (*tick.discharges, *newer.discharges) if d[1].id in rolled_back]:
            if asked[1] is not rolled_back[asked[1].id][1]:
                self._effects.append(DischargeRefused(asked[0], ROLLED_BACK, description))
        newer.discharges = [d for d in newer.discharges if d[1].id not in rolled_back]
        newer.facts = [fact for fact in newer.facts if not isinstance(fact, QueueMarked)]
        retry.append(newer)
        retry.facts = [self._recounted(fact) for fact in retry.facts]
        staged = {queue for stage in tick.stages for queue, _, _ in stage.runs}
        for queue in {message.queue for message in tick.stored} | self._queues_of(tick) | staged:
            self._dispatch(queue)
        for queue in list(self._starving):
            self._announce_room_of(queue)
        self._show_early()

    def _queues_of(self, tick: Tick) -> set[Queue]:
        return {message.queue for publication in tick.published for message in publication.copies}

    def _recounted(self, fact: AnyFact) -> AnyFact:
        """The fact, if what it counts still counts after messages that it had counted were refused."""
        if not isinstance(fact, QueueDeleted):
            return fact
        node = self._by_number[fact.queue]
        return QueueDeleted(node.id, node.name, node.depth if isinstance(node, Queue) else 0)

    def _undo(self, tick: Tick, retry: Tick, rolled_back: Collection[bytes], description: str) -> None:
        """Take back what the facts of a failed tick announced, fact by fact; the rest is to be tried again."""
        stored, published, moved = iter(tick.stored), iter(tick.published), iter(tick.moved)
        stay = _staying(tick, rolled_back)
        for fact in tick.facts:
            match fact:
                case MessageStored():
                    message = next(stored)
                    _undo_copy(message)
                    if message.queue.is_schedule:
                        self._scheduled.not_stored(message.seq)
                    # What was moved and found no room goes back to where it was, below.
                    if fact.origin is None and not fact.txn:
                        self._refuse(message.token, fact, description)
                case MessagePublished():
                    publication = next(published)
                    for message in publication.copies:
                        _undo_copy(message)
                    topic = self._by_number.get(fact.topic)
                    if isinstance(topic, Topic) and fact.subscriptions:
                        topic.stored -= 1
                    if fact.origin is None and not fact.txn:
                        self._refuse(publication.token, fact, description)
                case MessageConsumed(txn=txn) | TransactionCommitted(txn=txn) if txn in rolled_back:
                    pass
                case MessageTaken(queue=queue, seq=seq) if (queue, seq) in stay:
                    pass
                case MessageDeadLettered(dead_queue=to) | MessageMoved(to_queue=to) if to:
                    message = next(moved)
                    message.queue.consumed -= 1
                    message.queue.bytes += message.size
                    if message.queue.is_schedule:
                        self._scheduled.releasing.discard(message.seq)
                    else:
                        # Its application may have had it, and rejected it.
                        message.flagged = message.flagged or message.presented
                        message.presented = False
                        retry.give_back(message)
                        if self._detailed and isinstance(fact, MessageDeadLettered):
                            # Nothing else says that its consumer does not have it any more.
                            flagged = message.flagged or message.count > 0
                            retry.facts.append(MessageReleased(fact.queue, fact.seq, fact.consumer, flagged))
                case (
                    QueueMarked()
                    | MessageReturned(cause="carried")
                    | DuplicateIdKept()
                    | RunStored()
                    | BatchPublished()
                    | MessageOfFlow()
                ):
                    pass  # Marks are made anew; what would have carried a count, had an id or a flow, is not stored.
                case DuplicateDropped() | DuplicateIdDropped():
                    pass  # `_undo_duplicates` looks at each.
                case (
                    # What needs no room is true all the same, and is tried again.
                    EpochBegan()
                    | ServingBegan()
                    | EpochEnded()
                    | QueueCreated()
                    | QueueDeleted()
                    | QueuePaused()
                    | QueueGrouped()
                    | ProducerRegistered()
                    | ProducerForgotten()
                    | ConsumerAttached()
                    | MessageConsumed()
                    | MessageReturned()
                    | MessagePresented()
                    | MessageDeadLettered()
                    | MessageMoved()
                    | DispatchMarked()
                    | NumberRefused()
                    | TransactionCommitted()
                    | TransactionRolledBack()
                    | MessageTaken()
                    | MessageDelivered()
                    | MessageSeen()
                    | MessageReleased()
                    | MessagesAssigned()
                    | AssignmentAcknowledged()
                    | AssignmentFenced()
                ):
                    retry.facts.append(fact)
                case _:
                    assert_never(fact)

    def _undo_duplicates(
        self, tick: Tick, retry: Tick, lost: set[tuple[int, int]], rolled_back: Collection[bytes], description: str
    ) -> None:
        """Duplicates of what could not be stored are refused with it, the others tried again."""
        for duplicate in tick.duplicates:
            fact = duplicate.fact
            if isinstance(fact, DuplicateIdDropped) and fact.txn in rolled_back:
                continue
            if duplicate.is_lost(lost):
                self._refuse(duplicate.token, fact, description)
            else:
                retry.facts.append(fact)
                retry.duplicates.append(duplicate)

    def _refuse(
        self,
        token: Any,
        fact: MessageStored | MessagePublished | DuplicateDropped | DuplicateIdDropped,
        description: str,
    ) -> None:
        if fact.producer:
            producer = next((p for p in self._producers.values() if p.id == fact.producer), None)
            if producer is not None:
                producer.refuse(fact.number)
            self._tick.facts.append(NumberRefused(fact.producer, fact.number))
        if token is not None:
            self._effects.append(Refuse(token, FULL, description))

    def mark_queues(self) -> None:
        """Record the high-water marks of the queues and topics that moved since the last time."""
        for queue in self.queues.values():
            marks = (queue.stored, queue.consumed)
            if queue.recorded != marks:
                queue.recorded = marks
                self._tick.facts.append(QueueMarked(queue.id, queue.main.last_seq, queue.stored, queue.consumed))
        for topic in self.topics.values():
            if topic.recorded != topic.stored:
                topic.recorded = topic.stored
                # Which bodies are gone only the store knows: of a topic nothing is said to be consumed.
                self._tick.facts.append(QueueMarked(topic.id, topic.last_seq, topic.stored, 0))

    def begin_serving(self, now_us: int, cause: str, detection_us: int) -> None:
        """Clients are answered from here on; see `ServingBegan`."""
        self._tick.facts.append(ServingBegan(now_us, cause, detection_us))

    def end(self, reason: str) -> None:
        """The broker stops cleanly; what follows is refused by the shell."""
        for transaction in list(self._transactions.values()):
            self.roll_back(transaction, "disconnect")
        self._record_presented(self._presented_before + self._presented)
        self.mark_queues()
        self._tick.facts.append(EpochEnded(reason))

    def _gather_marks(self, tick: Tick) -> None:
        """Raise dispatch marks for what consumers may be given once this tick is durable."""
        queues = self._unmarked
        queues.update(message.queue for message in tick.stored)
        for publication in tick.published:
            queues.update(message.queue for message in publication.copies)
        consumed_from = self._consumed_from
        for queue in queues | consumed_from:
            if queue.deleted or not queue.consumers:
                continue
            for lane in queue.order:
                wanted = mark_wanted(lane, ahead=queue in consumed_from)
                if wanted > lane.mark_pending:
                    lane.mark_pending = wanted
                    tick.facts.append(DispatchMarked(queue.id, wanted))
                    tick.marks.append((queue, wanted))
        self._unmarked = set()
        self._consumed_from = set()


def _staying(tick: Tick, rolled_back: Collection[bytes]) -> set[tuple[int, int]]:
    """Places that messages do not leave after all, because the tick failed."""
    stay = set()
    for fact in tick.facts:
        match fact:
            case MessageConsumed(txn=txn) if txn in rolled_back:
                stay.add((fact.queue, fact.seq))
            case MessageDeadLettered(dead_queue=to) | MessageMoved(to_queue=to) if to:
                stay.add((fact.queue, fact.seq))
    return stay


def _undo_copy(message: Message) -> None:
    queue = message.queue
    queue.stored -= 1
    queue.bytes -= message.size
    # Nobody need wait for it to become durable any more.
    lane = queue.lane(message.seq)
    lane.visible_seq = max(lane.visible_seq, message.seq)

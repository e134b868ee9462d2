"""The broker: commands in, facts and effects out; here, how facts become durable and then visible.

1. A command is a method call. It changes what the heap knows, adds facts to the current commit, and effects that
   need none.
2. `take_batch` hands the facts out to be committed; `committed` makes them visible; `failed` undoes what they
   announced. Nothing that depends on a fact is visible before `committed`: durable first, visible second.
3. Time is an argument, in microseconds. There is no chance and no I/O; the archive is read as of the last commit.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, assert_never

from legato import limits
from legato.core.assignments import Assigning
from legato.core.browsers import Browsing
from legato.core.commit import Commit
from legato.core.dispatch import mark_wanted
from legato.core.drop_oldest import Capacity
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
from legato.core.staged_batches import Staging
from legato.core.topics import Topic
from legato.core.transactions import ROLLED_BACK, Transactions

__all__ = ["FULL", "Broker"]


class Broker(Transactions, Staging, Browsing, Capacity, Assigning):
    """The state machine of one epoch; see `State` for its arguments."""

    def take_batch(self, now_us: int) -> Batch | None:
        """What must be committed next, or None. Only one batch is out at a time."""
        if self._kernel.in_flight is not None:
            return None
        self._kernel.now_us = now_us
        commit = self._kernel.gathering
        self._gather_marks(commit)
        if not commit:
            return None
        self._kernel.gathering = Commit()
        self._kernel.in_flight = commit
        return commit.batch(self._kernel.epoch, now_us, self._kernel.steady.now_us)

    @property
    def tick_is_full(self) -> bool:
        """Whether so much waits for the next commit that publishers should be slowed."""
        commit = self._kernel.gathering
        return len(commit.facts) >= limits.BATCH_FACTS_MAX or commit.body_bytes >= limits.BATCH_BYTES_MAX

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be committed or for a commit to end."""
        return self._kernel.in_flight is None and not self._kernel.gathering

    def committed(self, now_us: int) -> None:
        """The batch taken last is durable: its consequences become visible."""
        commit = self._kernel.in_flight
        assert commit is not None
        self._kernel.now_us = now_us
        self._kernel.in_flight = None
        touched: set[Queue] = set()
        confirms: list[Any] = []
        told: list[Any] = []
        for duplicate in commit.duplicates:
            if duplicate.token is not None:
                (told if duplicate.told else confirms).append(duplicate.token)
        self._ids_committed(commit.ids)
        for queue, seq in commit.marks:
            lane = queue.lane(seq)
            lane.mark = max(lane.mark, seq)
            touched.add(queue)
        # Before what was stored by itself: a window that reaches up to that would pass over a run that is before it.
        touched |= self._stages_committed(commit)
        for message in commit.stored:
            queue = message.queue
            if queue not in touched:
                touched.add(queue)
            queue.lanes[message.seq >> LANE_SHIFT].append(message)
            if (token := message.token) is not None:
                confirms.append(token)
                message.token = None
        for publication in commit.published:
            for message in publication.copies:
                message.queue.lanes[message.seq >> LANE_SHIFT].append(message)
                touched.add(message.queue)
            if publication.token is not None:
                confirms.append(publication.token)
        for message in commit.gone:
            message.queue.unclaim(message.seq)
        for lane, run in commit.passed:
            lane.release_run(run)
        for message in commit.kept:
            message.queue.returning -= 1
            touched.add(message.queue)
        for message in commit.returned:
            message.queue.returning -= 1
            message.queue.put_back(message)
            touched.add(message.queue)
        effects = self._kernel.effects
        if confirms:
            effects.append(Confirm(confirms))
        if told:
            effects.append(ConfirmDuplicates(told))
        if commit.acknowledged:
            effects.append(ConfirmAcknowledged(commit.acknowledged))
        for producer in commit.left:
            if producer.links == 0 and self._producers.get(producer.name) is producer:
                del self._producers[producer.name]
        self._producers_forgotten(commit)
        for number in commit.deleted:
            self._by_number.pop(number, None)
            self._windows.pop(number, None)
        for token, transaction, _ in commit.discharges:
            self._committing.discard(transaction.id)
            self._settle_sends(transaction, transaction.told)
            effects.append(Discharged(token))
        if self._schedule is not None:
            self._schedule_committed(self._schedule, commit)
        for queue in touched:
            if queue.limited:
                self._enforce(queue)
            self._dispatch(queue)
        self._announce_room(commit)
        self._show_early()

    def _announce_room(self, commit: Commit) -> None:
        """Producers that wait are told when what they wait for has left."""
        for fact in commit.facts if self._starving else ():
            if isinstance(fact, MessageConsumed | MessageDeadLettered | MessageMoved | MessagesAssigned):
                queue = self._by_number.get(fact.queue)
                if isinstance(queue, Queue):
                    self._announce_room_of(queue)

    def _announce_room_of(self, queue: Queue) -> None:
        if queue.starved and queue.room:
            queue.starved = False
            self._starving.discard(queue)
            self._kernel.emit(Room(queue))

    def failed(self, description: str) -> None:
        """The batch taken last could not be stored for lack of room: nothing of it happened.

        Publications are refused and transactions that publish are rolled back; what only consumes is tried again.
        """
        commit = self._kernel.in_flight
        assert commit is not None
        self._kernel.in_flight = None
        newer, self._kernel.gathering = self._kernel.gathering, Commit()
        retry = self._kernel.gathering
        self._lose_ids(commit.ids)
        lost = commit.numbers()
        if commit.chunks or any(duplicate.is_lost(lost) for duplicate in newer.duplicates):
            # What came meanwhile may need what is lost: it is undone too.
            self._lose_ids(newer.ids)
            lost |= newer.numbers()
            commit.append(newer)
            newer = Commit()
        if commit.chunks:
            self._spoil(commit, description)
        rolled_back = {
            transaction.id: (token, transaction)
            for token, transaction, commits in commit.discharges
            if commits
            and (
                transaction.sends
                or transaction.buries
                or any(duplicate.is_lost(lost) for duplicate in transaction.duplicates)
            )
        }
        self._undo(commit, retry, rolled_back.keys(), description)
        if commit.released:
            retry.released = [seq for seq in commit.released if seq in self._scheduled.releasing]
        self._stages_failed(commit, description)
        self._undo_duplicates(commit, retry, lost, rolled_back.keys(), description)
        retry.marks = commit.marks
        retry.left = commit.left
        retry.forgotten = commit.forgotten
        retry.ended = commit.ended
        retry.deleted = commit.deleted
        retry.created = commit.created
        for message in commit.returned:
            retry.returned.append(message)
        retry.kept = commit.kept
        retry.acknowledged = commit.acknowledged
        retry.discharges = [d for d in commit.discharges if d[1].id not in rolled_back]
        stay = [message for _, transaction in rolled_back.values() for _, message in transaction.consumed]
        # By their places: who began to select knew of some by these only.
        kept = {(message.queue, message.seq) for message in (*retry.returned, *stay)}
        retry.gone = [message for message in commit.gone if (message.queue, message.seq) not in kept]
        retry.passed = commit.passed
        for token, transaction in rolled_back.values():
            self._committing.discard(transaction.id)
            for _, message in transaction.consumed:
                enter(message, REFUSE)
                message.queue.consumed -= 1
                message.queue.bytes += message.size
            self._give_up(transaction, "failed")
            self._kernel.emit(DischargeRefused(token, FULL, description))
        for asked in [d for d in (*commit.discharges, *newer.discharges) if d[1].id in rolled_back]:
            if asked[1] is not rolled_back[asked[1].id][1]:
                self._kernel.emit(DischargeRefused(asked[0], ROLLED_BACK, description))
        newer.discharges = [d for d in newer.discharges if d[1].id not in rolled_back]
        newer.facts = [fact for fact in newer.facts if not isinstance(fact, QueueMarked)]
        retry.append(newer)
        retry.facts = [self._recounted(fact) for fact in retry.facts]
        staged = {queue for stage in commit.stages for queue, _, _ in stage.runs}
        for queue in {message.queue for message in commit.stored} | self._queues_of(commit) | staged:
            self._dispatch(queue)
        for queue in list(self._starving):
            self._announce_room_of(queue)
        self._show_early()

    def _queues_of(self, commit: Commit) -> set[Queue]:
        return {message.queue for publication in commit.published for message in publication.copies}

    def _recounted(self, fact: AnyFact) -> AnyFact:
        """The fact, if what it counts still counts after messages that it had counted were refused."""
        if not isinstance(fact, QueueDeleted):
            return fact
        node = self._by_number[fact.queue]
        return QueueDeleted(node.id, node.name, node.depth if isinstance(node, Queue) else 0)

    def _undo(self, commit: Commit, retry: Commit, rolled_back: Collection[bytes], description: str) -> None:
        """Take back what the facts of a failed commit announced, fact by fact; the rest is to be tried again."""
        stored, published, moved = iter(commit.stored), iter(commit.published), iter(commit.moved)
        stay = _staying(commit, rolled_back)
        for fact in commit.facts:
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
                        if self._kernel.detailed and isinstance(fact, MessageDeadLettered):
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
        self,
        commit: Commit,
        retry: Commit,
        lost: set[tuple[int, int]],
        rolled_back: Collection[bytes],
        description: str,
    ) -> None:
        """Duplicates of what could not be stored are refused with it, the others tried again."""
        for duplicate in commit.duplicates:
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
            self._kernel.record(NumberRefused(fact.producer, fact.number))
        if token is not None:
            self._kernel.emit(Refuse(token, FULL, description))

    def mark_queues(self) -> None:
        """Record the high-water marks of the queues and topics that moved since the last time."""
        for queue in self.queues.values():
            marks = (queue.stored, queue.consumed)
            if queue.recorded != marks:
                queue.recorded = marks
                self._kernel.record(QueueMarked(queue.id, queue.main.last_seq, queue.stored, queue.consumed))
        for topic in self.topics.values():
            if topic.recorded != topic.stored:
                topic.recorded = topic.stored
                # Which bodies are gone only the store knows: of a topic nothing is said to be consumed.
                self._kernel.record(QueueMarked(topic.id, topic.last_seq, topic.stored, 0))

    def begin_serving(self, now_us: int, cause: str, detection_us: int) -> None:
        """Clients are answered from here on; see `ServingBegan`."""
        self._kernel.record(ServingBegan(now_us, cause, detection_us))

    def end(self, reason: str) -> None:
        """The broker stops cleanly; what follows is refused by the shell."""
        for transaction in list(self._transactions.values()):
            self.roll_back(transaction, "disconnect")
        self._record_presented(self._presented_before + self._presented)
        self.mark_queues()
        self._kernel.record(EpochEnded(reason))

    def _gather_marks(self, commit: Commit) -> None:
        """Raise dispatch marks for what consumers may be given once this commit is durable."""
        queues = self._unmarked
        queues.update(message.queue for message in commit.stored)
        for publication in commit.published:
            queues.update(message.queue for message in publication.copies)
        consumed_from = self._consumed_from
        for queue in queues | consumed_from:
            if queue.deleted or not queue.consumers:
                continue
            for lane in queue.order:
                wanted = mark_wanted(lane, ahead=queue in consumed_from)
                if wanted > lane.mark_pending:
                    lane.mark_pending = wanted
                    commit.facts.append(DispatchMarked(queue.id, wanted))
                    commit.marks.append((queue, wanted))
        self._unmarked = set()
        self._consumed_from = set()


def _staying(commit: Commit, rolled_back: Collection[bytes]) -> set[tuple[int, int]]:
    """Places that messages do not leave after all, because the commit failed."""
    stay = set()
    for fact in commit.facts:
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

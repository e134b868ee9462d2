"""The broker: commands in, facts and effects out. This module begins and ends commits.

1. A command is a method call. It changes what the heap knows, adds facts to the current commit, and effects that
   need none.
2. `take_batch` hands the facts out to be committed; `committed` makes them visible; `failed` undoes what they
   announced. Nothing that depends on a fact is visible before `committed`: durable first, visible second.
3. Time is an argument, in microseconds. There is no chance and no I/O; the archive is read as of the last commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, assert_never

from legato import limits
from legato.core.administration import Administration
from legato.core.assignments import Assignments
from legato.core.backpressure import Backpressure
from legato.core.browsers import Browsers
from legato.core.commit import Commit
from legato.core.dead_letters import DeadLetters
from legato.core.deletion import Deletion
from legato.core.directory import Directory
from legato.core.dispatch_modes import DispatchModes
from legato.core.dispatcher import Dispatcher
from legato.core.drop_oldest import DropOldest
from legato.core.duplicates import Duplicates
from legato.core.effects import (
    Confirm,
    ConfirmAcknowledged,
    ConfirmDuplicates,
    Discharged,
    DischargeRefused,
    Effect,
    Refuse,
)
from legato.core.expiry import Expiry
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
from legato.core.kernel import Kernel
from legato.core.lanes import LANE_SHIFT
from legato.core.message import Message
from legato.core.message_states import REFUSE, enter
from legato.core.numbered_producers import NumberedProducers
from legato.core.presentations import Presentations
from legato.core.publishing import Publisher
from legato.core.queues import Queue
from legato.core.receivers import Receivers
from legato.core.records import Archive, Batch, Bodies, Meta
from legato.core.redelivery import Redelivery
from legato.core.refusals import FULL
from legato.core.reservations import Reservations
from legato.core.router import Router
from legato.core.scheduled_deliveries import ScheduledDeliveries
from legato.core.settings import DEFAULT_SETTINGS, AddressSettings
from legato.core.settlement import Settlement
from legato.core.staged_batches import StagedBatches
from legato.core.subscriptions import Subscriptions
from legato.core.temporaries import Temporaries
from legato.core.topics import Topic
from legato.core.transaction import OpenTransactions
from legato.core.transactions import ROLLED_BACK, Transactions
from legato.core.uploads import Uploads

__all__ = ["FULL", "Broker"]


class Broker:
    """The state machine of one epoch.

    Its commands are those of its parts: `broker.publisher.publish(...)`, `broker.transactions.declare(peer)`. Here they
    are built, each from the kernel and the parts under it; and here commits begin and end.

    Args:
        archive: committed state, read when a queue, producer or outcome is first asked for, or a window loaded.
        meta: what `Store.begin_epoch` returned.
        bodies: what reads messages' bytes for us.
        settings: the settings of an address.
        chance: a number in [0, 1), another one each time.
        turn_ms: a clock that tells how long the shell's turn has taken; one that stands still sets no bound.
        detailed: whether the ledger is to show each delivery.
        reconnect_timeout_s: how long temporary things of earlier epochs wait for their clients (CONTRACT B21).
    """

    def __init__(
        self,
        archive: Archive,
        meta: Meta,
        *,
        bodies: Bodies,
        settings: Callable[[str], AddressSettings] = lambda address: DEFAULT_SETTINGS,
        chance: Callable[[], float] = lambda: 0.5,
        turn_ms: Callable[[], int] = lambda: 0,
        detailed: bool = False,
        reconnect_timeout_s: float = limits.RECONNECT_TIMEOUT_S,
    ) -> None:
        kernel = self.kernel = Kernel(archive, meta, bodies=bodies, turn_ms=turn_ms, detailed=detailed)
        self.open_transactions = OpenTransactions()
        modes = self.modes = DispatchModes(kernel, self.open_transactions)
        directory = self.directory = Directory(kernel, modes, settings, meta.next_queue)
        # Senders: what comes in.
        router = self.router = Router(kernel, directory, modes)
        self.backpressure = Backpressure(kernel)
        self.drop_oldest = DropOldest(kernel, router)
        self.duplicates = Duplicates(kernel)
        self.producers = NumberedProducers(kernel, meta.next_producer)
        self.publisher = Publisher(kernel, router, self.producers, self.duplicates)
        self.uploads = Uploads(kernel)
        # Receivers: what goes out, and what comes back.
        dispatcher = self.dispatcher = Dispatcher(kernel, router)
        presentations = self.presentations = Presentations(kernel)
        dead_letters = self.dead_letters = DeadLetters(kernel, directory, router)
        redelivery = self.redelivery = Redelivery(kernel, presentations, router, dispatcher, dead_letters, chance)
        self.reservations = Reservations(kernel, modes, dispatcher, presentations, redelivery)
        self.deletion = Deletion(kernel, directory, self.backpressure, self.reservations)
        self.receivers = Receivers(
            kernel,
            modes,
            self.open_transactions,
            dispatcher,
            redelivery,
            self.reservations,
            self.deletion,
            meta.next_consumer,
        )
        self.settlement = Settlement(kernel, dispatcher, presentations, redelivery, dead_letters)
        self.browsers = Browsers(kernel)
        self.subscriptions = Subscriptions(directory, self.deletion)
        # Both.
        self.transactions = Transactions(kernel, self.open_transactions, router, self.duplicates, self.settlement)
        self.staged_batches = StagedBatches(kernel, modes, dispatcher, self.producers, self.publisher)
        self.administration = Administration(kernel, modes, directory, router, dispatcher)
        self.expiry = Expiry(kernel, directory, router)
        self.scheduled_deliveries = ScheduledDeliveries(kernel, directory, router)
        self.temporaries = Temporaries(kernel, directory, self.deletion, reconnect_timeout_s)
        self.assignments = Assignments(kernel, modes, directory, self.expiry, self.deletion, self.administration)

    @property
    def epoch(self) -> int:
        """The number of the epoch."""
        return self.kernel.epoch

    @property
    def now_us(self) -> int:
        """The time as it was said last."""
        return self.kernel.now_us

    @now_us.setter
    def now_us(self, now_us: int) -> None:
        self.kernel.now_us = now_us

    def take_effects(self) -> list[Effect]:
        """The effects gathered since the last call."""
        return self.kernel.take_effects()

    # -- time --------------------------------------------------------------------------------------------------------

    def tick(self, now_us: int) -> None:
        """Time passed: what was presented is put on record, what is kept, held, due or over goes its way."""
        self.kernel.now_us = now_us
        self.kernel.steady.tick(now_us)
        self.presentations.tick()
        self.reservations.release_overdue()
        self.redelivery.let_go()
        self.scheduled_deliveries.tick()
        self.expiry.tick()
        self.temporaries.tick()

    def go_on(self, now_us: int) -> None:
        """The next slice of what is looked through in slices, as `ScanAgain` asked."""
        self.kernel.now_us = now_us
        self.kernel.scan_began()
        self.dispatcher.go_on()
        self.administration.go_on()
        self.browsers.go_on()

    # -- commits -----------------------------------------------------------------------------------------------------

    def take_batch(self, now_us: int) -> Batch | None:
        """What must be committed next, or None. Only one batch is out at a time."""
        if self.kernel.in_flight is not None:
            return None
        self.kernel.now_us = now_us
        commit = self.kernel.gathering
        self.dispatcher.mark(commit)
        if not commit:
            return None
        self.kernel.gathering = Commit()
        self.kernel.in_flight = commit
        return commit.batch(self.kernel.epoch, now_us, self.kernel.steady.now_us)

    @property
    def tick_is_full(self) -> bool:
        """Whether so much waits for the next commit that publishers should be slowed."""
        commit = self.kernel.gathering
        return len(commit.facts) >= limits.BATCH_FACTS_MAX or commit.body_bytes >= limits.BATCH_BYTES_MAX

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be committed or for a commit to end."""
        return self.kernel.in_flight is None and not self.kernel.gathering

    def committed(self, now_us: int) -> None:
        """The batch taken last is durable: its consequences become visible."""
        commit = self.kernel.in_flight
        assert commit is not None
        self.kernel.now_us = now_us
        self.kernel.in_flight = None
        touched: set[Queue] = set()
        confirms: list[Any] = []
        told: list[Any] = []
        for duplicate in commit.duplicates:
            if duplicate.token is not None:
                (told if duplicate.told else confirms).append(duplicate.token)
        self.duplicates.ids_committed(commit.ids)
        for queue, seq in commit.marks:
            lane = queue.lane(seq)
            lane.mark = max(lane.mark, seq)
            touched.add(queue)
        # Before what was stored by itself: a window that reaches up to that would pass over a run that is before it.
        touched |= self.staged_batches.committed(commit)
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
        effects = self.kernel.effects
        if confirms:
            effects.append(Confirm(confirms))
        if told:
            effects.append(ConfirmDuplicates(told))
        if commit.acknowledged:
            effects.append(ConfirmAcknowledged(commit.acknowledged))
        self.producers.committed(commit)
        for number in commit.deleted:
            self.directory.by_number.pop(number, None)
            self.duplicates.windows.pop(number, None)
        for token, transaction, _ in commit.discharges:
            self.transactions.committing.discard(transaction.id)
            self.transactions.settle_sends(transaction, transaction.told)
            effects.append(Discharged(token))
        self.scheduled_deliveries.committed(commit)
        for queue in touched:
            if queue.limited:
                self.drop_oldest.enforce(queue)
            self.dispatcher.dispatch(queue)
        self.backpressure.announce(commit, self.directory.by_number)
        self.browsers.show_early()

    def failed(self, description: str) -> None:
        """The batch taken last could not be stored for lack of room: nothing of it happened.

        Publications are refused and transactions that publish are rolled back; what only consumes is tried again.
        """
        commit = self.kernel.in_flight
        assert commit is not None
        self.kernel.in_flight = None
        newer, self.kernel.gathering = self.kernel.gathering, Commit()
        retry = self.kernel.gathering
        self.duplicates.lose_ids(commit.ids)
        lost = commit.numbers()
        if commit.chunks or any(duplicate.is_lost(lost) for duplicate in newer.duplicates):
            # What came meanwhile may need what is lost: it is undone too.
            self.duplicates.lose_ids(newer.ids)
            lost |= newer.numbers()
            commit.append(newer)
            newer = Commit()
        if commit.chunks:
            self.transactions.spoil(self.uploads.lose_chunks(commit), description)
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
            retry.released = [seq for seq in commit.released if seq in self.router.schedule.releasing]
        self.staged_batches.failed(commit, description)
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
            self.transactions.committing.discard(transaction.id)
            for _, message in transaction.consumed:
                enter(message, REFUSE)
                message.queue.consumed -= 1
                message.queue.bytes += message.size
            self.transactions.give_up(transaction, "failed")
            self.kernel.emit(DischargeRefused(token, FULL, description))
        for asked in [d for d in (*commit.discharges, *newer.discharges) if d[1].id in rolled_back]:
            if asked[1] is not rolled_back[asked[1].id][1]:
                self.kernel.emit(DischargeRefused(asked[0], ROLLED_BACK, description))
        newer.discharges = [d for d in newer.discharges if d[1].id not in rolled_back]
        newer.facts = [fact for fact in newer.facts if not isinstance(fact, QueueMarked)]
        retry.append(newer)
        retry.facts = [self._recounted(fact) for fact in retry.facts]
        staged = {queue for stage in commit.stages for queue, _, _ in stage.runs}
        for queue in {message.queue for message in commit.stored} | self._queues_of(commit) | staged:
            self.dispatcher.dispatch(queue)
        self.backpressure.announce_all()
        self.browsers.show_early()

    def _queues_of(self, commit: Commit) -> set[Queue]:
        return {message.queue for publication in commit.published for message in publication.copies}

    def _recounted(self, fact: AnyFact) -> AnyFact:
        """The fact, if what it counts still counts after messages that it had counted were refused."""
        if not isinstance(fact, QueueDeleted):
            return fact
        node = self.directory.by_number[fact.queue]
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
                        self.router.schedule.not_stored(message.seq)
                    # What was moved and found no room goes back to where it was, below.
                    if fact.origin is None and not fact.txn:
                        self._refuse(message.token, fact, description)
                case MessagePublished():
                    publication = next(published)
                    for message in publication.copies:
                        _undo_copy(message)
                    topic = self.directory.by_number.get(fact.topic)
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
                        self.router.schedule.releasing.discard(message.seq)
                    else:
                        # Its application may have had it, and rejected it.
                        message.flagged = message.flagged or message.presented
                        message.presented = False
                        retry.give_back(message)
                        if self.kernel.detailed and isinstance(fact, MessageDeadLettered):
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
            self.producers.refuse(fact.producer, fact.number)
        if token is not None:
            self.kernel.emit(Refuse(token, FULL, description))

    def mark_queues(self) -> None:
        """Record the high-water marks of the queues and topics that moved since the last time."""
        for queue in self.directory.queues.values():
            marks = (queue.stored, queue.consumed)
            if queue.recorded != marks:
                queue.recorded = marks
                self.kernel.record(QueueMarked(queue.id, queue.main.last_seq, queue.stored, queue.consumed))
        for topic in self.directory.topics.values():
            if topic.recorded != topic.stored:
                topic.recorded = topic.stored
                # Which bodies are gone only the store knows: of a topic nothing is said to be consumed.
                self.kernel.record(QueueMarked(topic.id, topic.last_seq, topic.stored, 0))

    def begin_serving(self, now_us: int, cause: str, detection_us: int) -> None:
        """Clients are answered from here on; see `ServingBegan`."""
        self.kernel.record(ServingBegan(now_us, cause, detection_us))

    def end(self, reason: str) -> None:
        """The broker stops cleanly; what follows is refused by the shell."""
        self.transactions.roll_back_all("disconnect")
        self.presentations.record_all()
        self.mark_queues()
        self.kernel.record(EpochEnded(reason))


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

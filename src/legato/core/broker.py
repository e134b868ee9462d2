"""The broker: commands in, facts and effects out. This module begins and ends commits.

1. A command is a method call. It changes what the heap knows, adds facts to the current commit, and effects that
   need none.
2. `take_batch` hands the facts out to be committed; `committed` makes them visible; `failed` undoes what they
   announced. Nothing that depends on a fact is visible before `committed`: durable first, visible second.
3. Time is an argument, in microseconds. There is no chance and no I/O; the archive is read as of the last commit.
"""

from __future__ import annotations

from collections.abc import Callable

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
from legato.core.duplicate_records import DroppedDuplicate
from legato.core.duplicates import Duplicates
from legato.core.effects import Effect
from legato.core.expiry import Expiry
from legato.core.facts import EpochEnded, QueueMarked, ServingBegan
from legato.core.kernel import Kernel
from legato.core.numbered_producers import NumberedProducers
from legato.core.outcome import Change, Outcome, RefusedCommit
from legato.core.presentations import Presentations
from legato.core.publishing import Publisher
from legato.core.queues import in_order
from legato.core.receivers import Receivers
from legato.core.records import Archive, Batch, Bodies, Meta
from legato.core.redelivery import Redelivery
from legato.core.reservations import Reservations
from legato.core.router import Router
from legato.core.scheduled_deliveries import ScheduledDeliveries
from legato.core.settings import DEFAULT_SETTINGS, AddressSettings
from legato.core.settlement import Settlement
from legato.core.staged_batches import StagedBatches
from legato.core.subscriptions import Subscriptions
from legato.core.temporaries import Temporaries
from legato.core.transaction import OpenTransactions
from legato.core.transactions import Discharge, Transactions
from legato.core.uploads import Uploads


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
        group: digest of the name of the group of brokers that this one is of; empty if there are no groups.
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
        group: bytes = b"",
        reconnect_timeout_s: float = limits.RECONNECT_TIMEOUT_S,
    ) -> None:
        kernel = self.kernel = Kernel(archive, meta, bodies=bodies, turn_ms=turn_ms, detailed=detailed)
        self._awaits_commit = False
        """Whether work in slices waits until what it added is committed."""
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
        dispatcher = self.dispatcher = Dispatcher(kernel, modes, router, self.drop_oldest)
        presentations = self.presentations = Presentations(kernel)
        dead_letters = self.dead_letters = DeadLetters(kernel, directory, router)
        redelivery = self.redelivery = Redelivery(kernel, presentations, router, dispatcher, dead_letters, chance)
        self.reservations = Reservations(kernel, modes, dispatcher, presentations, redelivery)
        self.deletion = Deletion(kernel, directory, self.duplicates, self.backpressure, self.reservations)
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
        self.transactions = Transactions(
            kernel, self.open_transactions, router, self.duplicates, self.settlement, group
        )
        self.staged_batches = StagedBatches(kernel, modes, dispatcher, self.producers, self.publisher)
        self.administration = Administration(
            kernel, modes, directory, self.backpressure, self.drop_oldest, router, dispatcher
        )
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
        if self.tick_is_full:
            # Where a disk is slow, slices must not pile up in memory, nor become one long commit.
            self._awaits_commit = True
        else:
            self.administration.go_on()
            self.drop_oldest.go_on()
        self.browsers.go_on()

    def _commit_ended(self) -> None:
        """What waited for room in the next commit goes on."""
        if self._awaits_commit:
            self._awaits_commit = False
            self.kernel.scan_again()

    # -- commits -----------------------------------------------------------------------------------------------------

    def take_batch(self, now_us: int) -> Batch | None:
        """The batch to commit next, or None. Only one batch is out at a time."""
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
    def may_wait(self) -> bool:
        """Whether the batch that `take_batch` would return may wait for company: nobody waits for anything in it."""
        kernel, dispatcher = self.kernel, self.dispatcher
        commit = kernel.gathering
        if kernel.in_flight is not None or not commit.is_unawaited or self.backpressure.starving:
            return False
        consumed_from = dispatcher.consumed_from
        dispatcher.mark(commit)
        # Should it wait, what these queues' consumers are about to ask for is reckoned with again.
        dispatcher.consumed_from = consumed_from
        return not commit.changes

    @property
    def tick_is_full(self) -> bool:
        """Whether so much waits for the next commit that publishers should be slowed."""
        commit = self.kernel.gathering
        count = len(commit.facts) + commit.run_messages
        return count >= limits.BATCH_FACTS_MAX or commit.body_bytes >= limits.BATCH_BYTES_MAX

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be committed or for a commit to end."""
        return self.kernel.in_flight is None and not self.kernel.gathering

    def committed(self, now_us: int) -> None:
        """The batch taken last is durable: its consequences become visible."""
        kernel = self.kernel
        commit = kernel.in_flight
        assert commit is not None
        kernel.now_us = now_us
        kernel.in_flight = None
        outcome = Outcome(kernel.effects, commit.queues)
        commit.become_visible(outcome)
        outcome.confirm()
        self.dispatcher.unmarked |= {queue for queue in outcome.unloaded if queue.consumers}
        for queue in in_order(outcome.touched):
            if queue.limited:
                self.drop_oldest.enforce(queue, commit)
            self.dispatcher.dispatch(queue)
        self.backpressure.announce(commit, self.directory.by_number)
        self.browsers.show_early()
        self._commit_ended()

    def failed(self, description: str) -> None:
        """The batch taken last could not be stored for lack of room: nothing of it happened.

        Publications are refused and transactions that publish are rolled back; what only consumes is tried again.
        """
        kernel = self.kernel
        commit, newer = kernel.in_flight, kernel.gathering
        assert commit is not None
        retry = kernel.gathering = Commit()
        kernel.in_flight = None
        refusal, newer = self._begin_refusal(commit, newer, retry, description)
        refusal.undo_stored(commit.stored)
        for change in commit.changes:
            change.refused(refusal)
        retry.facts = [*refusal.facts(), *retry.facts]
        retry.ended += commit.ended
        retry.created += commit.created
        retry.returned += commit.returned
        retry.kept += commit.kept
        retry.acknowledged += commit.acknowledged
        # Who asks for the outcome of a transaction that is rolled back by now hears of it.
        for change in [change for change in newer.changes if isinstance(change, Discharge)]:
            if change.transaction.id in refusal.rolled_back:
                newer.changes.remove(change)
                change.refused(refusal)
        newer.facts = [fact for fact in newer.facts if not isinstance(fact, QueueMarked)]
        retry.append(newer)
        retry.facts = [self.deletion.recounted(fact) for fact in retry.facts]
        for queue in in_order(refusal.queues):
            self.dispatcher.dispatch(queue)
        self.backpressure.announce_all()
        self.browsers.show_early()
        self._commit_ended()

    def _begin_refusal(
        self, commit: Commit, newer: Commit, retry: Commit, description: str
    ) -> tuple[RefusedCommit, Commit]:
        """What is lost; and what came meanwhile and needs none of that."""
        self.duplicates.lose_ids(commit)
        lost = commit.numbers()
        if commit.chunks or any(isinstance(c, DroppedDuplicate) and c.is_lost(lost) for c in newer.changes):
            # What came meanwhile may need what is lost: it is undone too.
            self.duplicates.lose_ids(newer)
            lost |= newer.numbers()
            commit.append(newer)
            newer = Commit()
        if commit.chunks:
            self.transactions.spoil(self.uploads.lose_chunks(commit), description)
        discharges = [change for change in commit.changes if isinstance(change, Discharge)]
        rolled_back: dict[bytes, Change] = {c.transaction.id: c for c in discharges if c.needs_room(lost)}
        refusal = RefusedCommit(
            commit.facts,
            commit.queues,
            lost,
            rolled_back,
            description,
            retry=retry,
            effects=self.kernel.effects,
            producers=self.producers,
            detailed=self.kernel.detailed,
        )
        return refusal, newer

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

"""Commits: one at a time; effects follow once it is durable."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from legato import limits
from legato.core.broker import Broker
from legato.core.records import Batch
from legato.errors import CommitTooLargeError, StoreError, StoreFullError
from legato.server.connections.small_reads import SmallReads
from legato.server.messages.executor import Executor
from legato.server.shell import Peer, Shell
from legato.server.storage.invariant_check import InvariantCheck
from legato.server.storage.maintenance import Upkeep
from legato.store.base import Committer
from legato.store.writer import GroupWriter

log = logging.getLogger("legato.service")

FULL_PAUSE_S = 0.2
"""Between two tries to store what stores no message, on a full disk."""
NO_ROOM = (
    "the store has no room: what is left is for those who consume; free or enlarge its disk, or raise store.map_bytes"
)
"""What producers are told; the log says which store, and what it lacks."""


class Commits:
    """Hands batches to the store's writer, and performs their effects when they are durable.

    Durable first, visible second, here and nowhere else: `submit` hands a batch to the store, `_done` lets the
    world see what it led to. If a commit fails for any reason but lack of room, nothing is retried behind the
    store's back: the epoch ends and the process stops serving.

    Args:
        fatal: is called when the store cannot be used any more.
        observe: is told of each batch that is durable, and how many seconds that took.
        give_up: ends the wait for a batch that may never be stored.
    """

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        executor: Executor,
        store: Committer,
        loop: asyncio.AbstractEventLoop,
        upkeep: Upkeep,
        small_reads: SmallReads,
        fatal: Callable[[StoreError], None],
        invariants: InvariantCheck | None = None,
        observe: Callable[[Batch, float], None] | None = None,
        give_up: Callable[[], None] = lambda: None,
    ) -> None:
        self._shell = shell
        self._broker = broker
        self._executor = executor
        self._loop = loop
        self._upkeep = upkeep
        self._small_reads = small_reads
        self._fatal = fatal
        self._invariants = invariants
        self._observe = observe
        self._give_up = give_up
        self._submitted_s = 0.0
        self._store = store
        self._writer = GroupWriter(store, self._written)
        self.idle = asyncio.Event()
        """Set when nothing is left to be stored."""
        self._gathering = 1
        """The number of the batch that is being gathered."""
        self._until_durable: list[tuple[int, Peer, Callable[[], None]]] = []
        self._company: asyncio.TimerHandle | None = None
        """Until when acknowledgements that nobody waits for may wait for something to be committed with."""
        self._waited = False
        """They have waited for as long as they may."""
        self._waits_for_room = False
        """What is to be stored next stores no message, and there was no room even for that."""
        self._gathers_all = False
        """What peers sent while a commit was out is being handled: the next one takes all of it."""

    def when_durable(self, peer: Peer, then: Callable[[], None]) -> None:
        """Tell `peer` something once everything that was asked so far is durable: at once if it is."""
        if self._broker.idle:
            if not self._executor.performing:
                # Outcomes first, also those that nothing was stored for: a refusal, a duplicate that is known.
                self._executor.perform(self._broker.take_effects())
            then()
            self._shell.touch(peer)
        else:
            self._until_durable.append((self._gathering, peer, then))

    def when_settled(self, peer: Peer, then: Callable[[StoreError | None], None]) -> None:
        """Tell `peer` something once other processes see everything that was asked so far, or why they do not.

        What is durable by the store's journal alone they do not see.
        """

        def tell(error: StoreError | None) -> None:
            if self._shell.may_serve():
                then(error)
                self._shell.advance()

        def settle() -> None:
            try:
                self._writer.checkpoint(lambda error: self._loop.call_soon_threadsafe(tell, error))
            except StoreError as error:
                then(error)

        if self._store.jobs is None:
            self.when_durable(peer, lambda: then(None))
        else:
            self.when_durable(peer, settle)

    def submit(self) -> None:
        """Have what was gathered stored, unless a batch is out already, or what was gathered may wait."""
        if self._gathers_all:
            return
        shell, broker = self._shell, self._broker
        if not (self._waited or shell.ending or self._until_durable) and broker.may_wait:
            if self._company is None:
                self._company = self._loop.call_later(limits.UNAWAITED_WAIT_S, self._wait_no_longer)
            return
        self._waited = False
        if self._company is not None:
            self._company.cancel()
            self._company = None
        while (
            not (shell.stopped or self._waits_for_room)
            and (batch := broker.take_batch(shell.clock.now_us())) is not None
        ):
            self._gathering += 1
            if batch.facts or batch.chunks or batch.ended:
                if self._observe is not None:
                    self._submitted_s = time.perf_counter()
                self._writer.submit(batch)
                if _is_small(batch):
                    self._small_reads.begin()
                return
            self._committed()
            self._executor.perform(broker.take_effects())
        if broker.idle:
            self.idle.set()
            if self._invariants is not None:
                self._invariants.look()

    def _wait_no_longer(self) -> None:
        self._company = None
        self._waited = True
        self._shell.advance()

    def _committed(self) -> None:
        """The batch that was out is durable: who waited for it is told."""
        self._broker.committed(self._shell.clock.now_us())
        if self._until_durable:
            through = self._gathering if self._broker.idle else self._gathering - 1
            due = [waiting for waiting in self._until_durable if waiting[0] <= through]
            self._until_durable = [waiting for waiting in self._until_durable if waiting[0] > through]
            if due:
                # Outcomes first: a link that is detached settles nothing any more.
                self._executor.perform(self._broker.take_effects())
            for _, peer, then in due:
                try:
                    then()
                except Exception as error:
                    # In a turn of its own: it costs this peer its connection, and nobody else an answer.
                    self._loop.call_soon(peer.fail, error)
                else:
                    self._shell.touch(peer)

    def _written(self, batch: Batch, position: int | None, error: StoreError | None) -> None:
        self._loop.call_soon_threadsafe(self._done, batch, error)

    def _done(self, batch: Batch, error: StoreError | None) -> None:
        shell = self._shell
        # Stopped for a while after the commit, it would give out what is another's by now.
        if not shell.may_serve():
            return
        if error is None:
            if self._observe is not None:
                self._observe(batch, time.perf_counter() - self._submitted_s)
            self._committed()
            # First those who wait for it hear of it: once the next commit has begun, its thread and this one compete.
            self._executor.perform(self._broker.take_effects())
            self._executor.flush()
        elif isinstance(error, StoreFullError):
            if isinstance(error, CommitTooLargeError):
                why = str(error)  # Those who send less are welcome.
                log.warning("! a commit is refused: %s", error)
            else:
                why = NO_ROOM
                if self._upkeep.full != NO_ROOM:
                    log.error("! producers are refused: %s", error)
                self._upkeep.full = NO_ROOM
            try:
                self._broker.failed(why)
            except StoreError as fatal:
                self._fatal(fatal)
                return
            # What else the batch held is tried again with the next one.
            self._until_durable = [(self._gathering, peer, then) for _, peer, then in self._until_durable]
            if not (batch.bodies or batch.chunks or batch.runs):
                self._waits_for_room = True
                self._loop.call_later(FULL_PAUSE_S, self._go_on)
        else:
            self._fatal(error)
            return
        self._gathers_all = True
        try:
            self._small_reads.end()
        finally:
            self._gathers_all = False
        shell.advance()

    def _go_on(self) -> None:
        self._waits_for_room = False
        self._shell.advance()

    def close(self) -> None:
        """Nothing more is stored."""
        if not self._writer.idle:
            self._give_up()
        if self._company is not None:
            self._company.cancel()
        self._writer.close()


def _is_small(batch: Batch) -> bool:
    """Whether its commit ends soon, as far as that goes by what it holds."""
    if len(batch.facts) > limits.SMALL_COMMIT_FACTS or batch.chunks or batch.runs:
        return False
    return sum(map(len, batch.bodies)) < limits.JOURNALED_BYTES

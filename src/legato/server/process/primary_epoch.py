"""A primary's epoch, from its begin to its end and the handover."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import time
from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from legato.clock import Clock
from legato.errors import (
    ConfigError,
    FencedError,
    ListenError,
    StoreCorruptError,
    StoreError,
    StoreFormatError,
    StoreFullError,
)
from legato.ha.arbiter import Arbiter
from legato.ha.lease import Lease, Standing
from legato.ha.lock import Holder, StoreLock
from legato.ha.members import list_members
from legato.ha.roles import Role
from legato.quoting import quoted, sentence
from legato.replication.arbiter import LogArbiter
from legato.server.config.configuration import Config
from legato.server.connections.listener import Listener
from legato.server.identity.users import Users
from legato.server.management.takeover_report import STARTED, Takeover
from legato.server.process import standby
from legato.server.process.bound_address import bind_as_primary, listen_error
from legato.server.process.service import Replicated, Service
from legato.server.process.watchdog import Watchdog
from legato.server.storage.fault_injection import open_store
from legato.server.storage.ledger_process import LedgerProcess
from legato.store.former_store import refuse_ledger_ahead, refuse_lost_store
from legato.store.lmdb import LmdbStore
from legato.store.migration import migrate

T = TypeVar("T")

log = logging.getLogger("legato.reign")

FULL_PAUSE_S = 0.5
"""Between two tries to begin an epoch on a full disk."""
PROGRESS_EVERY_S = 1.0
"""How often the service manager hears how far a migration has come."""
PROGRESS_LOG_EVERY_S = 10.0
"""How often the log says so."""


class EpochEnding(StrEnum):
    """Why an epoch ended; the value is what the lock's file says of its last holder."""

    SHUTDOWN = standby.SHUTDOWN
    """The process was told to stop."""
    SWITCHOVER = "switchover"
    """Another broker is to serve."""
    LAPSED = "lapsed"
    """It fenced itself."""
    LOST = "lost"
    """Its lock, or its epoch, is another's."""


class PrimaryEpoch:
    """One epoch of a primary.

    Args:
        delayed: is told again and again why the epoch cannot begin yet, while that takes longer than usual.

    Attributes:
        service: what it runs, once the epoch has begun.
        tls: what its listener speaks, if that is TLS.
    """

    def __init__(
        self,
        config: Config,
        lock: Arbiter,
        clock: Clock,
        read_config: Callable[[], Config],
        watchdog: Watchdog | None = None,
        users: Users | None = None,
        delayed: Callable[[str], object] = lambda why: None,
    ) -> None:
        self.service: Service | None = None
        self.tls: ssl.SSLContext | None = None
        self._delayed = delayed
        self._config = config
        self._lock = lock
        self._replica = lock if isinstance(lock, LogArbiter) else None
        """This broker's, if the group has a replicated log."""
        self._clock = clock
        self._read_config = read_config
        self._watchdog = watchdog or Watchdog(0)
        self._users = users
        self._listener: Listener | None = None
        self._failure: StoreError | None = None
        self._has_foreign_ledger = False
        """Whether what is in the ledger's directory is not of this store."""
        self._over: asyncio.Future[EpochEnding] = asyncio.get_running_loop().create_future()

    async def run(
        self,
        takeover: Takeover,
        tls: ssl.SSLContext | None,
        began: Callable[[int], None],
        leaves: Callable[[], None] = lambda: None,
    ) -> EpochEnding:
        """Begin an epoch, serve until it is over, and let go of the store and of its lock.

        Args:
            takeover: how the lock was won.
            began: is called with the epoch once clients are served.
            leaves: is called when nothing more is taken from clients.

        Raises:
            ListenError: the address is another's, and this is no takeover, or another backup can serve; no epoch has
                begun, unless somebody took the address at that moment.
            FencedError: the lock became another's before the epoch had begun.
            StoreError: the store cannot be used.
        """
        won = time.monotonic()
        # Before anything is done to the store: an epoch of who cannot listen would only end its predecessor's.
        bound = await self._bind(takeover)
        if bound is None:
            return self._leave_early()
        try:
            return await self._reign(takeover, tls, won, bound, began, leaves)
        finally:
            bound.close()

    async def _reign(
        self,
        takeover: Takeover,
        tls: ssl.SSLContext | None,
        won: float,
        bound: asyncio.Server,
        began: Callable[[int], None],
        leaves: Callable[[], None],
    ) -> EpochEnding:
        config, self.tls = self._config, tls
        # Beside the loop: who is stopped in the middle of writing to the store holds up the epoch, not our health.
        store = await self._open_store()
        if store is None:
            return self._leave_early()
        try:
            self._refuse_alone(store)
            self._check_ledger(store, takeover)
            commits = self._replica.commits if self._replica is not None else None
            begin_epoch = (commits or store).begin_epoch
            meta = await self._when_there_is_room(
                lambda: begin_epoch(config.advertised, self._clock.now_us()), self._say_who_writes
            )
            if meta is None:
                self._close(store)
                return self._leave_early()
            lease = self._lease()
            expected = self._lock.predecessor.connections if self._lock.predecessor else 0
            service = self.service = Service(
                config,
                store,
                meta,
                self._clock,
                lease,
                self,
                self._read_config,
                expected,
                self._users,
                self._replicated(),
            )
            self._lock.describe(meta.epoch, config.advertised, service.handshake.backup_token)
            self._listener = self._listen(service, bound, tls)
            takeover.takeover_ms = round((time.monotonic() - won) * 1000, 1)
            service.takeover = takeover
            service.broker.begin_serving(self._clock.now_us(), takeover.cause, round(takeover.detection_ms * 1000))
            began(meta.epoch)
            self._watchdog.start()
            log.info("= epoch %s began after %.1f ms", meta.epoch, takeover.takeover_ms)
            scheme = "amqp" if tls is None else "amqps"
            log.info("= clients are served at %s, with %s", quoted(config.server.listen), scheme)
            ledger = self._start_ledger(service)
            try:
                ending = await self._over
            finally:
                self._watchdog.stop()
                self._close_listener()
            leaves()
            await self._end(service, store, ledger, ending)
            if self._failure is not None:
                raise self._failure
        finally:
            self._close(store)
        return ending

    def _replicated(self) -> Replicated | None:
        replica = self._replica
        if replica is None or replica.commits is None:
            return None
        return Replicated(replica.commits, replica.commits.give_up, replica.status, replica.commits.record_bytes_max)

    def _lease(self) -> Lease:
        ha, replica = self._config.ha, self._replica
        term_ms = round(ha.activation_interval_s * 1000) if ha.self_fencing or replica is not None else None
        sure_for_s = replica.sure_for_s if replica is not None else None
        return Lease(self._lock.still_mine, term_ms, self._clock.monotonic_ms(), sure_for_s)

    def _close(self, store: LmdbStore) -> None:
        """Close the store, unless it is a replica, which follows the log in all roles."""
        if self._replica is None:
            store.close()

    async def _open_store(self) -> LmdbStore | None:
        """The store, migrated if it has a former format; None if we were told to stop before there was room for it."""
        section, directory = self._config.store, self._config.store_directory
        if self._replica is not None:
            return self._replica.store
        self._refuse_lost_store()
        try:
            return await self._when_there_is_room(lambda: open_store(directory, section), self._say_who_writes)
        except StoreFormatError as error:
            if not error.former:
                raise

        progress = ["beginning"]

        def migrate_store() -> bool:
            migrate(directory, map_bytes=section.map_bytes, progress=lambda said: progress.__setitem__(0, said))
            return True

        # Beside the loop, which is to answer those who ask for our health.
        def say_how_far() -> str:
            return f"migrating the store: {progress[0]}"

        self._delayed(say_how_far())
        if not await self._when_there_is_room(migrate_store, say_how_far):
            return None
        return await self._when_there_is_room(lambda: open_store(directory, section), self._say_who_writes)

    def _refuse_lost_store(self) -> None:
        """Begin no new store where another one was.

        Raises:
            StoreCorruptError: its file is lost.
        """
        last = self._lock.predecessor or Holder(0)
        known = self._lock.known_epoch if isinstance(self._lock, StoreLock) else 0
        try:
            refuse_lost_store(self._config.store_directory, self._config.ledger_directory, last.epoch, known)
        except StoreCorruptError:
            if epoch := last.epoch or known:  # The next start is to know it, too, and another backup.
                self._lock.describe(epoch, last.listen)
                self._lock.release(last.left or "lost its store")
            raise

    def _refuse_alone(self, store: LmdbStore) -> None:
        """Serve no store of a replicated log without that: beside the group, nobody else has what this one confirms.

        Raises:
            ConfigError: it is one.
        """
        if self._replica is None and store.meta().applied is not None:
            raise ConfigError(
                f"the store in {store.path} belongs to a replicated log, and --replicate (replication.servers) is not "
                "given: start it with the servers of that log. To serve it alone from now on, as a restored copy or "
                f"the last broker of its group: legato replica detach {store.path}"
            )

    def _check_ledger(self, store: LmdbStore, takeover: Takeover) -> None:
        """See that the ledger is this store's. After a takeover clients come first: then no facts go, nor are exported.

        Raises:
            ConfigError: it is not, and whoever started this broker looks.
        """
        if not self._writes_ledger:
            return
        directory, ledger = self._config.store_directory, self._config.ledger_directory
        try:
            refuse_ledger_ahead(directory, store.log_range()[1], ledger)
        except ConfigError as error:
            if takeover.cause == STARTED and self._replica is None:
                raise
            self._has_foreign_ledger = True
            log.error("! the ledger is not written: %s", error)
        except OSError as error:
            if takeover.cause == STARTED:
                raise
            # Its exporter looks again and again, and whose ledger it is, too.
            log.error("! the ledger in %s cannot be read: %s", quoted(ledger), sentence(error.strerror or str(error)))

    @property
    def _writes_ledger(self) -> bool:
        """Whether the store's facts go to a ledger."""
        return self._config.ledger.enabled and self._config.store.log_facts and LedgerProcess.available()

    def _say_who_writes(self) -> str:
        """Why an epoch does not begin, which takes no time but for this."""
        others = [
            f"process {member.pid} ({quoted(member.role)} at {quoted(member.listen)})"
            for member in list_members(self._config.store_directory)
            if member.pid != os.getpid() and member.role in (Role.PRIMARY, Role.HANDING_OVER)
        ]
        who = " or ".join(others) or "another process"
        return f"{who} is stopped, or hangs, in the middle of writing to the store: end it (kill -9), or let it go on"

    async def _beside_loop(self, work: Callable[[], T], say: Callable[[], str]) -> T:
        """Result of `work`; `say` tells, while it takes time, what it is at."""
        working = asyncio.ensure_future(asyncio.to_thread(work))
        logged_s = 0.0
        while not (await asyncio.wait([working], timeout=PROGRESS_EVERY_S))[0]:
            said = say()
            self._delayed(said)
            if time.monotonic() - logged_s >= PROGRESS_LOG_EVERY_S:
                logged_s = time.monotonic()
                log.info("= %s", said)
        return working.result()

    async def _when_there_is_room(self, begin: Callable[[], T], say: Callable[[], str] | None = None) -> T | None:
        """Result of `begin`, as soon as the disk has room; None if we were told to stop before.

        Args:
            say: tells what `begin`, which may take long and is done in a thread, is at; None: it is done at once.
        """
        told = False
        while True:
            if not self._lock.still_mine():
                raise FencedError(self._lost)
            try:
                return begin() if say is None else await self._beside_loop(begin, say)
            except StoreFullError as error:
                if not await self._wait_for(f"nobody is served until there is room: {error}", told=told):
                    return None
            told = True

    async def _bind(self, takeover: Takeover) -> asyncio.Server | None:
        """The sockets to serve at; None if we were told to stop before the address was free.

        A backup that ended where another program has its address would leave the store without a broker, though the
        address may be free in a moment. One that was only just started ends: whoever started it looks.
        """
        told = False
        while True:
            if not self._lock.still_mine():
                raise FencedError(self._lost)
            try:
                return await bind_as_primary(self._config, self._lock)
            except ListenError as error:
                if takeover.cause == STARTED or self._another_can_serve():
                    raise
                said = f"nobody is served until the address of this broker is free: {error}"
                if not await self._wait_for(said, told=told):
                    return None
            told = True

    def _another_can_serve(self) -> bool:
        """Whether a backup waits that has no trouble; those of a replicated log are on machines of their own."""
        if self._replica is not None:
            return any(not each.away and not each.trouble for each in self._replica.status().backups)
        waiting = (each for each in list_members(self._config.store_directory) if each.pid != os.getpid())
        return any(each.role in (Role.BACKUP, Role.SEEKING) and not each.trouble for each in waiting)

    async def _wait_for(self, what: str, *, told: bool) -> bool:
        """Say, once, what the epoch waits for, and wait a little; False if we were told to stop instead."""
        if not told:
            log.error("! %s", sentence(what))
        self._delayed(what)
        await asyncio.wait([self._over], timeout=FULL_PAUSE_S)
        return not self._over.done()

    @property
    def _lost(self) -> str:
        if self._replica is not None:
            return "Another broker has claimed the replicated log, or this one can append to it no longer."
        return "The lock of the store is no longer ours: its file was replaced."

    def _leave_early(self) -> EpochEnding:
        ending = self._over.result()
        self._lock.release(ending)
        return ending

    def _listen(self, service: Service, bound: asyncio.Server, tls: ssl.SSLContext | None) -> Listener:
        """Accept connections at the bound sockets; `bound` has nothing to do with them any more."""
        try:
            return Listener(service, bound.sockets, tls, lambda: self._config.server.handshake_timeout_s)
        except OSError as error:  # Two can bind an address; one of them can listen.
            service.abort()
            raise listen_error(self._config, error) from None
        finally:
            bound.close()

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Connections that come from now on speak TLS with these settings; those that there are go on as they are."""
        self.tls = context
        if self._listener is not None:
            self._listener.context = context
            log.info("= the listener has its certificates anew")

    def _close_listener(self) -> None:
        if self._listener is not None:
            self._listener.close()

    def _start_ledger(self, service: Service) -> LedgerProcess | None:
        config = self._config
        if not config.ledger.enabled or not config.store.log_facts:
            return None
        if not LedgerProcess.available():
            log.info(
                "the store keeps the facts for audits, up to store.log_bytes: to write them to a ledger, "
                "pip install 'legato[ledger]' and start the broker again (--no-ledger: neither)"
            )
            return None
        if self._has_foreign_ledger:
            return None
        ledger = LedgerProcess(config.store_directory, config.ledger_directory)
        service.upkeep.exported_through = ledger.exported_through
        ledger.start()
        return ledger

    # -- the end -----------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """End it cleanly: the process was told to."""
        self._finish(EpochEnding.SHUTDOWN)

    def switch_over(self) -> None:
        """End it cleanly, so that a backup takes over."""
        self._finish(EpochEnding.SWITCHOVER)

    def note_connections(self, connections: int) -> None:
        """Let a successor know with how many connections to count."""
        if self.service is not None and self._lock.still_mine():
            token = self.service.handshake.backup_token
            self._lock.describe(self.service.broker.epoch, self._config.advertised, token, connections)

    def fail(self, error: StoreError) -> None:
        """The store cannot be used any more, or by another only."""
        if isinstance(error, FencedError):
            log.warning("! serving stops: %s", error)
            self._finish(EpochEnding.LOST)
            return
        log.critical("! serving stops: %s", error)
        self._failure = error
        if not self._over.done():
            self._over.set_exception(error)

    def lose(self, standing: Standing) -> None:
        """The service has stopped at once because of what it was told of its lease."""
        if standing is Standing.LOST:
            self.fail(FencedError(self._lost))
        else:
            log.warning("! fenced by itself: it could not look after its lock for longer than the activation interval")
            self._finish(EpochEnding.LAPSED)

    def _finish(self, ending: EpochEnding) -> None:
        if not self._over.done():
            log.info("= the reign ends: %s", ending)
            self._over.set_result(ending)

    def backups(self, but: int = 0) -> list[str]:
        """Addresses of the processes that would take over, except for the process `but`."""
        members = list_members(self._config.store_directory)
        waiting = [member for member in members if member.role in (Role.BACKUP, Role.SEEKING)]
        backups = [member.listen for member in waiting if member.pid != but]
        # Who found no room to be recorded has said so when it asked for heartbeats.
        unrecorded = self.service.heartbeats.unrecorded if self.service is not None else []
        return backups + [listen for listen in unrecorded if listen not in backups]

    async def _end(self, service: Service, store: LmdbStore, ledger: LedgerProcess | None, ending: EpochEnding) -> None:
        """Let go of the lock as early as can be if somebody waits for it; clients are told when it is free."""
        followed = self._config.ha.failover_on_server_shutdown and self.backups()
        if ending is EpochEnding.SHUTDOWN and not followed:
            await service.finish(ending.value)
            await service.dismiss(ending.value)
            if ledger is not None:
                await ledger.stop()
            self._close(store)
            self._lock.release(ending.value)
            return
        await service.finish(ending.value)
        self._close(store)
        self._lock.release(ending.value)
        await service.dismiss(ending.value)
        if ledger is not None:
            await ledger.abandon()

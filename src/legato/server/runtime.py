"""A server process from start to end: wait for the lock, begin an epoch, serve, let go."""

import asyncio
import logging
import os
import signal
import ssl
import time
from collections.abc import Callable
from functools import partial

from legato import selectors
from legato.errors import ConfigError, FencedError, StoreError
from legato.ha.lock import StoreLock
from legato.ha.members import Member, Membership
from legato.ha.roles import Event, Role, next_role
from legato.server.config import Config
from legato.server.ledger import LedgerProcess
from legato.server.peer import Peer
from legato.server.rigging import make_clock, open_store
from legato.server.service import Service
from legato.server.standby import stand_by
from legato.store.segment_names import exported_through

log = logging.getLogger("legato.runtime")

LOCK_CHECK_S = 1.0


class Runtime:
    """Composition root: builds everything, in the order in which it must start and stop."""

    def __init__(self, config: Config, read_config: Callable[[], Config]) -> None:
        self._config = config
        self._read_config = read_config
        self._service: Service | None = None
        self._stop = asyncio.Event()
        self._failure: StoreError | None = None
        self._lock = StoreLock(config.store_directory)
        self._clock = make_clock()
        self._role = Role.STARTING
        self._epoch = 0
        self._membership: Membership | None = None

    async def run(self) -> None:
        """Serve until a signal or a fatal error.

        Raises:
            ConfigError: the configuration cannot be used here (address taken, unreadable certificate ...).
            StoreError: the store cannot be used, or this process was fenced.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        loop.add_signal_handler(signal.SIGHUP, self._reload)
        tls = _tls_context(self._config)
        try:
            self._config.store_directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"Cannot use {self._config.store.directory} as a store: {error.strerror}.") from None
        member = Member(Role.STARTING, os.getpid(), self._config.server.listen)
        self._membership = Membership(self._config.store_directory, member)
        self._turn(Event.STARTED)
        try:
            if await self._become_primary():
                self._turn(Event.WON)
                await self._serve(tls)
        finally:
            self._lock.release()
            self._membership.close()
        if self._failure is not None:
            raise self._failure

    def _reload(self) -> None:
        """Read the configuration again; if it cannot be used, say so and go on as before."""
        try:
            if self._service is not None:
                self._service.reload()
            else:
                self._config = self._read_config()
                log.info("= the configuration was read again")
        except ConfigError as error:
            log.error("! the configuration was not read again: %s", error)

    def _turn(self, event: Event) -> None:
        """Take the role that `event` leads to, and let others know."""
        self._role = next_role(self._role, event)
        log.info("= %s", self._role)
        if self._membership is not None:
            self._membership.update(role=self._role, epoch=self._epoch)

    async def _become_primary(self) -> bool:
        """Wait until the store's lock is ours; False if we were told to stop instead (CONTRACT B2)."""
        if self._lock.try_acquire():
            return True
        _announce("backup")
        selectors.prepare()
        return await stand_by(self._config, self._lock, self._clock, self._stop, self._turn)

    async def _serve(self, tls: ssl.SSLContext | None) -> None:
        began = time.monotonic()
        loop = asyncio.get_running_loop()
        config = self._config
        clock = self._clock
        store = open_store(config.store_directory, config.store)
        try:
            meta = store.begin_epoch(config.server.listen, clock.now_us())
            self._epoch = meta.epoch
            service = self._service = Service(config, store, meta, clock, self._fail, self._read_config)
            self._lock.describe(meta.epoch, config.server.listen, service.backup_token)
            host, port = config.host_and_port
            try:
                listener = await loop.create_server(partial(Peer, service), host, port, ssl=tls, backlog=1024)
            except OSError as error:
                service.abort()
                raise ConfigError(f"Cannot listen on {config.server.listen}: {error.strerror or error}.") from None
            service.takeover_ms = (time.monotonic() - began) * 1000
            self._turn(Event.ACTIVATED)
            _announce(f"active epoch={meta.epoch}")
            log.info("= epoch %s began after %.1f ms", meta.epoch, service.takeover_ms)
            ledger = self._start_ledger(service)
            guard = loop.create_task(self._guard_lock(service))
            await self._stop.wait()
            self._turn(Event.LOST if self._failure else Event.STOP)
            guard.cancel()
            listener.close()
            await service.stop()
            if ledger is not None:
                await ledger.stop()
        finally:
            store.close()

    def _start_ledger(self, service: Service) -> LedgerProcess | None:
        config = self._config
        if not config.ledger.enabled or not config.store.log_facts:
            return None
        if not LedgerProcess.available():
            log.warning("! no ledger: pyarrow is not installed (pip install 'legato[spark]')")
            return None
        directory = config.ledger_directory
        service.upkeep.exported_through = partial(exported_through, directory)
        ledger = LedgerProcess(config.store_directory, directory)
        ledger.start()
        return ledger

    async def _guard_lock(self, service: Service) -> None:
        """A primary whose lock file was taken away must not go on (promise 7).

        The epoch that the store checks in every commit is what makes it safe; this only tells sooner.
        """
        while True:
            await asyncio.sleep(LOCK_CHECK_S)
            if not self._lock.still_mine():
                service.abort()
                self._fail(FencedError("The lock of the store is no longer ours: its file was replaced."))

    def _fail(self, error: StoreError) -> None:
        log.critical("! serving stops: %s", error)
        if self._failure is None:
            self._failure = error
        self._stop.set()


def _announce(role: str) -> None:
    """The one line on standard output that scripts wait for."""
    print(role, flush=True)


def _tls_context(config: Config) -> ssl.SSLContext | None:
    if not config.tls.certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.tls.certificate, config.tls.key)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(f"Cannot use tls.certificate {config.tls.certificate}: {error}.") from None
    return context

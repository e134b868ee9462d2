"""A broker's service in this process, in a thread of its own: a test looks at what it holds, and talks to its port."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

import uvloop

from legato.clock import SystemClock
from legato.ha.lease import Lease, Standing
from legato.server.config.configuration import Config
from legato.server.connections.client_connection import Peer
from legato.server.process.primary_epoch import PrimaryEpoch
from legato.server.process.service import Service
from legato.store.memory import MemoryStore
from tests.support.monitored import WAIT_S, until

T = TypeVar("T")


class _Owner:
    """Nobody takes over."""

    def note_connections(self, connections: int) -> None:
        """There is nobody to tell."""

    def lose(self, standing: Standing) -> None:
        """It never is."""

    def backups(self) -> list[str]:
        """None."""
        return []


class BrokerInProcess:
    """A service with a listener.

    Attributes:
        service: to be used by what `ask` is given only.
    """

    def __init__(self, config: Config) -> None:
        self.port = 0
        self.service: Service
        self._config = config
        self._loop: asyncio.AbstractEventLoop
        self._is_up, self._stop = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(target=uvloop.run, args=(self._run(),), daemon=True)

    def __enter__(self) -> BrokerInProcess:
        self._thread.start()
        assert self._is_up.wait(WAIT_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(WAIT_S)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        clock, store, config = SystemClock(), MemoryStore(), self._config
        meta = store.begin_epoch("here", clock.now_us())
        lease = Lease(lambda: True, None, clock.monotonic_ms())
        owner = cast(PrimaryEpoch, _Owner())
        self.service = service = Service(config, store, meta, clock, lease, owner, lambda: config)
        listener = await self._loop.create_server(lambda: Peer(service), "127.0.0.1", 0)
        self.port = listener.sockets[0].getsockname()[1]
        self._is_up.set()
        try:
            await self._stop.wait()
        finally:
            listener.close()
            service.abort()

    def ask(self, question: Callable[[Service], T]) -> T:
        """What the service says, asked in its loop."""

        async def answer() -> T:
            return question(self.service)

        return asyncio.run_coroutine_threadsafe(answer(), self._loop).result(WAIT_S)

    def until(self, holds: Callable[[Service], bool]) -> None:
        """Wait until something holds of the service."""

        until(lambda: self.ask(holds))


@contextmanager
def broker_in_process(config: Config | None = None) -> Iterator[BrokerInProcess]:
    """A running service."""
    with BrokerInProcess(config or Config()) as broker:
        yield broker

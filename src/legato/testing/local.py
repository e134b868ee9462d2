"""A broker in the process of a test: the production core, server and store, in a thread, with a clock that it can set.

It starts in a few hundredths of a second and forgets everything in the end. Against failovers use `broker_pair`.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from legato.client import ConnectionFactory, Message, Queue
from legato.clock import SystemClock
from legato.errors import ConfigError
from legato.ha.lock import StoreLock
from legato.processes.scratch import choose_ports
from legato.server.config.configuration import Config, LedgerSection, ServerSection, StoreSection
from legato.server.management.takeover_report import STARTED, Takeover
from legato.server.process.primary_epoch import PrimaryEpoch
from legato.server.process.service import Service

Result = TypeVar("Result")

LOOK_EVERY_S = 0.002
WAIT_S = 60.0
"""The longest that the broker may take for anything, on a machine with much else to do."""
DEAD_LETTERS = "DLQ."
"""Before a queue's name, where its dead letters go by default."""
_ROUNDS_MAX = 1000
_STORE_BYTES = 1 << 30
_ATTEMPTS = 5


class SettableClock(SystemClock):
    """The machine's clock, set forward by a test; time-outs of connections go by the machine's."""

    def __init__(self) -> None:
        self.ahead_us = 0

    def now_us(self) -> int:
        """See `Clock.now_us`."""
        return super().now_us() + self.ahead_us


class LocalBroker:
    """A broker in this process; `broker()` makes one that runs.

    Args:
        directory: for the store.
        addresses: settings of addresses, as `[[address]]` tables of the configuration.
        detail: which facts are logged, as `[ledger] detail` says.

    Attributes:
        url: for clients.
        store: directory of the store; read it when the broker has stopped.
    """

    def __init__(
        self, directory: Path, *, addresses: Sequence[Mapping[str, Any]] = (), detail: str = "durable"
    ) -> None:
        self.store = directory / "store"
        self.url = ""
        self._clock = SettableClock()
        self._config = Config(
            store=StoreSection(directory=str(self.store), map_bytes=_STORE_BYTES, free_disk_reserve_bytes=0),
            ledger=LedgerSection(enabled=False, detail="all" if detail == "all" else "durable"),
            address=[dict(each) for each in addresses],
        )
        self._reign: PrimaryEpoch | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Serve; returns when clients may connect.

        Raises:
            LegatoError: it cannot be started.
        """
        for attempt in range(_ATTEMPTS):
            port = choose_ports(0)[0]
            try:
                self._start(port)
            except ConfigError:
                # Somebody else may have taken the port meanwhile.
                if attempt == _ATTEMPTS - 1:
                    raise
            else:
                return

    def stop(self) -> None:
        """End it cleanly; returns when nothing of it runs any more."""
        thread, loop, reign = self._thread, self._loop, self._reign
        if thread is None or loop is None or reign is None:
            return
        if thread.is_alive():
            loop.call_soon_threadsafe(reign.stop)
        thread.join()
        self._thread = None

    # -- what a test asks

    def waiting(self, queue: str) -> int:
        """How many messages a queue holds, with those that a consumer has and did not acknowledge."""
        found = self._ask(lambda service: service.broker.directory.find_queue(queue))
        return 0 if found is None else found.depth

    def wait_until_empty(self, queue: str, timeout_s: float = WAIT_S) -> None:
        """Wait until everything in a queue was consumed.

        Raises:
            AssertionError: it was not.
        """
        deadline = time.monotonic() + timeout_s
        while waiting := self.waiting(queue):
            if time.monotonic() > deadline:
                raise AssertionError(f"{waiting} messages are still in {queue} after {timeout_s:g} s.")
            time.sleep(LOOK_EVERY_S)

    def messages(self, queue: str) -> list[Message]:
        """The messages that wait in a queue, in order; they stay there."""
        with ConnectionFactory(self.url).create_connection() as connection:
            connection.start()
            with connection.create_session().create_browser(Queue(queue)) as browser:
                return list(browser)

    def dead_letters(self, queue: str | None = None) -> list[Message]:
        """The messages that nobody could take: of one queue, or of all whose dead letters go where they do by default.

        Why is in their properties (`JMS_LEGATO_CAUSE` and others).
        """
        names = self._ask(_queue_names) if queue is None else [queue]
        if queue is None:
            names = [name.removeprefix(DEAD_LETTERS) for name in names if name.startswith(DEAD_LETTERS)]
        return [letter for name in sorted(names) for letter in self.messages(DEAD_LETTERS + name)]

    def assert_no_dead_letters(self) -> None:
        """Fail if there are any, saying of the first what it was and why.

        Raises:
            AssertionError: there are.
        """
        letters = self.dead_letters()
        if letters:
            raise AssertionError(
                f"{len(letters)} dead letters; the first: {letters[0]!r}, {dict(letters[0].properties)}"
            )

    def advance(self, seconds: float) -> None:
        """Let so much time pass at once for the broker: what is due after it is delivered, expired or given again.

        The clocks of clients, and the time-outs of connections, do not notice.
        """
        self._clock.ahead_us += round(seconds * 1_000_000)
        self._run(self._catch_up(self._service))

    # -- the thread

    def _start(self, port: int) -> None:
        self._config.server = ServerSection(listen=f"127.0.0.1:{port}", returns_per_s=1_000_000, check_invariants=True)
        serving: Future[None] = Future()
        self._thread = threading.Thread(target=self._serve, args=(serving,), name=f"broker {port}", daemon=True)
        self._thread.start()
        serving.result(WAIT_S)
        self.url = f"amqp://127.0.0.1:{port}"

    def _serve(self, serving: Future[None]) -> None:
        try:
            uvloop.run(self._reign_once(serving))
        except BaseException as error:
            if serving.done():
                raise
            serving.set_exception(error)

    async def _reign_once(self, serving: Future[None]) -> None:
        self._loop = asyncio.get_running_loop()
        self.store.mkdir(parents=True, exist_ok=True)
        lock = StoreLock(self.store)
        if not lock.try_acquire():
            raise ConfigError(f"Another broker uses {self.store}.")
        try:
            self._reign = PrimaryEpoch(self._config, lock, self._clock, lambda: self._config)
            await self._reign.run(Takeover(STARTED, 0.0), None, lambda epoch: serving.set_result(None))
        finally:
            lock.release()

    async def _catch_up(self, service: Service) -> None:
        """Do what has come due, as the broker does by and by, until there is no more of it."""
        for _ in range(_ROUNDS_MAX):
            if service.broker.idle:
                service.broker.tick(self._clock.now_us())
                service.advance()
                if service.broker.idle:
                    return
            await asyncio.sleep(LOOK_EVERY_S)

    @property
    def _service(self) -> Service:
        if self._reign is None or self._reign.service is None or self._thread is None:
            raise ConfigError("The broker does not run.")
        return self._reign.service

    def _ask(self, question: Callable[[Service], Result]) -> Result:
        service = self._service

        async def answer() -> Result:
            return question(service)

        return self._run(answer())

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(WAIT_S)


def _queue_names(service: Service) -> list[str]:
    return [queue.name for queue in service.broker.directory.queues.values()]


@contextmanager
def broker(
    directory: Path | None = None, *, addresses: Sequence[Mapping[str, Any]] = (), detail: str = "durable"
) -> Iterator[LocalBroker]:
    """A broker in this process for the time of a block.

    Args:
        directory: for the store; None for one that is removed in the end.
        addresses: settings of addresses, as `[[address]]` tables: `[{"match": "orders", "redelivery_delay_s": 60}]`.
        detail: which facts are logged, `durable` or `all`.
    """
    with tempfile.TemporaryDirectory(prefix="legato-") as scratch:
        running = LocalBroker(directory or Path(scratch), addresses=addresses, detail=detail)
        running.start()
        try:
            yield running
        finally:
            running.stop()

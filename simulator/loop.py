"""An event loop in virtual time, with as much of asyncio's as the broker's shell uses: timers and calls."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from simulator.kernel import Event, Kernel

READING_US = (50, 20_000)


class Done:
    """The future of something that was done at once."""

    def done(self) -> bool:
        """Always."""
        return True


class VirtualLoop:
    """The event loop of whichever process is running."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel

    def call_later(self, delay_s: float, call: Callable[..., object], *arguments: Any) -> Event:
        """See `asyncio.AbstractEventLoop`."""
        return self._kernel.after(int(delay_s * 1_000_000), call, *arguments)

    def call_soon(self, call: Callable[..., object], *arguments: Any, context: object = None) -> Event:
        """See `asyncio.AbstractEventLoop`."""
        return self._kernel.after(0, call, *arguments)

    call_soon_threadsafe = call_soon

    def run_in_executor(self, executor: None, call: Callable[..., object], *arguments: Any) -> Done:
        """See `asyncio.AbstractEventLoop`; what goes to a thread there is done at once here."""
        call(*arguments)
        return Done()

    def create_future(self) -> asyncio.Future[Any]:
        """See `asyncio.AbstractEventLoop`."""
        return asyncio.Future(loop=self)  # type: ignore[arg-type]

    def time(self) -> float:
        """See `asyncio.AbstractEventLoop`."""
        return self._kernel.now_us / 1_000_000

    async def wait_for(self, awaitable: Coroutine[Any, Any, None], timeout_s: float) -> None:
        """See `asyncio.wait_for`."""
        ended = self.create_future()

        def timed_out() -> None:
            if not ended.done():
                ended.set_exception(TimeoutError())

        def done() -> None:
            if not ended.done():
                ended.set_result(None)

        self.drive(awaitable, done)
        timer = self.call_later(timeout_s, timed_out)
        try:
            await ended
        finally:
            timer.cancel()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See `asyncio.AbstractEventLoop`."""

    def get_debug(self) -> bool:
        """See `asyncio.AbstractEventLoop`."""
        return False

    def drive(self, coroutine: Coroutine[Any, Any, None], done: Callable[[], None]) -> None:
        """Run a coroutine that awaits futures of this loop, then call `done`."""
        try:
            future: asyncio.Future[Any] = coroutine.send(None)
        except StopIteration:
            done()
        else:
            # Whoever yields a future waits until it is told that somebody waits for it.
            future._asyncio_future_blocking = False
            future.add_done_callback(lambda _: self.drive(coroutine, done))


class ReadingLoop(VirtualLoop):
    """The same for what reads files: that takes some time."""

    def run_in_executor(self, executor: None, call: Callable[..., object], *arguments: Any) -> Any:
        """See `asyncio.AbstractEventLoop`."""
        future = self.create_future()
        self._kernel.after(self._kernel.between_us(*READING_US), _answer, future, call, *arguments)
        return future

    def create_task(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Future[Any]:
        """See `asyncio.AbstractEventLoop`."""
        self.drive(coroutine, lambda: None)
        return self.create_future()

    @staticmethod
    async def gather(*futures: asyncio.Future[Any]) -> list[Any]:
        """See `asyncio.gather`."""
        return [await future for future in futures]


def _answer(future: asyncio.Future[Any], call: Callable[..., object], *arguments: Any) -> None:
    future.set_result(call(*arguments))


class VirtualClock:
    """The clock of brokers, and what client modules see instead of the module `time`.

    Attributes:
        wrong_by_us: how far the clock on the wall is from the truth; monotonic time is always true.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.wrong_by_us = 0
        self._kernel = kernel

    def now_us(self) -> int:
        """See `legato.clock.Clock`."""
        return self._kernel.now_us + self.wrong_by_us

    def monotonic_ms(self) -> int:
        """See `legato.clock.Clock`."""
        return self._kernel.now_us // 1000

    def monotonic(self) -> float:
        """See `time.monotonic`."""
        return self._kernel.now_us / 1_000_000

    def time_ns(self) -> int:
        """See `time.time_ns`."""
        return self._kernel.now_us * 1000

    def sleep(self, seconds: float) -> None:
        """See `time.sleep`; takes no time."""

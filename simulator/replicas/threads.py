"""Threads in virtual time: what the product does in threads of its own is done in greenlets here, one at a time.

A thread that waits lets the kernel go on; when it wakes, that is an event of its process. So it is stopped and killed
with its process, and the seed decides who comes first. The event loop of a `BrokerProcess` is a thread too: what
happens to such a process is done there, one thing after the other, and may wait as any other thread.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from queue import Empty
from typing import Any, ClassVar, Generic, TypeVar

from greenlet import GreenletExit, getcurrent, greenlet

from simulator.kernel import Event as KernelEvent
from simulator.kernel import Kernel, Process

T = TypeVar("T")

WAKING_US = (0, 60)
"""From the reason to go on until a thread does."""
PREEMPTED = 0.01
PREEMPTED_US = (10, 20_000)
LOOP = "loop"
ENDLESS = -1


class BrokerProcess(Process):
    """A process with threads.

    Attributes:
        threads: those that have not ended.
        busy: the event loop's thread is at something.
        to_do: what the event loop does after that.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.threads: dict[Thread, None] = {}
        self.busy = False
        self.to_do: deque[tuple[KernelEvent, Callable[..., object], tuple[Any, ...]]] = deque()

    def end_threads(self) -> None:
        """The process is dead: no thread goes on."""
        for thread in list(self.threads):
            thread.unwind()
        self.threads.clear()
        self.to_do.clear()


class ThreadedKernel(Kernel):
    """A kernel whose processes may have threads."""

    def after_for(
        self, process: Process | None, delay_us: int, call: Callable[..., object], *arguments: Any
    ) -> KernelEvent:
        """See `Kernel.after_for`; what happens to a process with threads is done by its event loop."""
        if not isinstance(process, BrokerProcess):
            return super().after_for(process, delay_us, call, *arguments)
        event = super().after_for(process, delay_us, _on_loop)
        event.arguments = (process, event, call, arguments)
        return event

    def wake(self, thread: Thread, delay_us: int) -> KernelEvent:
        """Let a thread go on after so long."""
        return super().after_for(thread.process, delay_us, thread.go_on)


def _microseconds(timeout_s: float) -> int:
    """A timeout, rounded up: who waits for what is left of a time, however little, lets time pass."""
    return math.ceil(timeout_s * 1_000_000)


def _on_loop(
    process: BrokerProcess, event: KernelEvent, call: Callable[..., object], arguments: tuple[Any, ...]
) -> None:
    process.to_do.append((event, call, arguments))
    if not process.busy:
        process.busy = True
        Thread(target=_drain, args=(process,), name=LOOP).begin_now(process)


def _drain(process: BrokerProcess) -> None:
    try:
        while process.to_do:
            event, call, arguments = process.to_do.popleft()
            if not event.cancelled:
                call(*arguments)
    finally:
        process.busy = False


class _Greenlet(greenlet):
    thread: Thread


class Thread:
    """See `threading.Thread`; what it raises ends the run."""

    kernel: ClassVar[ThreadedKernel]
    hub: ClassVar[greenlet]
    """Where the kernel runs."""

    def __init__(
        self, *, target: Callable[..., object], args: tuple[Any, ...] = (), name: str = "", daemon: bool = True
    ) -> None:
        self.name = name
        self.daemon = daemon
        self.process: Process | None = None
        self._target = target
        self._arguments = args
        self._greenlet = _Greenlet(self._run, parent=self.hub)
        self._greenlet.thread = self
        self._woken = False
        self._waits = False
        self._alarm: KernelEvent | None = None
        self._ended = Event()

    @classmethod
    def use(cls, kernel: ThreadedKernel) -> None:
        """The kernel of the run, which runs in the caller's greenlet."""
        cls.kernel, cls.hub = kernel, getcurrent()

    def start(self) -> None:
        """See `threading.Thread.start`."""
        self._belong_to(self.kernel.process)
        self.kernel.wake(self, self.kernel.between_us(*WAKING_US))

    def begin_now(self, process: Process) -> None:
        """Run it until it waits for something."""
        self._belong_to(process)
        self._greenlet.switch()

    def join(self, timeout: float | None = None) -> None:
        """See `threading.Thread.join`."""
        self._ended.wait(timeout)

    def is_alive(self) -> bool:
        """See `threading.Thread.is_alive`."""
        return not self._ended.is_set()

    def wait(self, timeout_s: float | None) -> bool:
        """Let others go on until `wake`, or until the time is over; returns whether it was woken.

        Only the thread itself may call it.
        """
        process = self.process
        if process is not None and not process.alive:
            raise GreenletExit
        self._woken = False
        self._waits = True
        self._alarm = None
        if timeout_s is not None:
            self._alarm = self.kernel.wake(self, _microseconds(timeout_s))
        self.hub.switch()
        return self._woken

    def wake(self) -> None:
        """It has a reason to go on."""
        if self._waits and not self._woken:
            self._woken = True
            if self._alarm is not None:
                self._alarm.cancel()
            self.kernel.wake(self, self.kernel.between_us(*WAKING_US))

    def go_on(self) -> None:
        """Its time has come."""
        self._waits = False
        self._greenlet.switch()

    def unwind(self) -> None:
        """End it where it is."""
        if not self._greenlet.dead:
            self.kernel.run_as(self.process, self._greenlet.throw)

    def _belong_to(self, process: Process | None) -> None:
        self.process = process
        if isinstance(process, BrokerProcess):
            process.threads[self] = None

    def _run(self) -> None:
        try:
            self._target(*self._arguments)
        finally:
            self._ended.set()
            if isinstance(self.process, BrokerProcess):
                self.process.threads.pop(self, None)


def current_thread() -> Thread | None:
    """The thread that runs; None for the kernel."""
    return getattr(getcurrent(), "thread", None)


def wait_here(timeout_s: float | None) -> bool:
    """Have the thread that runs wait."""
    thread = current_thread()
    if thread is None:
        raise RuntimeError("what is not done in a thread cannot wait")
    return thread.wait(timeout_s)


class _Waiters:
    """Threads that wait for the same thing, first come, first served."""

    def __init__(self) -> None:
        self._threads: dict[Thread, None] = {}

    def wait(self, timeout_s: float | None) -> bool:
        thread = current_thread()
        if thread is None:
            raise RuntimeError("what is not done in a thread cannot wait")
        self._threads[thread] = None
        try:
            return thread.wait(timeout_s)
        finally:
            self._threads.pop(thread, None)

    def wake(self, count: int = ENDLESS) -> None:
        for thread in list(self._threads):
            if count == 0:
                return
            count -= 1
            del self._threads[thread]
            thread.wake()


class Lock:
    """See `threading.Lock`; as `RLock` too, for conditions have one."""

    def __init__(self) -> None:
        self._holder: greenlet | None = None
        self._depth = 0
        self._waiters = _Waiters()

    def acquire(self, blocking: bool = True, timeout: float = ENDLESS, *, again: bool = False) -> bool:
        """See `threading.Lock.acquire`."""
        until_us = Thread.kernel.now_us + _microseconds(timeout)
        while self._holder is not None and not (again and self._holder is getcurrent()):
            left_s = (until_us - Thread.kernel.now_us) / 1_000_000 if timeout >= 0 else None
            if not blocking or (left_s is not None and left_s <= 0):
                return False
            self._waiters.wait(left_s)
        self._holder = getcurrent()
        self._depth += 1
        return True

    def release(self) -> None:
        """See `threading.Lock.release`."""
        self._depth -= 1
        if self._depth == 0:
            self._holder = None
            self._waiters.wake(1)

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """See `threading.Condition`."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._waiters = _Waiters()

    def __enter__(self) -> None:
        self._lock.acquire(again=True)

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait_for(self, predicate: Callable[[], T], timeout: float | None = None) -> T:
        """See `threading.Condition.wait_for`."""
        kernel = Thread.kernel
        until_us = None if timeout is None else kernel.now_us + _microseconds(timeout)
        while not (result := predicate()):
            left_s = None if until_us is None else (until_us - kernel.now_us) / 1_000_000
            if left_s is not None and left_s <= 0:
                break
            self._lock.release()
            try:
                self._waiters.wait(left_s)
            finally:
                self._lock.acquire(again=True)
        return result

    def notify_all(self) -> None:
        """See `threading.Condition.notify_all`."""
        self._waiters.wake()


class Event:
    """See `threading.Event`."""

    def __init__(self) -> None:
        self._set = False
        self._waiters = _Waiters()

    def is_set(self) -> bool:
        """See `threading.Event.is_set`."""
        return self._set

    def set(self) -> None:
        """See `threading.Event.set`."""
        self._set = True
        self._waiters.wake()

    def wait(self, timeout: float | None = None) -> bool:
        """See `threading.Event.wait`."""
        if not self._set:
            self._waiters.wait(timeout)
        return self._set


class Timer(Thread):
    """See `threading.Timer`."""

    def __init__(self, interval: float, function: Callable[[], object]) -> None:
        self._cancelled = Event()

        def run() -> None:
            if not self._cancelled.wait(interval):
                function()

        super().__init__(target=run, name="timer")

    def cancel(self) -> None:
        """See `threading.Timer.cancel`."""
        self._cancelled.set()


class SimpleQueue(Generic[T]):
    """See `queue.SimpleQueue`."""

    def __init__(self) -> None:
        self._items: deque[T] = deque()
        self._waiters = _Waiters()

    def put(self, item: T) -> None:
        """See `queue.SimpleQueue.put`."""
        self._items.append(item)
        self._waiters.wake(1)

    def empty(self) -> bool:
        """See `queue.SimpleQueue.empty`."""
        return not self._items

    def get(self, timeout: float | None = None) -> T:
        """See `queue.SimpleQueue.get`.

        Raises:
            Empty: nothing came in time.
        """
        while not self._items:
            if not self._waiters.wait(timeout) and not self._items:
                raise Empty
        return self._items.popleft()


class Future(Generic[T]):
    """See `concurrent.futures.Future`."""

    def __init__(self) -> None:
        self._done = Event()
        self._result: list[T] = []
        self._error: BaseException | None = None

    def set_result(self, result: T) -> None:
        """See `concurrent.futures.Future.set_result`."""
        self._result.append(result)
        self._done.set()

    def set_exception(self, error: BaseException) -> None:
        """See `concurrent.futures.Future.set_exception`."""
        self._error = error
        self._done.set()

    def result(self, timeout: float | None = None) -> T:
        """See `concurrent.futures.Future.result`."""
        if not self._done.wait(timeout):
            raise TimeoutError
        if self._error is not None:
            raise self._error
        return self._result[0]


class ThreadPoolExecutor:
    """See `concurrent.futures.ThreadPoolExecutor`; each call has a thread of its own."""

    def __init__(self, workers: int, thread_name_prefix: str = "") -> None:
        self._name = thread_name_prefix
        self._over = False

    def submit(self, call: Callable[..., T], *arguments: Any) -> Future[T]:
        """See `concurrent.futures.Executor.submit`."""
        if self._over:
            raise RuntimeError("no call is accepted after shutdown")
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(call(*arguments))
            except Exception as error:
                future.set_exception(error)

        Thread(target=run, name=self._name).start()
        return future

    def shutdown(self, wait: bool = True) -> None:
        """See `concurrent.futures.Executor.shutdown`."""
        self._over = True


class ThreadClock:
    """The module `time` of what waits in threads. A thread may lose the processor whenever it looks."""

    def monotonic(self) -> float:
        """See `time.monotonic`."""
        kernel, thread = Thread.kernel, current_thread()
        now_s = kernel.now_us / 1_000_000
        if thread is not None and thread.name != LOOP and kernel.chance(PREEMPTED):
            thread.wait(kernel.between_us(*PREEMPTED_US) / 1_000_000)
        return now_s

    def sleep(self, seconds: float) -> None:
        """See `time.sleep`."""
        wait_here(seconds)

    def perf_counter(self) -> float:
        """See `time.perf_counter`."""
        return Thread.kernel.now_us / 1_000_000

"""The client's backend without threads: the kernel runs steps, locks sessions and calls listeners."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Generator
from typing import Any, ClassVar

from legato.client.calls.browser_steps import BrowserSteps
from legato.client.calls.connection_steps import ConnectionSteps, FactorySteps
from legato.client.calls.consumer_steps import ConsumerSteps
from legato.client.calls.dispatcher import Dispatching
from legato.client.calls.ports import SessionPort
from legato.client.calls.producer_steps import ProducerSteps
from legato.client.calls.session_steps import SessionSteps
from legato.client.steps import Steps, Wait
from simulator.kernel import Event, Kernel, Process
from simulator.transports import SWITCH_US


class SimulatedGate:
    """Takes the place of `Gate`: who waits is looked at again when it opens."""

    made: ClassVar[int] = 0

    def __init__(self) -> None:
        SimulatedGate.made += 1
        self._number = SimulatedGate.made
        self._wakers: list[Callable[[], None]] = []

    def __hash__(self) -> int:
        return self._number

    def call_when_opened(self, wake: Callable[[], None]) -> None:
        """See `Gate.call_when_opened`."""
        self._wakers.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """See `Gate.forget`."""
        self._wakers.remove(wake)

    def open(self) -> None:
        """See `Gate.open`."""
        for wake in list(self._wakers):
            wake()


class Task:
    """Steps that are being taken, as a thread of its own would take them."""

    kernel: ClassVar[Kernel]
    current: ClassVar[Task | None] = None
    everyone: ClassVar[list[Task]] = []
    """Those of this run: what a dead process left must not be tidied up by the garbage collector at a random time."""

    def __init__(self, steps: Generator[Any, Any, Any], ended: Callable[[BaseException | None], None]) -> None:
        assert self.kernel.process is not None
        self.process: Process = self.kernel.process
        self._steps = steps
        self._ended = ended
        self._wait: Wait | None = None
        self._timer: Event | None = None
        self._look: Event | None = None
        self.everyone.append(self)
        self._wake_soon()

    @classmethod
    def end_all(cls) -> None:
        """The run is over."""
        for task in cls.everyone:
            with contextlib.suppress(Exception):
                task._steps.close()
        cls.everyone.clear()

    @classmethod
    def run_one_of(cls, process: Process) -> None:
        """Run a thread of the process that has something to do, or has slept for long enough, in the middle of another.

        How long an application sleeps is left to chance anyway.
        """
        able = [task for task in cls.everyone if task.process is process and task._is_able]
        if able:
            task = cls.kernel.random.choice(able)
            task._again(isinstance(task._wait, _Sleep))

    @property
    def _is_able(self) -> bool:
        wait = self._wait
        return isinstance(wait, _Sleep) or (self._look is not None and (wait is None or bool(wait.ready())))

    def _wake_soon(self) -> None:
        if self._look is None:
            self._look = self.kernel.after_for(self.process, self.kernel.between_us(*SWITCH_US), self._again, False)

    def _timed_out(self) -> None:
        self._again(True)

    def _again(self, timed_out: bool) -> None:
        if self._look is not None:
            self._look.cancel()
            self._look = None
        wait = self._wait
        answer: bool | None = None
        if wait is not None:
            answer = bool(wait.ready())
            if not answer and not timed_out:
                return
            self._stop_waiting(wait)
        self._advance(answer)

    def _stop_waiting(self, wait: Wait) -> None:
        self._wait = None
        wait.gate.forget(self._wake_soon)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _advance(self, answer: bool | None) -> None:
        caller, Task.current = Task.current, self
        try:
            while True:
                step = self._steps.send(answer)
                if not isinstance(step, Wait):
                    answer = None
                elif step.ready():
                    answer = True
                else:
                    break
        except StopIteration:
            self._ended(None)
            return
        except Exception as error:
            self._ended(error)
            return
        finally:
            Task.current = caller
        self._wait = step
        step.gate.call_when_opened(self._wake_soon)
        if step.timeout_s is not None:
            self._timer = self.kernel.after_for(self.process, int(step.timeout_s * 1_000_000) + 1, self._timed_out)


class _Sleep(Wait):
    """Wait for nothing but its time."""

    __slots__ = ()

    def __init__(self, seconds: float) -> None:
        super().__init__(SimulatedGate(), lambda: False, seconds)  # type: ignore[arg-type]


def sleep(seconds: float) -> Steps[None]:
    """Do nothing for a while."""
    yield _Sleep(seconds)


class TaskTurn:
    """The turn of a task."""

    def __init__(self) -> None:
        self._gate = SimulatedGate()
        self._owner: Task | None = None
        self._times = 0
        self.acquire: Callable[[bool], bool] = self._acquire
        self.release: Callable[[], None] = self._release

    def _acquire(self, _wait: bool) -> bool:
        if self._times and self._owner is not Task.current:
            return False
        self._owner = Task.current
        self._times += 1
        return True

    def _release(self) -> None:
        self._times -= 1
        if not self._times:
            self._owner = None
            self._gate.open()

    def keep(self, kept: bool) -> bool:
        """See `Turn.keep`; it is counted."""
        return kept

    def awaited(self, timeout_s: float | None = None, unless: Callable[[], object] | None = None) -> Steps[bool]:
        """See `Turn.awaited`."""
        if self._acquire(False):
            return True

        taken = False

        def over() -> bool:
            nonlocal taken
            taken = self._acquire(False)
            return taken or (unless is not None and bool(unless()))

        yield Wait(self._gate, over, timeout_s)  # type: ignore[arg-type]
        return taken

    def ring(self) -> None:
        """See `Turn.ring`."""
        self._gate.open()


class TaskNotifier:
    """Calls listeners one after the other."""

    def __init__(self, name: str) -> None:
        self._calls: deque[Callable[[], Steps[None]]] = deque()
        self._task: Task | None = None

    def call(self, function: Callable[[], Steps[None]]) -> None:
        """See `Notifier.call`."""
        self._calls.append(function)
        if self._task is None:
            self._task = Task(self._run(), self._ended)

    def _run(self) -> Steps[None]:
        while self._calls:
            yield from self._calls.popleft()()

    def _ended(self, error: BaseException | None) -> None:
        self._task = None
        if error is not None:
            raise error

    def stop(self) -> Steps[None]:
        """See `Notifier.stop`."""
        while self._task is not None and not self.is_current:
            yield from sleep(0.001)

    def ends(self, error: BaseException, rest: Callable[[], Steps[None]]) -> bool:
        """See `Notifier.ends`: what is no error of a listener ends the task."""
        return not isinstance(error, Exception)

    @property
    def is_current(self) -> bool:
        """See `Notifier.is_current`."""
        return self._task is not None and Task.current is self._task


class TaskDispatcher(Dispatching):
    """Calls listeners in a task of the session's own."""

    def __init__(self, session: SessionPort, name: str, *, redeliver_on_error: bool, backoff_s: float = 0.0) -> None:
        super().__init__(session, redeliver_on_error=redeliver_on_error, backoff_s=backoff_s)
        self._task = Task(self._run(), self._stopped)

    def _stopped(self, error: BaseException | None) -> None:
        if error is not None:
            raise error

    @property
    def is_current(self) -> bool:
        """See `Dispatcher.is_current`."""
        return Task.current is self._task

    def _ends(self, error: BaseException) -> bool:
        """What is no error of a listener ends the task."""
        return not isinstance(error, Exception)


class Tasks:
    """The world of simulated clients."""

    turn = TaskTurn
    notifier = TaskNotifier
    dispatcher = TaskDispatcher

    def run(self, steps: Steps[Any]) -> Steps[Any]:
        """The steps themselves: the application takes them with `yield from`."""
        return steps


class Session(SessionSteps[ProducerSteps, ConsumerSteps, BrowserSteps]):
    """A session whose methods are steps."""

    _producer_type = ProducerSteps
    _consumer_type = ConsumerSteps
    _browser_type = BrowserSteps


class Connection(ConnectionSteps[Session]):
    """A connection whose methods are steps."""

    _session_type = Session
    _world_type = Tasks


class ConnectionFactory(FactorySteps[Connection, Any]):
    """Makes such connections."""

    _connection_type = Connection

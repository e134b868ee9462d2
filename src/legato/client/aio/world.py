"""The asyncio backend: tasks take turns, and listeners are called in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import ContextVar
from typing import Any

from legato.client.aio.steps import drive
from legato.client.calls.consumer_steps import ConsumerSteps
from legato.client.calls.consumer_work import MessageListener
from legato.client.calls.dispatcher import Dispatching
from legato.client.calls.ports import SessionPort
from legato.client.gate import Gate
from legato.client.links.deliveries import Delivery
from legato.client.messages.message import Message
from legato.client.steps import Steps, Wait

log = logging.getLogger("legato.client")

_held: ContextVar[object] = ContextVar("legato_held", default=None)
"""What stands for the message that a listener has, for the listener and the tasks that it begins.

Tasks may live long after it, and keep what is in their context; so this is not the message.
"""


class TaskTurn:
    """The turn of a task; only the event loop's thread touches it."""

    def __init__(self) -> None:
        self._gate = Gate()
        self._owner: asyncio.Task[Any] | None = None
        self._times = 0
        self.acquire: Callable[[bool], bool] = self._acquire
        self.release: Callable[[], None] = self._release

    def _acquire(self, _wait: bool) -> bool:
        task = asyncio.current_task()
        if self._times and self._owner is not task:
            return False
        self._owner = task
        self._times += 1
        return True

    def _release(self) -> None:
        self._times -= 1
        if not self._times:
            self._owner = None
            self._gate.open()

    def keep(self, kept: bool) -> bool:
        """It is counted."""
        return kept

    def awaited(self, timeout_s: float | None = None, unless: Callable[[], object] | None = None) -> Steps[bool]:
        """Take it, waiting for it if need be, at most so long; returns whether it was taken."""
        if self._acquire(False):
            return True
        yield Wait(self._gate, lambda: self._acquire(False) or (unless is not None and unless()), timeout_s)
        return self._owner is asyncio.current_task()

    def ring(self) -> None:
        """Who waits for it is to look again."""
        self._gate.open()


class TaskNotifier:
    """Calls listeners in a task, which starts when it is needed and ends when it has called all."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._gate = Gate()
        self._calls: deque[Callable[[], Steps[None]]] = deque()
        self._task: asyncio.Task[None] | None = None
        self._runs = False
        """Whether there is a task, or one is about to start."""

    def call(self, function: Callable[[], Steps[None]]) -> None:
        """Take the steps that `function` makes soon. Only I/O threads call this."""
        # In this order: a task that ends looks for calls after it has said that it does not run.
        self._calls.append(function)
        if not self._runs:
            self._runs = True
            # A loop that is closed has no listeners any more.
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._start)

    def _start(self) -> None:
        if self._task is None or self._task.done():
            self._runs = True
            self._task = self._loop.create_task(self._run(), name=self._name)
            self._task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """The task is over, perhaps because it was cancelled or the program ends, which may have to be cleaned up."""
        if not task.cancelled():
            task.exception()  # The loop has raised it.
        self._runs = False
        if self._calls:
            self._start()
        self._gate.open()

    def stop(self) -> Steps[None]:
        """Finish what was asked for."""
        if not self.is_current:
            yield Wait(self._gate, lambda: not self._runs, for_listener=True)

    def ends(self, error: BaseException, rest: Callable[[], Steps[None]]) -> bool:
        """Whether the task was cancelled, or the program ends; the next task begins with `rest`."""
        if not _ends_task(error):
            return False
        self._calls.appendleft(rest)
        return True

    @property
    def is_current(self) -> bool:
        """Whether a listener is asking."""
        return self._task is not None and _current_task() is self._task

    async def _run(self) -> None:
        while self._calls:
            try:
                await drive(self._calls.popleft()())
            except BaseException as error:
                if _ends_task(error):
                    raise
                log.exception("a listener of the application raised")


class TaskDispatcher(Dispatching):
    """Calls listeners in a task of the session's own."""

    def __init__(self, session: SessionPort, name: str, *, redeliver_on_error: bool, backoff_s: float = 0.0) -> None:
        super().__init__(session, redeliver_on_error=redeliver_on_error, backoff_s=backoff_s)
        self._token = object()
        """What stands for the message that a listener has now."""
        self._task = asyncio.get_running_loop().create_task(drive(self._run()), name=name)

    @property
    def is_current(self) -> bool:
        """Whether a listener is asking."""
        return _current_task() is self._task

    @property
    def waits_for_asker(self) -> bool:
        """Also whether a task asks that the listener has begun, as `asyncio.wait_for()` does: that has its context."""
        return self.is_current or (self.current is not None and _held.get() is self._token)

    def _call(
        self, consumer: ConsumerSteps, listener: MessageListener, delivery: Delivery, message: Message
    ) -> Steps[None]:
        self._token = object()
        _held.set(self._token)
        yield from super()._call(consumer, listener, delivery, message)
        _held.set(None)

    def _ends(self, error: BaseException) -> bool:
        """Whether the task was cancelled, or the program ends."""
        return _ends_task(error)


class EventLoop:
    """The world of `legato.client.aio`."""

    turn = TaskTurn
    notifier = TaskNotifier
    dispatcher = TaskDispatcher

    def run(self, steps: Steps[Any]) -> Coroutine[Any, Any, Any]:
        """Awaitable that runs the steps."""
        return drive(steps)


def _ends_task(error: BaseException) -> bool:
    """Whether an exception is meant for the task in which it was raised; a listener may have cancelled what it awaits.

    The loop raises an end of the program from within any task.
    """
    if isinstance(error, asyncio.CancelledError):
        task = _current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit)


def _current_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:  # the I/O thread asks; it has no loop
        return None

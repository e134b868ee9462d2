"""Calls to a connection's listeners: completions, exceptions, failovers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Protocol

from legato.client.steps import NOTHING, Await, Steps, drive

log = logging.getLogger("legato.client")


class Notifier(Protocol):
    """Calls in order, one at a time: a slow listener delays listeners only."""

    def call(self, function: Callable[[], Steps[None]]) -> None:
        """Take the steps that `function` makes soon. Only I/O threads call this: each group of brokers has one."""

    def stop(self) -> Steps[None]:
        """Finish what was asked for, then end."""

    def ends(self, error: BaseException, rest: Callable[[], Steps[None]]) -> bool:
        """Whether what a listener raised is meant for who calls it and ends that; the next one begins with `rest`."""

    @property
    def is_current(self) -> bool:
        """Whether a listener is asking."""


class ThreadNotifier:
    """Calls listeners in a thread, which starts when first needed."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._calls: SimpleQueue[Callable[[], Steps[None]] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()

    def call(self, function: Callable[[], Steps[None]]) -> None:
        """Take the steps that `function` makes soon. Only I/O threads call this."""
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                    thread.start()
                    self._thread = thread
        self._calls.put(function)

    def stop(self) -> Steps[None]:
        """Finish what was asked for, then end."""
        thread = self._thread
        if thread is not None:
            self._calls.put(None)
            if thread is not threading.current_thread():
                thread.join()
        yield from NOTHING

    def ends(self, error: BaseException, rest: Callable[[], Steps[None]]) -> bool:
        """Nothing that a listener raises: `sys.exit()` in a thread ends nothing else either."""
        return isinstance(error, GeneratorExit)

    @property
    def is_current(self) -> bool:
        """Whether a listener is asking."""
        return self._thread is threading.current_thread()

    def _run(self) -> None:
        while (function := self._calls.get()) is not None:
            try:
                drive(function())
            except BaseException:
                log.exception("a listener of the application raised")


def calling(listener: Callable[..., object], *arguments: object) -> Callable[[], Steps[None]]:
    """Steps that call a listener."""

    def steps() -> Steps[None]:
        yield Await(listener(*arguments))

    return steps

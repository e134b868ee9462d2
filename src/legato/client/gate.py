"""How the application sleeps until the I/O thread has changed something it waits for."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Gate:
    """One for each session, and one for the connection. The I/O thread touches it in passing and opens it once a lump.

    No update is lost: a waiter says that it waits before it looks; the I/O thread looks for waiters after its changes.
    A thread waits in `wait`; others leave a function that wakes them (`call_when_opened`).
    """

    __slots__ = ("_condition", "_waiters", "_wakers")

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._waiters = 0
        self._wakers: list[Callable[[], None]] = []

    def wait(self, ready: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Sleep until `ready()` is true, at most `timeout_s` seconds; returns whether it is."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        with self._condition:
            self._waiters += 1
            try:
                while not ready():
                    remaining_s = None if deadline is None else deadline - time.monotonic()
                    if remaining_s is not None and remaining_s <= 0:
                        return False
                    self._condition.wait(remaining_s)
            finally:
                self._waiters -= 1
        return True

    def call_when_opened(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, by any thread, each time the gate opens, until `forget`; look again after this call."""
        with self._condition:
            self._waiters += 1
            self._wakers.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Call `wake` no more."""
        with self._condition:
            self._waiters -= 1
            self._wakers.remove(wake)

    def open(self) -> None:
        """Let every waiter look again."""
        if self._waiters:
            with self._condition:
                self._condition.notify_all()
                wakers = list(self._wakers)
            for wake in wakers:
                wake()

"""A condition on which the application waits for the I/O thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Gate:
    """One for each session, and one for the connection. The I/O thread touches it in passing and opens it once a lump.

    No update is lost: a waiter says that it waits before it looks; the I/O thread looks for waiters after its changes.
    A thread waits in `wait`; others leave a function that wakes them (`call_when_opened`).

    A waiter that is interrupted at any line, by a signal handler that raises, leaves nothing behind that others need.
    """

    __slots__ = ("_wakers", "bells")

    def __init__(self) -> None:
        self.bells: dict[threading.Lock, None] = {}
        """One for each thread that waits, which sleeps until its lock is released."""
        self._wakers: list[Callable[[], None]] = []

    @property
    def is_awaited(self) -> bool:
        """Whether anybody waits."""
        return bool(self.bells or self._wakers)

    def wait(self, ready: Callable[[], object], timeout_s: float | None = None) -> bool:
        """Sleep until `ready()` is true, at most `timeout_s` seconds; returns whether it is."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        bell = threading.Lock()
        try:
            bell.acquire()
            self.bells[bell] = None
            try:
                while not ready():
                    if deadline is None:
                        bell.acquire()
                        continue
                    remaining_s = deadline - time.monotonic()
                    if remaining_s <= 0:
                        return False
                    bell.acquire(timeout=min(remaining_s, threading.TIMEOUT_MAX))
            finally:
                self.bells.pop(bell, None)
        except BaseException:
            # Perhaps the interruption hit that very line.
            self.bells.pop(bell, None)
            raise
        return True

    def call_when_opened(self, wake: Callable[[], None]) -> None:
        """Have `wake` called, by any thread, each time the gate opens, until `forget`; look again after this call."""
        self._wakers.append(wake)

    def forget(self, wake: Callable[[], None]) -> None:
        """Call `wake` no more."""
        self._wakers.remove(wake)

    def open(self) -> None:
        """Let every waiter look again."""
        for bell in list(self.bells):
            # Two threads may ring at once; to ring once is enough.
            if bell.locked():
                try:
                    bell.release()
                except RuntimeError:
                    continue
        for wake in list(self._wakers):
            wake()

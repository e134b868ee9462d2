"""One thread at a time: whose turn it is to use a session."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from legato.client.steps import NOTHING, Steps


class Turn(Protocol):
    """Taken by whoever uses a session; who has it may take it again."""

    acquire: Callable[[bool], bool]
    """Take it; returns whether that was possible without waiting (the argument is False)."""
    release: Callable[[], None]
    """Give it up once; it is free when it was released as often as it was acquired."""

    def awaited(self, timeout_s: float | None = None) -> Steps[bool]:
        """Take it, waiting for it if need be, at most so long; returns whether it was taken."""


class ThreadTurn:
    """The turn of a thread."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        # The lock's own methods: a message pays for no call more.
        self.acquire: Callable[[bool], bool] = self._lock.acquire
        self.release: Callable[[], None] = self._lock.release

    def awaited(self, timeout_s: float | None = None) -> Steps[bool]:
        """Take it, waiting for it if need be, at most so long; returns whether it was taken."""
        yield from NOTHING
        return self._lock.acquire(timeout=-1 if timeout_s is None else timeout_s)

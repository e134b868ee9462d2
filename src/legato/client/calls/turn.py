"""The lock of a session: one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from legato.client.gate import Gate
from legato.client.steps import Steps, Wait


class Turn(Protocol):
    """Taken by whoever uses a session; who has it may take it again."""

    def acquire(self, wait: bool, /) -> bool:
        """Take it; returns whether that was possible without waiting (the argument is False)."""

    def release(self) -> None:
        """Give it up."""

    def awaited(self, timeout_s: float | None = None, unless: Callable[[], object] | None = None) -> Steps[bool]:
        """Take it, waiting for it if need be, at most so long; returns whether it was taken.

        Args:
            unless: when to wait no more (`ring`).
        """

    def ring(self) -> None:
        """Who waits for it is to look again."""

    def keep(self, kept: bool) -> bool:
        """Who has it keeps it, or not, whatever is released meanwhile: a listener's calls are not its end.

        Returns:
            Whether it was kept before.
        """


class ThreadTurn:
    """The turn of a thread.

    It is not counted, so that a call that a signal handler interrupts can be cleaned up after at any line: to take
    what one has, and to give up what one has not, change nothing.
    """

    def __init__(self) -> None:
        self.holder: dict[str, int] = {}
        """The ident of the thread that has it; to look and to take is one step of a dictionary's."""
        self.gate = Gate()
        self.bells = self.gate.bells
        """Whether any thread waits for it."""
        self.keeper = 0
        """The ident of the thread that keeps it, whatever is released meanwhile."""

    def acquire(self, wait: bool = False, /) -> bool:
        """Take it; returns whether that was possible without waiting."""
        thread = threading.get_ident()
        return self.holder.setdefault("thread", thread) == thread

    def release(self) -> None:
        """Give it up, if this thread has it and does not keep it."""
        thread = threading.get_ident()
        if self.keeper != thread and self.holder.get("thread") == thread:
            self.holder.pop("thread", None)
        if self.bells:
            self.gate.open()

    def keep(self, kept: bool) -> bool:
        """Who has it keeps it, or not, whatever is released meanwhile; returns whether it was kept before."""
        thread = threading.get_ident()
        before = self.keeper == thread
        self.keeper = thread if kept else 0
        return before

    def awaited(self, timeout_s: float | None = None, unless: Callable[[], object] | None = None) -> Steps[bool]:
        """Take it, waiting for it if need be, at most so long; returns whether it was taken."""
        if self.acquire():
            return True
        yield Wait(self.gate, lambda: self.acquire() or (unless is not None and unless()), timeout_s)
        return self.holder.get("thread") == threading.get_ident()

    def ring(self) -> None:
        """Who waits for it is to look again."""
        self.gate.open()

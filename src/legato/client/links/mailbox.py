"""Mailbox of the I/O thread: commands of the application's threads, and its wake-up."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

DOZE_S = 0.001
"""What nobody waits for may wait so long for company; a thread switch costs more than handling a message."""


class Mailbox:
    """Commands for the I/O thread.

    1. After a lump with commands that thread dozes for a moment: what is asked for meanwhile makes the next lump, and
       wakes it only if somebody waits (`hurry`).
    2. Then it sleeps, and any command wakes it.

    No command is overlooked: a poster adds it before it looks whether the thread sleeps; the thread says that it sleeps
    before it looks for commands.
    """

    def __init__(self) -> None:
        self._commands: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._later: list[Callable[[], None]] = []
        self._asleep = False
        self._dozing = False
        self._hurried = False
        self._naps = 0
        """Counts the times that the I/O thread went to sleep."""
        self._rung_for = -1
        """The nap that somebody has ended; it needs to be done once."""
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self._wake_in, selectors.EVENT_READ)

    def post(self, function: Callable[..., None], *arguments: Any) -> None:
        """Have the I/O thread call `function`; wakes it only if it sleeps. For any thread."""
        self._commands.append((function, arguments))
        if self._asleep:
            self._wake()

    def hurry(self) -> None:
        """Somebody waits for what was posted. For any thread."""
        if self._commands:
            self._hurried = True
            if self._dozing or self._asleep:
                self._wake()

    def wake(self) -> None:
        """Have the I/O thread look for commands, for who was interrupted and may not have. For any thread."""
        self._rung_for = -1
        self._hurried = True
        self._wake()

    def _wake(self) -> None:
        # Who is interrupted before the last line leaves a nap that others can still end: only the I/O thread says that
        # it is awake.
        nap = self._naps
        if self._rung_for == nap:
            return
        # A full pipe wakes it as well; a closed one has nobody to wake.
        with contextlib.suppress(OSError):
            self._wake_out.send(b"\0")
        self._rung_for = nap

    def later(self, function: Callable[[], None]) -> None:
        """Have `function` called in the lump after this one. Only the I/O thread calls this."""
        self._later.append(function)

    def run(self) -> bool:
        """Do what was posted; returns whether anything was."""
        self._hurried = False
        commands = self._commands
        if self._later:
            # They were asked for before.
            commands.extendleft((function, ()) for function in reversed(self._later))
            self._later.clear()
        if not commands:
            return False
        while commands:
            function, arguments = commands.popleft()
            function(*arguments)
        return True

    def sleep(self, timeout_s: float | None, *, doze: bool = False) -> list[tuple[selectors.SelectorKey, int]]:
        """Wait for a command or for one of the selector's sockets; returns which of them are ready.

        Args:
            timeout_s: at most so long; None for ever.
            doze: commands came just now, more may be on their way.
        """
        self._naps += 1
        if doze or self._later:
            self._dozing = True
            timeout_s = 0.0 if self._hurried else DOZE_S
        else:
            self._asleep = True
            if self._commands:
                timeout_s = 0.0
        found = self.selector.select(timeout_s)
        self._asleep = self._dozing = False
        ready = [item for item in found if item[0].fileobj is not self._wake_in]
        if len(ready) < len(found):
            with contextlib.suppress(OSError):
                self._wake_in.recv(4096)
        return ready

    def close(self) -> None:
        """Give the sockets back; posting is then without effect."""
        self.selector.close()
        self._wake_in.close()
        self._wake_out.close()

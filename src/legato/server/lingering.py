"""What outlives a lost connection for a while, so that its client can come back to it (AMQP 3.5.3, timeout)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LINGER_S_MAX = 3600
"""What a client may ask for at most: what lingers takes room."""


class Lingering:
    """Ends that wait for their time, by the name of what will end.

    Args:
        ended: is called after an end that waited.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._waiting: dict[str, asyncio.TimerHandle] = {}

    def leave(self, name: str, seconds: int, end: Callable[[], object]) -> None:
        """`end` is called after so many seconds, at once if there are none, never if `come_back` is first."""
        self.come_back(name)
        if seconds <= 0:
            end()
            return

        def expire() -> None:
            del self._waiting[name]
            end()
            self._ended()

        self._waiting[name] = self._loop.call_later(min(seconds, LINGER_S_MAX), expire)

    def waits(self, name: str) -> bool:
        """Whether it waits for somebody to come back."""
        return name in self._waiting

    def come_back(self, name: str) -> None:
        """Somebody uses it again."""
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            waiting.cancel()

    def stop(self) -> None:
        """The broker ends: nothing ends any more."""
        for waiting in self._waiting.values():
            waiting.cancel()
        self._waiting.clear()

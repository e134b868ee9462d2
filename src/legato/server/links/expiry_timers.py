"""Expiry timers: what a lost client leaves is kept until it returns, or for a time (CONTRACT B21; AMQP 3.5.3)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import msgspec

from legato.server.links.link_endings import LinkEnding


class _End(msgspec.Struct, frozen=True):
    container: str
    end: Callable[[], object]
    timer: asyncio.TimerHandle


class ExpiryTimers:
    """Scheduled ends, by the name of what will end.

    Args:
        reconnect_timeout_s: how long a client has that comes back; 0: what it had ends with its connection.
        ended: is called after an end that waited.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, reconnect_timeout_s: float, ended: Callable[[], None]) -> None:
        self._loop = loop
        self._reconnect_timeout_s = reconnect_timeout_s
        self._ended = ended
        self._waiting: dict[str, _End] = {}

    def hold_until_us(self, ending: LinkEnding, now_us: int) -> int:
        """Until when a consumer's messages and groups are kept for it; 0 if they are not."""
        if ending is not LinkEnding.LOST or self._reconnect_timeout_s == 0:
            return 0
        return now_us + int(self._reconnect_timeout_s * 1_000_000)

    def seconds(self, ending: LinkEnding, asked_s: float) -> float:
        """How long something waits that its client asked to be kept for `asked_s`."""
        return self.kept_s(asked_s) if ending is LinkEnding.LOST else 0

    def kept_s(self, asked_s: float) -> float:
        """How long we keep what a client asked to be kept for `asked_s`."""
        return min(asked_s, self._reconnect_timeout_s)

    def start(self, name: str, seconds: float, container: str, end: Callable[[], object]) -> None:
        """`end` is called after so many seconds, at once if there are none, never if `cancel` is first.

        Args:
            container: whom it waits for.
        """
        self.cancel(name)
        if seconds <= 0:
            end()
            return

        def expire() -> None:
            del self._waiting[name]
            end()
            self._ended()

        self._waiting[name] = _End(container, end, self._loop.call_later(seconds, expire))

    def waits(self, name: str) -> bool:
        """Whether it waits for somebody to come back."""
        return name in self._waiting

    def cancel(self, name: str) -> None:
        """Somebody uses it again."""
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            waiting.timer.cancel()

    def release(self, container: str) -> None:
        """A container will not come back: what waits for it ends now."""
        for name in [name for name, waiting in self._waiting.items() if waiting.container == container]:
            waiting = self._waiting.pop(name)
            waiting.timer.cancel()
            waiting.end()

    def stop(self) -> None:
        """The broker ends: nothing ends any more."""
        for waiting in self._waiting.values():
            waiting.timer.cancel()
        self._waiting.clear()

"""A watch on the event loop: how promptly it turns, measured by a timer in it and read from other threads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from legato.server.monitoring.histogram import Histogram

TICK_S = 0.1


class LoopWatch:
    """Measures how late the loop runs a timer.

    Args:
        turned: is called each time, in the loop.
    """

    def __init__(self, turned: Callable[[], None] = lambda: None) -> None:
        self.lags = Histogram()
        self._turned = turned
        self._turned_s = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure from now on; called in the loop."""
        self._turned_s = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()

    @property
    def stalled_s(self) -> float:
        """For how long the loop has been late; 0 while it is on time."""
        return max(time.monotonic() - self._turned_s - TICK_S, 0.0)

    def _tick(self) -> None:
        self.lags.observe(self.stalled_s)
        self._turned_s = time.monotonic()
        self._timer = asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._turned()

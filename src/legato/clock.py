"""Clocks: shells read them and pass times to pure code; tests set them."""

import time
from typing import Protocol

_BOOTTIME = getattr(time, "CLOCK_BOOTTIME", None)


def elapsed_s() -> float:
    """Seconds by a clock that never goes back, and goes on while the machine is suspended, where it has such a clock.

    For leases: others take over from a machine that is suspended, whose `time.monotonic` stands still meanwhile.
    """
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


class Clock(Protocol):
    """A source of time."""

    def now_us(self) -> int:
        """Wall-clock time in microseconds since 1970, as facts record it."""

    def monotonic_ms(self) -> int:
        """A clock that never goes back, in milliseconds, for time-outs."""


class SystemClock:
    """The machine's clock."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def monotonic_ms(self) -> int:
        return time.monotonic_ns() // 1_000_000

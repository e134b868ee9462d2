"""A clock for tests that compare durations."""

from legato.clock import Clock


class Watch(Clock):
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.ms = 0

    def now_us(self) -> int:
        return self.ms * 1000

    def monotonic_ms(self) -> int:
        return self.ms

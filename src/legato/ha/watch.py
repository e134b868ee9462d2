"""Failure detector of a backup: silence since the last heartbeat. Pure; time is an argument."""

HEARTBEAT_INTERVAL_S_DEFAULT = 3.0
ACTIVATION_INTERVAL_S_DEFAULT = 10.0
"""At least twice the heartbeat's (CONTRACT B20)."""


class Watch:
    """Measures for how long the primary has been silent.

    Args:
        activation_interval_ms: so long since the last heartbeat, a primary counts as silent (CONTRACT B19).
        now_ms: of a monotonic clock; the watch begins as if a heartbeat had come just now.
    """

    def __init__(self, activation_interval_ms: int, now_ms: int) -> None:
        self._activation_interval_ms = activation_interval_ms
        self._heard_ms = now_ms
        self.heartbeats = 0
        """How many came."""

    def set_activation_interval(self, activation_interval_ms: int) -> None:
        """From now on so long, still since the last heartbeat."""
        self._activation_interval_ms = activation_interval_ms

    def heard(self, now_ms: int) -> None:
        """A heartbeat came."""
        self._heard_ms = now_ms
        self.heartbeats += 1

    def silence_ms(self, now_ms: int) -> int:
        """The time since the last heartbeat."""
        return now_ms - self._heard_ms

    def remaining_ms(self, now_ms: int) -> int:
        """The time until the primary counts as silent; 0 if it does."""
        return max(self._activation_interval_ms - self.silence_ms(now_ms), 0)

    def is_silent(self, now_ms: int) -> bool:
        """Whether the activation interval has passed since the last heartbeat."""
        return self.remaining_ms(now_ms) == 0

"""Takeover report: the last takeover, and estimates for the next (CONTRACT A26)."""

from __future__ import annotations

import msgspec

from legato.server.config.configuration import HighAvailabilitySection

STARTED = "start"
CRASHED = "crash"
RETURNED = "returned"
"""Whoever had the lock last has let go of it without having begun an epoch: the primary before is the primary again."""


class Takeover(msgspec.Struct):
    """How and when a primary began to serve."""

    cause: str
    """`start`: nobody had served just before; `crash`: the last primary died; `returned`: who had won the lock could
    not serve; else why it let go, as `switchover`."""
    detection_ms: float
    """From the first sign that the last primary was gone (silence, or the lost connection) to having its lock; 0 if
    the lock was the first sign."""
    takeover_ms: float | None = None
    """From having the lock to serving; None until it serves."""


class Failover(msgspec.Struct):
    """The last takeover, and what to expect of the next one, from the moment when the primary fails to when clients are
    served. When they come is said apart."""

    cause: str
    detection_ms: float
    takeover_ms: float | None
    backups: list[str]
    """Where those listen that would take over."""
    expected_crash_ms: float | None
    """The system frees a dead process's lock: detection as it was the last time, and the last takeover's time. With a
    replicated log the lease has to pass first."""
    expected_switchover_ms: float | None
    silence_noticed_after_s_min: float
    """A primary that is silent but lives counts as lost when the activation interval has passed since its last
    heartbeat, which it sent at most a heartbeat's interval before. Its lock decides then."""
    silence_noticed_after_s_max: float
    clients_return_within_ms: int
    """Over so long they are asked to spread their return; 0 if they are few (CONTRACT B23)."""
    self_fencing: bool
    """Whether a silent primary lets go of its lock by itself when it runs again."""


def describe(
    takeover: Takeover,
    section: HighAvailabilitySection,
    backups: list[str],
    *,
    return_window_ms: int,
    lease_ms: float = 0.0,
) -> Failover:
    """The last takeover, and the estimate for the next.

    Args:
        takeover: the last.
        section: the intervals.
        backups: where those listen that would take over.
        return_window_ms: over so long clients are asked to spread their return.
        lease_ms: a primary with a replicated log is not replaced sooner, and the system frees nothing.
    """
    duration_ms = takeover.takeover_ms
    detection_ms = max(takeover.detection_ms if takeover.cause == CRASHED else 0.0, lease_ms)
    return Failover(
        cause=takeover.cause,
        detection_ms=takeover.detection_ms,
        takeover_ms=duration_ms,
        backups=backups,
        expected_crash_ms=None if duration_ms is None else detection_ms + duration_ms,
        expected_switchover_ms=duration_ms,
        silence_noticed_after_s_min=section.activation_interval_s - section.heartbeat_interval_s,
        silence_noticed_after_s_max=section.activation_interval_s,
        clients_return_within_ms=return_window_ms,
        self_fencing=section.self_fencing,
    )

"""What `legato status` says of failovers: the last one as it was measured, the next one as it is to be expected."""

import msgspec

from legato.cli.rendering import failover_lines
from legato.server.config import HighAvailabilitySection
from legato.server.failover import CRASHED, Takeover, describe

HA = HighAvailabilitySection(heartbeat_interval_s=2.0, activation_interval_s=5.0, self_fencing=True)


def lines(takeover: Takeover, backups: list[str], window_ms: int = 0) -> list[str]:
    return failover_lines(msgspec.to_builtins(describe(takeover, HA, backups, return_window_ms=window_ms)))


def test_what_to_expect_of_a_crash_and_of_silence_follows_from_intervals_and_the_last_takeover() -> None:
    """CONTRACT A26, B19: a formula, with what was measured put in."""
    assert lines(Takeover(CRASHED, 4.0, 20.0), ["two:5672"], 1500) == [
        "Serves since a crash: noticed within 4 ms, took over in 20 ms.",
        "Backups: two:5672. To expect: 24 ms after a crash (4 to notice, 20 to take over), 20 ms at a switchover.",
        "A primary that falls silent is noticed after 3 to 5 s, and replaced 20 ms after it runs again or dies.",
        "Clients come back within 1.5 s.",
    ]


def test_without_a_backup_nothing_is_promised() -> None:
    assert lines(Takeover("start", 0.0, 20.0), [])[1:] == ["There is no backup: if this broker dies, nobody serves."]

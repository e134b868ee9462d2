"""What `legato status` says of failovers: the last one as it was measured, the next one as it is to be expected."""

import time

import msgspec

from legato.cli.rendering import clock_time, failover_lines, reader_lines
from legato.server.config.configuration import HighAvailabilitySection
from legato.server.management.takeover_report import CRASHED, Takeover, describe

HA = HighAvailabilitySection(heartbeat_interval_s=2.0, activation_interval_s=5.0, self_fencing=True)


NOON_US = 1_790_000_000_000_000


def lines(takeover: Takeover, backups: list[str], window_ms: int = 0, lease_ms: int = 0) -> list[str]:
    described = describe(takeover, HA, backups, return_window_ms=window_ms, lease_ms=lease_ms)
    return failover_lines(msgspec.to_builtins(described), NOON_US, {"lease_ms": lease_ms} if lease_ms else None)


def test_what_to_expect_of_a_crash_and_of_silence_follows_from_intervals_and_the_last_takeover() -> None:
    """CONTRACT A26, B19: a formula, with what was measured put in."""
    assert lines(Takeover(CRASHED, 4.0, 20.0), ["two:5672"], 1500) == [
        "Primary since 2026-09-21 14:13:20 UTC (the last primary failed; noticed after 4 ms, ready after 20 ms).",
        "Backups: two:5672.",
        "Expected interruption, from the last takeover: 24 ms after a crash, 20 ms at a planned switchover.",
        "A primary that falls silent is noticed after 3 to 5 s, and replaced 20 ms after it runs again or dies.",
        "After a takeover all clients will reconnect within 1.5 s, spread over that time.",
    ]


def test_with_a_replicated_log_a_crash_costs_the_lease_at_least() -> None:
    """It said 5 ms before the first crash, which then took a second and a half."""
    began, crashed = lines(Takeover("start", 0.0, 5.0), ["two:5672"], lease_ms=500), Takeover(CRASHED, 1541.0, 7.0)
    assert began[2] == (
        "Expected interruption, from the last start or takeover: at least 505 ms after a crash, 5 ms at a planned "
        "switchover."
    )
    assert began[3].startswith("A primary that crashes, falls silent, or whose machine is lost has to be silent for")
    measured = lines(crashed, ["two:5672"], lease_ms=500)
    assert measured[2] == (
        "Expected interruption, from the last takeover: 1548 ms after a crash, 7 ms at a planned switchover."
    )


def test_few_clients_may_reconnect_immediately() -> None:
    assert lines(Takeover("start", 0.0, 83.0), ["two:5672"])[0].endswith("(started; ready after 83 ms).")
    assert lines(Takeover("start", 0.0, 83.0), ["two:5672"])[-1] == (
        "After a takeover all clients may reconnect immediately."
    )


def test_without_a_backup_nothing_is_promised() -> None:
    assert lines(Takeover("start", 0.0, 20.0), [])[1:] == ["There is no backup: if this broker dies, nobody serves."]


def test_a_time_of_today_is_shown_without_its_date() -> None:
    assert len(clock_time(time.time_ns() // 1000)) == len("02:10:15 UTC")


def test_a_reader_that_was_stopped_is_named_with_what_to_do() -> None:
    """CORRECTNESS D5."""
    reader = {"pid": 77, "command": "legato story q", "stopped": True, "since_us": NOON_US, "grown_bytes": 12 << 20}
    assert reader_lines([reader]) == [
        "Process 77 (legato story q, stopped) has been reading the store since 2026-09-21 14:13:20 UTC and keeps "
        "deleted messages in its file, which has grown by 12.0 MiB since: continue it (SIGCONT) or end it."
    ]

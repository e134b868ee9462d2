"""When a primary counts as silent."""

from legato.ha.watch import ACTIVATION_INTERVAL_S_DEFAULT, HEARTBEAT_INTERVAL_S_DEFAULT, Watch


def test_the_activation_interval_runs_from_the_last_heartbeat() -> None:
    """CONTRACT B19."""
    watch = Watch(10_000, now_ms=0)
    assert (watch.is_silent(9_999), watch.is_silent(10_000)) == (False, True)
    watch.heard(12_000)
    watch.heard(15_000)
    assert (watch.is_silent(24_999), watch.is_silent(25_000)) == (False, True)


def test_the_time_that_remains_never_is_negative() -> None:
    watch = Watch(10_000, now_ms=100)
    assert [watch.remaining_ms(now) for now in (100, 4_100, 10_100, 99_999)] == [10_000, 6_000, 0, 0]
    watch.heard(50_000)
    assert (watch.silence_ms(50_700), watch.remaining_ms(50_700), watch.heartbeats) == (700, 9_300, 1)


def test_the_intervals_are_those_of_the_contract() -> None:
    """CONTRACT B20."""
    assert (HEARTBEAT_INTERVAL_S_DEFAULT, ACTIVATION_INTERVAL_S_DEFAULT) == (3, 10)

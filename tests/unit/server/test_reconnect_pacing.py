"""Over which time the clients of a lost broker come back."""

from legato.clock import Clock
from legato.limits import RECONNECT_TIMEOUT_S, RETURN_WINDOW_MS_MAX
from legato.server.connections.reconnect_pacing import ReconnectPacing
from tests.support.stopwatch import Watch


def returning(
    expected: int = 0, clock: Clock | None = None, reconnect_timeout_s: float = 60.0
) -> tuple[ReconnectPacing, list[int]]:
    reported: list[int] = []
    return ReconnectPacing(500, reconnect_timeout_s, expected, clock or Watch(), reported.append), reported


def test_few_clients_come_back_at_once_and_the_window_grows_with_their_number() -> None:
    """CONTRACT B23."""
    found, _ = returning()
    assert [found.window_ms(number) for number in (1, 49, 50, 500, 1000)] == [0, 0, 100, 1000, 2000]


def test_nobody_is_kept_away_for_long() -> None:
    found, _ = returning()
    assert found.window_ms(1_000_000) == RETURN_WINDOW_MS_MAX < RECONNECT_TIMEOUT_S * 1000
    hurried, _ = returning(reconnect_timeout_s=8.0)
    assert hurried.window_ms(1_000_000) == 2000
    forgetful, _ = returning(reconnect_timeout_s=0)
    assert forgetful.window_ms(1_000_000) == RETURN_WINDOW_MS_MAX


def test_a_new_primary_counts_with_the_clients_of_its_predecessor_until_they_had_time_to_come() -> None:
    """CONTRACT B23: those that come first are to know of those that come later."""
    clock = Watch()
    found, _ = returning(expected=500, clock=clock)
    assert found.window_ms(1) == 1000
    clock.ms = RECONNECT_TIMEOUT_S * 1000
    assert found.window_ms(1) == 0


def test_the_number_is_reported_for_a_successor_when_it_has_changed_much() -> None:
    found, reported = returning()
    for number in (10, 100, 110, 120, 126, 130, 200, 90, 10):
        found.window_ms(number)
    assert reported == [100, 126, 200, 90]

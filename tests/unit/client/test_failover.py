"""Which broker is tried when."""

from hypothesis import given
from hypothesis import strategies as st

from legato.client.failover.schedule import Schedule, Try
from legato.client.failover.uri import Host, Options

A, B = Host("a", 1), Host("b", 2)


def tries(schedule: Schedule, count: int, chance: float = 0.0) -> list[Try | None]:
    return [schedule.next(chance) for _ in range(count)]


def test_hosts_are_tried_in_order_beginning_after_the_lost_one() -> None:
    """CONTRACT B22."""
    schedule = Schedule((A, B), Options(), rounds_max=-1, first=1)
    assert [attempt.host for attempt in tries(schedule, 5) if attempt] == [B, A, B, A, B]


def test_the_first_round_begins_at_once_and_later_ones_wait_longer_up_to_a_maximum() -> None:
    options = Options(reconnect_delay_s=0.01, reconnect_backoff=2, reconnect_delay_max_s=0.1)
    schedule = Schedule((A, B), options, rounds_max=-1)
    waits = [attempt.wait_s for attempt in tries(schedule, 14) if attempt]
    assert waits == [0, 0, 0.01, 0, 0.02, 0, 0.04, 0, 0.08, 0, 0.1, 0, 0.1, 0]


def test_it_gives_up_after_its_rounds() -> None:
    """CONTRACT E6: a number of attempts, each of all hosts."""
    schedule = Schedule((A, B), Options(reconnect_delay_s=0.01), rounds_max=2)
    assert tries(schedule, 6) == [Try(0, A), Try(0, B), Try(0.01, A), Try(0, B), None, None]
    schedule = Schedule((A,), Options(), rounds_max=0)
    assert schedule.next(0.5) is None


def test_jitter_only_shortens_a_wait() -> None:
    options = Options(reconnect_delay_s=0.01, reconnect_jitter=0.5)
    schedule = Schedule((A,), options, rounds_max=-1)
    schedule.next(1.0)
    assert schedule.next(1.0) == Try(0.005, A)


@given(st.floats(0.001, 1))
def test_a_backup_is_found_soon_after_it_serves(serves_after_s: float) -> None:
    """P4, P5: the gap follows the takeover, not the client's own steps."""
    options = Options()
    schedule = Schedule((A,), options, rounds_max=-1)
    waited = 0.0
    while waited < serves_after_s:
        attempt = schedule.next(0.0)
        assert attempt is not None
        waited += attempt.wait_s
    assert waited <= serves_after_s * options.reconnect_backoff + options.reconnect_delay_s


@given(st.floats(0, 1), st.integers(1, 5))
def test_trying_for_ever_never_waits_beyond_the_maximum(chance: float, hosts: int) -> None:
    options = Options()
    schedule = Schedule(tuple(Host(str(n), 1) for n in range(hosts)), options, rounds_max=-1)
    for _ in range(3000):
        attempt = schedule.next(chance)
        assert attempt is not None
        assert 0 <= attempt.wait_s <= options.reconnect_delay_max_s

"""How long a message waits whose listener raised."""

from __future__ import annotations

import pytest

from legato.client import ConnectionFactory
from legato.client.calls.dispatcher import BACKOFF_MAX_S, backoff_s
from legato.errors import ConfigError


def test_a_message_waits_longer_each_time_but_for_the_first() -> None:
    waits = [backoff_s(attempt, 0.1) for attempt in range(1, 10)]
    assert waits == [0, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, BACKOFF_MAX_S]
    assert backoff_s(100_000, 0.1) == BACKOFF_MAX_S


def test_it_waits_as_long_as_is_asked_for_also_if_that_is_longer() -> None:
    assert [backoff_s(attempt, 60.0) for attempt in (1, 2, 3)] == [0, 60, 60]


def test_it_need_not_wait_at_all() -> None:
    assert not any(backoff_s(attempt, 0.0) for attempt in range(10))


@pytest.mark.parametrize("wrong", [-0.1, float("nan")])
def test_a_wait_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(ConfigError, match="listener_backoff_s must be from 0 to 3600"):
        ConnectionFactory("amqp://localhost", listener_backoff_s=wrong)

"""What a sweeper makes of what it sends late, and how long it waits."""

from __future__ import annotations

import msgspec
import pytest

from legato.flows.database.outbox import marks
from legato.flows.database.sweeper import BACKOFF_MAX_US, backoff_us, late
from legato.flows.model.calls import first_envelope
from legato.flows.model.envelope import Call, Outgoing

SENT_US = 1_700_000_000_000_000
SECOND_US = 1_000_000


def outgoing(delay_ms: int, time_to_live_ms: int) -> Outgoing:
    envelope = first_envelope(
        message_id="m1",
        flow_id="f1",
        trace_id="order:17",
        sender="test",
        to="Orders.place",
        data=msgspec.Raw(b'"tea"'),
        now_us=SENT_US,
        call=Call.SEND,
    )
    return Outgoing(envelope, delay_ms=delay_ms, time_to_live_ms=time_to_live_ms)


@pytest.mark.parametrize(
    ("delay_ms", "time_to_live_ms", "later_s", "delay_left_ms", "life_left_ms"),
    [
        (0, 0, 60, 0, 0),
        (5_000, 0, 2, 3_000, 0),
        (5_000, 0, 60, 0, 0),
        (0, 5_000, 2, 0, 3_000),
        (0, 5_000, 60, 0, 1),
        (5_000, 5_000, -2, 5_000, 5_000),
    ],
)
def test_what_is_sent_late_waits_and_lives_so_much_less(
    delay_ms: int, time_to_live_ms: int, later_s: int, delay_left_ms: int, life_left_ms: int
) -> None:
    """CONTRACT D12: an outbox costs latency, and nothing else."""
    left = late(outgoing(delay_ms, time_to_live_ms), SENT_US + later_s * SECOND_US)
    assert (left.delay_ms, left.time_to_live_ms) == (delay_left_ms, life_left_ms)


def test_what_is_refused_is_tried_again_after_longer_and_longer_waits() -> None:
    waits = [backoff_us(attempts) for attempts in range(1, 100)]
    assert waits[:3] == [2 * SECOND_US, 4 * SECOND_US, 8 * SECOND_US]
    assert waits == sorted(waits)
    assert waits[-1] == BACKOFF_MAX_US


def test_a_statement_has_a_mark_for_each_value() -> None:
    assert marks(["a", "b", "c"]) == "?, ?, ?"

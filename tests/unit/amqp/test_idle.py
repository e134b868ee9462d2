"""Heartbeats and time-outs, by a clock of the test (amqp.md C8)."""

from __future__ import annotations

import pytest

from legato.amqp.engine.events import Closed, Transfer
from tests.unit.amqp.pair import Pair, of

pytestmark = pytest.mark.usefixtures("either_way")

EMPTY_FRAME = b"\x00\x00\x00\x08\x02\x00\x00\x00"


def test_nothing_is_due_before_the_connection_is_open() -> None:
    pair = Pair()
    assert pair.server.tick(1000) == 0
    pair.free()


def test_a_silent_peer_is_closed_at_the_deadline() -> None:
    pair = Pair(server={"idle_timeout_ms": 4000}).opened()
    assert pair.server.tick(1000) > 0
    assert not pair.server.closed
    pair.server.tick(4999)
    assert not pair.server.closed
    pair.server.tick(5001)
    assert pair.server.closed
    (closed,) = pair.server.take_events()
    assert isinstance(closed, Closed)
    assert (closed.condition, closed.clean) == ("amqp:resource-limit-exceeded", False)
    assert b"idle-timeout" in pair.server.data_to_send()
    pair.free()


def test_heartbeats_keep_a_connection_open() -> None:
    pair = Pair(server={"idle_timeout_ms": 4000}).opened()
    now_ms = 1000
    heartbeats = 0
    pair.server.tick(now_ms)
    deadline_ms = pair.client.tick(now_ms)
    while now_ms < 60_000:
        assert deadline_ms > now_ms
        now_ms = deadline_ms
        deadline_ms = pair.client.tick(now_ms)
        data = pair.client.data_to_send()
        heartbeats += data == EMPTY_FRAME
        assert pair.server.receive_data(data) == []
        pair.server.tick(now_ms)
    assert not pair.server.closed
    assert heartbeats > 20
    pair.free()


def test_the_peer_is_told_of_the_timeout() -> None:
    pair = Pair(server={"idle_timeout_ms": 4000}).opened()
    pair.server.tick(1)
    pair.server.tick(10_000)
    events, _ = pair.exchange()
    assert [event.condition for event in of(events, Closed)] == ["amqp:resource-limit-exceeded"]
    pair.free()


def test_a_message_that_comes_slowly_is_no_silence() -> None:
    """Also if the engine gets nothing of it before it is there as a whole."""
    pair = Pair(server={"idle_timeout_ms": 4000}).opened()
    sender, _ = pair.outgoing()
    sender.send(b"m" * 10_000, b"12345678")
    data = pair.client.data_to_send()
    pair.server.tick(1)
    for at in range(0, len(data) - 1000, 1000):
        assert pair.server.receive_data(data[at : at + 1000]) == []
        pair.server.tick(1 + 3 * at)
    assert not pair.server.closed
    (transfer,) = pair.server.receive_data(data[at + 1000 :])
    assert isinstance(transfer, Transfer)
    assert transfer.data == b"m" * 10_000
    pair.free()

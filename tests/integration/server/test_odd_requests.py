"""Odd requests of an administrator: refused, they leave everything as it was."""

from __future__ import annotations

import pytest

from legato.amqp.codec.message import ValueBody
from tests.integration.server.conftest import Connect
from tests.integration.server.test_management import Manager
from tests.integration.server.wire import got, message
from tests.support.amqp_peer import AmqpPeer

CONFIGURATION = "[ha]\nself_fencing = true\n"


def test_a_move_with_a_property_whose_name_cannot_be_written_is_refused(peer: AmqpPeer) -> None:
    """Else it is never answered, and its first message is nobody's until the broker restarts."""
    peer.socket.settimeout(10)
    manager = Manager(peer)
    sender = peer.sender("from here")
    for body in (b"first", b"second"):
        peer.send(sender, message(body))
    status, _ = manager.ask("MOVE", "from here", to="there", properties='{"\\ud800": "half a character"}')
    assert status == 400
    assert got(peer, peer.receiver("from here", 2), 2) == [b"first", b"second"]


@pytest.mark.parametrize(
    "intervals",
    [
        '{"heartbeat_interval_s": 1e-9, "activation_interval_s": 1e-8}',
        '{"activation_interval_s": 1e308}',
        f'{{"activation_interval_s": {"9" * 400}}}',
        f'{{"activation_interval_s": -{"9" * 400}}}',
    ],
)
def test_intervals_that_nobody_can_keep_are_refused(intervals: str, connect: Connect) -> None:
    """Else the lease of a primary lapses at once and its process ends, or the request fails half way."""
    peer = connect()
    manager = Manager(peer)
    before = manager.ask("UPDATE", type="broker")
    manager.post("UPDATE", type="broker", body=ValueBody(intervals))
    assert manager.answer()[0] == 400
    assert Manager(connect()).ask("UPDATE", type="broker") == before

"""Odd requests of an administrator: refused, they leave everything as it was."""

from __future__ import annotations

import pytest

from legato.amqp.codec.message import ValueBody
from legato.amqp.codec.types import Described, Symbol, UInt, ULong
from legato.amqp.codec.values import encode_value
from tests.integration.server.conftest import Connect
from tests.integration.server.test_management import Manager
from tests.integration.server.wire import got, message
from tests.support.amqp_peer import AmqpPeer
from tests.support.raw import SOURCE, Raw, RawPeer, opening, receiving, terminus
from tests.support.server import Server

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


HELD = {Symbol("legato:held"): [ULong(1 << 63)], Symbol("legato:queue"): ULong(99)}
DECIMAL = Raw(b"\xc1\x09\x02\xa3\x01p\x74\x01\x02\x03\x04")
NOT_ASCII = Raw(encode_value({"\u00e9": Described(ULong(0x0000468C00000004), "a = 1")}))


@pytest.mark.parametrize(
    ("node_properties", "filters", "capabilities", "properties"),
    [
        (None, None, None, HELD),
        (DECIMAL, None, None, None),
        (None, NOT_ASCII, None, None),
        (None, None, "topic\u00e9", None),
    ],
    ids=["claim", "decimal", "filter", "capability"],
)
def test_an_attach_is_answered_whatever_there_is_to_be_echoed(
    broker: Server, node_properties: object, filters: object, capabilities: object, properties: object
) -> None:
    """Of a durable subscription it was not, and others that waited for the same commit were not answered either."""
    source = terminus(
        SOURCE,
        "topic://odd",
        UInt(2),
        Symbol("never"),
        UInt(0),
        False,
        node_properties,
        None,
        filters,
        None,
        None,
        capabilities,
    )
    peer = RawPeer(broker.port)
    peer.send(opening(), receiving(1, "", source=source, properties=properties))
    heard = peer.hear_until(b"me-1", b"internal-error")
    assert b"me-1" in heard
    assert b"internal-error" not in heard
    peer.close()

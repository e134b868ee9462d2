"""A numbered message that is sent again over the relay: what is stored needs no room (promise 1)."""

from __future__ import annotations

from typing import Any

from legato.amqp import names
from legato.amqp.codec.message import Properties
from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from tests.integration.server.wire import close, got, message
from tests.support.amqp_peer import AmqpPeer

CONFIGURATION = '[[address]]\nmatch = "narrow"\nmax_messages = 1\nwhen_full = "block"\n'


def test_what_is_stored_is_confirmed_though_its_queue_is_full(peer: AmqpPeer) -> None:
    """It was refused, for the room that it takes itself: its sender took it for lost."""

    def relay() -> Any:
        return peer.sender(None, {names.PRODUCER_ID: "relaying"})

    def sent(link: Any, number: int) -> Any:
        data = message(b"%d" % number, properties=Properties(to="narrow"))
        return peer.send(link, data, number.to_bytes(8, "big"))

    link = relay()
    assert sent(link, 1) == ACCEPTED
    link.detach()
    peer.flush()
    again = relay()
    assert sent(again, 1) == ACCEPTED
    assert isinstance(sent(again, 2), Rejected)
    assert got(peer, peer.receiver("narrow", 5), 1) == [b"1"]
    close(peer, again)

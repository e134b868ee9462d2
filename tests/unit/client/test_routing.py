"""What a client does with links that it did not begin."""

from __future__ import annotations

from legato.amqp.engine.events import Detached
from legato.amqp.engine.terminus import Terminus
from legato.client.links.routing import route
from tests.unit.amqp.pair import Pair


def test_a_client_refuses_a_link_that_its_peer_begins() -> None:
    """AMQP 2.6.3: whoever listens there need not be a broker; the client's thread lives on."""
    pair = Pair().opened()
    _, theirs = pair.session()
    link = theirs.sender("unasked", target=Terminus(address="q"))
    events, _ = pair.exchange()
    assert list(route(events)) == []
    answered, told = pair.exchange()
    assert list(route(answered)) == []
    (detached,) = [event for event in told if isinstance(event, Detached)]
    assert (detached.link, detached.condition) == (link, "amqp:not-allowed")

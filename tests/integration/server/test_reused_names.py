"""A link's name that is used again for something else: what the former link was for goes with it."""

from __future__ import annotations

from typing import Any

import pytest

from legato.amqp.engine.outcomes import ACCEPTED
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.wire import attach, attach_sender, detached, durable, got, topic
from tests.support.amqp_peer import AmqpPeer, text

CONFIGURATION = '[[address]]\nmatch = "narrow"\nmax_messages = 2\nwhen_full = "block"\n'


def suspend(peer: AmqpPeer, link: Any) -> None:
    link.suspend()
    peer.flush()
    assert not detached(peer, link).closed


@pytest.mark.parametrize("other", ["queue", "durable"])
def test_a_subscription_ends_whose_link_is_attached_to_something_else(
    connect: Connect, peer: AmqpPeer, other: str
) -> None:
    """It stayed without consumers, and its producers waited for ever."""
    first = attach(peer, topic("narrow"), 5, name="again")
    sender = attach_sender(peer, Terminus(address="narrow", kind="target", capabilities=["topic"]))
    assert peer.send(sender, text(b"1")) == ACCEPTED
    assert got(peer, first, 1) == [b"1"]
    if other == "queue":
        suspend(peer, first)
        attach(peer, Terminus(address="elsewhere", kind="source"), 5, name="again")
    else:
        # The same client comes back before the broker has noticed that it was gone.
        attach(connect("test"), durable("elsewhere"), 5, name="again")
    for body in (b"2", b"3", b"4", b"5"):
        assert peer.send(sender, text(body)) == ACCEPTED

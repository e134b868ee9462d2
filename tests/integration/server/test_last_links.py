"""A temporary queue whose last link is attached again: it has a link all the time, and stays with what it holds."""

from __future__ import annotations

from typing import Any

import pytest

from legato.amqp.engine.outcomes import ACCEPTED
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.test_temporary import NO_LINKS, NO_LINKS_OR_MESSAGES, make
from tests.integration.server.wire import attach, close, got
from tests.support.amqp_peer import AmqpPeer, text


@pytest.mark.parametrize("policy", [NO_LINKS, NO_LINKS_OR_MESSAGES])
def test_a_receiver_that_is_attached_again_keeps_the_queue(peer: AmqpPeer, policy: int) -> None:
    maker, address = make(peer, policy)
    attach(peer, Terminus(address=address, kind="source"), 0, name="again")
    close(peer, maker)
    peer.session = peer.amqp.begin_session()
    again = attach(peer, Terminus(address=address, kind="source"), 5, name="again")
    assert peer.send(peer.sender(address), text(b"x")) == ACCEPTED
    assert got(peer, again, 1) == [b"x"]


def test_a_producer_that_is_attached_again_keeps_the_queue(connect: Connect, peer: AmqpPeer) -> None:
    maker, address = make(peer, NO_LINKS)
    target = Terminus(address=address, kind="target")

    def attached() -> Any:
        link = peer.session.sender("again", target=target)
        peer._attached(link)
        return link

    assert peer.send(attached(), text(b"1")) == ACCEPTED
    close(peer, maker)
    peer.session = peer.amqp.begin_session()
    assert peer.send(attached(), text(b"2")) == ACCEPTED
    assert got(peer, peer.receiver(address, 2), 2) == [b"1", b"2"]

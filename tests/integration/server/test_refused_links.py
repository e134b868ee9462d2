"""What an attach that is refused leaves behind: nothing."""

from __future__ import annotations

import pytest

from legato.amqp import names
from legato.amqp.engine.outcomes import ACCEPTED
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.test_temporary import dynamic, is_there
from tests.integration.server.wire import attach, attach_sender
from tests.support.amqp_peer import AmqpPeer, Refused, text

UNFIT = {names.PRODUCER_ID: "\x01"}


def test_a_refused_producer_does_not_take_the_place_of_the_older_link_of_its_name(peer: AmqpPeer) -> None:
    """The older link was cut, and the refused one registered instead of it for as long as the broker ran."""
    older = peer.sender("orders", name="same")
    first, peer.session = peer.session, peer.amqp.begin_session()
    with pytest.raises(Refused, match="cannot be the name of a producer"):
        peer.sender("orders", properties=UNFIT, name="same")
    peer.session = first
    assert peer.send(older, text(b"still here")) == ACCEPTED


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_refused_producer_leaves_no_temporary_node(peer: AmqpPeer, kind: str) -> None:
    address = f"temp-{kind}://of-a-refused-producer"
    target = dynamic("target", capability=f"temporary-{kind}")
    with pytest.raises(Refused, match="cannot be the name of a producer"):
        attach_sender(peer, target, properties=UNFIT | {names.TEMPORARY_NAME: address})
    assert not is_there(peer, address)


def test_a_refused_subscriber_leaves_no_temporary_topic(peer: AmqpPeer) -> None:
    address = "temp-topic://of-a-refused-subscriber"
    source = Terminus(dynamic=True, kind="source", capabilities=["temporary-topic"], durable=2, expiry_policy="never")
    with pytest.raises(Refused, match="cannot be the name of a subscription"):
        attach(peer, source, name="a\nb", properties={names.TEMPORARY_NAME: address})
    assert not is_there(peer, address)


def test_a_name_that_facts_would_repeat_at_length_is_refused(peer: AmqpPeer) -> None:
    """Each message that went over the link again had it: 200 KB of a name for each byte of a message."""
    with pytest.raises(Refused, match=r"The link's name has 2,049 bytes, 2,048 may be\."):
        peer.receiver("orders", 1, name="n" * 2049)
    with pytest.raises(Refused, match="The link's name has"):
        peer.sender("orders", name="\u20ac" * 1000)
    assert peer.send(peer.sender("orders", name="n" * 2048), text(b"still here")) == ACCEPTED

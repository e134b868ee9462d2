"""Durable subscriptions on the wire: their names, how they stay and how they end (amqp.md A3, A4)."""

import pytest

from legato.amqp.codec.message import decode_message
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.test_topics import publish
from tests.integration.server.wire import (
    attach,
    close,
    detached,
    durable,
    got,
    leave,
    nothing_more,
    selecting,
    topic,
    without_local,
)
from tests.support.amqp_peer import AmqpPeer, Refused
from tests.support.server import Server

NOWHERE = Terminus(kind="none")


def test_a_durable_subscription_keeps_what_comes_while_its_client_is_away(connect: Connect) -> None:
    peer = connect("client")
    leave(peer, attach(peer, durable("d1"), name="sub"))
    publish(peer, "d1", b"1", b"2")
    peer.close()
    again = connect("client")
    assert got(again, attach(again, durable("d1"), 5, name="sub"), 2) == [b"1", b"2"]


def test_it_survives_the_broker(broker: Server, connect: Connect) -> None:
    peer = connect("client")
    leave(peer, attach(peer, durable("d2"), name="lasting"))
    publish(peer, "d2", b"1")
    broker.kill()
    broker.start()
    again = connect("client")
    publish(again, "d2", b"2")
    assert got(again, attach(again, durable("d2"), 5, name="lasting"), 2) == [b"1", b"2"]


def test_a_lost_connection_leaves_it(connect: Connect) -> None:
    peer = connect("client")
    attach(peer, durable("d3"), 5, name="lost")
    peer.drop()
    publish(connect(), "d3", b"1")
    again = connect("client")
    assert got(again, attach(again, durable("d3"), 5, name="lost"), 1) == [b"1"]


def test_closing_its_link_ends_it(connect: Connect) -> None:
    peer = connect("client")
    close(peer, attach(peer, durable("d4"), name="closed"))
    publish(peer, "d4", b"1")
    assert nothing_more(peer, attach(peer, durable("d4"), 5, name="closed"))


def test_a_subscription_that_expires_with_its_link_is_not_kept(connect: Connect) -> None:
    """AMQP 3.5.6: the terminus expires on detach."""
    peer = connect("client")
    source = topic("d5", durable=2, expiry_policy="link-detach")
    leave(peer, attach(peer, source, name="expiring"))
    publish(peer, "d5", b"1")
    assert nothing_more(peer, attach(peer, source, 5, name="expiring"))


def test_a_link_without_a_source_unsubscribes(connect: Connect) -> None:
    peer = connect("client")
    leave(peer, attach(peer, durable("d6", filters=selecting("a = 1")), name="unsubscribed"))
    link = attach(peer, NOWHERE, name="unsubscribed")
    assert link.remote_source.address == "d6"
    assert (link.remote_source.durable, link.remote_source.expiry_policy) == (2, "never")
    assert link.remote_source.capabilities == ["topic"]
    assert list(link.remote_source.filters) == ["jms-selector"]
    close(peer, link)
    with pytest.raises(Refused, match="not-found"):
        attach(peer, NOWHERE, name="unsubscribed")


def test_unsubscribing_what_there_is_not_is_refused(peer: AmqpPeer) -> None:
    with pytest.raises(Refused, match="not-found"):
        attach(peer, NOWHERE, name="never")


def test_a_subscription_in_use_cannot_be_unsubscribed(connect: Connect) -> None:
    peer = connect("client")
    attach(peer, durable("d7"), name="used")
    with pytest.raises(Refused, match="resource-locked"):
        attach(connect("client"), NOWHERE, name="used")


def test_who_ends_a_subscription_that_somebody_uses_meanwhile_hears_that_it_stays(connect: Connect) -> None:
    """Between the look for it and the close of that link a consumer came: the close was answered as if it had ended."""
    peer, other = connect("client"), connect("client")
    leave(peer, attach(peer, durable("d9"), name="wanted"))
    asking = attach(peer, NOWHERE, name="wanted")
    attach(other, durable("d9"), name="wanted")
    asking.close()
    peer.flush()
    assert detached(peer, asking).condition == "amqp:resource-locked"


@pytest.mark.parametrize(
    "other", [durable("d8", filters=selecting("a = 2")), durable("d8 other"), durable("d8", filters=without_local())]
)
def test_another_selector_or_topic_makes_it_anew(connect: Connect, other: Terminus) -> None:
    """Jakarta Messaging 8.3.3: that is unsubscribing and subscribing again."""
    peer = connect("client")
    leave(peer, attach(peer, durable("d8"), name="changed"))
    publish(peer, "d8", b"old")
    link = attach(peer, other, 5, name="changed")
    assert nothing_more(peer, link)
    close(peer, link)


def test_an_unshared_one_has_one_consumer(connect: Connect) -> None:
    peer = connect("client")
    attach(peer, durable("d9"), name="single")
    session, peer.session = peer.session, peer.amqp.begin_session()
    with pytest.raises(Refused, match="resource-locked"):
        attach(peer, durable("d9"), name="single")
    peer.session = session


def test_a_client_that_came_back_takes_its_subscription_over(connect: Connect) -> None:
    """amqp.md A11: its old connection may look alive for long."""
    peer, again = connect("client"), connect("client")
    link = attach(peer, durable("d10"), 5, name="stolen")
    publish(peer, "d10", b"1")
    peer.transfer()
    second = attach(again, durable("d10"), 5, name="stolen")
    assert detached(peer, link).condition == "amqp:link:stolen"
    assert got(again, second, 1) == [b"1"]


def test_what_comes_again_is_flagged(connect: Connect) -> None:
    """CONTRACT A17, C10: for topics too."""
    peer = connect("client")
    attach(peer, durable("d11"), 5, name="flagged")
    publish(peer, "d11", b"1")
    peer.transfer()
    peer.drop()
    again = connect("client")
    attach(again, durable("d11"), 5, name="flagged")
    assert decode_message(again.transfer().data).header.delivery_count == 1


def test_names_belong_to_their_client(connect: Connect) -> None:
    ann, bob = connect("ann/1"), connect("ann")
    first, second = (attach(who, durable("d12"), 5, name=name) for who, name in ((ann, "s"), (bob, "1/s")))
    publish(ann, "d12", b"1")
    assert got(ann, first, 1) == got(bob, second, 1) == [b"1"]


def test_what_waits_in_a_subscription_can_be_browsed(connect: Connect) -> None:
    peer = connect("client")
    leave(peer, attach(peer, durable("d13"), name="browsed"))
    publish(peer, "d13", b"1")
    peer.receiver("subscription://client/browsed", 5, mode="copy")
    assert peer.transfer().settled
    assert got(peer, attach(peer, durable("d13"), 5, name="browsed"), 1) == [b"1"]


def test_credit_may_come_before_the_answer_to_the_attach(connect: Connect) -> None:
    peer = connect("client")
    leave(peer, attach(peer, durable("d14"), name="eager"))
    publish(peer, "d14", b"1")
    link = peer.session.receiver("eager", source=durable("d14"))
    link.add_credit(5)
    peer.flush()
    assert got(peer, link, 1) == [b"1"]

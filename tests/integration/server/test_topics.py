"""Topics on the wire: every subscriber gets its copy, of what comes after it (Jakarta Messaging 4.2; amqp.md A3)."""

import pytest

from legato.amqp.codec.message import Properties
from legato.amqp.codec.types import Byte
from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.wire import (
    attach,
    attach_sender,
    close,
    got,
    message,
    nothing_more,
    selecting,
    topic,
    without_local,
)
from tests.support.amqp_peer import AmqpPeer, Refused, text
from tests.support.server import Server


def publish(peer: AmqpPeer, name: str, *bodies: bytes) -> None:
    link = attach_sender(peer, Terminus(address=name, kind="target", capabilities=["topic"]))
    for body in bodies:
        assert peer.send(link, text(body)) == ACCEPTED
    close(peer, link)


def test_every_subscriber_gets_a_copy(connect: Connect, peer: AmqpPeer) -> None:
    other = connect()
    links = [(who, attach(who, topic("news"), 10)) for who in (peer, peer, other)]
    publish(peer, "news", b"1", b"2")
    for who, link in links:
        assert got(who, link, 2) == [b"1", b"2"]


def test_a_subscriber_sees_nothing_of_what_was_before_it(peer: AmqpPeer) -> None:
    publish(peer, "later", b"before")
    link = attach(peer, topic("later"), 5)
    publish(peer, "later", b"after")
    assert got(peer, link, 1) == [b"after"]
    assert nothing_more(peer, link)


def test_a_subscriber_that_left_misses_what_comes_meanwhile(peer: AmqpPeer) -> None:
    link = attach(peer, topic("meanwhile"), 5, name="same")
    close(peer, link)
    publish(peer, "meanwhile", b"missed")
    link = attach(peer, topic("meanwhile"), 5, name="same")
    assert nothing_more(peer, link)


def test_a_queue_and_a_topic_of_one_name_are_two_things(peer: AmqpPeer) -> None:
    subscriber = attach(peer, topic("both"), 5)
    queue = Terminus(address="both", kind="target", capabilities=["queue"])
    assert peer.send(attach_sender(peer, queue), text(b"to the queue")) == ACCEPTED
    publish(peer, "both", b"to the topic")
    assert got(peer, subscriber, 1) == [b"to the topic"]
    assert nothing_more(peer, subscriber)
    receiver = attach(peer, Terminus(address="both", kind="source", capabilities=["queue"]), 5)
    assert got(peer, receiver, 1) == [b"to the queue"]


def test_without_a_capability_an_address_is_what_there_is_already(peer: AmqpPeer) -> None:
    """amqp.md A14."""
    first = attach(peer, topic("known"), 5)
    assert peer.send(peer.sender("known"), text(b"x")) == ACCEPTED
    assert got(peer, first, 1) == [b"x"]
    assert peer.send(peer.sender("unknown"), text(b"y")) == ACCEPTED
    assert got(peer, peer.receiver("unknown", 1), 1) == [b"y"]


def test_a_prefix_says_what_is_meant_where_there_are_no_capabilities(peer: AmqpPeer) -> None:
    link = peer.receiver("topic://prefixed", 5)
    assert link.remote_source.address == "topic://prefixed"
    assert peer.send(peer.sender("topic://prefixed"), text(b"x")) == ACCEPTED
    assert got(peer, link, 1) == [b"x"]


def test_the_relay_goes_by_the_kind_of_destination_that_a_message_names(peer: AmqpPeer) -> None:
    """amqp.md A2: properties.to and x-opt-jms-dest."""
    relay = peer.sender(None)
    subscriber = attach(peer, topic("relayed"), 5)
    for kind, body in ((0, b"queue"), (1, b"topic")):
        data = message(body, properties=Properties(to="relayed"), annotations={"x-opt-jms-dest": Byte(kind)})
        assert peer.send(relay, data) == ACCEPTED
    assert got(peer, subscriber, 1) == [b"topic"]
    assert nothing_more(peer, subscriber)


def test_the_relay_refuses_what_it_cannot_place(peer: AmqpPeer) -> None:
    relay = peer.sender(None)
    gone = message(b"x", properties=Properties(to="temp-queue://gone"))
    for data, condition in ((text(b"nowhere"), "failed"), (gone, "amqp:not-found")):
        outcome = peer.send(relay, data)
        assert isinstance(outcome, Rejected)
        assert outcome.condition == condition


def test_a_transaction_publishes_at_its_commit(peer: AmqpPeer) -> None:
    subscriber = attach(peer, topic("atomic"), 5)
    link = attach_sender(peer, Terminus(address="atomic", kind="target", capabilities=["topic"]))
    relay = peer.sender(None)
    coordinator = peer.coordinator()
    for fail in (True, False):
        txn_id = peer.declare(coordinator)
        peer.send(link, text(b"direct"), txn_id=txn_id)
        data = message(b"relayed", properties=Properties(to="atomic"), annotations={"x-opt-jms-dest": Byte(1)})
        peer.send(relay, data, txn_id=txn_id)
        assert nothing_more(peer, subscriber)
        assert peer.discharge(coordinator, txn_id, fail=fail) == ACCEPTED
        subscriber.add_credit(5)
    assert got(peer, subscriber, 2) == [b"direct", b"relayed"]


def test_no_local_leaves_out_what_its_own_connection_publishes(connect: Connect, peer: AmqpPeer) -> None:
    """Jakarta Messaging 8.3.1."""
    link = attach(peer, topic("mine", filters=without_local()), 5)
    assert list(link.remote_source.filters) == ["no-local"]
    publish(peer, "mine", b"own")
    publish(connect("other"), "mine", b"other's")
    assert got(peer, link, 1) == [b"other's"]
    assert nothing_more(peer, link)


def test_a_selector_chooses_among_a_topics_messages(peer: AmqpPeer) -> None:
    link = attach(peer, topic("chosen", filters=selecting("colour = 'red'")), 5)
    sender = attach_sender(peer, Terminus(address="chosen", kind="target", capabilities=["topic"]))
    for colour in ("red", "blue", "red"):
        peer.send(sender, message(colour.encode(), colour=colour))
    assert got(peer, link, 2) == [b"red", b"red"]
    assert nothing_more(peer, link)


@pytest.mark.parametrize("name", ["$schedule", "subscription://c/s", "volatile://c/s"])
def test_names_of_the_brokers_own_cannot_be_used(peer: AmqpPeer, name: str) -> None:
    with pytest.raises(Refused, match="not-allowed"):
        attach(peer, Terminus(address=name, kind="source"))
    with pytest.raises(Refused, match="not-allowed"):
        attach_sender(peer, Terminus(address=name, kind="target"))


def test_a_topics_messages_survive_the_broker(broker: Server, connect: Connect) -> None:
    """CONTRACT B10: topic subscribers continue normally."""
    peer = connect("survivor")
    attach(peer, topic("enduring", timeout_s=60), name="sub")
    publish(peer, "enduring", b"kept")
    broker.kill()
    broker.start()
    again = connect("survivor")
    link = attach(again, topic("enduring", timeout_s=60), 5, name="sub")
    assert got(again, link, 1) == [b"kept"]


def test_a_kind_of_destination_that_is_no_number_is_as_none(peer: AmqpPeer) -> None:
    data = message(b"x", properties=Properties(to="strange kind"), annotations={"x-opt-jms-dest": ["topic"]})
    assert peer.send(peer.sender(None), data) == ACCEPTED
    assert got(peer, peer.receiver("strange kind", 1), 1) == [b"x"]

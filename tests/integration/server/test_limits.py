"""Limits of addresses on the wire: producers wait for credit, or are refused, or the oldest goes."""

import signal

from legato.amqp.codec.message import Properties
from legato.amqp.engine.link import Sender
from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.wire import attach, attach_sender, close, detached, got, message, nothing_more, topic
from tests.support.amqp_peer import AmqpPeer, text
from tests.support.server import Server

CONFIGURATION = """
[[address]]
match = "limited.#"
max_messages = 3
[[address]]
match = "limited.block.#"
when_full = "block"
[[address]]
match = "limited.fail.#"
when_full = "fail"
[[address]]
match = "limited.drop"
when_full = "drop-oldest"
[[address]]
match = "bytes"
max_bytes = 1000
when_full = "block"
[[address]]
match = "closed.#"
auto_create = false
"""
FULL = "amqp:resource-limit-exceeded"


def producer(peer: AmqpPeer, name: str, kind: str = "queue") -> Sender:
    """A sender that may have no credit."""
    return attach_sender(peer, Terminus(address=name, kind="target", capabilities=[kind]))


def credit(peer: AmqpPeer, link: Sender) -> int:
    """The credit of a sender, after the broker has answered to all that went before."""
    close(peer, attach(peer, Terminus(address="elsewhere", kind="source")))
    return link.credit


def wait_for_credit(peer: AmqpPeer, link: Sender) -> None:
    while not link.credit:
        peer.flush()
        peer.events += peer.amqp.receive_data(peer.socket.recv(1 << 16))


def test_a_producer_gets_as_much_credit_as_there_is_room(peer: AmqpPeer) -> None:
    link = producer(peer, "limited.block.1")
    assert credit(peer, link) == 3
    for left in (2, 1, 0):
        assert peer.send(link, text(b"x")) == ACCEPTED
        assert credit(peer, link) == left


def test_it_gets_more_when_something_is_consumed(connect: Connect, peer: AmqpPeer) -> None:
    link = producer(peer, "limited.block.2")
    for _ in range(3):
        assert peer.send(link, text(b"x")) == ACCEPTED
    assert credit(peer, link) == 0
    other = connect()
    got(other, other.receiver("limited.block.2", 1), 1)
    wait_for_credit(peer, link)
    assert peer.send(link, text(b"fourth")) == ACCEPTED


def test_several_producers_share_the_room(connect: Connect, peer: AmqpPeer) -> None:
    first, second = producer(peer, "limited.block.3"), producer(peer, "limited.block.3")
    assert credit(peer, first) == 3
    assert credit(peer, second) == 1  # The first may never use its credit.
    assert peer.send(second, text(b"x")) == ACCEPTED
    assert credit(peer, second) == 1


def test_a_full_topic_is_one_with_a_full_subscription(connect: Connect, peer: AmqpPeer) -> None:
    link = producer(peer, "limited.block.topic", "topic")
    assert credit(peer, link) > 3
    other = connect()
    receiver = attach(other, topic("limited.block.topic"))
    second = producer(peer, "limited.block.topic", "topic")
    assert credit(peer, second) == 3
    for _ in range(3):
        assert peer.send(second, text(b"x")) == ACCEPTED
    assert credit(peer, second) == 0
    receiver.add_credit(3)
    got(other, receiver, 3)
    wait_for_credit(peer, second)


def test_the_relay_cannot_wait_and_is_refused(peer: AmqpPeer) -> None:
    relay = peer.sender(None)
    data = message(b"x", properties=Properties(to="limited.block.4"))
    outcomes = [peer.send(relay, data) for _ in range(4)]
    assert outcomes[:3] == [ACCEPTED] * 3
    assert isinstance(outcomes[3], Rejected)
    assert outcomes[3].condition == FULL
    assert peer.send(relay, message(b"x", properties=Properties(to="free"))) == ACCEPTED


def test_bytes_are_limited_too(peer: AmqpPeer) -> None:
    link = producer(peer, "bytes")
    wait_for_credit(peer, link)
    sent = 0
    while credit(peer, link):
        assert peer.send(link, text(b"x" * 300)) == ACCEPTED
        sent += 1
    assert sent in (3, 4)


def test_sends_to_a_full_address_fail(peer: AmqpPeer) -> None:
    link = producer(peer, "limited.fail.1")
    outcomes = [peer.send(link, text(b"x")) for _ in range(4)]
    assert outcomes[:3] == [ACCEPTED] * 3
    assert isinstance(outcomes[3], Rejected)
    assert outcomes[3].condition == FULL


def test_a_transaction_that_sends_to_a_full_address_rolls_back(peer: AmqpPeer) -> None:
    link = producer(peer, "limited.fail.2")
    for _ in range(3):
        assert peer.send(link, text(b"x")) == ACCEPTED
    coordinator = peer.coordinator()
    txn_id = peer.declare(coordinator)
    peer.send(link, text(b"too much"), txn_id=txn_id)
    assert isinstance(peer.discharge(coordinator, txn_id), Rejected)


def test_the_oldest_gives_way(peer: AmqpPeer) -> None:
    link = producer(peer, "limited.drop")
    for number in range(5):
        assert peer.send(link, text(b"%d" % number)) == ACCEPTED
    receiver = peer.receiver("limited.drop", 5)
    assert got(peer, receiver, 3) == [b"2", b"3", b"4"]
    assert nothing_more(peer, receiver)


def test_what_is_not_made_by_using_it_is_not_found(peer: AmqpPeer) -> None:
    for kind in ("queue", "topic"):
        link = peer.session.sender(
            peer._name(), target=Terminus(address="closed.1", kind="target", capabilities=[kind])
        )
        peer.flush()
        assert detached(peer, link).condition == "amqp:not-found"


def test_settings_can_be_read_again(broker: Server, connect: Connect, peer: AmqpPeer) -> None:
    link = producer(peer, "limited.block.again")
    for _ in range(3):
        assert peer.send(link, text(b"x")) == ACCEPTED
    assert credit(peer, link) == 0
    file = broker.store.parent / "legato.toml"
    before = file.read_text()
    file.write_text("[[address]]\nmatch = 'limited.*'\nmax_mesages = 1\n")
    broker.signal(signal.SIGHUP)
    broker.wait_for_log("max_mesages")
    assert credit(peer, link) == 0
    file.write_text("[[address]]\nmatch = 'limited.#'\nmax_messages = 5\nwhen_full = 'block'\n")
    broker.signal(signal.SIGHUP)
    wait_for_credit(peer, link)
    assert credit(peer, link) == 2
    file.write_text(before)
    broker.signal(signal.SIGHUP)

"""Temporary destinations on the wire: dynamic nodes and when they go (AMQP 3.5.3, 3.5.10-13; amqp.md A8)."""

from typing import Any

import pytest

from legato.amqp import names
from legato.amqp.codec.message import Properties
from legato.amqp.codec.types import Described, Symbol, ULong
from legato.amqp.engine.events import Attached, Transfer
from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.test_topics import publish
from tests.integration.server.wire import (
    attach,
    attach_sender,
    close,
    detached,
    got,
    message,
    nothing_more,
    topic,
)
from tests.support.amqp_peer import AmqpPeer, Refused, text
from tests.support.server import Server

CLOSE, NO_LINKS, NO_MESSAGES, NO_LINKS_OR_MESSAGES = 0x2B, 0x2C, 0x2D, 0x2E


def dynamic(kind: str, policy: Any = None, capability: str = "temporary-queue", **fields: Any) -> Terminus:
    properties = {} if policy is None else {"lifetime-policy": Described(policy, [])}
    return Terminus(dynamic=True, kind=kind, capabilities=[capability], properties=properties, **fields)


def make(peer: AmqpPeer, policy: int = CLOSE, **fields: Any) -> tuple[Any, str]:
    """A temporary queue as Qpid JMS makes it: the link and the address."""
    link = attach_sender(peer, dynamic("target", ULong(policy), **fields))
    assert link.remote_target.dynamic
    assert link.remote_target.properties["lifetime-policy"].descriptor == policy
    address = link.remote_target.address
    assert address is not None
    return link, address


def is_there(peer: AmqpPeer, address: str) -> bool:
    """Whether a sender may attach."""
    link = peer.session.sender(peer._name(), target=Terminus(address=address, kind="target"))
    peer.flush()
    peer.expect(Attached, lambda event: event.link is link)
    if link.remote_target.kind == "none":
        assert detached(peer, link).condition == "amqp:not-found"
        return False
    close(peer, link)
    return True


def test_a_sender_makes_a_queue_of_a_new_name(peer: AmqpPeer) -> None:
    (first, one), (_, two) = make(peer), make(peer)
    assert one != two
    assert one.startswith("temp-queue://")
    assert peer.send(peer.sender(one), text(b"x")) == ACCEPTED
    assert got(peer, peer.receiver(one, 1), 1) == [b"x"]
    assert peer.send(first, text(b"over the link that made it")) == ACCEPTED


def test_a_receiver_makes_a_queue_and_receives_from_it(peer: AmqpPeer) -> None:
    """rhea's and python-proton's way of request and reply."""
    link = attach(peer, Terminus(dynamic=True, kind="source"), 5)
    address = link.remote_source.address
    assert address is not None
    relay = peer.sender(None)
    assert peer.send(relay, message(b"answer", properties=Properties(to=address))) == ACCEPTED
    assert got(peer, link, 1) == [b"answer"]
    close(peer, link)
    assert not is_there(peer, address)
    assert isinstance(peer.send(relay, message(b"late", properties=Properties(to=address))), Rejected)


def test_a_temporary_topic_has_subscribers(connect: Connect, peer: AmqpPeer) -> None:
    link = attach_sender(peer, dynamic("target", ULong(CLOSE), "temporary-topic"))
    address = link.remote_target.address
    assert address is not None
    assert address.startswith("temp-topic://")
    links = [attach(peer, Terminus(address=address, kind="source", capabilities=["temporary-topic"]), 5) for _ in "12"]
    publish(connect(), address, b"x")
    assert [got(peer, each, 1) for each in links] == [[b"x"], [b"x"]]
    close(peer, link)
    for each in links:
        assert detached(peer, each).condition == "amqp:resource-deleted"


def test_deleting_it_cuts_off_who_uses_it(connect: Connect, peer: AmqpPeer) -> None:
    link, address = make(peer)
    other = connect()
    consumer, producer = peer.receiver(address, 5), other.sender(address)
    close(peer, link)
    assert detached(peer, consumer).condition == "amqp:resource-deleted"
    assert detached(other, producer).condition == "amqp:resource-deleted"
    assert not is_there(peer, address)


@pytest.mark.parametrize("end", ["close", "drop"])
def test_it_ends_with_its_connection(connect: Connect, peer: AmqpPeer, end: str) -> None:
    other = connect()
    _, address = make(other)
    sender = peer.sender(address)
    getattr(other, end)()
    assert detached(peer, sender).condition == "amqp:resource-deleted"
    assert not is_there(peer, address)


def test_deleting_it_costs_nobody_else_anything_however_many_links_it_has(connect: Connect, peer: AmqpPeer) -> None:
    """The end of each of its links had it deleted once more, a level deeper: a RecursionError cut off its maker, and
    what its other user consumed from another queue was held for good."""
    link, address = make(peer)
    user, watcher = connect("user"), connect("watcher")
    for body in (b"1", b"2"):
        watcher.send(watcher.sender("kept"), text(body))
    held = user.receiver("kept", 10)
    user.expect(Transfer)
    senders = [attach_sender(user, Terminus(address=address, kind="target")) for _ in range(400)]
    close(peer, link)
    assert not is_there(peer, address)
    assert {detached(user, sender).condition for sender in senders} == {"amqp:resource-deleted"}
    close(user, held)
    assert got(watcher, watcher.receiver("kept", 10), 2) == [b"1", b"2"]


def test_with_its_last_link(connect: Connect, peer: AmqpPeer) -> None:
    """Lifetime policy delete-on-no-links."""
    other = connect()
    link, address = make(other, NO_LINKS)
    receiver = other.receiver(address, 1)
    close(other, link)
    sender = peer.sender(address)
    assert peer.send(sender, text(b"x")) == ACCEPTED
    assert got(other, receiver, 1) == [b"x"]
    close(other, receiver)
    assert is_there(other, address)  # The sender of the message is there.
    close(peer, sender)
    assert not is_there(other, address)


def test_when_it_is_empty(connect: Connect, peer: AmqpPeer) -> None:
    """Lifetime policy delete-on-no-messages: who made it has gone, what it left is consumed."""
    link, address = make(peer, NO_MESSAGES)
    assert peer.send(link, text(b"x")) == ACCEPTED
    close(peer, link)
    assert is_there(peer, address)
    receiver = peer.receiver(address, 1)
    assert got(peer, receiver, 1) == [b"x"]
    assert detached(peer, receiver).condition == "amqp:resource-deleted"


def test_when_it_has_neither_links_nor_messages(connect: Connect, peer: AmqpPeer) -> None:
    """Lifetime policy delete-on-no-links-or-messages."""
    link, address = make(peer, NO_LINKS_OR_MESSAGES)
    assert peer.send(link, text(b"x")) == ACCEPTED
    close(peer, link)
    receiver = peer.receiver(address, 1)
    assert got(peer, receiver, 1) == [b"x"]
    assert is_there(peer, address)
    close(peer, receiver)
    assert not is_there(peer, address)


def test_policies_may_be_named_by_symbols(peer: AmqpPeer) -> None:
    link = attach_sender(peer, dynamic("target", Symbol("amqp:delete-on-no-links:list")))
    assert link.remote_target.properties["lifetime-policy"].descriptor == NO_LINKS


def test_a_client_that_lost_its_connection_finds_it_again(connect: Connect) -> None:
    """AMQP 3.5.3 timeout; names.TEMPORARY_NAME."""
    peer = connect("client")
    link, address = make(peer, timeout_s=60)
    assert peer.send(link, text(b"kept")) == ACCEPTED
    peer.drop()
    again = connect("client")
    assert is_there(again, address)
    mine = attach_sender(again, dynamic("target", ULong(CLOSE)), properties={names.TEMPORARY_NAME: address})
    assert mine.remote_target.address == address
    assert got(again, again.receiver(address, 1), 1) == [b"kept"]


def test_it_is_found_again_after_the_broker_died_too(broker: Server, connect: Connect) -> None:
    """CONTRACT E2: non-durable queues are there again at the backup."""
    peer = connect("client")
    link, address = make(peer)
    assert peer.send(link, text(b"kept")) == ACCEPTED
    broker.kill()
    broker.start()
    again = connect("client")
    properties = {names.TEMPORARY_NAME: address}
    attach_sender(again, dynamic("target", ULong(CLOSE)), properties=properties)
    assert got(again, again.receiver(address, 1), 1) == [b"kept"]
    other = f"temp-queue://{'0' * 36}"
    made = attach_sender(again, dynamic("target", ULong(CLOSE)), properties={names.TEMPORARY_NAME: other})
    assert made.remote_target.address == other


def test_anothers_cannot_be_had(connect: Connect) -> None:
    owner = connect("owner")
    _, address = make(owner)
    for who in (owner, connect("thief")):
        with pytest.raises(Refused, match="resource-locked"):
            attach_sender(who, dynamic("target", ULong(CLOSE)), properties={names.TEMPORARY_NAME: address})
    with pytest.raises(Refused, match="not-allowed"):
        attach_sender(connect(), dynamic("target"), properties={names.TEMPORARY_NAME: "orders"})


def test_a_lost_subscriber_misses_nothing_if_it_comes_back_in_time(connect: Connect) -> None:
    peer = connect("client")
    attach(peer, topic("patient", timeout_s=60), 5, name="sub")
    peer.drop()
    other = connect()
    publish(other, "patient", b"meanwhile")
    again = connect("client")
    link = attach(again, topic("patient", timeout_s=60), 5, name="sub")
    assert got(again, link, 1) == [b"meanwhile"]
    close(again, link)
    publish(other, "patient", b"missed")
    assert nothing_more(again, attach(again, topic("patient", timeout_s=60), 5, name="sub"))

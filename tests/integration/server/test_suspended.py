"""Links that were detached, not closed: what their termini keep, and how long (AMQP 2.6.4, 2.6.13, 3.5.3, 3.5.6)."""

from __future__ import annotations

from typing import Any

import pytest
from cproton import lib

from legato import limits
from legato.amqp import names
from legato.amqp.engine.events import Detached, SessionEnded, Transfer
from legato.amqp.engine.link import Receiver
from legato.amqp.engine.outcomes import ACCEPTED, DELIVERY_FAILED, RELEASED, Outcome, Rejected, Transactional
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.wire import (
    attach,
    attach_sender,
    close,
    detached,
    durable,
    got,
    leave,
    nothing_more,
    topic,
)
from tests.support.amqp_peer import AmqpPeer, Refused, text

ROLLBACK = "amqp:transaction:rollback"
CONFIGURATION = '[[address]]\nmatch = "group"\nexclusive = true\n'


def suspend(peer: AmqpPeer, link: Any) -> None:
    """Detach without closing, and wait for the answer; what is unsettled stays so on this side too."""
    link.suspend()
    peer.flush()
    assert not detached(peer, link).closed


def holding(peer: AmqpPeer, address: str, **source: Any) -> tuple[Receiver, int]:
    """A link that was detached with an unsettled delivery, and this."""
    peer.send(peer.sender(address), text(b"held"))
    link = attach(peer, Terminus(address=address, kind="source", **source), 1)
    delivery = peer.expect(Transfer, lambda event: event.link is link).delivery
    suspend(peer, link)
    return link, delivery


def is_empty(peer: AmqpPeer, address: str) -> bool:
    """Whether nobody is given anything from a queue."""
    return nothing_more(peer, peer.receiver(address, 0))


def end_session(peer: AmqpPeer) -> None:
    peer.session.close()
    peer.flush()
    peer.expect(SessionEnded)
    peer.session = peer.amqp.begin_session()


def test_a_transaction_consumes_what_was_delivered_before_a_detach(connect: Connect, peer: AmqpPeer) -> None:
    """AMQP 4.4.2: it was accepted, and the message came again."""
    txn_id = peer.declare(coordinator := peer.coordinator())
    link, delivery = holding(peer, "retired")
    link.update(delivery, Transactional(txn_id, ACCEPTED))
    assert peer.send(peer.sender("reply"), text(b"done"), txn_id=txn_id) == Transactional(txn_id, ACCEPTED)
    assert peer.discharge(coordinator, txn_id) == ACCEPTED
    end_session(peer)
    assert is_empty(connect(), "retired")
    other = connect()
    assert got(other, other.receiver("reply", 1), 1) == [b"done"]


@pytest.mark.parametrize("fields", [{}, {"expiry_policy": "session-end"}, {"expiry_policy": "never"}, {"timeout_s": 5}])
def test_what_is_unsettled_stays_until_the_session_ends(
    connect: Connect, peer: AmqpPeer, fields: dict[str, Any], request: pytest.FixtureRequest
) -> None:
    address = f"stays {request.node.name}"
    holding(peer, address, **fields)
    assert is_empty(connect(), address)
    end_session(peer)
    assert got(peer, peer.receiver(address, 1), 1) == [b"held"]


@pytest.mark.parametrize(
    ("outcome", "comes_again"),
    [(ACCEPTED, False), (RELEASED, True), (DELIVERY_FAILED, True), (Rejected("x", ""), False)],
)
def test_it_can_be_settled_after_the_detach(
    connect: Connect, peer: AmqpPeer, outcome: Outcome, comes_again: bool
) -> None:
    address = f"settled {type(outcome).__name__}"
    link, delivery = holding(peer, address)
    link.settle(delivery, outcome)
    peer.flush()
    other = connect()
    if comes_again:
        assert got(other, other.receiver(address, 1), 1) == [b"held"]
    else:
        end_session(peer)
        assert is_empty(other, address)


def test_a_link_that_expires_as_it_is_detached_keeps_nothing(connect: Connect, peer: AmqpPeer) -> None:
    """AMQP 3.5.6, link-detach; what Qpid JMS asks for."""
    holding(peer, "expired", expiry_policy="link-detach")
    other = connect()
    assert got(other, other.receiver("expired", 1), 1) == [b"held"]


def test_a_link_may_outlive_its_detach_for_a_while(connect: Connect, peer: AmqpPeer) -> None:
    """AMQP 3.5.3, timeout; it comes to others when that is over, though its session goes on."""
    link, _ = holding(peer, "a while", expiry_policy="link-detach", timeout_s=1)
    assert link.remote_source.timeout_s == 1
    other = connect()
    receiver = other.receiver("a while", 1)
    assert got(other, receiver, 1) == [b"held"]


def test_the_answer_to_an_attach_promises_no_more_than_is_kept(peer: AmqpPeer) -> None:
    """AMQP 2.6.3, 3.5.6: no deliveries are resumed in another session."""
    for asked, told in (("never", "session-end"), ("connection-close", "session-end"), ("link-detach", "link-detach")):
        link = attach(peer, Terminus(address="told", kind="source", expiry_policy=asked, timeout_s=1 << 31))
        assert link.remote_source.expiry_policy == told
        assert link.remote_source.timeout_s == limits.RECONNECT_TIMEOUT_S
    assert attach(peer, durable("told topic"), name="told").remote_source.expiry_policy == "never"


def test_a_link_that_is_attached_again_gets_what_was_kept(connect: Connect, peer: AmqpPeer) -> None:
    """AMQP 2.6.13: our engine resumes no deliveries, so they are delivered anew, to others too."""
    peer.send(peer.sender("again"), text(b"held"))
    link = peer.receiver("again", 1, name="one")
    peer.transfer()
    suspend(peer, link)
    again = peer.receiver("again", 1, name="one")
    assert got(peer, again, 1) == [b"held"]
    assert not [event for event in peer.events if isinstance(event, Detached)]


def test_one_that_holds_nothing_hinders_nobody(connect: Connect, peer: AmqpPeer) -> None:
    """A detached link of which all is settled is no consumer any more: others get what an exclusive queue has."""
    link, delivery = holding(peer, "group")
    other = connect()
    peer.send(peer.sender("group"), text(b"next"))
    receiver = other.receiver("group", 1)
    link.settle(delivery, ACCEPTED)
    peer.flush()
    assert got(other, receiver, 1) == [b"next"]


def test_a_subscription_that_is_not_durable_lives_as_long_as_its_terminus(connect: Connect, peer: AmqpPeer) -> None:
    """AMQP 3.5.6, session-end: what is published while its link is detached is there when it is attached again."""
    link = peer.session.receiver("sub", source=topic("news"))
    peer._attached(link)
    suspend(peer, link)
    publisher = connect()
    to = attach_sender(publisher, topic("news", expiry_policy="session-end"))
    assert publisher.send(to, text(b"missed")) == ACCEPTED
    again = attach(peer, topic("news"), 1, name="sub")
    assert got(peer, again, 1) == [b"missed"]
    suspend(peer, again)
    end_session(peer)
    assert publisher.send(to, text(b"gone")) == ACCEPTED
    assert nothing_more(peer, attach(peer, topic("news"), name="sub"))


def test_a_durable_subscription_gives_to_others_what_its_detached_link_has(connect: Connect, peer: AmqpPeer) -> None:
    """Jakarta Messaging 8.3.3: detaching is how its consumers close; what they had is delivered anew."""
    source = durable("shared news", "shared", "global")
    link = attach(peer, source, 1, name="sub|global")
    publisher = connect()
    assert publisher.send(attach_sender(publisher, topic("shared news")), text(b"x")) == ACCEPTED
    peer.expect(Transfer)
    other = connect()
    receiver = attach(other, source, 1, name="sub|global2")
    suspend(peer, link)
    assert got(other, receiver, 1) == [b"x"]


# -- a transaction commits with all that it names, or not at all (AMQP 4.3)


@pytest.mark.parametrize("closed", [True, False])
def test_a_commit_that_lost_an_acknowledgement_is_refused(connect: Connect, peer: AmqpPeer, closed: bool) -> None:
    """The link has ended, and its message is others' by now: all or nothing."""
    coordinator = peer.coordinator()
    txn_id = peer.declare(coordinator)
    address = f"lost {closed}"
    peer.send(peer.sender(address), text(b"held"))
    link = attach(peer, Terminus(address=address, kind="source", expiry_policy="link-detach"), 1)
    delivery = peer.expect(Transfer, lambda event: event.link is link).delivery
    (lib.pn_link_close if closed else lib.pn_link_detach)(link._pn)
    peer.flush()
    assert detached(peer, link).closed is closed
    link.settle(delivery, Transactional(txn_id, ACCEPTED))
    peer.send(peer.sender("half"), text(b"done"), txn_id=txn_id)
    outcome = peer.discharge(coordinator, txn_id)
    assert isinstance(outcome, Rejected)
    assert outcome.condition == ROLLBACK
    assert is_empty(connect(), "half")
    other = connect()
    assert got(other, other.receiver(address, 1), 1) == [b"held"]


def test_a_commit_that_acknowledges_what_a_thief_has_is_refused(connect: Connect) -> None:
    """AMQP 2.6.1, 4.3: the link was stolen while the acknowledgement was on its way."""
    victim, thief = connect("client"), connect("client")
    coordinator = victim.coordinator()
    txn_id = victim.declare(coordinator)
    victim.send(victim.sender("stolen"), text(b"held"))
    link = victim.receiver("stolen", 1, name="link")
    delivery = victim.transfer().delivery
    thief.receiver("stolen", 1, name="link")
    link.settle(delivery, Transactional(txn_id, ACCEPTED))
    outcome = victim.discharge(coordinator, txn_id)
    assert isinstance(outcome, Rejected)
    assert outcome.condition == ROLLBACK


def test_an_acknowledgement_may_be_stated_twice(peer: AmqpPeer) -> None:
    """Unsettled, and then settled: one of a transaction that commits (AMQP 2.7.6)."""
    coordinator = peer.coordinator()
    txn_id = peer.declare(coordinator)
    peer.send(peer.sender("twice"), text(b"1"))
    link = peer.receiver("twice", 1)
    delivery = peer.transfer().delivery
    state = Transactional(txn_id, ACCEPTED)
    link.update(delivery, state)
    peer.flush()
    link.settle(delivery, state)
    assert peer.discharge(coordinator, txn_id) == ACCEPTED


def test_links_that_end_with_much_unsettled_are_not_remembered_for_ever(peer: AmqpPeer) -> None:
    """A client with a transaction that closes consumers with what they prefetched: the oldest are forgotten."""
    peer.coordinator()
    for _ in range(limits.ENDED_LINKS_REMEMBERED + 10):
        peer.send(peer.sender("much"), text(b"x"))
        link = peer.receiver("much", 10)
        peer.expect(Transfer, lambda event, link=link: event.link is link)  # type: ignore[misc]
        close(peer, link)
    assert peer.send(peer.sender("much"), text(b"x")) == ACCEPTED


# -- dynamic nodes


@pytest.mark.parametrize("kind", ["source", "target"])
def test_a_dynamic_node_outlives_a_detach_that_does_not_close(connect: Connect, peer: AmqpPeer, kind: str) -> None:
    """AMQP 3.5.10, delete-on-close: the link that made it exists until its terminus expires."""
    terminus = Terminus(dynamic=True, kind=kind)
    link: Any = attach(peer, terminus) if kind == "source" else attach_sender(peer, terminus)
    address = (link.remote_source if kind == "source" else link.remote_target).address
    suspend(peer, link)
    other = connect()
    assert other.send(sender := other.sender(address), text(b"x")) == ACCEPTED
    assert got(peer, peer.receiver(address, 1), 1) == [b"x"]
    end_session(peer)
    assert detached(other, sender).condition == "amqp:resource-deleted"


@pytest.mark.parametrize("kind", ["source", "target"])
def test_a_dynamic_node_goes_with_the_link_that_was_attached_again(connect: Connect, peer: AmqpPeer, kind: str) -> None:
    terminus = Terminus(dynamic=True, kind=kind)
    make: Any = peer.session.receiver if kind == "source" else peer.session.sender
    link = make("maker", **{kind: terminus})
    peer._attached(link)
    address = (link.remote_source if kind == "source" else link.remote_target).address
    suspend(peer, link)
    again = make("maker", **{kind: Terminus(address=address, kind=kind)})
    peer._attached(again)
    other = connect()
    sender = other.sender(address)
    close(peer, again)
    assert detached(other, sender).condition == "amqp:resource-deleted"


def test_a_dynamic_node_whose_terminus_expires_with_its_link_does_not(connect: Connect, peer: AmqpPeer) -> None:
    link = attach_sender(peer, Terminus(dynamic=True, kind="target", expiry_policy="link-detach"))
    other = connect()
    sender = other.sender(link.remote_target.address)
    leave(peer, link)
    assert detached(other, sender).condition == "amqp:resource-deleted"


# -- who may receive from a temporary destination


@pytest.mark.parametrize("capability", ["temporary-queue", "temporary-topic"])
@pytest.mark.parametrize("container", ["another", "the same"])
def test_only_its_own_connection_receives_from_it(connect: Connect, capability: str, container: str) -> None:
    """Jakarta Messaging 4.1.5, 6.2.2; by its address too."""
    owner, other = connect("the same"), connect(container)
    link = attach_sender(owner, Terminus(dynamic=True, kind="target", capabilities=[capability]))
    address = link.remote_target.address
    for capabilities in ([capability], []):
        with pytest.raises(Refused, match="amqp:resource-locked"):
            attach(other, Terminus(address=address, kind="source", capabilities=capabilities))
    receiver = attach(owner, Terminus(address=address, kind="source", capabilities=[capability]), 1)
    assert other.send(other.sender(address), text(b"x")) == ACCEPTED
    assert got(owner, receiver, 1) == [b"x"]


def test_who_comes_back_receives_from_its_temporary_queue_before_it_has_asked_for_it(connect: Connect) -> None:
    """CONTRACT B10: its consumers may come before the link that keeps the queue."""
    owner = connect("client")
    link = attach_sender(owner, Terminus(dynamic=True, kind="target", expiry_policy="link-detach", timeout_s=60))
    address = link.remote_target.address
    assert address is not None
    owner.drop()
    with pytest.raises(Refused, match="amqp:resource-locked"):
        attach(connect("another"), Terminus(address=address, kind="source"))
    back = connect("client")
    receiver = attach(back, Terminus(address=address, kind="source"), 1)
    properties = {names.TEMPORARY_NAME: address}
    attach_sender(back, Terminus(dynamic=True, kind="target"), properties=properties)
    assert back.send(back.sender(address), text(b"x")) == ACCEPTED
    assert got(back, receiver, 1) == [b"x"]

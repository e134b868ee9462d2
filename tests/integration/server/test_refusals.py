"""How senders and controllers are told what cannot be done: outcomes where they know them, else detaches."""

from __future__ import annotations

from typing import Any

import pytest

from legato.amqp.codec.coordinator import encode_discharge
from legato.amqp.codec.message import Properties
from legato.amqp.engine.events import Detached, Disposition
from legato.amqp.engine.link import Sender
from legato.amqp.engine.outcomes import ACCEPTED, Rejected, Transactional
from legato.amqp.engine.terminus import Terminus
from tests.integration.server.conftest import Connect
from tests.integration.server.wire import attach_sender, detached, message, nothing_more
from tests.support.amqp_peer import AmqpPeer, text

CONFIGURATION = """
[[address]]
match = "none.#"
auto_create = false

[[address]]
match = "small"
max_messages = 1
when_full = "fail"
"""
ACCEPTS, REJECTS = "amqp:accepted:list", "amqp:rejected:list"
ROLLBACK = "amqp:transaction:rollback"
NOWHERE = message(b"x", properties=Properties(to="none.such"))


def knowing(*outcomes: str) -> Terminus:
    """A source that knows these outcomes; with none it does not say."""
    return Terminus(kind="source", address="client", outcomes=list(outcomes))


def relay(peer: AmqpPeer, *outcomes: str) -> Sender:
    """The anonymous relay."""
    link = attach_sender(peer, Terminus(kind="target"), source=knowing(*outcomes))
    _wait_for_credit(peer, link)
    return link


def coordinator(peer: AmqpPeer, *outcomes: str) -> Sender:
    """A link to the coordinator of transactions."""
    link = attach_sender(peer, Terminus(kind="coordinator"), source=knowing(*outcomes))
    _wait_for_credit(peer, link)
    return link


def _wait_for_credit(peer: AmqpPeer, link: Sender) -> None:
    while link.credit == 0:
        peer.events += peer.amqp.receive_data(peer.socket.recv(1 << 16))


def condition_of(outcome: Any) -> str:
    """Why a commit was refused."""
    assert isinstance(outcome, Rejected)
    return outcome.condition


# -- discharges (AMQP 4.3, 4.5.8)


def test_a_controller_that_knows_no_rejection_is_detached(connect: Connect, peer: AmqpPeer) -> None:
    """AMQP 4.3: "If the source does not support the rejected outcome, ... MUST detach the link"."""
    link = coordinator(peer, ACCEPTS)
    open_txn = peer.declare(link)
    peer.send(peer.sender("dropped"), text(b"x"), txn_id=open_txn)
    link.send(encode_discharge(b"never declared", False), b"t", None)
    peer.flush()
    event = detached(peer, link)
    assert (event.condition, event.closed) == ("amqp:transaction:unknown-id", True)
    other = connect()
    assert nothing_more(other, other.receiver("dropped", 0))
    assert condition_of(peer.discharge(coordinator(peer), open_txn)) == ROLLBACK


def test_a_controller_that_knows_no_rejection_is_detached_for_what_is_no_request(peer: AmqpPeer) -> None:
    link = coordinator(peer, ACCEPTS)
    link.send(text(b"no request"), b"t", None)
    peer.flush()
    assert detached(peer, link).condition == "amqp:decode-error"


def test_a_refused_commit_has_a_condition_of_transactions(peer: AmqpPeer) -> None:
    """AMQP 4.5.8; what a plain send would have heard is in the error's info."""
    link, sender = coordinator(peer, ACCEPTS, REJECTS), peer.sender("small")
    txn_id = peer.declare(link)
    for body in (b"1", b"2"):
        peer.send(sender, text(body), txn_id=txn_id)
    assert condition_of(peer.discharge(link, txn_id)) == ROLLBACK


def test_qpid_jms_hears_of_a_plain_rollback(connect: Connect, broker: Any) -> None:
    """It takes amqp:transaction:rollback for "in doubt" (its AmqpTransactionCoordinator)."""
    peer = AmqpPeer(broker.port, container="qpid", properties={"product": "QpidJMS"})
    link, sender = coordinator(peer), peer.sender("small")
    txn_id = peer.declare(link)
    for body in (b"1", b"2"):
        peer.send(sender, text(body), txn_id=txn_id)
    assert condition_of(peer.discharge(link, txn_id)) == "failed"
    peer.drop()


# -- the anonymous relay (Anonymous Terminus 2.2.2)


def test_an_unrouted_message_is_rejected_with_its_tag(peer: AmqpPeer) -> None:
    link = relay(peer, ACCEPTS, REJECTS)
    link.send(NOWHERE, b"\xfftag", "sent")
    peer.flush()
    event = peer.expect(Disposition, lambda event: event.link is link)
    assert event.settled
    assert condition_of(event.outcome) == "amqp:not-found"
    assert isinstance(event.outcome, Rejected)
    assert event.outcome.tag == b"\xfftag"


@pytest.mark.parametrize(("settled", "outcomes"), [(True, [ACCEPTS, REJECTS]), (True, []), (False, [ACCEPTS])])
def test_an_unrouted_message_that_cannot_be_rejected_detaches_its_link(
    peer: AmqpPeer, settled: bool, outcomes: list[str]
) -> None:
    link = relay(peer, *outcomes)
    link.send(NOWHERE, b"\xfftag", None, settled=settled)
    peer.flush()
    event = peer.expect(Detached, lambda event: event.link is link)
    assert (event.condition, event.closed) == ("amqp:not-found", True)
    assert event.info == {"delivery-tag": b"\xfftag"}


def test_in_a_transaction_a_rejection_is_the_transactions(peer: AmqpPeer) -> None:
    controller, link = coordinator(peer), relay(peer, ACCEPTS, REJECTS)
    txn_id = peer.declare(controller)
    outcome = peer.send(link, NOWHERE, b"tag", txn_id=txn_id)
    assert isinstance(outcome, Transactional)
    assert outcome.txn_id == txn_id
    assert condition_of(outcome.outcome) == "amqp:not-found"
    assert isinstance(outcome.outcome, Rejected)
    assert outcome.outcome.tag == b"tag"
    assert condition_of(peer.discharge(controller, txn_id)) == ROLLBACK


def test_in_a_transaction_what_cannot_be_rejected_detaches_its_link_and_dooms_it(peer: AmqpPeer) -> None:
    controller, link = coordinator(peer), relay(peer, ACCEPTS)
    txn_id = peer.declare(controller)
    link.send(NOWHERE, b"tag", None, txn_id=txn_id)
    peer.flush()
    event = detached(peer, link)
    assert (event.condition, event.info) == ("amqp:not-found", {"delivery-tag": b"tag"})
    assert condition_of(peer.discharge(controller, txn_id)) == ROLLBACK


@pytest.mark.parametrize("outcomes", [[ACCEPTS], [ACCEPTS, REJECTS]])
def test_in_a_transaction_a_settled_message_dooms_it_and_its_link_lives(peer: AmqpPeer, outcomes: list[str]) -> None:
    """AMQP-140: that the transaction rolls back says enough."""
    controller, link = coordinator(peer, *outcomes), relay(peer, ACCEPTS, REJECTS)
    txn_id = peer.declare(controller)
    link.send(NOWHERE, b"tag", None, settled=True, txn_id=txn_id)
    if REJECTS in outcomes:
        assert condition_of(peer.discharge(controller, txn_id)) == ROLLBACK
    else:
        controller.send(encode_discharge(txn_id, False), b"t", None)
        peer.flush()
        assert detached(peer, controller).condition == ROLLBACK
    assert peer.send(link, message(b"x", properties=Properties(to="somewhere"))) == ACCEPTED


def test_a_message_that_cannot_be_rejected_detaches_any_link(peer: AmqpPeer) -> None:
    link = attach_sender(peer, Terminus(kind="target", address="q"), source=knowing(ACCEPTS))
    _wait_for_credit(peer, link)
    link.send(b"\xff\xff", b"tag", None)
    peer.flush()
    assert detached(peer, link).condition == "amqp:decode-error"

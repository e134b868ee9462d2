"""Detach, end and close are answered when what was asked before them is durable (decision 0016)."""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cproton import lib

from legato.amqp.engine.events import Closed, Detached, Disposition, SessionEnded
from legato.amqp.engine.link import Receiver, Sender
from legato.amqp.engine.outcomes import ACCEPTED, Accepted
from legato.amqp.engine.terminus import Terminus
from legato.failpoints import VARIABLE, DrillOrders, Point
from tests.integration.server.wire import attach, attach_sender, detached, nothing_more
from tests.support.amqp_peer import AmqpPeer, Refused, data_of, text
from tests.support.server import Server, server

Leave = Callable[[AmqpPeer, Receiver | Sender], None]


def _detach(peer: AmqpPeer, link: Receiver | Sender) -> None:
    link.detach()


def _close(peer: AmqpPeer, link: Receiver | Sender) -> None:
    link.close()


def _end(peer: AmqpPeer, link: Receiver | Sender) -> None:
    peer.session.close()


def _close_connection(peer: AmqpPeer, link: Receiver | Sender) -> None:
    peer.amqp.close()


def _close_with_error(peer: AmqpPeer, link: Receiver | Sender) -> None:
    peer.amqp.close("amqp:internal-error", "the client gives up")


WAYS = [(_detach, Detached), (_close, Detached), (_end, SessionEnded), (_close_connection, Closed)]
EVERY_WAY = pytest.mark.parametrize(("leave", "answer"), [*WAYS, (_close_with_error, Closed)])


class Held:
    """A broker whose commits can be held, and two peers."""

    def __init__(self, broker: Server, drill_orders: DrillOrders) -> None:
        self.broker = broker
        self.drill_orders = drill_orders
        self.peer = AmqpPeer(broker.port, container="leaving")
        self.other = AmqpPeer(broker.port, container="other")

    def is_answered(self) -> bool:
        """Whether anything came to the peer that left; what the broker wrote before it answered the other is here."""
        attach(self.other, Terminus(address="$status", kind="source"))
        return bool(select.select([self.peer.socket], [], [], 0)[0])

    def restarted(self) -> AmqpPeer:
        """The broker is killed and comes back."""
        self.broker.kill()
        self.drill_orders.disarm()
        self.broker.start()
        return AmqpPeer(self.broker.port)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[Held]:
    drill_orders = DrillOrders(tmp_path / "drill_orders")
    with server(tmp_path / "store", environment={VARIABLE: str(tmp_path / "drill_orders")}) as broker:
        yield Held(broker, drill_orders)


def _wait_until_reached(drill_orders: DrillOrders) -> None:
    while not drill_orders.reached:
        select.select([], [], [], 0.005)


def _wait_for_answer(peer: AmqpPeer, kind: type[Detached] | type[SessionEnded] | type[Closed]) -> None:
    peer.expect(kind)


@EVERY_WAY
def test_an_acknowledgement_before_it_is_durable_when_it_is_answered(
    held: Held, leave: Leave, answer: type[Detached]
) -> None:
    """AMQP 2.6.6; CONTRACT A2: 27 of 28 brokers killed right after the answer gave the message out again."""
    peer = held.peer
    peer.send(peer.sender("work"), text(b"1"))
    link = peer.receiver("work", 1)
    delivery = peer.transfer().delivery
    held.drill_orders.arm(Point.BETWEEN_ACKNOWLEDGE_AND_COMMIT)
    link.settle(delivery)
    leave(peer, link)
    peer.flush()
    _wait_until_reached(held.drill_orders)
    assert not held.is_answered()
    held.drill_orders.disarm()
    _wait_for_answer(peer, answer)
    again = held.restarted()
    assert nothing_more(again, again.receiver("work", 0))


@EVERY_WAY
def test_a_presettled_send_before_it_is_durable_when_it_is_answered(
    held: Held, leave: Leave, answer: type[Detached]
) -> None:
    peer = held.peer
    sender = peer.sender("sent")
    held.drill_orders.arm(Point.BEFORE_COMMIT)
    sender.send(text(b"1"), b"t", settled=True)
    leave(peer, sender)
    peer.flush()
    _wait_until_reached(held.drill_orders)
    assert not held.is_answered()
    held.drill_orders.disarm()
    _wait_for_answer(peer, answer)
    again = held.restarted()
    again.receiver("sent", 1)
    assert data_of(again.transfer()) == b"1"


def test_what_was_sent_before_a_detach_is_settled_before_the_answer(held: Held) -> None:
    """AMQP 2.6.4: who detaches in haste hears what became of its messages."""
    peer = held.peer
    sender = peer.sender("hasty")
    sender.send(text(b"1"), b"t", "sent")
    # As a foreign client does it: its own state stays until the answer.
    lib.pn_link_detach(sender._pn)
    peer.flush()
    outcome = peer.expect(Disposition, lambda event: event.link is sender)
    assert (type(outcome.outcome), outcome.settled) == (Accepted, True)
    detached(peer, sender)


def test_an_unsettled_acknowledgement_is_confirmed_before_the_answer_to_a_detach(held: Held) -> None:
    """AMQP 2.6.4, 2.6.12."""
    peer = held.peer
    peer.send(peer.sender("confirm"), text(b"x"))
    link = peer.receiver("confirm", 1)
    link.update(peer.transfer().delivery, ACCEPTED)
    lib.pn_link_detach(link._pn)
    peer.flush()
    assert peer.expect(Disposition, lambda event: event.link is link).settled
    detached(peer, link)


@pytest.mark.parametrize("leave", [_close, _end, _close_connection])
def test_a_temporary_queue_is_gone_for_good_when_it_is_answered(held: Held, leave: Leave) -> None:
    """Jakarta Messaging 6.2.2: `delete()` and `close()` return when no takeover brings it back."""
    peer = held.peer
    maker = attach_sender(peer, Terminus(dynamic=True, kind="target", expiry_policy="link-detach", timeout_s=60))
    address = maker.remote_target.address
    assert address is not None
    assert peer.send(peer.sender(address), text(b"1")) == ACCEPTED
    leave(peer, maker)
    peer.flush()
    if leave is _close:
        detached(peer, maker)
    else:
        _wait_for_answer(peer, SessionEnded if leave is _end else Closed)
    again = held.restarted()
    with pytest.raises(Refused, match="is gone"):
        again.sender(address)


def test_a_close_is_answered_although_its_client_sends_no_more(held: Held) -> None:
    peer = held.peer
    sender = peer.sender("half")
    held.drill_orders.arm(Point.BEFORE_COMMIT)
    sender.send(text(b"1"), b"t", settled=True)
    peer.amqp.close()
    peer.flush()
    peer.socket.shutdown(socket.SHUT_WR)
    _wait_until_reached(held.drill_orders)
    assert not held.is_answered()
    held.drill_orders.disarm()
    assert peer.expect(Closed).clean

"""Deliveries and transactions that last too long, and consumers that are slow."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable

import pytest

from legato.amqp import names
from legato.amqp.codec.message import decode_message
from legato.amqp.engine.events import Disposition, TransferPart
from legato.amqp.engine.link import Receiver
from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.client import ConnectionFactory
from legato.errors import TransactionRolledBackError
from tests.integration.server.conftest import Connect
from tests.support.amqp_peer import WAIT_S, AmqpPeer, data_of, text
from tests.support.large import MIB, receive_large, send_large, streaming_receiver
from tests.support.monitored import until
from tests.support.server import Server

CONFIGURATION = """
[limits]
slow_consumer_s = 0.3
[[address]]
match = "timed.#"
acknowledgement_timeout_s = 0.4
maximum_deliveries = 2
[[address]]
match = "patient.#"
acknowledgement_timeout_s = 2
[[address]]
match = "bounded.#"
transaction_timeout_s = 0.4
"""


def settled(peer: AmqpPeer, link: Receiver, delivery: int) -> object:
    """The broker's answer to an acceptance that waits for it."""
    link.update(delivery, ACCEPTED)
    peer.flush()
    return peer.expect(Disposition, lambda event: event.link is link and event.settled).outcome


def test_what_is_not_acknowledged_in_time_is_delivered_to_another_one(connect: Connect) -> None:
    stuck, other = connect("stuck"), connect("other")
    stuck.send(stuck.sender("timed.1"), text(b"x"))
    first = stuck.receiver("timed.1", 1)
    delivery = stuck.transfer().delivery
    other.receiver("timed.1", 1)
    again = other.transfer()
    assert data_of(again) == b"x"
    outcome = settled(stuck, first, delivery)
    assert isinstance(outcome, Rejected)
    assert outcome.condition == names.WENT_ELSEWHERE


def test_it_counts_as_a_failed_delivery_and_ends_in_the_dead_letters(connect: Connect) -> None:
    stuck = connect("stuck")
    stuck.send(stuck.sender("timed.2"), text(b"x"))
    stuck.receiver("timed.2", 10)
    dead = connect("dead")
    dead.receiver("DLQ.timed.2", 1)
    letter = dead.transfer()
    assert data_of(letter) == b"x"
    assert b"not acknowledged within 0.4 s" in letter.data


def test_who_acknowledges_in_time_loses_nothing(connect: Connect) -> None:
    peer = connect("good")
    sender = peer.sender("patient.3")
    link = peer.receiver("patient.3", 10)
    for number in range(4):
        peer.send(sender, text(b"%d" % number))
        transfer = peer.transfer()
        time.sleep(0.55)  # four times that is longer than one may take
        link.settle(transfer.delivery, ACCEPTED)
        peer.flush()
        assert data_of(transfer) == b"%d" % number


def test_what_is_taken_back_while_it_waits_behind_a_large_message_is_not_sent_any_more(connect: Connect) -> None:
    """It came to the one, as a first delivery, after another one had accepted it; and its delivery had counted as
    failed before it began."""
    stuck, other = connect("stuck"), connect("other")
    stuck.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    sender = other.sender("patient.4")
    send_large(other, sender, 20 * MIB)
    other.send(sender, text(b"behind"))
    first = streaming_receiver(stuck, "patient.4", 2)
    stuck.events.insert(0, stuck.expect(TransferPart))
    link = streaming_receiver(other, "patient.4", 2)
    link.settle(receive_large(other, link).delivery, ACCEPTED)
    behind = other.transfer()
    assert data_of(behind) == b"behind"
    assert not decode_message(behind.data).header.delivery_count
    assert settled(other, link, behind.delivery) == ACCEPTED
    link.close()
    receive_large(stuck, first)
    # The credit for it is there for the next one.
    other.send(sender, text(b"next"))
    assert data_of(stuck.transfer()) == b"next"


def test_a_transaction_that_lasts_too_long_is_rolled_back_and_its_client_hears_of_it(broker: Server) -> None:
    with (
        ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection,
        connection.create_session(transacted=True) as session,
    ):
        producer = session.create_producer(session.create_queue("bounded.1"))
        producer.send(session.create_text_message("late"))
        broker.wait_for_log("is rolled back: it was open for 0.4 s")
        with pytest.raises(TransactionRolledBackError):
            session.commit()

        def is_in_time(work: Callable[[], None]) -> bool:
            """On a busy machine it may take too long again."""
            try:
                work()
                session.commit()
            except TransactionRolledBackError:
                return False
            return True

        until(lambda: is_in_time(lambda: producer.send(session.create_text_message("in time"))))
        consumer = session.create_consumer(session.create_queue("bounded.1"))
        connection.start()

        def take() -> None:
            received = consumer.receive(timeout_s=WAIT_S)
            assert received is not None
            assert received.body == "in time"

        until(lambda: is_in_time(take))


def test_a_slow_consumer_is_reported_until_it_goes_on(connect: Connect, broker: Server) -> None:
    slow, peer = connect("slow"), connect("operator")
    sender = peer.sender("piling")
    for _ in range(3):
        peer.send(sender, text(b"x"))
    link = slow.receiver("piling", 1)
    transfer = slow.transfer()
    broker.wait_for_log("a consumer of 'piling' is slow: 'slow'")
    peer.receiver(names.STATUS_ADDRESS, 1)
    assert json.loads(data_of(peer.transfer()))["slow_consumers"] >= 1
    link.settle(transfer.delivery, ACCEPTED)
    slow.flush()

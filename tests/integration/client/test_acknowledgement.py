"""Acknowledgement modes against a broker that stays alive (CONTRACT C)."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from legato.amqp.engine.connection import Connection as Engine
from legato.client import (
    AcknowledgementOutcome,
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateError,
    Message,
    TextMessage,
)
from tests.integration.client.helpers import NOTHING_COMES_S, WAIT_S, drain, receive, send, texts
from tests.support.broker import BrokerPair

Connect = Callable[..., Connection]


def abandon(connection: Connection) -> None:
    """End a connection as a crash of its process would: without a word to the broker."""
    wire = connection._transport.wire
    assert wire is not None
    connection._transport.connecting._uri = ConnectionFactory("amqp://127.0.0.1:1?reconnect_attempts=0")._uri
    wire._socket.shutdown(2)


def test_in_auto_a_message_is_acknowledged_when_receive_returns(connect: Connect, queue_name: str) -> None:
    """CONTRACT C2."""
    connection = connect()
    send(connection, queue_name, "1", "2", "3")
    session = connection.create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    assert texts(receive(consumer, 2)) == ["1", "2"]
    consumer.close()
    assert drain(connection, queue_name) == ["3"]


@pytest.mark.parametrize("received", [0, 1, 137, 299, 300])
def test_in_auto_what_came_together_is_acknowledged_as_far_as_it_was_received(
    connect: Connect, queue_name: str, received: int
) -> None:
    """CONTRACT C2: in a read of the socket come many messages; the rest of them goes back when the consumer closes."""
    connection = connect()
    numbers = [str(number) for number in range(300)]
    with connection.create_session() as session:
        producer = session.create_producer(session.create_queue(queue_name))
        for number in numbers:
            producer.send(TextMessage(number), completion_listener=lambda _message, error: None)
        producer.flush()
    with connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue(queue_name))
        assert texts(receive(consumer, received)) == numbers[:received]
        consumer.close()
    assert drain(connection, queue_name) == numbers[received:]


def heard(connection: Connection, queue: str) -> None:
    """The broker has heard what the client said before: it is asked something after that."""
    with connection.create_session() as session:
        session.create_producer(session.create_queue(f"{queue}.other")).close()


@pytest.mark.usefixtures("forgetful_pair")
def test_in_auto_a_crash_after_receive_brings_nothing_back_that_was_received(connect: Connect, queue_name: str) -> None:
    """CONTRACT C2, C4: each is acknowledged when it is returned, not when the next one is wanted or many have come."""
    connection, survivor = connect(), connect()
    send(survivor, queue_name, *"12345")
    session = connection.create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    assert texts(receive(consumer, 3)) == ["1", "2", "3"]
    heard(connection, queue_name)
    abandon(connection)
    again = survivor.create_session()
    messages = receive(again.create_consumer(again.create_queue(queue_name)), 2)
    assert [(message.body, message.delivery_count) for message in messages] == [("4", 1), ("5", 1)]


@pytest.mark.usefixtures("forgetful_pair")
def test_in_auto_a_crash_in_a_listener_brings_back_the_one_message_that_it_has(
    connect: Connect, queue_name: str
) -> None:
    """CONTRACT C3, C4: acknowledged when the listener has returned, not before; one message is at risk."""
    connection, survivor = connect(), connect()
    send(survivor, queue_name, *"1234")
    session = connection.create_session()
    in_second, let_go = threading.Event(), threading.Event()

    def listen(message: Message) -> None:
        if message.body == "2":
            in_second.set()
            let_go.wait(WAIT_S)

    consumer = session.create_consumer(session.create_queue(queue_name))
    consumer.message_listener = listen
    assert in_second.wait(WAIT_S)
    heard(connection, queue_name)
    abandon(connection)
    again = survivor.create_session()
    messages = receive(again.create_consumer(again.create_queue(queue_name)), 3)
    let_go.set()
    seen = [(message.body, message.redelivered, message.delivery_count) for message in messages]
    assert seen[0] == ("2", True, 2)
    assert [(body, count) for body, _, count in seen[1:]] == [("3", 1), ("4", 1)]


def test_in_client_mode_one_acknowledge_covers_all_that_the_session_received(connect: Connect, queue_name: str) -> None:
    """CONTRACT C7, C11(a): acknowledging the third of five received acknowledges the fifth too."""
    connection = connect()
    send(connection, queue_name, *"123456")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    messages = receive(session.create_consumer(session.create_queue(queue_name)), 5)
    messages[2].acknowledge()
    session.close()
    assert drain(connection, queue_name) == ["6"]


def test_in_client_mode_it_covers_every_consumer_of_the_session(connect: Connect, queue_name: str) -> None:
    """CONTRACT C7: session-wide."""
    connection = connect()
    other = f"{queue_name}.other"
    send(connection, queue_name, "1")
    send(connection, other, "2")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    (first,) = receive(session.create_consumer(session.create_queue(queue_name)), 1)
    receive(session.create_consumer(session.create_queue(other)), 1)
    first.acknowledge()
    session.close()
    assert drain(connection, queue_name) + drain(connection, other) == []


def test_what_is_received_after_the_last_acknowledge_comes_again(connect: Connect, queue_name: str) -> None:
    """CONTRACT C11(b)."""
    connection = connect()
    send(connection, queue_name, *"123")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue(queue_name))
    receive(consumer, 2)[1].acknowledge()
    receive(consumer, 1)
    session.close()
    again = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    (message,) = receive(again.create_consumer(again.create_queue(queue_name)), 1)
    assert (message.body, message.redelivered, message.delivery_count) == ("3", True, 2)


def test_acknowledging_twice_is_harmless(connect: Connect, queue_name: str) -> None:
    """CONTRACT B13: an acknowledge fails only if the message went elsewhere, or the session is closed."""
    connection = connect()
    send(connection, queue_name, "1")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    (message,) = receive(session.create_consumer(session.create_queue(queue_name)), 1)
    message.acknowledge()
    message.acknowledge()
    session.close()
    with pytest.raises(IllegalStateError, match="closed"):
        message.acknowledge()


def test_in_auto_acknowledge_is_a_harmless_no_op(connect: Connect, queue_name: str) -> None:
    """CONTRACT B26."""
    connection = connect()
    send(connection, queue_name, "1")
    session = connection.create_session()
    (message,) = receive(session.create_consumer(session.create_queue(queue_name)), 1)
    for _ in range(2):
        assert message.acknowledge() is None
    assert message.try_acknowledge() is AcknowledgementOutcome.ALREADY_ACKNOWLEDGED
    session.close()
    assert drain(connection, queue_name) == []


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK])
def test_recover_may_be_called_in_any_mode(connect: Connect, queue_name: str, mode: AcknowledgeMode) -> None:
    """CONTRACT C8: what was received and not acknowledged comes again, in order, flagged and counted."""
    connection = connect()
    send(connection, queue_name, *"12345")
    session = connection.create_session(acknowledge_mode=mode)
    consumer = session.create_consumer(session.create_queue(queue_name))
    receive(consumer, 3)
    session.recover()
    again = receive(consumer, 5 if mode == AcknowledgeMode.CLIENT else 2)
    seen = [(message.body, message.redelivered, message.delivery_count) for message in again]
    unseen = [("4", False, 1), ("5", False, 1)]
    if mode == AcknowledgeMode.CLIENT:
        assert seen == [("1", True, 2), ("2", True, 2), ("3", True, 2), *unseen]
    else:
        assert seen == unseen


def test_recover_lets_another_consumer_have_the_message(connect: Connect, queue_name: str) -> None:
    """CONTRACT C9: what was recovered may have been consumed by another application."""
    connection = connect()
    send(connection, queue_name, "1")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue(queue_name))
    receive(consumer, 1)
    other = connection.create_session()
    waiting = other.create_consumer(other.create_queue(queue_name))
    assert waiting.receive(NOTHING_COMES_S) is None
    session.recover()
    consumer.close()
    (message,) = receive(waiting, 1)
    assert (message.body, message.redelivered) == ("1", True)


@pytest.mark.usefixtures("forgetful_pair")
def test_a_crash_of_the_application_counts_only_what_it_was_given(connect: Connect, queue_name: str) -> None:
    """Promise 4, CONTRACT B25: prefetched messages were never delivered; CONTRACT C10: redelivery is visible."""
    connection, survivor = connect(), connect()
    send(survivor, queue_name, *"123")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue(queue_name))
    receive(consumer, 1)
    # Asks the broker something, after what it was told so far.
    session.create_producer(session.create_queue(f"{queue_name}.other")).close()
    abandon(connection)
    again = survivor.create_session()
    messages = receive(again.create_consumer(again.create_queue(queue_name)), 3)
    assert [(message.body, message.delivery_count) for message in messages] == [("1", 2), ("2", 1), ("3", 1)]
    assert messages[0].redelivered


@pytest.mark.usefixtures("forgetful_pair")
def test_dups_ok_acknowledges_in_lumps_and_a_crash_brings_a_lump_again(connect: Connect, queue_name: str) -> None:
    """CONTRACT C5, C11(e)."""
    connection, survivor = connect(), connect()
    send(survivor, queue_name, *"12345")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.DUPS_OK)
    consumer = session.create_consumer(session.create_queue(queue_name))
    receive(consumer, 3)
    abandon(connection)
    other = survivor.create_session()
    assert len(receive(other.create_consumer(other.create_queue(queue_name)), 2)) == 2


def test_dups_ok_acknowledges_everything_before_it_waits_or_closes(connect: Connect, queue_name: str) -> None:
    """CONTRACT C5."""
    connection = connect()
    send(connection, queue_name, *"123")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.DUPS_OK)
    receive(session.create_consumer(session.create_queue(queue_name)), 2)
    session.close()
    assert drain(connection, queue_name) == ["3"]


def test_a_bad_acknowledge_mode_is_refused(calm_pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT A23."""
    with pytest.raises(Exception, match="AcknowledgeMode"):
        connect().create_session(acknowledge_mode=17)  # type: ignore[arg-type]


FLOW, DISPOSITION = 0x13, 0x15
GIVEN_BACK = (b"\x00\x53\x26", b"\x00\x53\x27")
"""How the outcomes released and modified begin (AMQP 3.4)."""


def flows_and_what_goes_back(data: bytes) -> list[str]:
    """What whole frames say of that, in order (AMQP 2.3.1, 2.7)."""
    said = []
    while data:
        size, begin = int.from_bytes(data[:4], "big"), data[4] * 4
        frame, data = data[begin:size], data[size:]
        if frame[:2] == b"\x00\x53" and frame[2] == FLOW:
            said.append("flow")
        elif frame[:2] == b"\x00\x53" and frame[2] == DISPOSITION and any(state in frame for state in GIVEN_BACK):
            said.append("back")
    return said


def test_what_recover_gives_back_is_written_before_the_credit_for_more(
    connect: Connect, queue_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jakarta Messaging 6.2.10: for credit that came first the broker would give what is later in the queue."""
    connection = connect()
    send(connection, queue_name, *"12345")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue(queue_name))
    receive(consumer, 2)
    written: list[bytes] = []
    data_to_send = Engine.data_to_send

    def recording(self: Engine) -> bytes:
        data = data_to_send(self)
        written.append(data)
        return data

    monkeypatch.setattr(Engine, "data_to_send", recording)
    session.recover()
    transport, is_written = connection._transport, threading.Event()
    transport.post(transport.flush)
    transport.post(is_written.set)
    assert is_written.wait(WAIT_S)
    monkeypatch.undo()
    said = flows_and_what_goes_back(b"".join(written))
    assert "back" in said
    assert said[-1] == "flow"
    assert texts(receive(consumer, 5)) == [*"12345"]

"""Duplicate ids as applications use them: of the messages of one id the first is stored, and senders hear of it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path

import pytest

from legato.client import AcknowledgeMode, BytesMessage, Connection, JMSContext, JMSError, Message, TextMessage
from legato.store.lmdb import LmdbStore
from legato.store.settling import settle_store
from tests.integration.client.helpers import WAIT_S, drain, receive, texts
from tests.support.broker import BrokerPair

Connect = Callable[..., Connection]


def test_the_second_message_of_an_id_is_dropped_and_its_sender_told(connect: Connect, queue_name: str) -> None:
    """CONTRACT E15, E19."""
    connection = connect()
    session = connection.create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    heard: list[str] = []
    producer.duplicate_listener = lambda message: heard.append(message.body)
    first, again, other = (TextMessage(text) for text in ("first", "again", "other"))
    producer.send(first, duplicate_id="order 7")
    producer.send(again, duplicate_id="order 7")
    producer.send(other, duplicate_id="order 8")
    assert [message.duplicate for message in (first, again, other)] == [False, True, False]
    assert heard == ["again"]
    assert drain(connection, queue_name) == ["first", "other"]
    producer.send(again, duplicate_id="order 9")
    assert not again.duplicate, "what it says is of the last time that it was sent"
    assert drain(connection, queue_name) == ["again"]


def test_the_property_is_the_same_as_the_argument_which_wins_and_leaves_no_trace(
    connect: Connect, queue_name: str
) -> None:
    connection = connect()
    session = connection.create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    message = TextMessage("by property")
    message.set_property("_AMQ_DUPL_ID", "a")
    producer.send(message)
    producer.send(named := TextMessage("by argument"), duplicate_id="a")
    assert named.duplicate
    producer.send(message, duplicate_id="b")
    assert not message.duplicate
    producer.send(message)
    assert message.duplicate, "the property is still a"
    producer.send(raw := TextMessage("in bytes"), duplicate_id=b"a")
    assert raw.duplicate, "text is its bytes in UTF-8"
    producer.send(unnamed := TextMessage("without"))
    producer.send(unnamed)
    assert not unnamed.duplicate
    assert drain(connection, queue_name) == ["by property", "by property", "without", "without"]


def test_who_receives_sees_the_id(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    producer.send(TextMessage("text"), duplicate_id="a")
    producer.send(TextMessage("bytes"), duplicate_id=b"\x00\xff")
    assert [message.properties["_AMQ_DUPL_ID"] for message in receive(consumer, 2)] == ["a", b"\x00\xff"]


@pytest.mark.parametrize("wrong", ["", b"", 7])
def test_an_id_is_text_or_bytes(connect: Connect, queue_name: str, wrong: object) -> None:
    session = connect().create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    with pytest.raises(JMSError, match="duplicate id"):
        producer.send(TextMessage("1"), duplicate_id=wrong)  # type: ignore[arg-type]


def test_asynchronous_sends_complete_and_then_know(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    completed: list[tuple[str, bool, JMSError | None]] = []
    heard: list[str] = []
    producer.duplicate_listener = lambda message: heard.append(message.body)

    def complete(message: Message, error: JMSError | None) -> None:
        completed.append((message.body, message.duplicate, error))

    for number in range(20):
        producer.send(TextMessage(str(number)), completion_listener=complete, duplicate_id=f"{number % 10}")
    producer.flush()
    assert completed == [(str(number), number >= 10, None) for number in range(20)]
    assert heard == [str(number) for number in range(10, 20)]


def test_a_listener_that_raises_harms_nobody(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    producer = session.create_producer(session.create_queue(queue_name))

    def fail(message: Message) -> None:
        raise RuntimeError("no")

    producer.duplicate_listener = fail
    for _ in range(2):
        producer.send(TextMessage("1"), duplicate_id="a")
    producer.send(TextMessage("2"))


def test_a_commit_drops_duplicates_and_keeps_the_rest(connect: Connect, queue_name: str) -> None:
    """CONTRACT E15; unlike E19 the rest of the transaction counts."""
    connection = connect()
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue(queue_name))
    heard: list[str] = []
    producer.duplicate_listener = lambda message: heard.append(message.body)
    sent = [TextMessage(text) for text in ("a", "b", "a again", "c")]
    for message in sent:
        producer.send(message, duplicate_id=message.body[0])
    assert heard == []
    session.commit()
    assert heard == ["a again"]
    assert [message.duplicate for message in sent] == [False, False, True, False]
    producer.send(sent[3], duplicate_id="c")
    session.commit()
    assert heard == ["a again", "c"]
    assert drain(connection, queue_name) == ["a", "b", "c"]


def test_of_two_open_transactions_with_the_same_id_the_second_to_commit_drops_it(
    connect: Connect, queue_name: str
) -> None:
    connection = connect()
    sessions = [connection.create_session(transacted=True) for _ in range(2)]
    messages = [TextMessage("one"), TextMessage("two")]
    for session, message in zip(sessions, messages, strict=True):
        session.create_producer(session.create_queue(queue_name)).send(message, duplicate_id="a")
    sessions[1].commit()
    sessions[0].commit()
    assert [message.duplicate for message in messages] == [True, False]
    assert drain(connection, queue_name) == ["two"]


def test_a_rolled_back_transaction_gives_its_ids_back(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue(queue_name))
    producer.send(TextMessage("lost"), duplicate_id="a")
    session.rollback()
    message = TextMessage("stored")
    producer.send(message, duplicate_id="a")
    session.commit()
    assert not message.duplicate
    assert drain(connection, queue_name) == ["stored"]


def test_a_transaction_may_send_more_named_messages_than_a_producer_has_credit(
    connect: Connect, queue_name: str
) -> None:
    """Their outcomes come with the commit, their credit before."""
    connection = connect()
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue(queue_name))
    for number in range(5_000):
        producer.send(TextMessage(str(number)), duplicate_id=str(number // 2))
    session.commit()
    assert len(drain(connection, queue_name)) == 2_500


def test_a_topic_has_one_window_for_all_its_subscriptions(connect: Connect, topic_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    consumers = [session.create_consumer(topic) for _ in range(2)]
    producer = session.create_producer(topic)
    for text in ("1", "again", "2"):
        producer.send(TextMessage(text), duplicate_id=text if text == "2" else "1")
    for consumer in consumers:
        assert texts(receive(consumer, 2)) == ["1", "2"]
        assert consumer.receive_no_wait() is None


def test_the_simplified_api_has_them_too(context: Callable[..., JMSContext], queue_name: str) -> None:
    jms = context()
    queue = jms.create_queue(queue_name)
    heard: list[str] = []
    producer = jms.create_producer()
    producer.duplicate_listener = lambda message: heard.append(message.body)
    producer.send(queue, "first", duplicate_id="a")
    producer.send(queue, "again", duplicate_id="a")
    producer.set_property("_AMQ_DUPL_ID", "a").send(queue, "by property")
    assert heard == ["again", "by property"]
    consumer = jms.create_consumer(queue)
    assert consumer.receive_body(str, WAIT_S) == "first"
    assert consumer.receive_no_wait() is None


def test_of_a_large_duplicate_nothing_is_kept(brokers: BrokerPair, connect: Connect, queue_name: str) -> None:
    session = connect().create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    queue = session.create_queue(queue_name)
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    sent = []
    for _ in range(2):
        message = BytesMessage(stream=io.BytesIO(bytes(3 << 20)))
        producer.send(message, duplicate_id="large")
        sent.append(message.duplicate)
    assert sent == [False, True]
    assert larges_in(brokers.store) == 1
    received = receive(consumer, 1)[0]
    assert received.get_body(bytes) == bytes(3 << 20)
    assert consumer.receive_no_wait() is None
    received.acknowledge()
    assert larges_in(brokers.store) == 0


def larges_in(store: Path) -> int:
    """How many large messages it keeps; parts of others are only waiting to be removed."""
    settle_store(store)
    reader = LmdbStore(store, read_only=True)
    try:
        return reader.entries()["larges"]
    finally:
        reader.close()

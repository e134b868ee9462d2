"""Messages that nobody holds in memory as a whole, in and out."""

from __future__ import annotations

import hashlib
import io
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from errno import ENOSPC
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from legato.client import (
    AcknowledgeMode,
    BytesMessage,
    Connection,
    ConnectionFactory,
    JMSContext,
    JMSError,
    MapMessage,
    Message,
    MessageFormatError,
    MessageNotWriteableError,
    TextMessage,
)
from legato.client.messages.large import Spool
from tests.integration.client.helpers import WAIT_S, receive, texts
from tests.support.broker import SOURCES, BrokerPair
from tests.support.server import server

Connect = Callable[..., Connection]
MIB = 1 << 20


@pytest.fixture
def large_file(tmp_path: Path) -> Path:
    """Five mebibytes and a bit, of which no two pages are alike."""
    path = tmp_path / "large"
    path.write_bytes(b"".join(hashlib.sha256(str(n).encode()).digest() for n in range(5 * MIB // 32)) + b"bit")
    return path


def check_large(message: Message, path: Path) -> None:
    assert isinstance(message, BytesMessage)
    assert message.body_length == path.stat().st_size
    assert hashlib.file_digest(message.open(), "sha256").digest() == hashlib.sha256(path.read_bytes()).digest()


def test_a_large_body_goes_from_file_to_file(connect: Connect, queue_name: str, large_file: Path) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    with large_file.open("rb") as file:
        message = BytesMessage(stream=file)
        message.set_property("name", "large")
        producer.send(message)
    producer.send(TextMessage("small"))
    large, small = receive(session.create_consumer(queue), 2)
    check_large(large, large_file)
    assert (large.properties["name"], large.message_id) == ("large", message.message_id)
    assert small.body == "small"
    assert isinstance(large, BytesMessage)
    assert large.body == large_file.read_bytes()


def test_large_and_small_messages_keep_their_order(connect: Connect, queue_name: str, large_file: Path) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    errors: list[JMSError | None] = []
    with large_file.open("rb") as file:
        for number in range(4):
            producer.send(TextMessage(str(number)), completion_listener=lambda message, error: errors.append(error))
            producer.send(BytesMessage(stream=file), completion_listener=lambda message, error: errors.append(error))
        producer.flush(WAIT_S)
    assert errors == [None] * 8
    messages = receive(session.create_consumer(queue), 8)
    assert texts(messages[::2]) == ["0", "1", "2", "3"]
    for message in messages[1::2]:
        check_large(message, large_file)


def test_the_simplified_api_sends_files_too(
    context: Callable[..., JMSContext], queue_name: str, large_file: Path
) -> None:
    """Jakarta Messaging 2.8."""
    made = context()
    queue = made.create_queue(queue_name)
    with large_file.open("rb") as file:
        made.create_producer().send(queue, made.create_bytes_message(stream=file))
    message = made.create_consumer(queue).receive(WAIT_S)
    assert message is not None
    check_large(message, large_file)


def test_any_file_in_which_one_can_go_back_will_do(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    file = io.BytesIO(b"skipped" + b"x" * 2 * MIB)
    file.seek(len(b"skipped"))
    producer.send(BytesMessage(stream=file))
    producer.send(BytesMessage(stream=io.BytesIO(b"short")))
    producer.send(BytesMessage(stream=io.BytesIO(b"")))
    got = receive(session.create_consumer(queue), 3)
    assert [message.body for message in got] == [b"x" * 2 * MIB, b"short", b""]
    assert isinstance(got[1], BytesMessage)
    assert got[1].open().read() == b"short"


def test_what_is_no_such_file_is_refused(connect: Connect, tmp_path: Path) -> None:
    session = connect().create_session()
    (tmp_path / "text").write_text("text")
    reading, writing = os.pipe()
    with (tmp_path / "text").open() as text, open(reading, "rb") as pipe:
        for wrong in ("path", 5, text, pipe):
            with pytest.raises(MessageFormatError):
                session.create_bytes_message(stream=wrong)  # type: ignore[arg-type]
    os.close(writing)


def test_a_message_made_from_a_file_is_read_only_until_it_is_cleared(connect: Connect, queue_name: str) -> None:
    """Jakarta Messaging 3.11.2."""
    session = connect().create_session()
    message = session.create_bytes_message(stream=io.BytesIO(b"from a file"))
    with pytest.raises(MessageNotWriteableError):
        message.body = b"x"
    assert message.body == b"from a file"
    message.clear_body()
    message.body = b"other"
    queue = session.create_queue(queue_name)
    session.create_producer(queue).send(message)
    assert receive(session.create_consumer(queue), 1)[0].body == b"other"


def test_a_large_body_is_written_to_a_file(connect: Connect, queue_name: str, large_file: Path, tmp_path: Path) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    with large_file.open("rb") as file:
        session.create_producer(queue).send(session.create_bytes_message(stream=file))
    (got,) = receive(session.create_consumer(queue), 1)
    assert isinstance(got, BytesMessage)
    got.save_to(tmp_path / "saved")
    assert (tmp_path / "saved").read_bytes() == large_file.read_bytes()
    body = got.open()
    body.seek(-3, os.SEEK_END)
    assert body.read() == b"bit"
    assert got.read_bytes(3) == large_file.read_bytes()[:3]


def test_few_large_messages_wait_for_an_application_that_does_not_take_them(
    connect: Connect, queue_name: str, large_file: Path
) -> None:
    """Whatever the prefetch: each takes room on disk."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    consumer = session.create_consumer(queue, prefetch=1000)
    path = large_file.parent / "small enough"
    path.write_bytes(large_file.read_bytes()[:1_200_000])
    with path.open("rb") as file:
        for _ in range(100):
            producer.send(session.create_bytes_message(stream=file), completion_listener=lambda message, error: None)
        producer.flush(WAIT_S)
    receive(consumer, 1)
    other = session.create_consumer(queue, prefetch=1)
    left = 0
    while other.receive_no_wait() is not None:
        left += 1
    assert left >= 20
    assert len(receive(consumer, 99 - left)) == 99 - left


def test_large_texts_and_others_are_read_as_ever(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    words = session.create_map_message()
    words["words"] = "w" * 3 * MIB
    producer.send(session.create_text_message("text" * MIB))
    producer.send(words)
    text, got = receive(session.create_consumer(queue), 2)
    assert text.body == "text" * MIB
    assert isinstance(got, MapMessage)
    assert got["words"] == "w" * 3 * MIB


def test_a_file_that_cannot_be_read_any_more_spoils_its_message_alone(
    connect: Connect, queue_name: str, large_file: Path
) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    file = io.BytesIO(large_file.read_bytes())
    message = BytesMessage(stream=file)
    file.close()
    with pytest.raises(JMSError):
        producer.send(message)
    producer.send(TextMessage("fine"))
    assert texts(receive(session.create_consumer(queue), 1)) == ["fine"]


def test_a_large_message_is_part_of_its_transaction(connect: Connect, queue_name: str, large_file: Path) -> None:
    connection = connect()
    session = connection.create_session(transacted=True)
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    consumer = connection.create_session().create_consumer(queue)
    with large_file.open("rb") as file:
        producer.send(BytesMessage(stream=file))
        session.rollback()
        producer.send(BytesMessage(stream=file))
        producer.send(TextMessage("after"))
        session.commit()
    large, after = receive(consumer, 2)
    check_large(large, large_file)
    assert after.body == "after"
    assert consumer.receive_no_wait() is None


def test_a_received_large_message_can_be_sent_on_and_browsed(
    connect: Connect, queue_name: str, large_file: Path
) -> None:
    session = connect().create_session()
    queue, other = session.create_queue(queue_name), session.create_queue(f"{queue_name}.other")
    with large_file.open("rb") as file:
        session.create_producer(queue).send(BytesMessage(stream=file))
    (browsed,) = list(session.create_browser(queue))
    check_large(browsed, large_file)
    (got,) = receive(session.create_consumer(queue), 1)
    session.create_producer(other).send(got)
    (again,) = receive(session.create_consumer(other), 1)
    check_large(again, large_file)


@pytest.mark.parametrize("call", ["receive_no_wait", "receive", "rollback"])
def test_a_large_message_for_which_there_is_no_room_keeps_no_call_waiting(
    connect: Connect, queue_name: str, large_file: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """It takes the one credit of a consumer without prefetch, so the broker has nothing to give back."""
    connection = connect()
    session = connection.create_session(transacted=True)
    queue = session.create_queue(queue_name)
    consumer = session.create_consumer(queue, prefetch=0)
    producer = connection.create_session().create_producer(queue)
    monkeypatch.setattr(Spool, "append", Mock(side_effect=OSError(ENOSPC, "No space left on device")))
    with large_file.open("rb") as file:
        producer.send(BytesMessage(stream=file))
    if call == "receive_no_wait":
        assert consumer.receive_no_wait() is None
    else:
        assert consumer.receive(0.01) is None
    if call == "rollback":
        session.rollback()
    producer.send(TextMessage("small"))
    assert texts(receive(consumer, 1)) == ["small"]
    monkeypatch.undo()
    check_large(receive(connection.create_session().create_consumer(queue), 1)[0], large_file)


def test_large_messages_of_a_topic_reach_every_subscription(
    connect: Connect, topic_name: str, large_file: Path
) -> None:
    session = connect().create_session()
    topic = session.create_topic(topic_name)
    consumers = [session.create_consumer(topic, prefetch=prefetch) for prefetch in (0, 1, 10)]
    with large_file.open("rb") as file:
        session.create_producer(topic).send(BytesMessage(stream=file))
    for consumer in consumers:
        check_large(receive(consumer, 1)[0], large_file)


@pytest.mark.parametrize("seed", range(3))
def test_a_large_message_survives_the_death_of_its_broker(
    pair: BrokerPair, connect: Connect, large_file: Path, seed: int
) -> None:
    connection = connect()
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    queue = session.create_queue("orders")
    producer = session.create_producer(queue)
    consumer = session.create_consumer(queue)
    errors: list[JMSError | None] = []
    with large_file.open("rb") as file:
        for _ in range(3):
            producer.send(BytesMessage(stream=file), completion_listener=lambda message, error: errors.append(error))
        if seed:
            first = receive(consumer, 1)
            check_large(first[0], large_file)
        pair.fail_over()
        producer.flush(WAIT_S)
    assert errors == [None] * 3
    rest = receive(consumer, 2 if seed else 3)
    for message in rest:
        check_large(message, large_file)
    rest[0].acknowledge()
    session.close()
    assert connection.create_session().create_consumer(queue).receive_no_wait() is None


def test_neither_sender_nor_receiver_holds_a_large_message_in_memory(calm_pair: BrokerPair, tmp_path: Path) -> None:
    """A process that sends and receives 120 MiB grows by less than a tenth of that."""
    size = 120 * MIB
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(size)
    program = f"""
        import resource
        from legato.client import BytesMessage, ConnectionFactory
        with ConnectionFactory({calm_pair.url!r}, prefetch=1).create_connection() as connection:
            connection.start()
            session = connection.create_session()
            queue = session.create_queue("large and sparse")
            producer, consumer = session.create_producer(queue), session.create_consumer(queue)
            producer.send(BytesMessage(b"x"))
            consumer.receive(60)
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            producer.send(session.create_bytes_message(stream=open({str(path)!r}, "rb")))
            got = consumer.receive(60)
            assert got.body_length == {size}
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    """
    assert int(run(program)) * 1024 < size // 10


def test_a_large_message_for_which_there_is_no_room_goes_back_and_nothing_else_suffers(
    calm_pair: BrokerPair, connect: Connect, queue_name: str, large_file: Path
) -> None:
    """The receiving process may write files of two mebibytes; the message has five."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    with large_file.open("rb") as file:
        producer.send(session.create_bytes_message(stream=file))
    producer.send(session.create_text_message("small"))
    program = f"""
        import resource, threading
        from legato.client import ConnectionFactory
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, resource.RLIM_INFINITY))
        with ConnectionFactory({calm_pair.url!r}).create_connection() as connection:
            told = threading.Event()
            errors = []
            connection.exception_listener = lambda error: (errors.append(str(error)), told.set())
            connection.start()
            session = connection.create_session()
            consumer = session.create_consumer(session.create_queue({queue_name!r}))
            assert consumer.receive({WAIT_S}).text == "small"
            assert told.wait({WAIT_S})
            assert "no room" in errors[0], errors
            assert consumer.receive_no_wait() is None
    """
    run(program)
    (message,) = receive(session.create_consumer(queue), 1)
    check_large(message, large_file)
    assert message.delivery_count == 2


def run(program: str) -> str:
    """Run a program in a process of its own; returns what it printed."""
    ran = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize("transacted", [False, True])
def test_a_message_larger_than_the_broker_takes_is_refused_alone_and_says_how_large_it_may_be(
    tmp_path: Path, large_file: Path, transacted: bool
) -> None:
    """It closed the producer's link, and the error was: the broker settled it without an outcome."""
    said = rf"has [\d,]+ bytes, and the broker takes at most {2 * MIB:,} \(server\.max_message"
    with (
        server(tmp_path / "store", environment={"LEGATO_SERVER_MAX_MESSAGE_BYTES": "2 MiB"}) as broker,
        ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection,
        connection.create_session(transacted=transacted) as session,
    ):
        connection.start()
        queue = session.create_queue("bounded")
        producer = session.create_producer(queue)

        def send(body: Any) -> None:
            producer.send(body)
            if transacted:
                session.commit()

        for body in (bytes(2 * MIB), "x" * 2 * MIB, {"text": "x" * 2 * MIB}):
            with pytest.raises(JMSError, match=said):
                send(body)
            if transacted:
                session.rollback()
        with large_file.open("rb") as file, pytest.raises(JMSError, match=said):
            send(BytesMessage(stream=file))
        if transacted:
            session.rollback()
        send("small")
        assert texts(receive(session.create_consumer(queue), 1)) == ["small"]
        if transacted:
            session.commit()

"""Sending and receiving, and what is refused (Jakarta Messaging 6 to 8)."""

from __future__ import annotations

import contextlib
import textwrap
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

import legato.client
from legato.client import (
    AcknowledgeMode,
    BytesMessage,
    Connection,
    ConnectionFactory,
    DeliveryMode,
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    JMSSecurityError,
    Message,
    MessageFormatError,
    Queue,
    TextMessage,
    Topic,
)
from legato.client.management import request
from tests.integration.client.helpers import NOTHING_COMES_S, WAIT_S, drain, receive, send, texts
from tests.support.broker import BrokerPair, BrokerProcess
from tests.support.server import free_port

Connect = Callable[..., Connection]


def test_the_example_of_the_package_works(calm_pair: BrokerPair, capsys: pytest.CaptureFixture[str]) -> None:
    example = (
        (legato.client.__doc__ or "")
        .partition("```python\n")[2]
        .partition("```")[0]
        .replace("amqp://one:5672,two:5672", calm_pair.url)
    )
    exec(textwrap.dedent(example), {})
    assert capsys.readouterr().out == "one pound of tea\n"


def test_headers_and_properties_travel_with_a_message(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    message = session.create_text_message("tea")
    message.correlation_id = "c"
    message.reply_to = queue
    message.type = "order"
    message.set_property("weight", 1)
    session.create_producer(queue).send(message, priority=7, time_to_live_ms=60_000)
    (got,) = receive(session.create_consumer(queue), 1)
    assert isinstance(got, TextMessage)
    assert (got.text, got.correlation_id, got.reply_to, got.type) == ("tea", "c", queue, "order")
    assert (got.message_id, got.timestamp) == (message.message_id, message.timestamp)
    assert (got.destination, got.priority, got.delivery_mode) == (queue, 7, DeliveryMode.PERSISTENT)
    assert got.expiration == message.timestamp + 60_000
    assert (got.redelivered, got.delivery_count, got.properties["weight"]) == (False, 1, 1)


def test_bytes_of_any_size_arrive_whole(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer, consumer = session.create_producer(queue), session.create_consumer(queue)
    for size in (0, 1, 255, 256, 70_000, 5_000_000):
        body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
        producer.send(session.create_bytes_message(body))
        (got,) = receive(consumer, 1)
        assert isinstance(got, BytesMessage)
        assert got.body == body


def test_the_same_message_object_can_be_sent_again_as_a_new_message(connect: Connect, queue_name: str) -> None:
    """CONTRACT A25."""
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    message = TextMessage("1")
    producer.send(message)
    first = message.message_id
    message.text = "2"
    producer.send(message)
    got = receive(session.create_consumer(queue), 2)
    assert texts(got) == ["1", "2"]
    assert [m.message_id for m in got] == [first, message.message_id]
    assert first != message.message_id


def test_a_received_message_can_be_forwarded(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    queue, other = session.create_queue(queue_name), session.create_queue(f"{queue_name}.other")
    message = TextMessage("1")
    message.set_property("a", "b")
    session.create_producer(queue).send(message)
    (got,) = receive(session.create_consumer(queue), 1)
    session.create_producer(other).send(got)
    (again,) = receive(session.create_consumer(other), 1)
    assert (again.body, again.properties["a"], again.destination) == ("1", "b", other)
    assert again.message_id != message.message_id


def test_completion_listeners_hear_of_every_send_in_order(connect: Connect, queue_name: str) -> None:
    class Heard:
        def __init__(self) -> None:
            self.texts: list[str] = []

        def on_completion(self, message: Message) -> None:
            self.texts.append(message.body)

        def on_exception(self, message: Message, error: JMSError) -> None:
            raise AssertionError(error)

    session = connect(send_window=50).create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    heard = Heard()
    by_function: list[object] = []
    for number in range(2_000):
        producer.send(TextMessage(str(number)), completion_listener=heard)
    producer.send(TextMessage("last"), completion_listener=lambda message, error: by_function.append(error))
    producer.flush(WAIT_S)
    assert heard.texts == [str(number) for number in range(2_000)]
    assert by_function == [None]


def test_a_completion_listener_that_raises_harms_nobody(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    producer = session.create_producer(session.create_queue(queue_name))

    def broken(message: Message, error: JMSError | None) -> None:
        raise ValueError("broken")

    for _ in range(3):
        producer.send(TextMessage("x"), completion_listener=broken)
    producer.flush(WAIT_S)


def test_a_non_persistent_message_is_delivered_too(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    with session.create_producer(queue) as producer:
        producer.send(TextMessage("x"), delivery_mode=DeliveryMode.NON_PERSISTENT)
    (got,) = receive(session.create_consumer(queue), 1)
    assert got.delivery_mode == DeliveryMode.NON_PERSISTENT


def test_a_producer_without_destination_sends_where_each_send_says(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    producer = session.create_producer()
    one, two = Queue(f"{queue_name}.1"), Queue(f"{queue_name}.2")
    for text, queue in (("a", one), ("b", two), ("c", one)):
        producer.send(TextMessage(text), destination=queue)
    assert (drain(connection, one.name), drain(connection, two.name)) == (["a", "c"], ["b"])
    with pytest.raises(InvalidDestinationError, match="destination"):
        producer.send(TextMessage("d"))
    fixed = session.create_producer(one)
    with pytest.raises(InvalidDestinationError, match="only"):
        fixed.send(TextMessage("e"), destination=two)


def test_a_producer_without_destination_sends_to_a_queue_that_was_deleted_and_made_again(
    calm_pair: BrokerPair, connect: Connect, queue_name: str
) -> None:
    connection = connect()
    session = connection.create_session()
    queue, producer = session.create_queue(queue_name), session.create_producer()
    for number in range(3):
        # What is sent before the client hears of the deletion is refused.
        with contextlib.suppress(InvalidDestinationError):
            producer.send(f"maybe {number}", destination=queue)
        producer.send(f"surely {number}", destination=queue)
        assert f"surely {number}" in [message.body for message in session.create_browser(queue)]
        request(calm_pair.url, "delete", "queue", queue_name)


@pytest.mark.parametrize("destination", [None, "orders", Queue(""), Topic("")])
def test_what_is_no_destination_is_refused(connect: Connect, destination: object) -> None:
    """CONTRACT A23."""
    session = connect().create_session()
    with pytest.raises(InvalidDestinationError):
        session.create_consumer(destination)  # type: ignore[arg-type]
    if destination is not None:
        with pytest.raises(InvalidDestinationError):
            session.create_producer(destination)  # type: ignore[arg-type]


def test_what_is_no_message_or_out_of_range_is_refused(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    with pytest.raises(MessageFormatError, match="TextMessage"):
        producer.send(42)  # type: ignore[arg-type]
    for name, wrong in (
        ("priority", 10),
        ("priority", "high"),
        ("time_to_live_ms", -1),
        ("time_to_live_ms", 1.5),
        ("delivery_delay_ms", "1 s"),
        ("delivery_mode", 3),
    ):
        with pytest.raises(JMSError, match=f"^{name} must be .*, not {wrong!r}"):
            producer.send(TextMessage("x"), **{name: wrong})  # type: ignore[arg-type]


def test_receive_waits_no_longer_than_asked(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    assert consumer.receive(0) is None
    assert consumer.receive(0.01) is None


def test_receive_no_wait_returns_what_the_broker_has(connect: Connect, queue_name: str) -> None:
    """Jakarta Messaging 8.5: also the first time, when nothing is here yet."""
    connection = connect()
    for round_number in range(20):
        send(connection, queue_name, "x")
        session = connection.create_session()
        consumer = session.create_consumer(session.create_queue(queue_name))
        got = consumer.receive_no_wait()
        assert got is not None, f"round {round_number}"
        assert consumer.receive_no_wait() is None
        session.close()


def test_iterating_over_a_consumer_ends_when_it_is_closed(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    got: list[str] = []
    two = threading.Event()

    def iterate() -> None:
        for message in consumer:
            got.append(message.body)
            if len(got) == 2:
                two.set()

    thread = threading.Thread(target=iterate)
    thread.start()
    send(connection, queue_name, "1", "2")
    assert two.wait(WAIT_S)
    consumer.close()
    thread.join(WAIT_S)
    assert got == ["1", "2"]


def test_a_closed_consumer_receives_none(connect: Connect, queue_name: str) -> None:
    """CONTRACT A22."""
    session = connect().create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    consumer.close()
    consumer.close()
    assert consumer.receive() is None


def test_messages_come_only_while_the_connection_is_started(
    calm_pair: BrokerPair, connect: Connect, queue_name: str
) -> None:
    """CONTRACT A22; Jakarta Messaging 6.1.4."""
    send(connect(), queue_name, "1", "2")
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        session = connection.create_session()
        consumer = session.create_consumer(session.create_queue(queue_name))
        assert consumer.receive(NOTHING_COMES_S) is None
        connection.start()
        assert texts(receive(consumer, 1)) == ["1"]
        connection.stop()
        assert consumer.receive(NOTHING_COMES_S) is None
        connection.start()
        assert texts(receive(consumer, 1)) == ["2"]


def test_who_waits_on_a_connection_that_was_never_started_is_told_once(
    calm_pair: BrokerPair, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """USERS S6: three seconds of nothing, and no word why."""
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        session = connection.create_session()
        consumer = session.create_consumer(session.create_queue(queue_name))
        assert consumer.receive(0.01) is None
        assert consumer.receive(0.01) is None
        connection.stop()
        assert consumer.receive(0.01) is None
    assert [record.message for record in caplog.records if "connection.start()" in record.message] == [
        "! A consumer waits on a connection that was not started: call connection.start()."
    ]


def test_who_makes_a_consumer_for_each_message_is_warned_once(
    calm_pair: BrokerPair, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        send(connection, queue_name, "1", "2", "3")
        connection.start()
        session = connection.create_session()
        queue = session.create_queue(queue_name)
        with session.create_consumer(queue) as closed:
            assert texts(receive(closed, 1)) == ["1"]
        with session.create_consumer(queue, "place = 'Leipzig'"):
            first = session.create_consumer(queue)
        assert not caplog.records
        assert texts(receive(first, 1)) == ["2"]
        assert session.create_consumer(queue).receive(0.01) is None
        assert session.create_consumer(queue).receive(0.01) is None
        assert texts(receive(first, 1)) == ["3"]
    assert [record.message for record in caplog.records] == [
        f"! Another consumer of {queue_name} in this session has 1 message(s) ready, which a new one does not get: "
        "use one consumer for the queue, close it before the next one, or make it with prefetch=0."
    ]


def test_a_stopped_connection_still_sends(calm_pair: BrokerPair, connect: Connect, queue_name: str) -> None:
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        send(connection, queue_name, "1")
    assert drain(connect(), queue_name) == ["1"]


def test_two_threads_in_a_session_at_once_are_told(connect: Connect, queue_name: str) -> None:
    """Jakarta Messaging 6.2: a session is for one thread at a time."""
    session = connect().create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    thread = threading.Thread(target=consumer.receive)
    thread.start()

    def use_until_refused() -> None:
        while True:
            session.create_producer(Queue(queue_name)).close()

    with pytest.raises(IllegalStateError, match="one thread"):
        use_until_refused()
    session.close()
    thread.join(WAIT_S)
    assert not thread.is_alive()


def test_everything_closed_says_so(connect: Connect, queue_name: str) -> None:
    """CONTRACT A23."""
    connection = connect()
    session = connection.create_session(transacted=True)
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    producer.close()
    with pytest.raises(IllegalStateError, match="producer is closed"):
        producer.send(TextMessage("x"))
    session.close()
    session.close()
    for call in (session.commit, session.create_producer, lambda: session.create_consumer(queue)):
        with pytest.raises(IllegalStateError, match="session is closed"):
            call()
    connection.close()
    connection.close()
    for use in (connection.start, connection.create_session):
        with pytest.raises(IllegalStateError, match="connection is closed"):
            use()


def test_closing_a_producer_waits_for_its_sends(connect: Connect, queue_name: str) -> None:
    """Jakarta Messaging 7.3.4."""
    connection = connect()
    session = connection.create_session()
    heard: list[object] = []
    with session.create_producer(session.create_queue(queue_name)) as producer:
        for number in range(1_000):
            producer.send(TextMessage(str(number)), completion_listener=lambda message, error: heard.append(error))
    assert len(drain(connection, queue_name)) == 1_000
    connection.close()
    assert heard == [None] * 1_000


def test_a_browser_shows_what_waits_and_leaves_it(connect: Connect, queue_name: str) -> None:
    """Jakarta Messaging 6.2.9."""
    connection = connect()
    expected = [str(number) for number in range(2_500)]
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    producer = session.create_producer(queue)
    with session.create_browser(queue) as browser:
        assert list(browser) == []
    for text in expected:
        producer.send(TextMessage(text), completion_listener=lambda message, error: None)
    producer.flush()
    for _ in range(2):
        with session.create_browser(queue) as browser:
            assert texts(browser) == expected
    assert drain(connection, queue_name) == expected


def test_a_listener_hears_every_message_in_order(connect: Connect, queue_name: str) -> None:
    """CONTRACT C3."""
    connection = connect()
    session = connection.create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    heard: list[str] = []
    done = threading.Event()

    def listen(message: Message) -> None:
        heard.append(message.body)
        if message.body == "99":
            done.set()

    consumer.message_listener = listen
    send(connection, queue_name, *map(str, range(100)))
    assert done.wait(WAIT_S)
    assert heard == [str(number) for number in range(100)]
    with pytest.raises(IllegalStateError, match="listener"):
        consumer.receive()
    session.close()
    assert drain(connection, queue_name) == []


def test_a_listener_may_use_its_session(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue(f"{queue_name}.out"))
    consumer = session.create_consumer(session.create_queue(queue_name))
    done = threading.Event()

    def forward(message: Message) -> None:
        producer.send(message)
        session.commit()
        if message.body == "3":
            done.set()

    consumer.message_listener = forward
    send(connection, queue_name, *"123")
    assert done.wait(WAIT_S)
    assert drain(connection, f"{queue_name}.out") == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("options", "attempts"),
    [
        ({}, ["1", "1", "2"]),
        ({"listener_error": "redeliver"}, ["1", "1", "2"]),
        ({"listener_error": "acknowledge"}, ["1", "2"]),
        ({"failover_contract": "ems"}, ["1", "2"]),
        ({"failover_contract": "gigaspaces"}, ["1", "2"]),
        ({"failover_contract": "hornetq"}, ["1", "2"]),
        ({"failover_contract": "hornetq", "listener_error": "redeliver"}, ["1", "1", "2"]),
    ],
    ids=lambda each: "-".join(map(str, each.values())) or "default" if isinstance(each, dict) else "",
)
def test_a_message_whose_listener_raised_comes_again_unless_the_contract_or_the_option_says_otherwise(
    connect: Connect, queue_name: str, options: dict[str, str], attempts: list[str]
) -> None:
    """CONTRACT C6 (acknowledged regardless, in the ported contracts), C11(f); Jakarta Messaging 8.7."""
    connection = connect(prefetch=1, **options)
    errors: list[JMSError] = []
    connection.exception_listener = errors.append
    session = connection.create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    heard: list[Message] = []
    done = threading.Event()

    def listen(message: Message) -> None:
        heard.append(message)
        if message.body == "2":
            done.set()
        elif len(heard) == 1:
            raise ValueError("broken")

    consumer.message_listener = listen
    send(connection, queue_name, "1", "2")
    assert done.wait(WAIT_S)
    session.close()
    assert texts(heard) == attempts
    assert heard[1].redelivered == (attempts[1] == "1")
    connection.close()
    assert [error.code for error in errors] == ["LISTENER"]


@pytest.mark.parametrize(
    ("options", "mode", "what_follows"),
    [
        ({}, AcknowledgeMode.AUTO, "it is delivered again"),
        ({"listener_error": "acknowledge"}, AcknowledgeMode.DUPS_OK, "it is acknowledged all the same"),
        ({}, AcknowledgeMode.CLIENT, "it stays received"),
    ],
    ids=["redelivered", "acknowledged", "client"],
)
@pytest.mark.parametrize("listened", [False, True], ids=["without", "with"])
def test_the_failure_of_a_listener_is_in_the_log_once_with_the_message_the_attempt_and_where(
    connect: Connect,
    queue_name: str,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, str],
    mode: AcknowledgeMode,
    what_follows: str,
    listened: bool,
) -> None:
    """It was there twice, and neither line said which message it was; with or without an exception listener."""
    connection = connect(prefetch=1, **options)
    if listened:
        connection.exception_listener = lambda error: None
    session = connection.create_session(acknowledge_mode=mode)
    consumer = session.create_consumer(session.create_queue(queue_name))
    ids: list[str | None] = []
    done = threading.Event()

    def listen(message: Message) -> None:
        if message.body == "2":
            done.set()
        elif not ids:
            ids.append(message.message_id)
            raise ValueError("broken")

    consumer.message_listener = listen
    send(connection, queue_name, "1", "2")
    assert done.wait(WAIT_S)
    connection.close()
    (record,) = [record for record in caplog.records if record.name.startswith("legato")]
    told = f"The listener for queue {queue_name} raised ValueError('broken') on message {ids[0]}, attempt 1; "
    assert record.getMessage().startswith(told + what_follows)
    assert record.exc_info is not None
    assert "listen" in "".join(traceback.format_exception(*record.exc_info))


def test_recover_in_a_listener_brings_its_message_again(connect: Connect, queue_name: str) -> None:
    """CONTRACT C8."""
    connection = connect()
    session = connection.create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    heard: list[tuple[str, bool, int]] = []
    done = threading.Event()

    def listen(message: Message) -> None:
        heard.append((message.body, message.redelivered, message.delivery_count))
        if len(heard) == 1:
            session.recover()
        elif message.body == "2":
            done.set()

    consumer.message_listener = listen
    send(connection, queue_name, "1", "2")
    assert done.wait(WAIT_S)
    assert heard == [("1", False, 1), ("1", True, 2), ("2", False, 1)]


def test_no_broker_at_all_is_a_sentence_that_names_the_hosts() -> None:
    port = free_port()
    with pytest.raises(JMSError, match=f"127.0.0.1:{port}.*hosts"):
        ConnectionFactory(f"amqp://127.0.0.1:{port}", connect_attempts=2).create_connection()


def test_a_wrong_password_is_a_security_error(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "store", free_port(), tmp_path / "log", ("--user", "anna:tea"))
    try:
        broker.wait_for("active")
        for login in ("anna:coffee@", "berta:tea@"):
            with pytest.raises(JMSSecurityError, match="user and password"):
                ConnectionFactory(f"amqp://{login}127.0.0.1:{broker.port}").create_connection()
        with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection("anna", "tea") as connection:
            send(connection, "q", "1")
    finally:
        broker.close()


def test_a_requestor_that_goes_is_no_news_for_who_replied(
    connect: Connect, queue_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each caller that went was a warning, `The producer for temp-queue://... was closed by the broker`, on success."""
    service, caller = connect(), connect()
    asking, replying = caller.create_session(), service.create_session()
    question = TextMessage("price?")
    question.reply_to = asking.create_temporary_queue()
    asking.create_producer(asking.create_queue(queue_name)).send(question)
    received = replying.create_consumer(replying.create_queue(queue_name)).receive(WAIT_S)
    assert received is not None
    assert received.reply_to is not None
    producer = replying.create_producer(received.reply_to)
    producer.send(TextMessage("2.50"))
    caller.close()

    def reply_until_refused() -> None:
        while True:
            producer.send(TextMessage("2.50"))

    with pytest.raises(JMSError, match="deleted"):
        reply_until_refused()
    assert [record for record in caplog.records if record.levelname == "WARNING"] == []

"""What becomes of topics, subscriptions and temporary destinations when their broker is killed (CONTRACT B10, E2)."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from legato.client import (
    AcknowledgeMode,
    Connection,
    JMSError,
    Message,
    QueueRequestor,
    TextMessage,
    TransactionRolledBackError,
)
from legato.client.aio import QueueRequestor as AsyncQueueRequestor
from legato.client.links.temporaries import TemporaryNode
from tests.integration.client.calling import Calling, until
from tests.integration.client.helpers import WAIT_S, receive, texts
from tests.support.broker import BrokerPair
from tests.support.twins import twin_of

Connect = Callable[..., Connection]


def make_consumer(session: Any, topic: Any, kind: str) -> Any:
    makers: dict[str, Callable[[], Any]] = {
        "plain": lambda: session.create_consumer(topic),
        "durable": lambda: session.create_durable_consumer(topic, "d"),
        "shared": lambda: session.create_shared_consumer(topic, "s"),
        "shared durable": lambda: session.create_shared_durable_consumer(topic, "sd"),
        "with a selector": lambda: session.create_consumer(topic, "a = 1"),
        "without prefetch": lambda: session.create_consumer(topic, prefetch=0),
    }
    return makers[kind]()


KINDS = ["plain", "durable", "shared", "shared durable", "with a selector", "without prefetch"]


def test_subscribers_of_every_kind_miss_nothing(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT B10: those not durable too, as long as their client comes back."""
    connection, other = connect(client_id="client"), connect()
    session = connection.create_session()
    topic = session.create_topic("prices")
    consumers = {kind: make_consumer(session, topic, kind) for kind in KINDS}
    producer = other.create_session().create_producer(topic)

    def publish(*numbers: int) -> None:
        for number in numbers:
            for a in (1, 2):
                message = TextMessage(f"{number}.{a}")
                message.set_property("a", a)
                producer.send(message)

    def expected(kind: str, numbers: range) -> list[str]:
        return [f"{n}.{a}" for n in numbers for a in (1, 2) if a == 1 or kind != "with a selector"]

    publish(0, 1, 2)
    for kind, consumer in consumers.items():
        first = expected(kind, range(3))
        assert texts(receive(consumer, len(first) - 1)) == first[:-1], kind
    pair.fail_over()
    publish(3, 4)
    for kind, consumer in consumers.items():
        rest = expected(kind, range(3))[-1:] + expected(kind, range(3, 5))
        assert texts(receive(consumer, len(rest))) == rest, kind
        assert consumer.receive_no_wait() is None, kind


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL])
@pytest.mark.parametrize("prefetch", [0, 1000])
def test_what_the_application_has_of_a_topic_can_be_acknowledged_after_a_failover(
    pair: BrokerPair, connect: Connect, mode: AcknowledgeMode, prefetch: int
) -> None:
    connection = connect(client_id="client", prefetch=prefetch)
    session = connection.create_session(acknowledge_mode=mode)
    topic = session.create_topic("prices")
    consumer = session.create_durable_consumer(topic, "d")
    producer = connection.create_session().create_producer(topic)
    for number in range(5):
        producer.send(TextMessage(str(number)))
    messages = receive(consumer, 3)
    pair.fail_over()
    for message in messages:
        message.acknowledge()
    assert texts(receive(consumer, 2)) == ["3", "4"]
    session.close()
    again = connection.create_session().create_durable_consumer(topic, "d")
    assert texts(receive(again, 2)) == ["3", "4"]


def test_a_transaction_over_a_topic_is_rolled_back_and_its_messages_come_again(
    pair: BrokerPair, connect: Connect
) -> None:
    connection = connect()
    session = connection.create_session(transacted=True)
    topic = session.create_topic("prices")
    consumer = session.create_consumer(topic)
    producer = connection.create_session().create_producer(topic)
    producer.send(TextMessage("1"))
    receive(consumer, 1)
    pair.fail_over()
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    (again,) = receive(consumer, 1)
    assert (again.body, again.redelivered) == ("1", True)
    session.commit()


def test_a_temporary_queue_keeps_its_name_and_its_messages(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT E2."""
    connection, other = connect(), connect()
    session = connection.create_session()
    queue = session.create_temporary_queue()
    name = queue.name
    producer = other.create_session().create_producer(queue)
    producer.send(TextMessage("before"))
    pair.fail_over()
    producer.send(TextMessage("after"))
    assert queue.name == name
    consumer = session.create_consumer(queue)
    assert texts(receive(consumer, 2)) == ["before", "after"]
    pair.fail_over()
    producer.send(TextMessage("again"))
    assert texts(receive(consumer, 1)) == ["again"]
    consumer.close()
    queue.delete()


@pytest.mark.parametrize("what", ["delete", "close"])
def test_a_temporary_queue_is_gone_when_its_deletion_returns_over_a_failover(
    pair: BrokerPair, connect: Connect, what: str
) -> None:
    """`delete()` and `close()` took the loss of the connection for the deletion: the queue lived on."""
    connection, other = connect(), connect()
    queue = connection.create_session().create_temporary_queue()
    producer = other.create_session().create_producer(queue)
    producer.send(TextMessage("before"))
    node = queue._node
    assert isinstance(node, TemporaryNode)
    pair.primary.process.send_signal(signal.SIGSTOP)
    deleting = Calling(queue.delete if what == "delete" else connection.close)
    until(lambda: node.end.closing)
    pair.fail_over()
    deleting.outcome()
    with pytest.raises(JMSError):
        producer.send(TextMessage("nobody's"))


def test_requests_are_answered_across_a_failover(pair: BrokerPair, connect: Connect) -> None:
    service = connect().create_session()
    queue = service.create_queue("questions")
    replies = service.create_producer()

    def answer(message: Message) -> None:
        replies.send(TextMessage(f"re: {message.body}"), destination=message.reply_to)

    service.create_consumer(queue).message_listener = answer
    session = connect().create_session()
    requestor = twin_of(session, QueueRequestor, AsyncQueueRequestor)(session, queue)
    assert requestor.request(TextMessage("1"), WAIT_S).body == "re: 1"
    pair.fail_over()
    assert requestor.request(TextMessage("2"), WAIT_S).body == "re: 2"


def test_a_receive_without_prefetch_that_waits_goes_on_after_a_failover(pair: BrokerPair, connect: Connect) -> None:
    connection = connect(prefetch=0)
    session = connection.create_session()
    queue = session.create_queue("orders")
    consumer = session.create_consumer(queue)
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(consumer.receive(WAIT_S)))
    thread.start()
    pair.fail_over()
    producer = connect().create_session().create_producer(queue)
    producer.send(TextMessage("1"))
    thread.join(WAIT_S)
    assert texts(got) == ["1"]


def test_a_delayed_message_comes_after_a_failover(pair: BrokerPair, connect: Connect) -> None:
    connection = connect()
    session = connection.create_session()
    queue = session.create_queue("orders")
    session.create_producer(queue).send(TextMessage("late"), delivery_delay_ms=1500)
    pair.fail_over()
    assert texts(receive(session.create_consumer(queue), 1)) == ["late"]


def test_a_durable_subscription_collects_while_its_client_is_away_and_the_broker_dies(
    pair: BrokerPair, connect: Connect
) -> None:
    connection = connect(client_id="client")
    session = connection.create_session()
    topic = session.create_topic("prices")
    session.create_durable_consumer(topic, "d").close()
    connection.close()
    producer = connect().create_session().create_producer(topic)
    producer.send(TextMessage("1"))
    pair.fail_over()
    producer.send(TextMessage("2"))
    session = connect(client_id="client").create_session()
    consumer = session.create_durable_consumer(topic, "d")
    assert texts(receive(consumer, 2)) == ["1", "2"]
    consumer.close()
    session.unsubscribe("d")


def test_messages_of_a_closed_consumer_can_be_acknowledged_after_a_failover(pair: BrokerPair, connect: Connect) -> None:
    connection = connect()
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    queue = session.create_queue("orders")
    producer = connection.create_session().create_producer(queue)
    for number in range(3):
        producer.send(TextMessage(str(number)))
    with session.create_consumer(queue) as consumer:
        messages = receive(consumer, 2)
    pair.fail_over()
    messages[0].acknowledge()
    session.close()
    rest = connection.create_session().create_consumer(queue)
    assert texts(receive(rest, 1)) == ["2"]
    assert rest.receive_no_wait() is None

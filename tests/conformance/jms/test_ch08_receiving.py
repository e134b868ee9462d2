"""Chapter 8: consumers, subscriptions of all kinds, receiving with and without waiting, listeners."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from legato.client import (
    AcknowledgeMode,
    IllegalStateError,
    InvalidDestinationError,
    InvalidSelectorError,
    JMSError,
    Message,
)
from tests.conformance.jms.stories import (
    NOTHING_COMES_S,
    WAIT_S,
    Connect,
    body_of,
    nothing_comes,
    receive,
    send,
    texts,
)

# -- 8.3.1: unshared, not durable ------------------------------------------------------------------------


def test_no_local_leaves_out_what_the_same_connection_sent(connect: Connect, topic_name: str, client_id: str) -> None:
    connection, other = connect(client_id=client_id), connect()
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    consumers = [
        session.create_consumer(topic, None, True),
        session.create_durable_consumer(topic, "durable", None, True),
    ]
    everything = session.create_consumer(topic)
    send(connection, topic, "own")
    send(other, topic, "other's")
    assert texts(receive(everything, 2)) == ["own", "other's"]
    for consumer in consumers:
        assert consumer.no_local
        assert texts(receive(consumer, 1)) == ["other's"]
        assert nothing_comes(consumer)


def test_a_subscription_with_a_selector_gets_only_what_matches(connect: Connect, topic_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    red, all_colours = session.create_consumer(topic, "colour = 'red'"), session.create_consumer(topic)
    send(connection, topic, "1", colour="red")
    send(connection, topic, "2", colour="blue")
    send(connection, topic, "3", colour="red")
    assert texts(receive(red, 2)) == ["1", "3"]
    assert texts(receive(all_colours, 3)) == ["1", "2", "3"]
    assert nothing_comes(red)


def test_a_subscription_that_is_not_durable_ends_with_its_consumer(connect: Connect, topic_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    session.create_consumer(topic).close()
    send(connection, topic, "nobody")
    assert nothing_comes(session.create_consumer(topic))


# -- 8.3.2: shared, not durable --------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_consumers_share_a_subscription_also_across_connections(
    connect: Connect, topic_name: str, client_id: str, named: bool
) -> None:
    """With a client id it is that client's; without one it is everybody's who has none."""
    connection = connect(client_id=client_id) if named else connect()
    sessions = [connection.create_session() for _ in range(2)]
    if not named:
        sessions.append(connect().create_session())
    topic = sessions[0].create_topic(topic_name)
    consumers = [session.create_shared_consumer(topic, "team", prefetch=0) for session in sessions]
    other = connect().create_session().create_shared_consumer(topic, "other team")
    send(connection, topic, *map(str, range(6)))
    got = [body_of(consumer.receive(WAIT_S)) for _ in range(6 // len(consumers)) for consumer in consumers]
    assert sorted(got) == list(map(str, range(6)))
    assert texts(receive(other, 6)) == list(map(str, range(6)))
    assert all(nothing_comes(consumer) for consumer in consumers)


def test_a_shared_subscription_that_is_not_durable_ends_with_its_last_consumer(
    connect: Connect, topic_name: str
) -> None:
    connection = connect()
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    first, second = session.create_shared_consumer(topic, "team"), session.create_shared_consumer(topic, "team")
    first.close()
    send(connection, topic, "1")
    assert texts(receive(second, 1)) == ["1"]
    second.close()
    send(connection, topic, "nobody")
    assert nothing_comes(session.create_shared_consumer(topic, "team"))


def test_an_active_shared_subscription_cannot_have_another_topic_or_selector(connect: Connect, topic_name: str) -> None:
    session = connect().create_session()
    topic, other = session.create_topic(topic_name), session.create_topic(f"{topic_name}.other")
    session.create_shared_consumer(topic, topic_name, "a = 1")
    with pytest.raises(JMSError):
        session.create_shared_consumer(other, topic_name, "a = 1")
    with pytest.raises(JMSError):
        session.create_shared_consumer(topic, topic_name, "a = 2")
    session.create_shared_consumer(topic, topic_name, "a = 1")


# -- 8.3.3: unshared durable -----------------------------------------------------------------------------


def test_a_durable_subscription_keeps_messages_while_nobody_receives(
    connect: Connect, topic_name: str, client_id: str
) -> None:
    connection = connect(client_id=client_id)
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    session.create_durable_consumer(topic, "d").close()
    send(connect(), topic, "1", "2")
    connection.close()
    connection = connect(client_id=client_id)
    session = connection.create_session()
    consumer = session.create_durable_subscriber(topic, "d")
    assert texts(receive(consumer, 2)) == ["1", "2"]
    consumer.close()
    session.unsubscribe("d")


def test_a_durable_subscription_of_ones_own_needs_a_client_id(connect: Connect, topic_name: str) -> None:
    session = connect().create_session()
    with pytest.raises(IllegalStateError):
        session.create_durable_consumer(session.create_topic(topic_name), "d")


def test_a_durable_subscription_has_one_consumer_at_a_time(connect: Connect, topic_name: str, client_id: str) -> None:
    session = connect(client_id=client_id).create_session()
    topic = session.create_topic(topic_name)
    first = session.create_durable_consumer(topic, "d")
    with pytest.raises(IllegalStateError):
        session.create_durable_consumer(topic, "d")
    first.close()
    session.create_durable_consumer(topic, "d")


@pytest.mark.parametrize("change", ["topic", "selector", "no local"])
def test_a_changed_durable_subscription_begins_anew(
    connect: Connect, topic_name: str, client_id: str, change: str
) -> None:
    connection = connect(client_id=client_id)
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    other = session.create_topic(f"{topic_name}.other") if change == "topic" else topic
    session.create_durable_consumer(topic, "d").close()
    send(connect(), topic, "old", a=1)
    selector = "a = 1" if change == "selector" else None
    consumer = session.create_durable_consumer(other, "d", selector, change == "no local")
    send(connect(), other, "new", a=1)
    assert texts(receive(consumer, 1)) == ["new"]
    assert nothing_comes(consumer)


def test_unsubscribe_ends_a_subscription_with_its_messages(connect: Connect, topic_name: str, client_id: str) -> None:
    connection = connect(client_id=client_id)
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    consumer = session.create_durable_consumer(topic, "d")
    with pytest.raises(JMSError):
        session.unsubscribe("d")
    consumer.close()
    send(connection, topic, "1")
    session.unsubscribe("d")
    with pytest.raises(InvalidDestinationError):
        session.unsubscribe("d")
    assert nothing_comes(session.create_durable_consumer(topic, "d"))


def test_clients_have_subscriptions_of_the_same_name_each_for_itself(
    connect: Connect, topic_name: str, client_id: str
) -> None:
    sessions = [connect(client_id=f"{client_id}.{number}").create_session() for number in range(2)]
    topic = sessions[0].create_topic(topic_name)
    consumers = [session.create_durable_consumer(topic, "d") for session in sessions]
    send(connect(), topic, "1")
    assert [texts(receive(consumer, 1)) for consumer in consumers] == [["1"], ["1"]]


# -- 8.3.4: shared durable -------------------------------------------------------------------------------


@pytest.mark.parametrize("named", [True, False])
def test_a_shared_durable_subscription_is_shared_and_stays(
    connect: Connect, topic_name: str, client_id: str, named: bool
) -> None:
    connection = connect(client_id=client_id) if named else connect()
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    name = f"d.{topic_name}"
    consumers = [session.create_shared_durable_consumer(topic, name, prefetch=0) for _ in range(3)]
    send(connection, topic, "1", "2", "3")
    assert sorted(body_of(consumer.receive(WAIT_S)) for consumer in consumers) == ["1", "2", "3"]
    with pytest.raises(JMSError):
        session.unsubscribe(name)
    for consumer in consumers:
        consumer.close()
    send(connection, topic, "4")
    again = session.create_shared_durable_consumer(topic, name)
    assert texts(receive(again, 1)) == ["4"]
    again.close()
    session.unsubscribe(name)


def test_shared_and_unshared_durable_subscriptions_of_a_name_exclude_each_other(
    connect: Connect, topic_name: str, client_id: str
) -> None:
    session = connect(client_id=client_id).create_session()
    topic = session.create_topic(topic_name)
    unshared = session.create_durable_consumer(topic, "d")
    with pytest.raises(JMSError):
        session.create_shared_durable_consumer(topic, "d")
    unshared.close()
    session.unsubscribe("d")
    session.create_shared_durable_consumer(topic, "d")
    with pytest.raises(JMSError):
        session.create_durable_consumer(topic, "d")


def test_a_shared_subscription_that_is_not_durable_has_a_name_space_of_its_own(
    connect: Connect, topic_name: str, client_id: str
) -> None:
    connection = connect(client_id=client_id)
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    volatile = session.create_shared_consumer(topic, "name")
    durable = session.create_shared_durable_consumer(topic, "name")
    send(connection, topic, "1")
    assert texts(receive(volatile, 1)) == ["1"]
    assert texts(receive(durable, 1)) == ["1"]


def test_subscriptions_need_topics_names_and_selectors_that_are_such(
    connect: Connect, topic_name: str, client_id: str
) -> None:
    session = connect(client_id=client_id).create_session()
    topic = session.create_topic(topic_name)
    makers: list[Callable[..., Any]] = [
        session.create_durable_consumer,
        session.create_shared_consumer,
        session.create_shared_durable_consumer,
    ]
    for number, make in enumerate(makers):
        with pytest.raises(InvalidDestinationError):
            make(session.create_queue(topic_name), "d")
        for name in ("", "a|b"):
            with pytest.raises(InvalidDestinationError):
                make(topic, name)
        with pytest.raises(InvalidSelectorError):
            make(topic, f"d{number}", "=")
        make(topic, f"d{number}", "a = 1").close()


# -- 8.5, 8.6: receiving ---------------------------------------------------------------------------------


@pytest.mark.parametrize("prefetch", [0, 1, 1000])
def test_receiving_with_and_without_waiting(connect: Connect, queue_name: str, prefetch: int) -> None:
    connection = connect()
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    consumer = session.create_consumer(queue, prefetch=prefetch)
    assert consumer.receive_no_wait() is None
    assert consumer.receive(0) is None
    assert consumer.receive(0.02) is None
    send(connection, queue, *map(str, range(5)))
    assert body_of(consumer.receive_no_wait()) == "0"
    assert body_of(consumer.receive(WAIT_S)) == "1"
    assert body_of(consumer.receive()) == "2"
    assert body_of(consumer.receive_no_wait()) == "3"
    assert body_of(consumer.receive(WAIT_S)) == "4"
    assert consumer.receive_no_wait() is None


def test_without_prefetch_a_consumer_takes_only_what_it_receives(connect: Connect, queue_name: str) -> None:
    connection = connect()
    queue = connection.create_session().create_queue(queue_name)
    idle = connection.create_session().create_consumer(queue, prefetch=0)
    assert idle.receive(0.02) is None
    assert idle.receive_no_wait() is None
    send(connection, queue, *map(str, range(10)))
    busy = connection.create_session().create_consumer(queue)
    assert texts(receive(busy, 10)) == list(map(str, range(10)))


def test_without_prefetch_a_waiting_receive_is_served(connect: Connect, queue_name: str) -> None:
    connection = connect(prefetch=0)
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    consumer = session.create_consumer(queue)
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(consumer.receive(WAIT_S)))
    thread.start()
    send(connect(), queue, "1")
    thread.join(WAIT_S)
    assert texts(got) == ["1"]


def test_without_prefetch_a_listener_hears_everything(connect: Connect, queue_name: str) -> None:
    connection = connect(prefetch=0)
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    heard: list[str] = []
    done = threading.Event()

    def listener(message: Message) -> None:
        heard.append(message.body)
        if len(heard) == 20:
            done.set()

    session.create_consumer(queue).message_listener = listener
    send(connection, queue, *map(str, range(20)))
    assert done.wait(WAIT_S)
    assert heard == list(map(str, range(20)))


def test_without_prefetch_transactions_roll_back_in_order(connect: Connect, queue_name: str) -> None:
    connection = connect(prefetch=0)
    session = connection.create_session(transacted=True)
    queue = session.create_queue(queue_name)
    send(connection, queue, "1", "2", "3")
    consumer = session.create_consumer(queue)
    assert texts(receive(consumer, 2)) == ["1", "2"]
    session.rollback()
    assert texts(receive(consumer, 3)) == ["1", "2", "3"]
    session.commit()
    assert nothing_comes(consumer)


def test_a_consumer_of_higher_priority_comes_first(connect: Connect, queue_name: str) -> None:
    connection = connect()
    queue = connection.create_session().create_queue(queue_name)
    low = connection.create_session().create_consumer(queue)
    high = connection.create_session().create_consumer(queue, priority=5)
    send(connection, queue, *map(str, range(10)))
    assert texts(receive(high, 10)) == list(map(str, range(10)))
    assert nothing_comes(low)


def test_receive_and_a_listener_exclude_each_other(connect: Connect, queue_name: str) -> None:
    """8.7, CONTRACT A22."""
    session = connect().create_session()
    consumer = session.create_consumer(session.create_queue(queue_name))
    consumer.message_listener = print
    for call in (consumer.receive, consumer.receive_no_wait):
        with pytest.raises(IllegalStateError):
            call()
    consumer.message_listener = None
    assert consumer.receive(NOTHING_COMES_S) is None


# -- 8.7: listeners --------------------------------------------------------------------------------------


def test_listeners_of_a_session_run_one_at_a_time(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    inside, most, count = 0, 0, 0
    done = threading.Event()

    def listener(message: Message) -> None:
        nonlocal inside, most, count
        inside += 1
        most = max(most, inside)
        inside -= 1
        count += 1
        if count == 60:
            done.set()

    queues = [session.create_queue(f"{queue_name}.{number}") for number in range(3)]
    for queue in queues:
        session.create_consumer(queue).message_listener = listener
    for queue in queues:
        send(connection, queue, *map(str, range(20)))
    assert done.wait(WAIT_S)
    assert most == 1


@pytest.mark.parametrize("mode", [AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK])
def test_a_message_is_acknowledged_when_its_listener_returns(
    connect: Connect, queue_name: str, mode: AcknowledgeMode
) -> None:
    """CONTRACT C3, C6: whether it raised or not, where the application wants it so."""
    connection = connect(listener_error="acknowledge")
    session = connection.create_session(acknowledge_mode=mode)
    queue = session.create_queue(queue_name)
    seen: list[str] = []
    done = threading.Event()

    def listener(message: Message) -> None:
        seen.append(message.body)
        if len(seen) == 3:
            done.set()
        if message.body == "2":
            raise ValueError("an application's mistake")

    session.create_consumer(queue).message_listener = listener
    send(connection, queue, "1", "2", "3")
    assert done.wait(WAIT_S)
    session.close()
    assert seen == ["1", "2", "3"]
    assert nothing_comes(connection.create_session().create_consumer(queue))


def test_a_listener_may_acknowledge_and_commit(connect: Connect, queue_name: str) -> None:
    connection = connect()
    for number, transacted in enumerate((False, True)):
        session = connection.create_session(transacted, AcknowledgeMode.CLIENT)
        queue = session.create_queue(f"{queue_name}.{number}")
        done = threading.Event()
        finish = session.commit if transacted else None

        def listener(
            message: Message, finish: Callable[[], None] | None = finish, done: threading.Event = done
        ) -> None:
            if finish is None:
                message.acknowledge()
            else:
                finish()
            done.set()

        session.create_consumer(queue).message_listener = listener
        send(connection, queue, "1")
        assert done.wait(WAIT_S)
        session.close()
        assert nothing_comes(connection.create_session().create_consumer(queue))


# -- 8.8: closing ----------------------------------------------------------------------------------------


def test_what_a_closed_consumer_of_a_topic_had_acknowledged_does_not_come_again(
    connect: Connect, topic_name: str, client_id: str
) -> None:
    connection = connect(client_id=client_id)
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    consumer = session.create_durable_consumer(topic, "d")
    send(connection, topic, "1", "2", "3")
    assert texts(receive(consumer, 2)) == ["1", "2"]
    consumer.close()
    assert consumer.receive(WAIT_S) is None
    again = session.create_durable_consumer(topic, "d")
    (third,) = receive(again, 1)
    assert (third.body, third.redelivered) == ("3", False)


def test_a_transaction_goes_on_when_one_of_its_consumers_closes(connect: Connect, topic_name: str) -> None:
    connection = connect()
    session = connection.create_session(transacted=True)
    topic = session.create_topic(topic_name)
    first, second = session.create_consumer(topic), session.create_consumer(topic)
    send(connection, topic, "1")
    receive(first, 1)
    receive(second, 1)
    first.close()
    session.rollback()
    assert texts(receive(second, 1)) == ["1"]
    session.commit()


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL])
@pytest.mark.parametrize("prefetch", [0, 1000])
def test_messages_of_a_closed_consumer_can_be_acknowledged(
    connect: Connect, queue_name: str, mode: AcknowledgeMode, prefetch: int
) -> None:
    connection = connect(prefetch=prefetch)
    session = connection.create_session(acknowledge_mode=mode)
    queue = session.create_queue(queue_name)
    send(connection, queue, *"12345")
    with session.create_consumer(queue) as consumer:
        messages = receive(consumer, 3)
    assert consumer.receive(WAIT_S) is None
    other = connection.create_session()
    with other.create_consumer(queue) as unseen:
        assert texts(receive(unseen, 2)) == ["4", "5"]
        assert nothing_comes(unseen)
    for message in messages:
        message.acknowledge()
    session.close()
    assert nothing_comes(other.create_consumer(queue))


def test_messages_of_a_closed_consumer_can_be_given_back(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    queue = session.create_queue(queue_name)
    send(connection, queue, "1", "2")
    with session.create_consumer(queue) as consumer:
        receive(consumer, 2)
    session.recover()
    again = receive(session.create_consumer(queue), 2)
    assert texts(again) == ["1", "2"]
    assert all(message.redelivered for message in again)


def test_what_is_never_acknowledged_goes_back_with_the_session(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    queue = session.create_queue(queue_name)
    send(connection, queue, "1", "2")
    with session.create_consumer(queue) as consumer:
        receive(consumer, 2)
    session.close()
    assert texts(receive(connection.create_session().create_consumer(queue), 2)) == ["1", "2"]


def test_a_durable_subscription_is_active_until_its_messages_are_acknowledged(
    connect: Connect, topic_name: str, client_id: str
) -> None:
    connection = connect(client_id=client_id)
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    topic = session.create_topic(topic_name)
    with session.create_durable_consumer(topic, "d") as consumer:
        send(connection, topic, "1", "2")
        (first,) = receive(consumer, 1)
    with pytest.raises(IllegalStateError):
        session.create_durable_consumer(topic, "d")
    first.acknowledge()
    with session.create_durable_consumer(topic, "d") as consumer:
        (second,) = receive(consumer, 1)
    with pytest.raises(IllegalStateError):
        session.unsubscribe("d")
    second.acknowledge()
    session.unsubscribe("d")

"""Chapter 4: queues, topics, and temporary destinations."""

from __future__ import annotations

import pytest

from legato.client import (
    IllegalStateError,
    InvalidDestinationError,
    JMSError,
    JMSSecurityError,
    QueueRequestor,
    TemporaryQueue,
    TemporaryTopic,
    TextMessage,
)
from legato.client.aio import QueueRequestor as AsyncQueueRequestor
from legato.client.aio import TopicRequestor as AsyncTopicRequestor
from legato.client.requestor import TopicRequestor
from tests.conformance.jms.stories import WAIT_S, Connect, body_of, nothing_comes, receive, send, texts
from tests.support.twins import twin_of


def test_each_message_of_a_queue_goes_to_one_receiver(connect: Connect, queue_name: str) -> None:
    """4.1."""
    connection = connect()
    sessions = [connection.create_session() for _ in range(3)]
    queue = sessions[0].create_queue(queue_name)
    consumers = [session.create_consumer(queue, prefetch=0) for session in sessions]
    send(connection, queue, *map(str, range(9)))
    got = [body_of(consumer.receive(WAIT_S)) for _ in range(3) for consumer in consumers]
    assert sorted(got) == sorted(map(str, range(9)))
    assert all(nothing_comes(consumer) for consumer in consumers)


def test_a_queue_keeps_messages_until_they_are_received(connect: Connect, queue_name: str) -> None:
    """4.1.2."""
    connection = connect()
    queue = connection.create_session().create_queue(queue_name)
    send(connection, queue, "1", "2")
    session = connection.create_session()
    assert texts(receive(session.create_consumer(queue), 2)) == ["1", "2"]


def test_each_message_of_a_topic_goes_to_every_subscription_there_is(connect: Connect, topic_name: str) -> None:
    """4.2."""
    connection = connect()
    session = connection.create_session()
    topic = session.create_topic(topic_name)
    send(connection, topic, "before")
    consumers = [session.create_consumer(topic) for _ in range(3)]
    send(connection, topic, "1", "2")
    for consumer in consumers:
        assert texts(receive(consumer, 2)) == ["1", "2"]
        assert nothing_comes(consumer)


def test_a_queue_and_a_topic_of_one_name_are_two_things(connect: Connect, queue_name: str) -> None:
    connection = connect()
    session = connection.create_session()
    queue, topic = session.create_queue(queue_name), session.create_topic(queue_name)
    subscriber = session.create_consumer(topic)
    send(connection, queue, "for the queue")
    send(connection, topic, "for the topic")
    (got,) = receive(subscriber, 1)
    assert (got.body, got.destination) == ("for the topic", topic)
    assert texts(receive(session.create_consumer(queue), 1)) == ["for the queue"]


def test_a_temporary_queue_lives_as_long_as_its_connection(connect: Connect) -> None:
    """6.2.2."""
    connection, other = connect(), connect()
    session = connection.create_session()
    queue = session.create_temporary_queue()
    assert isinstance(queue, TemporaryQueue)
    send(other, queue, "from elsewhere")
    consumer = session.create_consumer(queue)
    assert texts(receive(consumer, 1)) == ["from elsewhere"]
    session.close()
    send(other, queue, "the session does not count")
    connection.close()
    with pytest.raises(InvalidDestinationError):
        send(other, queue, "gone")


def test_temporary_destinations_have_names_of_their_own(connect: Connect) -> None:
    session = connect().create_session()
    made = [session.create_temporary_queue() for _ in range(3)] + [session.create_temporary_topic() for _ in range(3)]
    assert len({destination.name for destination in made}) == 6


def test_only_the_connection_that_made_it_receives_from_a_temporary_destination(connect: Connect) -> None:
    """6.2.2, CONTRACT A23."""
    session, foreign = connect().create_session(), connect().create_session()
    for destination in (session.create_temporary_queue(), session.create_temporary_topic()):
        with pytest.raises(JMSSecurityError):
            foreign.create_consumer(destination)


def test_a_temporary_destination_can_be_deleted_once_nobody_receives_from_it(connect: Connect) -> None:
    """6.2.2."""
    connection = connect()
    session = connection.create_session()
    for destination in (session.create_temporary_queue(), session.create_temporary_topic()):
        consumer = session.create_consumer(destination)
        with pytest.raises(IllegalStateError):
            destination.delete()
        consumer.close()
        destination.delete()
        destination.delete()
        with pytest.raises(InvalidDestinationError):
            send(connection, destination, "gone")
        with pytest.raises(InvalidDestinationError):
            session.create_consumer(destination)


def test_a_temporary_destination_of_somebody_else_cannot_be_deleted(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    queue = session.create_queue(queue_name)
    message = session.create_message()
    message.reply_to = session.create_temporary_queue()
    session.create_producer(queue).send(message)
    (got,) = receive(session.create_consumer(queue), 1)
    assert isinstance(got.reply_to, TemporaryQueue)
    with pytest.raises(IllegalStateError):
        got.reply_to.delete()


def test_a_temporary_topic_has_subscribers_but_no_durable_ones(connect: Connect, client_id: str) -> None:
    connection = connect(client_id=client_id)
    session = connection.create_session()
    topic = session.create_temporary_topic()
    assert isinstance(topic, TemporaryTopic)
    consumers = [session.create_consumer(topic) for _ in range(2)]
    send(connection, topic, "1")
    assert [texts(receive(consumer, 1)) for consumer in consumers] == [["1"], ["1"]]
    with pytest.raises(JMSError):
        session.create_durable_consumer(topic, "s")
    with pytest.raises(JMSError):
        session.create_shared_durable_consumer(topic, "s")


@pytest.mark.parametrize("domain", ["queue", "topic"])
def test_a_requestor_is_answered(connect: Connect, queue_name: str, domain: str) -> None:
    """The API's `QueueRequestor` and `TopicRequestor`."""
    session, service = connect().create_session(), connect().create_session()
    create = service.create_queue if domain == "queue" else service.create_topic
    destination = create(queue_name)
    replies = service.create_producer()

    def answer(message: TextMessage) -> None:
        reply = service.create_text_message(f"re: {message.text}")
        reply.correlation_id = message.message_id
        replies.send(reply, destination=message.reply_to)

    requests = service.create_consumer(destination)
    requests.message_listener = answer  # type: ignore[assignment]
    kind = {
        "queue": (QueueRequestor, AsyncQueueRequestor),
        "topic": (TopicRequestor, AsyncTopicRequestor),
    }[domain]
    requestor = twin_of(session, *kind)(session, destination)
    for number in range(3):
        request = TextMessage(str(number))
        reply = requestor.request(request, WAIT_S)
        assert body_of(reply) == f"re: {number}"
        assert reply.correlation_id == request.message_id
    requestor.close()
    with pytest.raises(IllegalStateError):
        session.create_message()


def test_a_requestor_that_is_not_answered_gives_up(connect: Connect, queue_name: str) -> None:
    session = connect().create_session()
    requestor = twin_of(session, QueueRequestor, AsyncQueueRequestor)(session, session.create_queue(queue_name))
    assert requestor.request(TextMessage("anybody?"), 0.05) is None
    transacted = connect().create_session(transacted=True)
    with pytest.raises(IllegalStateError):
        twin_of(transacted, QueueRequestor, AsyncQueueRequestor)(transacted, transacted.create_queue(queue_name))

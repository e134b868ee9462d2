"""Addresses of two groups, used through one session: the application does not see that there are two."""

import threading

import pytest

from legato.client import AcknowledgeMode, Connection, ConnectionFactory, MessageConsumer, Queue, Topic
from legato.client.links.redirection import RedirectedLinkError
from legato.errors import IllegalStateError, JMSError
from tests.integration.groups.conftest import Connect, Groups
from tests.stress.interrupting import Lines

WAIT_S = 60.0


def taken(connection: Connection, name: str) -> list[str]:
    """What waits in a queue, by a connection that looks there itself."""
    with connection.create_session() as session, session.create_browser(Queue(name)) as browser:
        return [message.body for message in browser]


def test_messages_of_both_groups_go_through_one_session(calm_groups: Groups, connect: Connect) -> None:
    session = connect(calm_groups.url("orders")).create_session()
    for name in ("orders.a", "rest.a", calm_groups.unpinned("orders"), calm_groups.unpinned("rest")):
        session.create_producer(Queue(name)).send(f"to {name}")
        consumer = session.create_consumer(Queue(name))
        message = consumer.receive(timeout_s=WAIT_S)
        assert message is not None
        assert message.body == f"to {name}"
        assert message.destination == Queue(name)


def test_each_message_is_in_the_group_of_its_address(calm_groups: Groups, connect: Connect) -> None:
    with connect(calm_groups.url("orders")).create_session() as session:
        session.create_producer(Queue("rest.where")).send("here")
    there = connect(calm_groups.url("rest", "?discover=false"))
    assert taken(there, "rest.where") == ["here"]
    # And nobody who does not follow gets at it elsewhere.
    here = connect(calm_groups.url("orders", "?discover=false"))
    with pytest.raises(RedirectedLinkError, match=r"an address of the group 'rest', which other brokers serve: 127"):
        here.create_session().create_consumer(Queue("rest.where"))


def test_a_producer_without_a_destination_reaches_both(calm_groups: Groups, connect: Connect) -> None:
    connection = connect(calm_groups.url("rest"))
    session = connection.create_session()
    producer = session.create_producer()
    for number in range(5):
        for name in ("orders.any", "rest.any"):
            producer.send(f"{name} {number}", destination=Queue(name))
    heard: list[object] = []
    for name in ("orders.any", "rest.any"):
        producer.send("async", destination=Queue(name), completion_listener=lambda message, error: heard.append(error))
    producer.flush(WAIT_S)
    assert heard == [None, None]
    for name in ("orders.any", "rest.any"):
        consumer = session.create_consumer(Queue(name))
        bodies = [consumer.receive(timeout_s=WAIT_S).body for _ in range(6)]  # type: ignore[union-attr]
        assert bodies == [*(f"{name} {number}" for number in range(5)), "async"]
    producer.close()


def test_a_context_reaches_both(calm_groups: Groups, connect: Connect) -> None:
    with ConnectionFactory(calm_groups.url("orders")).create_context() as context:
        context.create_producer().send(Queue("rest.context"), "one").send(Queue("orders.context"), "two")
        assert context.create_consumer(Queue("rest.context")).receive_body(str, timeout_s=WAIT_S) == "one"
        assert context.create_consumer(Queue("orders.context")).receive_body(str, timeout_s=WAIT_S) == "two"


def test_an_acknowledgement_covers_what_the_session_has_of_both(calm_groups: Groups, connect: Connect) -> None:
    connection = connect(calm_groups.url("orders"))
    with connection.create_session() as session:
        for name in ("orders.client", "rest.client"):
            session.create_producer(Queue(name)).send(name)
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    first = session.create_consumer(Queue("orders.client")).receive(timeout_s=WAIT_S)
    second = session.create_consumer(Queue("rest.client")).receive(timeout_s=WAIT_S)
    assert first is not None
    assert second is not None
    session.recover()
    consumers = [session.create_consumer(Queue(name)) for name in ("orders.client", "rest.client")]
    session.close()
    assert len(consumers) == 2
    # They were given back, and come again to the next session.
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    again = [
        session.create_consumer(Queue(name)).receive(timeout_s=WAIT_S) for name in ("orders.client", "rest.client")
    ]
    assert all(message is not None and message.redelivered for message in again)
    again[1].acknowledge()  # type: ignore[union-attr]
    session.close()
    assert taken(connection, "orders.client") == []
    assert taken(connection, "rest.client") == []


def test_listeners_of_a_session_do_not_run_at_once(calm_groups: Groups, connect: Connect) -> None:
    connection = connect(calm_groups.url("orders"))
    session = connection.create_session()
    names = ("orders.listened", "rest.listened")
    running, most, heard = 0, 0, 0
    done = threading.Event()
    go_on = threading.Semaphore(0)

    def listen(_message: object) -> None:
        nonlocal running, most, heard
        running += 1
        most = max(most, running)
        # Another listener that may run has the time to.
        go_on.acquire(timeout=0.02)
        running -= 1
        heard += 1
        if heard == 40:
            done.set()

    with connection.create_session() as other:
        for name in names:
            producer = other.create_producer(Queue(name))
            for number in range(20):
                producer.send(number.__str__())
    for name in names:
        session.create_consumer(Queue(name)).message_listener = listen
    assert done.wait(WAIT_S)
    assert most == 1


def test_a_durable_subscription_may_be_in_another_group(calm_groups: Groups, connect: Connect) -> None:
    connection = connect(calm_groups.url("orders", "?client_id=durable-of-two"))
    session = connection.create_session()
    for topic in (Topic("orders.news"), Topic("rest.news")):
        consumer = session.create_durable_consumer(topic, topic.name)
        session.create_producer(topic).send(f"in {topic.name}")
        assert consumer.receive_body(str, timeout_s=WAIT_S) == f"in {topic.name}"
        consumer.close()
        session.unsubscribe(topic.name)
    with pytest.raises(JMSError):
        session.unsubscribe("rest.news")


def test_a_transaction_is_one_groups(calm_groups: Groups, connect: Connect) -> None:
    connection = connect(calm_groups.url("orders"))
    session = connection.create_session(transacted=True)
    producer = session.create_producer(Queue("rest.txn"))
    producer.send("rolled back")
    session.rollback()
    producer.send("committed")
    session.commit()
    assert not session.transaction_doomed
    consumer = session.create_consumer(Queue("rest.txn"))
    assert consumer.receive_body(str, timeout_s=WAIT_S) == "committed"
    session.rollback()
    message = consumer.receive(timeout_s=WAIT_S)
    assert message is not None
    assert message.redelivered
    session.commit()
    with pytest.raises(IllegalStateError, match="cannot span two groups"):
        session.create_producer(Queue("orders.txn"))
    with pytest.raises(IllegalStateError, match="cannot span two groups"):
        session.create_consumer(Queue("orders.txn"))
    # It goes on with its own.
    producer.send("after")
    session.commit()
    assert consumer.receive_body(str, timeout_s=WAIT_S) == "after"
    session.commit()
    session.close()
    assert taken(connection, "rest.txn") == []


@pytest.mark.parametrize("kind", ["create_durable_consumer", "create_shared_durable_consumer"])
def test_a_session_of_another_groups_transactions_makes_a_durable_consumer_again_and_again(
    calm_groups: Groups, connect: Connect, kind: str
) -> None:
    """At home its name stayed taken."""
    connection = connect(calm_groups.url("orders", f"?client_id=bound-{kind}"))
    session = connection.create_session(transacted=True)
    topic, name = Topic("rest.bound"), "again"
    for text in ("one", "two", "three"):
        consumer = getattr(session, kind)(topic, name)
        session.create_producer(topic).send(text)
        session.commit()
        assert consumer.receive_body(str, timeout_s=WAIT_S) == text
        session.commit()
        consumer.close()
    with connection.create_session() as home:
        home.create_durable_consumer(Topic("orders.bound"), name).close()
        home.unsubscribe(name)
    session.unsubscribe(name)


def test_an_interrupted_call_is_cleaned_up_after_in_the_other_group_too(calm_groups: Groups, connect: Connect) -> None:
    connection = connect(calm_groups.url("orders", "?client_id=interrupted-elsewhere"))
    session = connection.create_session(transacted=True)
    session.create_producer(Queue("rest.binds"))
    for raise_at in range(222, 500, 9):
        name = f"s{raise_at}"

        def make(name: str = name) -> MessageConsumer:
            return session.create_durable_consumer(Topic("rest.interrupted"), name)

        returned, _ = Lines(raise_at).run(make)
        if returned:
            break
        make().close()
        session.unsubscribe(name)


def test_a_transaction_at_home_is_not_taken_elsewhere(calm_groups: Groups, connect: Connect) -> None:
    session = connect(calm_groups.url("orders")).create_session(transacted=True)
    producer = session.create_producer()
    producer.send("here", destination=Queue("orders.home"))
    with pytest.raises(IllegalStateError, match=r"cannot span two groups.*'rest\.home' is an address of"):
        producer.send("there", destination=Queue("rest.home"))
    session.commit()
    consumer = session.create_consumer(Queue("orders.home"))
    assert consumer.receive_body(str, timeout_s=WAIT_S) == "here"
    session.commit()


def test_a_group_that_refused_what_was_asked_of_it_has_no_transaction(calm_groups: Groups, connect: Connect) -> None:
    """The session had done nothing, and an address of its own group was that of a second one."""
    connection = connect(calm_groups.url("orders"))
    topic = Topic("rest.refused")
    connection.create_session().create_shared_consumer(topic, "refused", "color = 'red'")
    session = connection.create_session(transacted=True)
    anywhere = session.create_producer()
    with pytest.raises(IllegalStateError, match="selector"):
        session.create_shared_consumer(topic, "refused", "color = 'blue'")
    anywhere.send("here", destination=Queue("orders.refused"))
    session.commit()
    session = connection.create_session(transacted=True)
    anywhere = session.create_producer()
    anywhere.send("there", destination=Queue("rest.refused"))
    # Of the group that has it already it stays the transaction.
    with pytest.raises(IllegalStateError, match="selector"):
        session.create_shared_consumer(topic, "refused", "color = 'blue'")
    with pytest.raises(IllegalStateError, match="cannot span two groups"):
        anywhere.send("here", destination=Queue("orders.refused"))
    session.commit()
    assert taken(connection, "orders.refused") == ["here"]
    assert taken(connection, "rest.refused") == ["there"]


def test_a_producer_without_a_destination_takes_its_transaction_along(calm_groups: Groups, connect: Connect) -> None:
    connection = connect(calm_groups.url("orders"))
    session = connection.create_session(transacted=True)
    producer = session.create_producer()
    producer.send("one", destination=Queue("rest.along"))
    producer.send("two", destination=Queue("rest.along.too"))
    session.rollback()
    assert taken(connection, "rest.along") == []
    producer.send("three", destination=Queue("rest.along"))
    session.commit()
    assert taken(connection, "rest.along") == ["three"]


def test_verdicts_on_single_messages_go_to_their_group(calm_groups: Groups, connect: Connect) -> None:
    connection = connect(calm_groups.url("orders"))
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
    session.create_producer(Queue("rest.single")).send("poison")
    consumer = session.create_consumer(Queue("rest.single"))
    message = consumer.receive(timeout_s=WAIT_S)
    assert message is not None
    session.reject(message, "not that")
    letters = session.create_consumer(Queue("DLQ.rest.single"))
    letter = letters.receive(timeout_s=WAIT_S)
    assert letter is not None
    assert letter.body == "poison"
    letter.acknowledge()


def test_replies_cross_groups(calm_groups: Groups, connect: Connect) -> None:
    asking = connect(calm_groups.url("orders")).create_session()
    replies = asking.create_temporary_queue()
    question = asking.create_text_message("how much?")
    question.reply_to = replies
    asking.create_producer(Queue("rest.asked")).send(question)
    answering = connect(calm_groups.url("rest")).create_session()
    asked = answering.create_consumer(Queue("rest.asked")).receive(timeout_s=WAIT_S)
    assert asked is not None
    assert asked.reply_to is not None
    answering.create_producer().send("three", destination=asked.reply_to)
    assert asking.create_consumer(replies).receive_body(str, timeout_s=WAIT_S) == "three"


def test_after_a_loss_a_connection_comes_back_to_its_group(groups: Groups, connect: Connect) -> None:
    """It found the other group's broker in its URL, and its open links ended with an error."""
    both = f"amqp://127.0.0.1:{groups.ports['orders']},127.0.0.1:{groups.ports['rest']}"
    connection = connect(both)
    session = connection.create_session()
    producer = session.create_producer(Queue("orders.back"))
    consumer = session.create_consumer(Queue("orders.back"))
    elsewhere = session.create_producer(Queue("rest.back"))
    orders = groups.brokers["orders"]
    orders.kill()
    sent = threading.Thread(target=producer.send, args=("kept",), daemon=True)
    sent.start()
    groups.brokers["rest"].wait_for_log("is sent to another group: orders")
    orders.start()
    sent.join(WAIT_S)
    assert consumer.receive_body(str, timeout_s=WAIT_S) == "kept"
    assert connection.host == f"127.0.0.1:{groups.ports['orders']}"
    elsewhere.send("this too")

"""Calls that wait for another group of brokers, over a connection with threads of its own."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from legato.client import DeliveryMode, Queue, Session
from legato.errors import IllegalStateError, JMSError
from tests.integration.groups.conftest import Connect, Groups
from tests.integration.groups.test_links import taken


class _Waits:
    """Listens to a completion, and would wait for itself."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.producer = session.create_producer()
        self.told: list[type[JMSError]] = []
        self.done = threading.Event()

    def __call__(self, _message: object, _error: JMSError | None) -> None:
        calls: list[Callable[[], object]] = [lambda: self.producer.flush(2.0), self.session.close]
        for call in calls:
            try:
                call()
            except JMSError as error:
                self.told.append(type(error))
        self.done.set()


@pytest.mark.parametrize("name", ["rest.itself", "orders.itself"])
def test_a_completion_listener_of_another_group_cannot_wait_for_itself(
    calm_groups: Groups, connect: Connect, name: str
) -> None:
    """It waited for itself for ever; of the session's own group it was told so (Jakarta Messaging 7.3.4, 7.3.6)."""
    listener = _Waits(connect(calm_groups.url("rest")).create_session())
    listener.producer.send("async", destination=Queue(name), completion_listener=listener)
    assert listener.done.wait(10.0)
    assert listener.told == [IllegalStateError] * 2


def test_a_send_to_another_group_does_not_wait_for_what_has_ended(calm_groups: Groups, connect: Connect) -> None:
    """It waited for ever if that connection ended for good while the message was encoded."""
    connection = connect(calm_groups.url("rest"))
    producer = connection.create_session().create_producer()
    to = Queue("orders.ended")
    producer.send("first", destination=to)
    route = producer._routes[to]
    encode = route.envelope.encode

    def end_and_encode(*arguments: Any) -> bytes:
        transport: Any = route.end.channel.transport
        transport.give_up()
        transport._thread.join(10.0)
        assert transport.ended
        return encode(*arguments)

    route.envelope = SimpleNamespace(destination=to, encode=end_and_encode)  # type: ignore[assignment]
    raised: list[JMSError] = []

    def send() -> None:
        try:
            producer.send("second", destination=to)
        except JMSError as error:
            raised.append(error)

    sending = threading.Thread(target=send, daemon=True)
    sending.start()
    sending.join(10.0)
    waits = sending.is_alive()
    if waits:
        connection._transport.give_up()
        sending.join(10.0)
    assert not waits
    assert len(raised) == 1


def test_a_producer_that_closes_tells_of_what_another_group_did_not_confirm(groups: Groups, connect: Connect) -> None:
    """It returned as if all was stored; of its session's own group it raised."""
    for name in ("rest.silent", "orders.silent"):
        connection = connect(groups.url("rest", "?close_timeout_s=1"))
        producer = connection.create_session().create_producer()
        producer.send("first", destination=Queue(name))
        broker = groups.brokers[name.partition(".")[0]]
        broker.signal(signal.SIGSTOP)
        try:
            producer.send("second", destination=Queue(name), delivery_mode=DeliveryMode.NON_PERSISTENT)
            with pytest.raises(JMSError, match=r"has not confirmed 1 sent message"):
                producer.close()
        finally:
            broker.signal(signal.SIGCONT)


def test_a_connection_closes_though_a_call_looks_for_another_group(groups: Groups, connect: Connect) -> None:
    """It did not as long as none of that group's brokers was there, and close_timeout_s did not count."""
    connection = connect(groups.url("rest", "?close_timeout_s=1&connect_attempts=1000000"))
    session = connection.create_session()
    groups.brokers["orders"].kill()
    raised: list[JMSError] = []

    def create() -> None:
        try:
            session.create_producer(Queue("orders.away"))
        except JMSError as error:
            raised.append(error)

    creating = threading.Thread(target=create, daemon=True)
    creating.start()
    creating.join(2.0)
    assert creating.is_alive()
    closing = threading.Thread(target=connection.close, daemon=True)
    closing.start()
    closing.join(15.0)
    waits = closing.is_alive()
    groups.brokers["orders"].start()
    closing.join(15.0)
    creating.join(15.0)
    assert not waits
    assert len(raised) == 1


def test_a_transaction_is_one_groups_though_its_producer_is_closed(calm_groups: Groups, connect: Connect) -> None:
    """The session took the other group's transactions for its own then: commit() returned without what was sent."""
    connection = connect(calm_groups.url("rest"))
    session = connection.create_session(transacted=True)
    with session.create_producer(Queue("rest.of_closed")) as producer:
        producer.send("one")
    with pytest.raises(IllegalStateError, match="cannot span two groups"):
        session.create_producer(Queue("orders.of_closed")).send("two")
    session.commit()
    session.close()
    assert taken(connection, "rest.of_closed") == ["one"]
    with connection.create_session(transacted=True) as session:
        with session.create_consumer(Queue("rest.of_closed")) as consumer:
            assert consumer.receive_body(str, timeout_s=60.0) == "one"
        with pytest.raises(IllegalStateError, match="cannot span two groups"):
            session.create_producer(Queue("orders.of_closed"))
        session.commit()
        # What has ended binds nobody.
        session.create_producer(Queue("orders.of_closed")).send("two")
        session.commit()
    assert taken(connection, "rest.of_closed") == []


def test_a_group_that_is_down_is_named(groups: Groups, connect: Connect) -> None:
    """Who calls was told to check the hosts of the connection URI, which are others."""
    session = connect(groups.url("rest", "?connect_attempts=1")).create_session()
    groups.brokers["orders"].kill()
    with pytest.raises(JMSError, match=r"^No broker of the group 'orders' can be reached .*in the map of groups\.$"):
        session.create_producer(Queue("orders.away"))

"""A session goes on whose connection to another group is gone for good, or whose other group has moved."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from legato.client import AcknowledgementOutcome, AcknowledgeMode, Connection, Message, Queue, Session
from legato.errors import JMSError
from tests.integration.groups.conftest import Connect, Groups
from tests.integration.groups.test_links import taken
from tests.integration.groups.test_moving_addresses import called, reload
from tests.support.server import server

WAIT_S = 60.0
NAMES = ("orders.lost", "rest.lost")


def lose(groups: Groups, connection: Connection) -> None:
    """The other group's connection is gone for good, as `reconnect_attempts` is 0; its broker comes back."""
    (below,) = connection._groups
    groups.brokers["rest"].kill()
    below._transport._thread.join(WAIT_S)
    assert below._transport.error is not None
    groups.brokers["rest"].start()


def received(session: Session) -> list[Message]:
    """One message of each group."""
    found = []
    for name in NAMES:
        session.create_producer(Queue(name)).send(name)
        message = session.create_consumer(Queue(name)).receive(timeout_s=WAIT_S)
        assert message is not None
        found.append(message)
    return found


@pytest.mark.parametrize("how", ["acknowledge", "acknowledge_all", "try_acknowledge"])
def test_a_lost_group_keeps_nobody_from_acknowledging(groups: Groups, connect: Connect, how: str) -> None:
    """Every acknowledgement raised, for ever, also when the group was there again."""
    connection = connect(groups.url("orders", "?reconnect_attempts=0"))
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    here, _ = received(session)
    lose(groups, connection)
    calls: dict[str, Callable[[Message], object]] = {
        "acknowledge": lambda message: message.acknowledge(),
        "acknowledge_all": lambda message: session.acknowledge_all(),
        "try_acknowledge": lambda message: message.try_acknowledge(),
    }
    # What was received there is not acknowledged, and the application hears so, once.
    with pytest.raises(JMSError, match="reconnect_attempts"):
        calls[how](here)
    again = session.create_consumer(Queue("rest.lost")).receive(timeout_s=WAIT_S)
    assert again is not None
    assert again.redelivered
    calls[how](again)
    here.acknowledge()
    session.close()
    assert [taken(connection, name) for name in NAMES] == [[], []]


def test_a_lost_group_keeps_nobody_from_recovering(groups: Groups, connect: Connect) -> None:
    connection = connect(groups.url("orders", "?reconnect_attempts=0"))
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    received(session)
    lose(groups, connection)
    with pytest.raises(JMSError, match="reconnect_attempts"):
        session.recover()
    consumer = session._members.consumers[0]
    again = consumer.receive(timeout_s=WAIT_S)
    assert again is not None
    assert again.redelivered
    session.recover()
    again = consumer.receive(timeout_s=WAIT_S)
    assert again is not None
    assert again.delivery_count == 3
    assert again.try_acknowledge() is AcknowledgementOutcome.ACCEPTED


def test_a_connection_stops_and_starts_without_a_lost_group(groups: Groups, connect: Connect) -> None:
    """Both raised what had ended the other connection."""
    connection = connect(groups.url("orders", "?reconnect_attempts=0"))
    session = connection.create_session()
    consumer = session.create_consumer(Queue("orders.goes_on"))
    session.create_producer(Queue("rest.goes_on"))
    lose(groups, connection)
    connection.stop()
    session.create_producer(Queue("orders.goes_on")).send("held back")
    assert consumer.receive(timeout_s=0.2) is None
    connection.start()
    assert consumer.receive_body(str, timeout_s=WAIT_S) == "held back"
    there = session.create_consumer(Queue("rest.goes_on"))
    session.create_producer(Queue("rest.goes_on")).send("there")
    assert there.receive_body(str, timeout_s=WAIT_S) == "there"
    assert len(list(connection._groups)) == 1


def test_a_group_that_has_moved_is_found_where_the_map_says(groups: Groups, connect: Connect) -> None:
    """Calls waited for ever, though each redirect named the new brokers."""
    connection = connect(groups.url("orders"))
    session = connection.create_session()
    before = session.create_producer(Queue("rest.moved"))
    before.send("one")
    groups.brokers["rest"].kill()
    with server(groups.directory / "rest", "--config", str(groups.configuration("rest"))) as moved:
        groups.ports["rest"] = moved.port
        groups.write_map({"orders.#": "orders", "rest.#": "rest"})
        reload(groups, "orders")
        thread, came = called(lambda: session.create_consumer(Queue("rest.moved")))
        thread.join(20.0)
        (below,) = connection._groups
        if thread.is_alive():
            below._transport.give_up()
            thread.join(WAIT_S)
        (consumer,) = came
        assert not isinstance(consumer, JMSError)
        before.send("two")
        assert [consumer.receive_body(str, timeout_s=WAIT_S) for _ in range(2)] == ["one", "two"]  # type: ignore[attr-defined]
        session.close()
        connection.close()

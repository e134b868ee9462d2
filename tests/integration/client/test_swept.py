"""Subscriptions that are not free yet: who waits for another session's consumer keeps nobody from closing."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from legato.client import Connection, ConnectionFactory, JMSError, TextMessage, Topic
from tests.integration.client.calling import Calling, held_back, until, until_away
from tests.integration.client.helpers import WAIT_S
from tests.support.broker import BrokerPair

CLOSES_WITHIN_S = 0.1


@pytest.fixture
def connection(calm_pair: BrokerPair, client_id: str) -> Iterator[Connection]:
    factory = ConnectionFactory(calm_pair.url, client_id=client_id, close_timeout_s=CLOSES_WITHIN_S)
    connection = factory.create_connection()
    connection.start()
    yield connection
    connection._transport.give_up()


def unreachable(*_: object) -> None:
    raise ConnectionRefusedError("the network is cut off")


@pytest.mark.parametrize("broker", ["away", "silent"])
@pytest.mark.parametrize("closes", ["session", "connection"])
def test_who_waits_for_a_subscription_of_another_session_does_not_keep_its_own_from_closing(
    connection: Connection, topic_name: str, monkeypatch: pytest.MonkeyPatch, broker: str, closes: str
) -> None:
    """The acknowledgement of what the consumer had received is not confirmed, so its link is not closed."""
    monkeypatch.setattr("legato.client.calls.patience.GIVEN_UP_AFTER_S", CLOSES_WITHIN_S)
    transport = connection._transport
    waiting, other = connection.create_session(), connection.create_session()
    topic = Topic(topic_name)
    consumer = other.create_durable_consumer(topic, "s")
    other.create_producer(topic).send(TextMessage("x"))
    until(lambda: consumer._inbox)
    with held_back(connection):
        assert consumer.receive(WAIT_S) is not None
        if broker == "away":
            monkeypatch.setattr("legato.client.links.transport.establish", unreachable)
            assert transport.wire is not None
            transport.wire._socket.shutdown(socket.SHUT_RDWR)
        else:
            monkeypatch.setattr(transport, "_handle", lambda events: None)
    if broker == "away":
        until_away(connection)
    consumer.close()
    assert not consumer._end.closed
    creating = Calling(lambda: waiting.create_durable_consumer(topic, "s"))
    until(lambda: other._channel.gate.is_awaited)
    closing = Calling({"session": waiting.close, "connection": connection.close}[closes])
    with pytest.raises(JMSError):
        creating.outcome()
    if closes == "session":
        closing.outcome()
    else:
        with pytest.raises(JMSError, match="acknowledgement of 1 received message"):
            closing.outcome()

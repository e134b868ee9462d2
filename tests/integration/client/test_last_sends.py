"""Sends at the very moment in which the connection is lost for good: each is told of, once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from legato.client import (
    Connection,
    ConnectionFactory,
    DeliveryMode,
    JMSError,
    TextMessage,
)
from tests.integration.client.calling import drop, until
from tests.support.broker import BrokerPair

HOW = ["non-persistent", "asynchronous"]


class Story:
    """A producer, whose connection is lost for good while it encodes a message."""

    def __init__(self, connection: Connection, queue: str, how: str, lost: Callable[[Story], object]) -> None:
        self.connection = connection
        self.told: list[JMSError] = []
        self._how = how
        self._lost = lost
        session = connection.create_session()
        self.producer = session.create_producer(session.create_queue(queue))
        route = self.producer._route
        assert route is not None
        self.outgoing = route.end.outgoing
        self._encode = route.envelope.encode
        envelope: Any = SimpleNamespace(destination=route.envelope.destination, encode=self._encode_and_lose)
        route.envelope = envelope

    def _encode_and_lose(self, *arguments: Any) -> bytes:
        drop(self.connection)
        until(lambda: self._lost(self))
        return self._encode(*arguments)

    def send(self) -> None:
        """Send the message, and wait until somebody has heard that it is lost."""
        if self._how == "non-persistent":
            self.connection.exception_listener = self._told
            self.producer.send(TextMessage("x"), delivery_mode=DeliveryMode.NON_PERSISTENT)
        else:
            self.producer.send(TextMessage("x"), completion_listener=lambda message, error: self._told(error))

    def _told(self, error: JMSError | None) -> None:
        assert error is not None
        self.told.append(error)


@pytest.fixture
def connection(calm_pair: BrokerPair) -> Iterator[Connection]:
    connection = ConnectionFactory(calm_pair.url, reconnect_attempts=0).create_connection()
    yield connection
    connection.close()


@pytest.mark.parametrize("how", HOW)
def test_what_is_sent_when_the_thread_has_ended_is_refused(connection: Connection, queue_name: str, how: str) -> None:
    story = Story(connection, queue_name, how, lambda story: story.connection._transport.ended)
    with pytest.raises(JMSError, match="reconnect_attempts is 0"):
        story.send()
    assert not story.outgoing.under_way


@pytest.mark.parametrize("how", HOW)
def test_what_is_sent_before_the_thread_looks_for_the_last_time_is_told_of(
    connection: Connection, queue_name: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    story = Story(connection, queue_name, how, lambda story: story.connection._transport.failed)
    transport = connection._transport
    notify = transport._notify

    def notify_later() -> None:
        notify()
        if transport.failed and not transport.deaf:
            until(lambda: story.outgoing.waiting)

    monkeypatch.setattr(transport, "_notify", notify_later)
    story.send()
    until(lambda: any("reconnect_attempts" in str(error) for error in story.told))
    connection.close()
    assert len(story.told) == (2 if how == "non-persistent" else 1), "and of the connection's end"
    assert not story.outgoing.under_way

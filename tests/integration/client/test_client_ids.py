"""Client ids that are given after the connection was made: what a failover, and another client, make of it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from legato.client import Connection, InvalidClientIDError, TextMessage
from legato.client.failover.wire import Wire, establish
from tests.integration.client.calling import Calling, drop, until, until_away

Connect = Callable[..., Connection]


class Network:
    """A network that can be cut off."""

    def __init__(self) -> None:
        self.works = threading.Event()

    def establish(self, *arguments: Any) -> Wire:
        """Connect, if it works."""
        if not self.works.is_set():
            raise ConnectionRefusedError("the network is cut off")
        return establish(*arguments)


@pytest.fixture
def network(monkeypatch: pytest.MonkeyPatch) -> Network:
    network = Network()
    network.works.set()
    monkeypatch.setattr("legato.client.links.transport.establish", network.establish)
    return network


def test_a_client_id_costs_no_try_of_the_first_failover(connect: Connect, client_id: str) -> None:
    """The new connection under that name counted as one that was lost again before all was restored."""
    connection = connect(started=False, reconnect_attempts=1)
    connection.set_client_id(client_id)
    session = connection.create_session()
    producer = session.create_producer(session.create_queue(client_id))
    drop(connection)
    producer.send(TextMessage("x"))
    until(lambda: connection.failovers)
    assert connection.failovers[0].attempts == 1


def test_a_client_id_that_is_given_without_a_connection_throws_nobody_out(
    connect: Connect, client_id: str, network: Network
) -> None:
    """It was taken for granted, and who comes back under a name is let in whoever else has it."""
    holder = connect(client_id=client_id)
    connection = connect(started=False)
    network.works.clear()
    drop(connection)
    until_away(connection)
    setting = Calling(lambda: connection.set_client_id(client_id))
    until(lambda: connection._transport.gate.is_awaited)
    until_away(connection)
    network.works.set()
    with pytest.raises(InvalidClientIDError):
        setting.outcome()
    assert connection.client_id is None
    session = holder.create_session()
    session.create_producer(session.create_queue(client_id)).send(TextMessage("x"))
    assert not holder.failovers
    other = f"{client_id}.other"
    connection.set_client_id(other)
    assert connection.client_id == other
    with pytest.raises(InvalidClientIDError):
        connect(client_id=other)

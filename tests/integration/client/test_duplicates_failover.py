"""What duplicate ids are for: a sender that does not know whether a killed broker had stored something tries again."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from legato.client import Connection, ConnectionFactory, JMSError, Session, TextMessage, TransactionRolledBackError
from legato.testing import BrokerPair
from tests.integration.client.helpers import WAIT_S, drain

Factory = Callable[..., ConnectionFactory]
HORNETQ = {"failover_contract": "hornetq"}
NO_FAILOVER = {"reconnect_attempts": 0}


@pytest.fixture
def pair(shared_pair: BrokerPair) -> BrokerPair:
    """After a failover it is a pair again."""
    return shared_pair


def all_of(url: str, queue: str) -> list[str]:
    """What is in a queue."""
    with ConnectionFactory(url).create_connection() as connection:
        connection.start()
        return drain(connection, queue)


class Retrying:
    """The recipe: send, commit if there is something to commit, and do it all again if that raises.

    With `reconnect_attempts=0` a connection does not survive its broker, so every attempt makes a new one.
    """

    def __init__(self, make: Callable[[], Connection], *, transacted: bool) -> None:
        self.errors: list[JMSError] = []
        self._make = make
        self._transacted = transacted
        self._session: Session | None = None
        self._connections: list[Connection] = []

    def session(self) -> Session:
        if self._session is None:
            connection = self._make()
            self._connections.append(connection)
            self._session = connection.create_session(transacted=self._transacted)
        return self._session

    def send(self, queue: str, numbers: range, *, usable_after_error: bool) -> list[bool]:
        """Returns of each message whether it was a duplicate the last time."""
        deadline = time.monotonic() + WAIT_S
        while True:
            messages = [TextMessage(str(number)) for number in numbers]
            try:
                session = self.session()
                producer = session.create_producer(session.create_queue(queue))
                for message in messages:
                    producer.send(message, duplicate_id=f"{queue} {message.body}")
                if self._transacted:
                    session.commit()
                return [message.duplicate for message in messages]
            except JMSError as error:
                self.errors.append(error)
                if time.monotonic() > deadline:
                    raise
                if not usable_after_error:
                    self._session = None

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@pytest.mark.parametrize(
    ("point", "stored"), [("before-commit", False), ("between-commit-and-outcome", True)], ids=["before", "after"]
)
def test_a_commit_of_unknown_outcome_is_done_again_and_each_message_is_there_once(
    pair: BrokerPair, factory: Factory, queue_name: str, point: str, stored: bool
) -> None:
    """CONTRACT E14, E15, E16: the broker died before or after it committed; the application cannot know which."""
    sender = Retrying(lambda: factory(pair.url, **NO_FAILOVER).create_connection(), transacted=True)
    assert sender.send(queue_name, range(10), usable_after_error=False) == [False] * 10
    with pair.failing_over_at(point):
        duplicates = sender.send(queue_name, range(10, 20), usable_after_error=False)
    assert sender.errors
    assert duplicates == [stored] * 10
    sender.close()
    assert all_of(pair.url, queue_name) == [str(number) for number in range(20)]


@pytest.mark.parametrize(
    ("point", "stored"), [("before-commit", False), ("between-commit-and-confirm", True)], ids=["before", "after"]
)
def test_a_send_of_unknown_outcome_is_done_again_and_the_message_is_there_once(
    pair: BrokerPair, factory: Factory, queue_name: str, point: str, stored: bool
) -> None:
    """CONTRACT E16, E17: another connection is another producer, and knows nothing of the first one's numbers."""
    sender = Retrying(lambda: factory(pair.url, **NO_FAILOVER).create_connection(), transacted=False)
    assert sender.send(queue_name, range(1), usable_after_error=False) == [False]
    with pair.failing_over_at(point):
        duplicates = sender.send(queue_name, range(1, 2), usable_after_error=False)
    assert sender.errors
    assert duplicates == [stored]
    sender.close()
    assert all_of(pair.url, queue_name) == ["0", "1"]


@pytest.mark.parametrize("transacted", [False, True], ids=["sends", "transactions"])
@pytest.mark.parametrize("point", ["before-commit", "between-commit-and-confirm"])
def test_hornetqs_recipe_on_one_session_is_once_and_only_once(
    pair: BrokerPair, factory: Factory, queue_name: str, point: str, transacted: bool
) -> None:
    """CONTRACT E10, E11, E12, E13, E15, E16, E17: released or rolled back, the same session sends again."""
    sender = Retrying(lambda: factory(pair.url, **HORNETQ).create_connection(), transacted=transacted)
    sender.send(queue_name, range(3), usable_after_error=True)
    with pair.failing_over_at("between-commit-and-outcome" if transacted and "between" in point else point):
        sender.send(queue_name, range(3, 6), usable_after_error=True)
    assert sender.errors
    for error in sender.errors:
        assert isinstance(error, TransactionRolledBackError) or error.code == "UNBLOCKED"
    sender.close()
    assert all_of(pair.url, queue_name) == [str(number) for number in range(6)]


def test_a_window_survives_its_broker_and_whoever_sends_again_is_told(
    pair: BrokerPair, factory: Factory, queue_name: str
) -> None:
    """CONTRACT E15; and a send that the client itself repeats is no duplicate to the application."""
    with factory(pair.url).create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(session.create_queue(queue_name))
        first, again = TextMessage("first"), TextMessage("again")
        with pair.failing_over_at("between-commit-and-confirm"):
            producer.send(first, duplicate_id="a")
        assert not first.duplicate
        with pair.failing_over_at("before-commit"):
            producer.send(again, duplicate_id="a")
        assert again.duplicate
    assert all_of(pair.url, queue_name) == ["first"]

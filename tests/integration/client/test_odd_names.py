"""Names, selectors and numbers that no broker takes: a sentence for the call, and nothing for the connection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from legato.client import Connection, ConnectionFactory, Queue, Session, Topic
from legato.errors import (
    ConfigError,
    InvalidClientIDError,
    InvalidDestinationError,
    InvalidSelectorError,
    JMSError,
    JMSSecurityError,
)
from legato.testing import LocalBroker, broker

HALF = "x\udcff"
"""Half of a pair of surrogates, as `os.listdir()` gives names that are no UTF-8."""
LONG = "x" * (1 << 18)
"""As long as a frame."""
ORDERS = Queue("orders")

Call = Callable[[Session], Any]


@pytest.fixture
def local() -> Iterator[LocalBroker]:
    """A broker of this process."""
    with broker() as running:
        yield running


@pytest.fixture
def connection(local: LocalBroker) -> Iterator[Connection]:
    """A connection to it."""
    with ConnectionFactory(local.url).create_connection() as connection:
        connection.start()
        yield connection


def _send_to(name: str) -> Call:
    return lambda session: session.create_producer().send(session.create_text_message("x"), destination=Queue(name))


NAMES: dict[str, Callable[[str], Call]] = {
    "create_producer": lambda name: lambda session: session.create_producer(Queue(name)),
    "send": _send_to,
    "create_consumer": lambda name: lambda session: session.create_consumer(Queue(name)),
    "create_browser": lambda name: lambda session: list(session.create_browser(Queue(name))),
    "create_shared_consumer": lambda name: lambda session: session.create_shared_consumer(Topic("t"), name),
    "unsubscribe": lambda name: lambda session: session.unsubscribe(name),
}


@pytest.mark.parametrize("name", [HALF, LONG], ids=["half", "long"])
@pytest.mark.parametrize("call", NAMES)
def test_a_name_that_cannot_be_sent_costs_its_call_only(connection: Connection, call: str, name: str) -> None:
    """Half a character ended the connection of all sessions; one of a frame's length had it lost again and again."""
    session = connection.create_session()
    with pytest.raises(InvalidDestinationError):
        NAMES[call](name)(session)
    _goes_on(session)


@pytest.mark.parametrize("selector", [f"a = '{HALF}'", f"a = '{LONG}'", 5], ids=["half", "long", "number"])
def test_a_selector_that_cannot_be_sent_costs_its_call_only(connection: Connection, selector: Any) -> None:
    session = connection.create_session()
    with pytest.raises(InvalidSelectorError):
        session.create_consumer(ORDERS, selector)
    with pytest.raises(InvalidSelectorError):
        session.create_browser(ORDERS, selector)
    _goes_on(session)


@pytest.mark.parametrize(
    "options", [{"priority": 1 << 40}, {"priority": "5"}, {"prefetch": 1 << 40}, {"prefetch": 1.5}], ids=str
)
def test_a_number_that_cannot_be_sent_costs_its_call_only(connection: Connection, options: Any) -> None:
    session = connection.create_session()
    with pytest.raises(JMSError, match="whole number"):
        session.create_consumer(ORDERS, **options)
    _goes_on(session)


def test_who_logs_in_has_a_name_that_can_be_sent(local: LocalBroker) -> None:
    with pytest.raises(ConfigError, match="client_id is no Unicode text"):
        ConnectionFactory(local.url, client_id=HALF)
    with pytest.raises(JMSSecurityError, match="no Unicode text"):
        ConnectionFactory(local.url).create_connection(HALF, "x")
    with ConnectionFactory(local.url).create_connection() as connection:
        with pytest.raises(InvalidClientIDError):
            connection.client_id = HALF
        connection.client_id = "trader"
        _goes_on(connection.create_session())


def _goes_on(session: Session) -> None:
    session.create_producer(ORDERS).send(session.create_text_message("x"))

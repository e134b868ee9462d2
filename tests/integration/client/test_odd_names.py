"""Names, selectors and numbers that no broker takes: a sentence for the call, and nothing for the connection."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from legato.client import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    Message,
    MessageConsumer,
    Queue,
    Session,
    Topic,
)
from legato.errors import (
    ConfigError,
    InvalidClientIDError,
    InvalidDestinationError,
    InvalidSelectorError,
    JMSError,
    JMSSecurityError,
    MessageFormatError,
)
from legato.testing import LocalBroker, broker

HALF = "x\udcff"
"""Half of a pair of surrogates, as `os.listdir()` gives names that are no UTF-8."""
LONG = "x" * (1 << 18)
"""As long as a frame."""
ORDERS = Queue("orders")

WAIT_S = 30.0

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


@pytest.mark.parametrize("mode", [AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.SESSION_TRANSACTED])
@pytest.mark.parametrize("reason", [f"cannot read {HALF}", LONG], ids=["half", "long"])
def test_a_reason_that_cannot_be_sent_is_made_one_that_can(
    connection: Connection, mode: AcknowledgeMode, reason: str
) -> None:
    """It ended the connection of all its sessions, or the transaction."""
    session, _, message = _received(connection, mode)
    session.reject(message, reason)
    _end(session)
    dead = session.create_consumer(Queue("DLQ.orders")).receive(WAIT_S)
    assert dead is not None
    assert str(dead.properties["JMS_LEGATO_EXCEPTION"]).startswith(reason[:11])


@pytest.mark.parametrize("mode", [AcknowledgeMode.INDIVIDUAL, AcknowledgeMode.SESSION_TRANSACTED])
@pytest.mark.parametrize(
    "properties", [{"file": HALF}, {HALF: "x"}, {"size": 1 << 80}, {"size": 1.5}, {"text": LONG}, {5: "x"}]
)
def test_properties_that_cannot_be_sent_cost_their_call_only(
    connection: Connection, mode: AcknowledgeMode, properties: Any
) -> None:
    session, consumer, message = _received(connection, mode)
    with pytest.raises(MessageFormatError):
        session.reject(message, "wrong", properties)
    session.give_back(message, failed=True, why=HALF)
    _end(session)
    assert consumer.receive(WAIT_S) is not None


class Unspeakable(Exception):
    """An error that cannot say what it is."""

    def __repr__(self) -> str:
        raise RuntimeError

    __str__ = __repr__


@pytest.mark.parametrize("error", [ValueError(HALF), Unspeakable()], ids=["half", "unspeakable"])
def test_a_listener_whose_error_cannot_be_told_is_called_again(
    local: LocalBroker, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    # A process that runs tests for another one could not tell it what was logged.
    caplog.set_level(logging.CRITICAL, "legato.client")
    with ConnectionFactory(local.url, listener_error="redeliver").create_connection() as connection:
        session = connection.create_session()
        _goes_on(session)
        calls = threading.Semaphore(0)

        def hear(message: Message) -> None:
            calls.release()
            raise error

        session.create_consumer(ORDERS).message_listener = hear
        connection.start()
        assert calls.acquire(timeout=WAIT_S)
        assert calls.acquire(timeout=WAIT_S)
        assert connection.lost is None


@pytest.mark.parametrize("transaction_id", ["text", b"", 33 * b"x", 5])
def test_what_is_no_transactions_id_has_no_outcome(connection: Connection, transaction_id: Any) -> None:
    """It was said to be rolled back."""
    session = connection.create_session(transacted=True)
    with pytest.raises(JMSError, match="1 to 32 bytes"):
        session.commit_outcome(transaction_id)


def _received(connection: Connection, mode: AcknowledgeMode) -> tuple[Session, MessageConsumer, Message]:
    _goes_on(connection.create_session())
    session = connection.create_session(transacted=mode is AcknowledgeMode.SESSION_TRANSACTED, acknowledge_mode=mode)
    consumer = session.create_consumer(ORDERS)
    message = consumer.receive(WAIT_S)
    assert message is not None
    return session, consumer, message


def _end(session: Session) -> None:
    if session.transacted:
        session.commit()


@pytest.mark.parametrize(
    "options",
    [
        {"client_id": 5},
        {"client_id": LONG},
        {"vhost": 5},
        {"password_file": 5},
        {"connect_wait_s": None},
        {"prefetch": 1.5},
        {"reconnect_attempts": True},
    ],
    ids=lambda options: "-".join(options),
)
def test_an_option_of_another_type_is_a_wrong_option(local: LocalBroker, options: Any) -> None:
    """Some ended the thread of the connection, and one was tried for a minute."""
    with pytest.raises(ConfigError, match=f"The connection option {next(iter(options))} "):
        ConnectionFactory(local.url, **options)


def test_an_option_that_is_a_path_is_taken(tmp_path: Path) -> None:
    ConnectionFactory(password_file=tmp_path / "password")  # type: ignore[arg-type]

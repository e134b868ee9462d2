"""Chapter 9: what is raised where, and who is told of what nobody asked for."""

from __future__ import annotations

import threading

import pytest

import legato.client
from legato.client import IllegalStateError, InvalidDestinationError, JMSError, Message, Queue, TextMessage, Topic
from legato.errors import LegatoError
from tests.conformance.jms.stories import WAIT_S, Connect, send

JAKARTA = {
    "IllegalStateError",
    "InvalidClientIDError",
    "InvalidDestinationError",
    "InvalidSelectorError",
    "JMSSecurityError",
    "MessageEOFError",
    "MessageFormatError",
    "MessageNotReadableError",
    "MessageNotWriteableError",
    "ResourceAllocationError",
    "TransactionInProgressError",
    "TransactionRolledBackError",
}


def test_every_exception_of_the_specification_is_an_error_of_the_one_tree() -> None:
    for name in JAKARTA:
        kind = getattr(legato.client, name)
        assert issubclass(kind, JMSError)
        assert issubclass(kind, LegatoError)
        error = kind("why", code="C", linked=ValueError("cause"))
        assert (str(error), error.code, str(error.linked)) == ("why", "C", "cause")


@pytest.mark.parametrize("destination", [None, "orders", Queue(""), Topic("")])
def test_what_is_no_destination_is_refused_everywhere(connect: Connect, destination: object) -> None:
    """CONTRACT A23."""
    session = connect().create_session()
    with pytest.raises(InvalidDestinationError):
        session.create_consumer(destination)  # type: ignore[arg-type]
    with pytest.raises(InvalidDestinationError):
        session.create_browser(destination)  # type: ignore[arg-type]
    with pytest.raises(InvalidDestinationError):
        session.create_producer().send(TextMessage("x"), destination=destination)  # type: ignore[arg-type]


def test_the_exception_listener_hears_of_listeners_that_raise(connect: Connect, queue_name: str) -> None:
    connection = connect()
    errors: list[JMSError] = []
    heard = threading.Event()

    def on_exception(error: JMSError) -> None:
        errors.append(error)
        heard.set()

    def listener(message: Message) -> None:
        raise ValueError("an application's mistake")

    connection.exception_listener = on_exception
    session = connection.create_session()
    queue = session.create_queue(queue_name)
    session.create_consumer(queue).message_listener = listener
    send(connection, queue, "1")
    assert heard.wait(WAIT_S)
    assert errors[0].code == "LISTENER"
    assert isinstance(errors[0].linked, ValueError)


def test_the_exception_listener_hears_of_a_temporary_queue_deleted_under_a_producer(connect: Connect) -> None:
    owner, other = connect(), connect()
    errors: list[JMSError] = []
    heard = threading.Event()

    def on_exception(error: JMSError) -> None:
        errors.append(error)
        heard.set()

    other.exception_listener = on_exception
    queue = owner.create_session().create_temporary_queue()
    producer = other.create_session().create_producer(queue)
    queue.delete()
    assert heard.wait(WAIT_S)
    assert isinstance(errors[0], InvalidDestinationError)
    with pytest.raises(JMSError):
        producer.send(TextMessage("gone"))


def test_calls_after_a_close_say_what_is_closed(connect: Connect, queue_name: str) -> None:
    """CONTRACT A23."""
    session = connect().create_session()
    producer = session.create_producer(session.create_queue(queue_name))
    producer.close()
    with pytest.raises(IllegalStateError, match="producer"):
        producer.send(TextMessage("x"))
    session.close()
    with pytest.raises(IllegalStateError, match="session"):
        session.commit()

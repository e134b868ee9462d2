"""What editors, type checkers and mocks see of the public classes is what they are, with threads and with asyncio."""

from __future__ import annotations

import asyncio
import inspect
import types
import typing
from collections.abc import Callable
from pathlib import Path
from unittest.mock import create_autospec

import pytest

import legato.client
from legato.client import AcknowledgementOutcome, Message, TextMessage, aio
from legato.client.aio.steps import Opening

BLOCKING = {name: getattr(legato.client, name) for name in aio.__all__}
ASYNCIO = {name: getattr(aio, name) for name in aio.__all__}
EACH = [pytest.param(kind, id=f"{kind.__module__}.{kind.__name__}") for kind in [*BLOCKING.values(), *ASYNCIO.values()]]
SIGNATURES = Path(__file__).parent / "signatures.txt"

COROUTINES = {
    "Connection": "set_client_id stop close",
    "ConnectionFactory": "",
    "JMSConsumer": "receive receive_no_wait receive_body receive_body_no_wait close",
    "JMSContext": "create_temporary_queue create_temporary_topic unsubscribe set_client_id stop commit commit_outcome "
    "rollback recover acknowledge acknowledge_all close",
    "JMSProducer": "send",
    "MessageConsumer": "receive receive_no_wait receive_body receive_body_no_wait close",
    "MessageProducer": "send flush close",
    "QueueBrowser": "close",
    "QueueRequestor": "request close",
    "Session": "unsubscribe create_temporary_queue create_temporary_topic commit commit_outcome rollback recover "
    "acknowledge_all close",
    "TemporaryQueue": "delete",
    "TemporaryTopic": "delete",
    "TopicRequestor": "request close",
}
"""What is awaited with asyncio. What makes something is not here: it can be awaited, or entered with `async with`."""


def methods(kind: type) -> dict[str, Callable[..., object]]:
    """The public methods of a class."""
    return {
        name: getattr(kind, name) for name in dir(kind) if not name.startswith("_") and callable(getattr(kind, name))
    }


def described(kind: type, name: str) -> str:
    """A method's parameters with their defaults."""
    signature = inspect.signature(getattr(kind, name))
    bare = [each.replace(annotation=each.empty) for each in signature.parameters.values()]
    return f"{kind.__name__}.{name}{signature.replace(parameters=bare, return_annotation=signature.empty)}"


@pytest.mark.parametrize("kinds", [BLOCKING, ASYNCIO], ids=["blocking", "asyncio"])
def test_the_parameters_of_public_methods_and_their_defaults_are_those_that_users_know(kinds: dict[str, type]) -> None:
    """`signatures.txt` was written before the classes were, save for `kind` of `receive()`; users notice changes."""
    found = [described(kind, name) for kind in kinds.values() for name in methods(kind) if name not in ("kind",)]
    assert sorted(found) == SIGNATURES.read_text().splitlines()


@pytest.mark.parametrize("kind", EACH)
def test_the_types_of_public_methods_can_be_asked_for_and_name_what_users_get(kind: type) -> None:
    for name, method in methods(kind).items():
        if isinstance(method, type):
            continue
        hints = typing.get_type_hints(method)
        assert "return" in hints, name
        assert hints.keys() - {"return"} == inspect.signature(method).parameters.keys() - {"self"}, name
        for hint in hints.values():
            parts = [hint, *typing.get_args(hint)]
            assert types.GeneratorType not in parts, name
            assert not any(isinstance(part, typing.TypeVar) for part in parts) or "body" in name, (name, hint)


def test_what_is_awaited_with_asyncio_is_a_coroutine_function_and_nothing_else_is() -> None:
    for name, kind in ASYNCIO.items():
        found = {each for each, method in methods(kind).items() if inspect.iscoroutinefunction(method)}
        assert found == set(COROUTINES[name].split()), name
    for kind in BLOCKING.values():
        assert not any(inspect.iscoroutinefunction(method) for method in methods(kind).values())


def test_what_makes_something_with_asyncio_says_that_it_can_be_awaited_or_entered() -> None:
    hints = typing.get_type_hints(aio.Session.create_consumer)
    assert hints["return"] == Opening[aio.MessageConsumer]
    assert typing.get_type_hints(aio.ConnectionFactory.create_connection)["return"] == Opening[aio.Connection]
    assert typing.get_type_hints(legato.client.Session.create_consumer)["return"] is legato.client.MessageConsumer
    assert typing.get_type_hints(legato.client.Connection.create_session)["return"] is legato.client.Session
    assert typing.get_type_hints(aio.Session.create_temporary_queue)["return"] is aio.TemporaryQueue


def test_a_mock_of_a_session_is_called_as_the_session_is() -> None:
    session = create_autospec(legato.client.Session, instance=True)
    session.acknowledge_all.return_value = {"ID:1": AcknowledgementOutcome.ACCEPTED}
    assert session.acknowledge_all() == {"ID:1": AcknowledgementOutcome.ACCEPTED}
    session.commit()
    session.commit.assert_called_once_with()
    with pytest.raises(TypeError):
        session.commit("more")
    with pytest.raises(TypeError):
        create_autospec(legato.client.MessageConsumer, instance=True).receive(timeout_ms=5)


@pytest.mark.parametrize("name", ["MessageConsumer", "JMSConsumer"])
@pytest.mark.parametrize("package", [legato.client, aio], ids=["blocking", "asyncio"])
def test_who_spells_the_time_to_wait_as_others_do_is_told_what_to_write(package: typing.Any, name: str) -> None:
    kind = getattr(package, name)
    consumer = object.__new__(kind)

    async def call(receive: Callable[..., typing.Any], *arguments: object) -> None:
        result = receive(consumer, *arguments, timeout=1.5)
        assert inspect.isawaitable(result)
        await result

    for receive, arguments in ((kind.receive, ()), (kind.receive_body, (str,))):
        with pytest.raises(TypeError, match=rf"^{receive.__name__}\(\) waits .*: write timeout_s=1.5 instead"):
            asyncio.run(call(receive, *arguments))


@pytest.mark.parametrize("package", [legato.client, aio], ids=["blocking", "asyncio"])
def test_what_cannot_be_called_is_no_listener(package: typing.Any) -> None:
    consumer = object.__new__(package.MessageConsumer)
    with pytest.raises(legato.client.JMSError, match="is a function that is called with each message; this is 3"):
        consumer.message_listener = 3


@pytest.mark.parametrize("package", [legato.client, aio], ids=["blocking", "asyncio"])
def test_a_mock_of_a_producer_or_a_connection_has_the_attributes_that_users_read(package: typing.Any) -> None:
    producer = create_autospec(package.MessageProducer, instance=True)
    for name in ("destination", "delivery_mode", "priority", "time_to_live_ms", "delivery_delay_ms"):
        getattr(producer, name)
    for name in ("disable_message_id", "disable_message_timestamp", "duplicate_listener"):
        getattr(producer, name)
    connection = create_autospec(package.Connection, instance=True)
    for name in ("exception_listener", "failover_listener", "client_id", "metadata", "host"):
        getattr(connection, name)
    with pytest.raises(AttributeError):
        _ = producer.prioritty


def test_a_mock_of_a_session_with_asyncio_is_awaited_as_the_session_is() -> None:
    async def main() -> Message | None:
        session = create_autospec(aio.Session, instance=True)
        await session.commit()
        session.commit.assert_awaited_once_with()
        producer = create_autospec(aio.MessageProducer, instance=True)
        await producer.send(TextMessage("tea"))
        consumer = create_autospec(aio.MessageConsumer, instance=True)
        consumer.receive.return_value = TextMessage("tea")
        received: Message | None = await consumer.receive(timeout_s=5)
        return received

    received = asyncio.run(main())
    assert received is not None
    assert received.body == "tea"


@pytest.mark.parametrize("kind", EACH)
def test_public_methods_are_documented_where_they_are_defined(kind: type) -> None:
    """Editors show what stands in the source, not what a decorator put there."""
    for name, method in methods(kind).items():
        if isinstance(method, types.FunctionType):
            assert method.__code__.co_name == name
            assert ast_doc(method), f"{kind.__name__}.{name}"


def ast_doc(method: types.FunctionType) -> str | None:
    """The documentation in a function's own code."""
    first = method.__code__.co_consts[0]
    return first if isinstance(first, str) and first == method.__doc__ else None

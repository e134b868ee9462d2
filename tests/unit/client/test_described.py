"""What `repr()` shows of the client's objects: enough to know them by, no secret, and it never fails."""

from __future__ import annotations

from typing import Any

import pytest

from legato.client import (
    BytesMessage,
    ConnectionFactory,
    MapMessage,
    Message,
    Queue,
    TemporaryQueue,
    TextMessage,
    Topic,
    aio,
)
from legato.client.failover.uri import parse_uri
from legato.client.failover.wire import Login
from legato.client.messages.destinations import Destination
from legato.errors import MessageFormatError

SECRET_URI = "amqp://ann:secret@tea:5672,milk?client_id=c"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (ConnectionFactory(SECRET_URI), "<ConnectionFactory amqp://ann@tea:5672,milk:5672>"),
        (aio.ConnectionFactory(SECRET_URI), "<aio.ConnectionFactory amqp://ann@tea:5672,milk:5672>"),
        (parse_uri(SECRET_URI), "Uri('amqp://ann@tea:5672,milk:5672')"),
        (Login("ann", "secret", None, 5.0, token=lambda: "secret"), "Login(user='ann', tls=False)"),
        (Queue("tea"), "Queue('tea')"),
        (Topic("tea"), "Topic('tea')"),
        (TemporaryQueue("tea"), "TemporaryQueue('tea')"),
        (TextMessage("secret"), "<TextMessage not sent>"),
        (MapMessage({"password": "secret"}), "<MapMessage not sent>"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_an_object_is_shown_without_secrets(value: object, shown: str) -> None:
    assert repr(value) == shown


def test_a_message_is_shown_with_its_id_its_destination_and_the_attempt() -> None:
    message = TextMessage("secret")
    message.__dict__.update(_message_id="ID:1 2", _destination=Queue("tea"))
    assert repr(message) == "<TextMessage 'ID:1 2' to Queue('tea')>"
    message.__dict__.update(_message_id=None, _delivery_count=3)
    assert repr(message) == "<TextMessage without an id to Queue('tea'), attempt 3>"


def test_a_message_that_cannot_be_read_is_shown_all_the_same() -> None:
    class Broken:
        def headers(self) -> dict[str, Any]:
            raise MessageFormatError("broken")

    message = BytesMessage.received(Broken(), lambda message: None)  # type: ignore[arg-type]
    assert repr(message) == "<BytesMessage with headers that cannot be read>"


def test_every_public_class_of_destinations_and_messages_says_more_than_its_address() -> None:
    kinds: list[type] = [Destination, Message]
    while kinds:
        kind = kinds.pop()
        assert "__repr__" in {name for each in kind.__mro__[:-1] for name in vars(each)}, kind
        kinds += kind.__subclasses__()


def test_services_and_what_they_work_with_say_what_they_are() -> None:
    from legato.faststream import LegatoBroker
    from legato.flows import Endpoint, Flows
    from legato.flows.model.initiation import Initiation
    from legato.flows.starting.futures import FlowFuture

    shown = {
        repr(LegatoBroker("amqp://ann:secret@tea")): "<LegatoBroker <aio.ConnectionFactory amqp://ann@tea:5672>, "
        "subscribers: 0, not connected>",
        repr(Flows("amqp://ann:secret@tea", name="tea shop")): "<Flows 'tea shop', endpoints: 0, workers: 0, "
        "not connected>",
        repr(Endpoint("Orders.pay")): "<Endpoint Orders.pay, stages: 0>",
        repr(Initiation("order 4711", sender="", now_us=0, new_id=lambda: "")): "<Initiation of 'order 4711'>",
        repr(FlowFuture("order 4711", str)): "<FlowFuture of 'order 4711', pending>",
    }
    assert list(shown) == list(shown.values())

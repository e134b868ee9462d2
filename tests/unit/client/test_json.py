"""JSON bodies: what goes in comes out as the type that is asked for; what does not fit is a sentence."""

from __future__ import annotations

import datetime
import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from typing import Any, NamedTuple, TypedDict

import msgspec
import pydantic
import pytest

from legato.client import (
    BytesMessage,
    JMSError,
    MapMessage,
    Message,
    MessageFormatError,
    ObjectMessage,
    StreamMessage,
    TextMessage,
)
from legato.client.messages.sendable import jakarta_message_of, json_message, message_of
from tests.unit.client.passing import passed


class Colour(Enum):
    RED = "red"


@dataclass
class Line:
    item: str
    quantity: int = 1


@dataclass
class Order:
    name: str
    placed: datetime.datetime
    total: Decimal
    key: uuid.UUID
    colour: Colour = Colour.RED
    lines: list[Line] = field(default_factory=list)


class Struct(msgspec.Struct):
    item: str
    at: datetime.date
    line: Line | None = None


class Model(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(validate_by_name=True)
    item: str
    quantity: int = pydantic.Field(gt=0, alias="Quantity")
    at: datetime.datetime | None = None


@pydantic.dataclasses.dataclass
class Checked:
    quantity: int = pydantic.Field(gt=0)


@dataclass
class Basket:
    models: list[Model]


class Dictionary(TypedDict):
    item: str


class Tuple(NamedTuple):
    item: str
    quantity: int


ORDER = Order(
    "tea",
    datetime.datetime(2026, 11, 23, 17, 0, tzinfo=datetime.UTC),
    Decimal("12.50"),
    uuid.UUID(int=7),
    lines=[Line("tea", 2)],
)
MODEL = Model(item="tea", Quantity=2, at=datetime.datetime(2026, 11, 23))
EACH: list[tuple[Any, Any]] = [
    (ORDER, Order),
    (Struct("tea", datetime.date(2026, 11, 23), Line("x")), Struct),
    (MODEL, Model),
    (Checked(3), Checked),
    (Basket([MODEL]), Basket),
    ([MODEL], list[Model]),
    ([ORDER], list[Order]),
    ({"tea": Line("tea")}, dict[str, Line]),
    ({"item": "tea"}, Dictionary),
    (Tuple("tea", 2), Tuple),
    ({"a": {"b": [1, None, 2.5, True, "é \U0001f375"]}}, dict),
    ([], list),
    ({}, dict),
]


@pytest.mark.parametrize(("body", "kind"), EACH, ids=lambda each: str(type(each).__name__)[:12])
def test_what_is_sent_as_json_is_received_as_the_type_that_is_asked_for(body: Any, kind: Any) -> None:
    received = passed(message_of(body))
    assert isinstance(received, TextMessage)
    assert received.content_type == "application/json"
    assert received.json(kind) == body
    assert received.get_body(kind) == body
    assert received.is_body_assignable_to(kind)
    assert received.get_body(str) == received.text


@pytest.mark.parametrize("make", [message_of, jakarta_message_of])
@pytest.mark.parametrize(
    "body", [ORDER, MODEL, Struct("tea", datetime.date(2026, 1, 1))], ids=lambda x: type(x).__name__
)
def test_both_producers_send_structured_objects_alike(make: Callable[[Any], Message], body: Any) -> None:
    assert passed(make(body)).json(type(body)) == body


def test_text_and_bytes_are_sent_as_themselves() -> None:
    assert passed(message_of("tea")).body == "tea"
    assert type(message_of("tea")) is TextMessage
    assert message_of("tea").content_type is None
    assert type(message_of(b"tea")) is BytesMessage
    message = Message()
    assert message_of(message) is message


def test_the_simplified_api_sends_a_dict_as_a_map_message_and_it_can_be_read_as_json_can() -> None:
    """Jakarta Messaging 7.10: `send(destination, Map)`."""
    message = passed(jakarta_message_of({"item": "tea", "quantity": 2}))
    assert isinstance(message, MapMessage)
    assert message.json(Line) == Line("tea", 2)
    assert message.get_body(Line) == Line("tea", 2)
    assert message.json() == message.get_body(dict) == {"item": "tea", "quantity": 2}
    assert isinstance(jakarta_message_of([1]), ObjectMessage)


@pytest.mark.parametrize(
    "message",
    [
        TextMessage('{"item": "tea", "quantity": 2}'),
        BytesMessage(b'{"item": "tea", "quantity": 2}'),
        ObjectMessage({"item": "tea", "quantity": 2}),
        MapMessage({"item": "tea", "quantity": 2}),
    ],
    ids=lambda each: type(each).__name__,
)
def test_json_of_other_clients_is_read_whatever_message_holds_it(message: Message) -> None:
    for each in (message, passed(message)):
        assert each.json(Line) == each.get_body(Line) == Line("tea", 2)
        assert each.json() == {"item": "tea", "quantity": 2}


def test_a_text_without_a_content_type_is_no_dict() -> None:
    """Jakarta Messaging 3.11: a text message's body is a String."""
    assert not TextMessage("{}").is_body_assignable_to(dict)
    with pytest.raises(MessageFormatError, match="is of type str, not dict"):
        TextMessage("{}").get_body(dict)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        ("tea", None, "is not JSON: it is the text tea\\."),
        ("one pound of tea", Line, "is not JSON of type Line: it is the text 'one pound of tea'\\."),
        ("nul", None, "is not JSON: it is the text nul"),
        ("true", Line, "Expected `object`, got `bool`"),
        ('{"item": 1}', Line, r"is not JSON of type Line: Expected `str`, got `int` - at `\$.item`\."),
        ("{}", Line, "missing required field `item`"),
        ('{"item": "tea", "Quantity": 0}', Model, r"of type Model: \$.Quantity: Input should be greater than 0\."),
        ('[{"item": "tea"}]', list[Model], r"\$.Quantity: Field required"),
        ('{"quantity": 0}', Checked, "greater than 0"),
        ("[1]", list[Line], "Expected `object`"),
        ("tea", Model, "of type Model: it is the text tea"),
        ("{tea}", Model, "Invalid JSON"),
    ],
)
def test_a_body_that_does_not_fit_is_a_format_error_of_one_line(text: str, kind: Any, said: str) -> None:
    message = TextMessage(text)
    with pytest.raises(MessageFormatError, match=said) as raised:
        message.json(*[kind] * (kind is not None))
    assert "\n" not in str(raised.value)
    if kind is not None:
        assert not message.is_body_assignable_to(kind)
        with pytest.raises(MessageFormatError):
            message.get_body(kind)


def test_what_has_no_body_has_no_json() -> None:
    for empty in (TextMessage(), BytesMessage(), Message()):
        with pytest.raises(MessageFormatError, match="has no body"):
            empty.json()
    with pytest.raises(MessageFormatError):
        StreamMessage().json()
    assert TextMessage("null").json() is None
    assert TextMessage().get_body(Line) is None


def test_bytes_that_are_no_text_are_no_json() -> None:
    with pytest.raises(MessageFormatError):
        BytesMessage(b"\xff\xfe").json()


def test_a_type_that_nothing_can_be_read_as_is_the_callers_mistake_and_not_the_messages() -> None:
    class Plain:
        pass

    with pytest.raises(JMSError, match=r"No .*Plain") as raised:
        TextMessage('{"a": 1}').json(Plain)
    assert not isinstance(raised.value, MessageFormatError)


@pytest.mark.parametrize("body", [object(), 1, None, {1, 2}, Decimal(1), Line], ids=lambda body: type(body).__name__)
def test_what_is_no_body_is_answered_with_what_is_one(body: Any) -> None:
    with pytest.raises(MessageFormatError, match="A message is needed, such as TextMessage"):
        message_of(body)


def test_what_json_has_no_spelling_for_is_a_format_error() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for body in ({"a": object()}, endless, {"a": {(1, 2): 3}}, {"x": "\ud800"}):
        with pytest.raises(MessageFormatError, match="cannot be sent as JSON"):
            json_message(body)
    assert json_message([math.nan]).text == "[null]"

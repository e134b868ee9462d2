"""Messages as applications see them."""

import re
import uuid

import pytest

from legato.client import BytesMessage, DeliveryMode, TextMessage
from legato.errors import IllegalStateError, MessageFormatError, MessageNotWriteableError
from tests.unit.client.passing import passed


def test_a_new_message_has_the_defaults_of_jakarta_messaging() -> None:
    message = TextMessage("tea")
    assert (message.text, message.body) == ("tea", "tea")
    assert (message.priority, message.delivery_mode) == (4, DeliveryMode.PERSISTENT)
    assert (message.message_id, message.redelivered, message.expiration) == (None, False, 0)
    assert dict(message.properties) == {}


@pytest.mark.parametrize(
    "name",
    ["", "1st", "a-b", "a b", "NOT", "between", "JMSXDeliveryCount", "JMSXUserID", "JMS_LEGATO_CAUSE", "JMSPriority"],
)
def test_a_property_name_is_an_identifier_that_selectors_can_use(name: str) -> None:
    with pytest.raises(MessageFormatError):
        TextMessage().set_property(name, 1)


@pytest.mark.parametrize("name", ["a", "_a", "$a", "größe", "a$1", "JMS_vendor", "JMSXGroupID"])
def test_identifiers_can_name_a_property(name: str) -> None:
    message = TextMessage()
    message.set_property(name, "x")
    assert message.properties[name] == "x"


@pytest.mark.parametrize("value", [[], {}, b"x", object(), 1 << 63, -(1 << 63) - 1])
def test_a_property_holds_a_primitive_value(value: object) -> None:
    with pytest.raises(MessageFormatError):
        TextMessage().set_property("a", value)  # type: ignore[arg-type]


def test_a_body_is_of_its_messages_type() -> None:
    with pytest.raises(MessageFormatError):
        TextMessage(b"x")  # type: ignore[arg-type]
    with pytest.raises(MessageFormatError):
        BytesMessage("x")  # type: ignore[arg-type]


def test_a_received_message_is_read_only_until_it_is_cleared() -> None:
    message = passed(TextMessage("tea"))
    assert isinstance(message, TextMessage)
    with pytest.raises(MessageNotWriteableError, match="clear_body"):
        message.text = "coffee"
    with pytest.raises(MessageNotWriteableError, match="clear_properties"):
        message.set_property("a", 1)
    message.clear_body()
    assert message.text is None
    message.text = "coffee"
    message.clear_properties()
    message.set_property("a", 1)
    assert (message.text, dict(message.properties)) == ("coffee", {"a": 1})


def test_headers_of_a_received_message_can_be_set() -> None:
    message = passed(TextMessage("tea"))
    message.correlation_id = "c"
    assert (message.correlation_id, message.message_id) == ("c", "ID:m:1")


def test_only_a_received_message_can_be_acknowledged() -> None:
    with pytest.raises(IllegalStateError):
        TextMessage("tea").acknowledge()


@pytest.mark.parametrize(
    ("header", "value", "sentence"),
    [
        ("correlation_id", uuid.UUID(int=7), "correlation_id must be text or bytes or None, not UUID("),
        ("correlation_id", 5, "correlation_id must be text or bytes or None, not 5"),
        ("reply_to", "replies", "reply_to must be a Queue or a Topic or None, not 'replies'"),
        ("type", 5, "type must be text or None, not 5"),
    ],
)
def test_a_header_of_a_wrong_type_is_refused_when_it_is_set(header: str, value: object, sentence: str) -> None:
    """It was when the message was sent, with words of Python's."""
    message = TextMessage("x")
    with pytest.raises(MessageFormatError, match=re.escape(sentence)):
        setattr(message, header, value)
    setattr(message, header, None)

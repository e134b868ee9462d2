"""Messages as applications see them."""

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

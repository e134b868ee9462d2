"""Messages of every type with every type of property, as the Java of `RoundTrip` makes them too."""

from __future__ import annotations

from legato.client import DeliveryMode, MapMessage, Message, ObjectMessage, Queue, Session, StreamMessage, Topic

FLOAT_MIN = 2.0**-149
DOUBLE_MIN = 2.0**-1074
DOUBLE_MAX = 1.7976931348623157e308


def every_type(session: Session) -> list[tuple[Message, DeliveryMode]]:
    """New messages, each with the mode in which to send it."""
    messages: list[Message] = [
        session.create_message(),
        session.create_text_message("plain text"),
        session.create_text_message("\u00fcber \u20ac \U0001f600 \0 \n"),
        session.create_text_message(None),
        session.create_text_message("long " * 60_000),
        session.create_bytes_message(bytes(range(256))),
        session.create_bytes_message(),
        _filled_map(MapMessage()),
        MapMessage(),
        _filled_stream(StreamMessage()),
        StreamMessage(),
        ObjectMessage({"list": [True, 7, 2.5, None], "map": {"text": "\u20ac", "bytes": b"\x00\xff"}}),
        ObjectMessage([1, "two"]),
        ObjectMessage("only a text"),
        ObjectMessage(),
    ]
    for index, message in enumerate(messages):
        _set_headers(message, index)
        _set_properties(message, index)
    modes = (DeliveryMode.PERSISTENT, DeliveryMode.NON_PERSISTENT)
    return [(message, modes[index % 2]) for index, message in enumerate(messages)]


def _filled_map(message: MapMessage) -> MapMessage:
    message.set_boolean("boolean", True)
    message.set_byte("byte", -128)
    message.set_short("short", 32767)
    message.set_char("char", "\uffff")
    message.set_int("int", -(2**31))
    message.set_long("long", 2**63 - 1)
    message.set_float("float", FLOAT_MIN)
    message.set_double("double", DOUBLE_MAX)
    message.set_string("string", "a \u20ac")
    message.set_string("null", None)
    message.set_bytes("bytes", b"\x00\x01\xff")
    return message


def _filled_stream(message: StreamMessage) -> StreamMessage:
    message.write_boolean(False)
    message.write_byte(127)
    message.write_short(-32768)
    message.write_char("x")
    message.write_int(2**31 - 1)
    message.write_long(-(2**63))
    message.write_float(float("-inf"))
    message.write_double(DOUBLE_MIN)
    message.write_string("")
    message.write_string(None)
    message.write_bytes(b"")
    message.write_bytes(b"\x09\x08")
    return message


def _set_headers(message: Message, index: int) -> None:
    message.type = None if index % 3 == 0 else f"type {index}"
    message.correlation_id = (None, f"correlation {index}", bytes((index, 0, 255)), f"ID:{index}")[index % 4]
    message.reply_to = (None, Queue(f"replies.{index}"), Topic(f"replies.{index}"))[index % 3]


def _set_properties(message: Message, index: int) -> None:
    message.set_int_property("index", index)
    message.set_boolean_property("boolean", index % 2 == 0)
    message.set_byte_property("byte", -index)
    message.set_short_property("short", index * 1000)
    message.set_int_property("int", -index)
    message.set_long_property("long", -(2**63) + index)
    message.set_float_property("float", 0.1 * index)
    message.set_double_property("double", 0.1 * index)
    message.set_string_property("string", f"value \u20ac {index}")
    message.set_string_property("nothing", None)
    if index % 2:
        message.set_string_property("JMSXGroupID", f"group {index}")
        message.set_int_property("JMSXGroupSeq", index)

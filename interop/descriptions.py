"""A message as one line of text, equal in Python and in the Java of `RoundTrip`: every type and every bit shows."""

from __future__ import annotations

import struct
from typing import Any

from legato.client import (
    BytesMessage,
    JavaObject,
    MapMessage,
    Message,
    ObjectMessage,
    StreamMessage,
    TextMessage,
    Topic,
)
from legato.client.messages.values import Kind, kind_of

INDEX = "index"
"""The property by which a message is found again: priorities change the order."""


def describe(message: Message) -> str:
    """Headers that an application sets, properties with their types, and the body."""
    fields = [
        str(message.get_int_property(INDEX)),
        f"delivery-mode {int(message.delivery_mode)}",
        f"priority {message.priority}",
        f"type {value(message.type)}",
        f"correlation {value(_correlation(message))}",
        f"reply-to {_destination(message)}",
    ]
    names = sorted(name for name in message.properties if name != "JMSXDeliveryCount")
    fields += [f"property {quoted(name)} {value(message.get_object_property(name))}" for name in names]
    return "\t".join([*fields, _body(message)])


def value(item: Any) -> str:
    """A primitive value with its type, floats by their bits."""
    kind = kind_of(item)
    if item is None:
        return "null"
    if kind is Kind.STRING:
        return f"string {quoted(item)}"
    if kind is Kind.CHAR:
        return f"char {ord(item)}"
    if kind is Kind.FLOAT:
        return f"float {struct.pack('>f', item).hex()}"
    if kind is Kind.DOUBLE:
        return f"double {struct.pack('>d', item).hex()}"
    if kind is Kind.BYTES or isinstance(item, bytes):
        return f"bytes {bytes(item).hex()}"
    if kind is Kind.BOOLEAN:
        return f"boolean {str(item).lower()}"
    return f"{kind} {item}"


def quoted(text: str) -> str:
    """A string in ASCII, by the 16-bit units that Java knows."""
    units = struct.iter_unpack(">H", text.encode("utf-16-be", "surrogatepass"))
    return (
        '"'
        + "".join(chr(unit) if 0x20 <= unit <= 0x7E and unit not in b'"\\' else f"\\u{unit:04x}" for (unit,) in units)
        + '"'
    )


def _correlation(message: Message) -> str | None:
    correlation = message.correlation_id
    # Qpid JMS shows bytes so.
    return f"ID:AMQP_BINARY:{correlation.hex().upper()}" if isinstance(correlation, bytes) else correlation


def _destination(message: Message) -> str:
    reply_to = message.reply_to
    if reply_to is None:
        return "null"
    return f"{'topic' if isinstance(reply_to, Topic) else 'queue'} {quoted(reply_to.name)}"


def _body(message: Message) -> str:
    if isinstance(message, TextMessage):
        return f"text {value(message.body)}"
    if isinstance(message, BytesMessage):
        message.reset()
        return f"bytes {value(message.body)}"
    if isinstance(message, MapMessage):
        pairs = ", ".join(f"{quoted(name)}={value(item)}" for name, item in sorted(message.body.items()))
        return f"map [{pairs}]"
    if isinstance(message, StreamMessage):
        return f"stream [{', '.join(map(value, message.body))}]"
    if isinstance(message, ObjectMessage):
        return f"object {_object(message.body)}"
    return "none"


def _object(item: Any) -> str:
    if isinstance(item, dict):
        return f"[{', '.join(f'{quoted(name)}={_object(item[name])}' for name in sorted(item))}]"
    if isinstance(item, list):
        return f"[{', '.join(map(_object, item))}]"
    return f"serialized {item.hex()}" if isinstance(item, JavaObject) else value(item)

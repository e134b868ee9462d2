"""Message ids that are not strings, as strings with the prefix `ID:` (as in Apache Qpid JMS)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

from legato.amqp.codec.types import ULong
from legato.amqp.codec.values import encode_binary, encode_string, encode_value

_JMS = "ID:"
_NO_PREFIX = "ID:AMQP_NO_PREFIX:"
_STRING = "ID:AMQP_STRING:"
_UUID = "ID:AMQP_UUID:"
_ULONG = "ID:AMQP_ULONG:"
_BINARY = "ID:AMQP_BINARY:"
_PARSERS: dict[str, Callable[[str], Any]] = {
    _NO_PREFIX: str,
    _STRING: str,
    _UUID: UUID,
    _ULONG: lambda text: ULong(int(text)),
    _BINARY: bytes.fromhex,
}


def message_id_text(value: Any) -> str | None:
    """A message's id: a string without `ID:` says that it had none."""
    if isinstance(value, str) and not value.startswith(_JMS):
        return _NO_PREFIX + value
    return _id_text(value)


def correlation_id_of(value: Any) -> str | bytes | None:
    """A correlation id: a string or bytes as they are, another type as the id of a message of that type is spelled."""
    return bytes(value) if isinstance(value, bytes) else _id_text(value)


def _id_text(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, str):
        # One that looks as if it had been no string would be sent back as another type.
        return _STRING + value if value.startswith(tuple(_PARSERS)) else str(value)
    if isinstance(value, UUID):
        return f"{_UUID}{value}"
    if isinstance(value, bytes):
        return f"{_BINARY}{value.hex().upper()}"
    return f"{_ULONG}{int(value)}"


def encode_id(value: str | bytes) -> bytes:
    """An id as AMQP carries it: what was read as another type than a string becomes that type again.

    Raises:
        ValueError: it begins as such an id does and does not go on as one.
    """
    if isinstance(value, bytes):
        return encode_binary(value)
    if value.startswith(_JMS):
        for prefix, kind in _PARSERS.items():
            if value.startswith(prefix):
                return encode_value(kind(value.removeprefix(prefix)))
    return encode_string(value)

"""Messages whose body is a Python value that AMQP can encode, or a Java object, which is passed through."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from legato.amqp.codec.types import Array
from legato.amqp.codec.values import encode_binary, encode_value
from legato.client.messages.java_object import CONTENT_TYPE, JavaObject
from legato.client.messages.message import VALUE_PREFIX, Message
from legato.errors import MessageFormatError

_DATA_PREFIX = b"\x00\x53\x75"


class ObjectMessage(Message):
    """A message whose body is an object: None, bool, int, float, str, bytes, UUID, and lists and dicts of these.

    It goes as AMQP's own types, which every AMQP client reads; nothing is ever pickled or unpickled. What Java
    serialised comes as a `JavaObject`: its bytes, with the name of its class.
    """

    def __init__(self, body: Any = None) -> None:
        self.object = body

    @property
    def object(self) -> Any:
        """A copy of the object.

        Raises:
            MessageFormatError: a received one cannot be decoded.
        """
        return copy.deepcopy(self._read_body())

    @object.setter
    def object(self, value: Any) -> None:
        self._check_writable()
        try:
            kept = value if isinstance(value, JavaObject) else _portable(value)
            encode_value(bytes(kept) if isinstance(kept, JavaObject) else kept)
        except (TypeError, ValueError, KeyError, OverflowError, RecursionError) as error:
            raise MessageFormatError(
                f"A body of {type(value).__name__!r} cannot be sent: {error}. Send text, bytes, a number, or what goes "
                "as JSON: a dict, a list, a dataclass, a Struct of msgspec or a model of pydantic.",
                linked=error,
            ) from error
        self._body_value = kept
        if isinstance(kept, JavaObject):
            self._content_type = CONTENT_TYPE
        else:
            self._content_type = None

    @property
    def body(self) -> Any:
        """A copy of the object."""
        return self.object

    @body.setter
    def body(self, value: Any) -> None:
        self.object = value

    @property
    def java_class_name(self) -> str | None:
        """The name of the class that Java serialised; None if it was not Java."""
        value = self._read_body()
        return value.class_name if isinstance(value, JavaObject) else None

    def _assignable_body(self) -> Any:
        return self.object

    def _encoded_body(self) -> bytes:
        value = self._body_value
        if isinstance(value, JavaObject):
            return _DATA_PREFIX + encode_binary(value)
        return VALUE_PREFIX + encode_value(value)


def _portable(value: Any) -> Any:
    """A copy without Python's own subclasses of what AMQP knows, such as enumerations."""
    if isinstance(value, Mapping):
        return {_portable(key): _portable(item) for key, item in value.items()}
    if isinstance(value, Array):
        return Array(value)
    if isinstance(value, list | tuple):
        return [_portable(item) for item in value]
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    if type(value).__module__ in ("legato.amqp.codec.types", "builtins", "uuid"):
        return value
    for kind in (int, float, str):
        if isinstance(value, kind):
            return kind.__new__(kind, kind.__str__(value)) if kind is str else kind(value)
    return value

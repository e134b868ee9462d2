"""Messages whose body is a stream of typed primitive values (Jakarta Messaging 3.11)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from legato.amqp.codec.values import encode_value
from legato.client.messages.message import Message
from legato.client.messages.values import FIELDS, Kind, Value, kind_of, read_as, shown, stored, stored_as
from legato.errors import MessageEOFError, MessageFormatError, MessageNotReadableError

_SEQUENCE_PREFIX = b"\x00\x53\x76"
_VALUE = "A value of a stream message"


class StreamMessage(Message):
    """A message whose body is values, written and read in order.

    `body` is all of them as a list, at any time. The methods `write_*` append to a body that is being written, and
    `read_*` read the next value of one that is being read: a message is being read when it was received or `reset()`,
    and being written when it is new or after `clear_body()`.

    The methods `read_*` convert the value as the specification's table says. They raise MessageNotReadableError for a
    message that is being written, MessageEOFError at the end, and MessageFormatError for what is not in the table, a
    string that does not spell the number asked for and None as a number; a value that could not be read is the next
    one still. `write_*` raise MessageNotWriteableError for a message that is being read and MessageFormatError for a
    value that does not fit.
    """

    _position = 0
    _bytes_read: int | None = None
    """How much of the next value `read_bytes` has returned; None if it has not begun."""

    def __init__(self, body: Iterable[Value] = ()) -> None:
        self._body_value: list[Any] = [stored(value, FIELDS, _VALUE) for value in body]

    @property
    def body(self) -> list[Value]:
        """A copy of the values."""
        return [shown(value) for value in self._read_body()]

    @body.setter
    def body(self, value: Iterable[Value]) -> None:
        self._check_writable()
        self._body_value = [stored(item, FIELDS, _VALUE) for item in value]

    def reset(self) -> None:
        """Begin to read: make the body read-only, and go to its beginning."""
        self._body_read_only = True
        self._rewind()

    def clear_body(self) -> None:
        """Empty the body and begin to write."""
        super().clear_body()
        self._rewind()

    def read_boolean(self) -> bool:
        """Read a boolean."""
        return bool(self._read(Kind.BOOLEAN))

    def read_byte(self) -> int:
        """Read an integer of 8 bits."""
        return int(self._read(Kind.BYTE))

    def read_short(self) -> int:
        """Read an integer of 16 bits."""
        return int(self._read(Kind.SHORT))

    def read_char(self) -> str:
        """Read a character."""
        return str(self._read(Kind.CHAR))

    def read_int(self) -> int:
        """Read an integer of 32 bits."""
        return int(self._read(Kind.INT))

    def read_long(self) -> int:
        """Read an integer of 64 bits."""
        return int(self._read(Kind.LONG))

    def read_float(self) -> float:
        """Read a number of 32 bits."""
        return float(self._read(Kind.FLOAT))

    def read_double(self) -> float:
        """Read a number of 64 bits."""
        return float(self._read(Kind.DOUBLE))

    def read_string(self) -> str | None:
        """Read a string, spelled as Java does."""
        value: str | None = self._read(Kind.STRING)
        return value

    def read_bytes(self, length: int | None = None) -> bytes | None:
        """Read bytes: all of the value, or at most `length` of them at a time.

        A value read in parts ends with the first part that is shorter than `length`; if none is, with None. Until then
        nothing else can be read.

        Returns:
            None if the value is None, or at the end of a value that is read in parts.
        """
        value = self._next()
        if value is not None and kind_of(value) is not Kind.BYTES:
            raise MessageFormatError(f"The next value is a {kind_of(value)}, which cannot be read as bytes.")
        if length is not None and length < 0:
            raise MessageFormatError(f"The number of bytes to read is {length}; it must be at least 0.")
        begin = self._bytes_read or 0
        if value is None or (begin == len(value) and self._bytes_read is not None):
            self._advance()
            return None
        part = bytes(value[begin:] if length is None else value[begin : begin + length])
        if length is None or len(part) < length:
            self._advance()
        else:
            self._bytes_read = begin + len(part)
        return part

    def read_object(self) -> Value:
        """Read the next value with the type that it has."""
        self._check_between_values()
        value: Value = shown(self._next())
        self._advance()
        return value

    def write_boolean(self, value: bool) -> None:
        """Write a boolean."""
        self._append(stored_as(value, Kind.BOOLEAN, _VALUE))

    def write_byte(self, value: int) -> None:
        """Write an integer of 8 bits."""
        self._append(stored_as(value, Kind.BYTE, _VALUE))

    def write_short(self, value: int) -> None:
        """Write an integer of 16 bits."""
        self._append(stored_as(value, Kind.SHORT, _VALUE))

    def write_char(self, value: str) -> None:
        """Write a character, of the 65536 that Java's `char` has."""
        self._append(stored_as(value, Kind.CHAR, _VALUE))

    def write_int(self, value: int) -> None:
        """Write an integer of 32 bits."""
        self._append(stored_as(value, Kind.INT, _VALUE))

    def write_long(self, value: int) -> None:
        """Write an integer of 64 bits."""
        self._append(stored_as(value, Kind.LONG, _VALUE))

    def write_float(self, value: float) -> None:
        """Write a number of 32 bits; the value is rounded to one."""
        self._append(stored_as(value, Kind.FLOAT, _VALUE))

    def write_double(self, value: float) -> None:
        """Write a number of 64 bits."""
        self._append(stored_as(value, Kind.DOUBLE, _VALUE))

    def write_string(self, value: str | None) -> None:
        """Write a string."""
        self._append(stored_as(value, Kind.STRING, _VALUE))

    def write_bytes(self, value: bytes | None) -> None:
        """Write bytes, as one value."""
        self._append(stored_as(value, Kind.BYTES, _VALUE))

    def write_object(self, value: Value) -> None:
        """Write a value with the type that it has."""
        self._append(stored(value, FIELDS, _VALUE))

    def get_body(self, kind: type[Any]) -> Any:
        """Nothing: a stream message's body is not to be had so; `body` returns it.

        Raises:
            MessageFormatError: always.
        """
        raise MessageFormatError("A stream message is read value by value, or as a whole with `body`.")

    def is_body_assignable_to(self, kind: type) -> bool:
        """False: `get_body()` does not return a stream message's body."""
        return False

    def _read(self, kind: Kind) -> Any:
        self._check_between_values()
        value = read_as(self._next(), kind, FIELDS, "The next value")
        self._advance()
        return value

    def _next(self) -> Any:
        if not self._body_read_only:
            raise MessageNotReadableError("The message's body is being written; call reset() to read it.")
        values = self._read_body()
        if self._position >= len(values):
            raise MessageEOFError("The stream has no more values.")
        return values[self._position]

    def _check_between_values(self) -> None:
        if self._bytes_read is not None:
            raise MessageFormatError("Read the rest of the bytes first: read_bytes() did not come to their end yet.")

    def _advance(self) -> None:
        self._position += 1
        self._bytes_read = None

    def _rewind(self) -> None:
        self._position = 0
        self._bytes_read = None

    def _append(self, value: Any) -> None:
        self._check_writable()
        self._body_value.append(value)

    def _empty_body(self) -> list[Any]:
        return []

    def _encoded_body(self) -> bytes:
        return _SEQUENCE_PREFIX + encode_value(self._body_value)

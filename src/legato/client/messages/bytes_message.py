"""Messages whose body is bytes, as a whole or as a stream of primitive values (Jakarta Messaging 3.11)."""

from __future__ import annotations

import io
import os
import shutil
import struct
from typing import Any, BinaryIO

from legato.amqp.codec.types import Byte, Char, Float, Int, Short
from legato.client.messages.large import FileBody, Region, reader
from legato.client.messages.message import Message
from legato.client.messages.modified_utf8 import decode_modified_utf8, encode_modified_utf8
from legato.client.messages.values import Kind, Long, stored_as
from legato.errors import MessageEOFError, MessageFormatError, MessageNotReadableError

_DATA_PREFIX = b"\x00\x53\x75"
_SHORT_DATA_PREFIXES = [_DATA_PREFIX + bytes((0xA0, size)) for size in range(256)]
_BYTE, _UNSIGNED_BYTE = struct.Struct(">b"), struct.Struct(">B")
_SHORT, _UNSIGNED_SHORT = struct.Struct(">h"), struct.Struct(">H")
_INT, _LONG = struct.Struct(">i"), struct.Struct(">q")
_FLOAT, _DOUBLE = struct.Struct(">f"), struct.Struct(">d")


class BytesMessage(Message):
    """A message whose body is bytes.

    `body` is all of them, at any time. The methods `write_*` append to a body that is being written, and `read_*` go
    through one that is being read, as Java's `DataOutputStream` and `DataInputStream` do: a message is being read when
    it was received or `reset()`, and being written when it is new or after `clear_body()`.

    The methods `read_*` raise MessageNotReadableError for a message that is being written and MessageEOFError if the
    body ends before the value does, `write_*` raise MessageNotWriteableError for one that is being read and
    MessageFormatError for a value that does not fit.
    """

    _written: bytearray | None = None
    """The body while it is being written piece by piece."""
    _position = 0

    def __init__(self, body: bytes = b"", *, stream: BinaryIO | None = None) -> None:
        """A new message.

        Args:
            body: all of its body.
            stream: a binary file in place of it: what it has from its position on is sent without being held in
                memory. The message is read-only then, and the file has to stay open and as it is until the message was
                sent; after a failover it is read again from there.

        Raises:
            MessageFormatError: the body is not bytes, or the stream cannot be read from any position.
        """
        if stream is None:
            if type(body) is bytes:
                # As the setter does it, for what can be written: this runs for each message sent.
                self._body_value = body
            else:
                self.body = body
        else:
            self._source = FileBody(stream)
            self._body_unread = self._body_read_only = True

    @property
    def body(self) -> bytes:
        """The body."""
        value: bytes = self._read_body() if self._written is None else bytes(self._written)
        return value

    @body.setter
    def body(self, value: bytes) -> None:
        if type(value) is not bytes:
            if not isinstance(value, (bytes, bytearray, memoryview)):
                raise MessageFormatError(f"A bytes message's body is bytes, not {type(value).__name__}.")
            value = bytes(value)
        self._write_body(value)
        if self._written is not None:
            self._written = None

    @property
    def body_length(self) -> int:
        """How many bytes the body has; raises MessageNotReadableError while it is being written."""
        self._check_readable()
        content = self._content()
        return len(self._read_body()) if content is None else content.size

    def open(self) -> io.BufferedIOBase:
        """A file to read the body from, from its beginning; of a large message it is not held in memory.

        The file may be read in any thread, and may outlive the message.
        """
        content = self._content()
        return io.BytesIO(self.body) if content is None else reader(content)

    def save_to(self, path: str | os.PathLike[str]) -> None:
        """Write the body to a file, which is replaced if it is there; of a large message it is not held in memory."""
        with self.open() as body, open(path, "wb") as file:
            shutil.copyfileobj(body, file, 1 << 20)

    def _content(self) -> Region | None:
        return None if self._source is None else self._source.content()

    def reset(self) -> None:
        """Begin to read: make the body read-only, and go to its beginning."""
        if self._content() is None:
            self._body_value = self.body
        self._written = None
        self._body_read_only = True
        self._position = 0

    def clear_body(self) -> None:
        """Empty the body and begin to write."""
        super().clear_body()
        self._written = None
        self._position = 0

    def read_boolean(self) -> bool:
        """Read one byte: whether it is not 0."""
        return bool(self._take(_BYTE))

    def read_byte(self) -> int:
        """Read a signed integer of 8 bits."""
        return int(self._take(_BYTE))

    def read_unsigned_byte(self) -> int:
        """Read an unsigned integer of 8 bits."""
        return int(self._take(_UNSIGNED_BYTE))

    def read_short(self) -> int:
        """Read a signed integer of 16 bits."""
        return int(self._take(_SHORT))

    def read_unsigned_short(self) -> int:
        """Read an unsigned integer of 16 bits."""
        return int(self._take(_UNSIGNED_SHORT))

    def read_char(self) -> str:
        """Read a character of 16 bits; half of a surrogate pair if it is one."""
        return chr(self._take(_UNSIGNED_SHORT))

    def read_int(self) -> int:
        """Read a signed integer of 32 bits."""
        return int(self._take(_INT))

    def read_long(self) -> int:
        """Read a signed integer of 64 bits."""
        return int(self._take(_LONG))

    def read_float(self) -> float:
        """Read a number of 32 bits."""
        return float(self._take(_FLOAT))

    def read_double(self) -> float:
        """Read a number of 64 bits."""
        return float(self._take(_DOUBLE))

    def read_utf(self) -> str:
        """Read a string as Java's `writeUTF` writes it; raises MessageFormatError, and stays, if there is none."""
        begin = self._position
        length = self._take(_UNSIGNED_SHORT)
        self._position = begin
        end = begin + _UNSIGNED_SHORT.size + length
        body = self._read_body()
        if end > len(body):
            raise MessageEOFError()
        text = decode_modified_utf8(body[begin + _UNSIGNED_SHORT.size : end])
        self._position = end
        return text

    def read_bytes(self, length: int | None = None) -> bytes:
        """Read bytes: at most `length`, or all that are left; no bytes at the end."""
        self._check_readable()
        body: bytes = self._read_body()
        if length is not None and length < 0:
            raise MessageFormatError(f"The number of bytes to read is {length}; it must be at least 0.")
        begin = self._position
        self._position = len(body) if length is None else min(begin + length, len(body))
        return body[begin : self._position]

    def write_boolean(self, value: bool) -> None:
        """Write one byte: 1 or 0."""
        self._append(_BYTE.pack(stored_as(value, Kind.BOOLEAN)))

    def write_byte(self, value: int) -> None:
        """Write a signed integer of 8 bits."""
        self._append(_BYTE.pack(stored_as(value, Kind.BYTE)))

    def write_short(self, value: int) -> None:
        """Write a signed integer of 16 bits."""
        self._append(_SHORT.pack(stored_as(value, Kind.SHORT)))

    def write_char(self, value: str) -> None:
        """Write a character of 16 bits."""
        self._append(_UNSIGNED_SHORT.pack(ord(stored_as(value, Kind.CHAR))))

    def write_int(self, value: int) -> None:
        """Write a signed integer of 32 bits."""
        self._append(_INT.pack(stored_as(value, Kind.INT)))

    def write_long(self, value: int) -> None:
        """Write a signed integer of 64 bits."""
        self._append(_LONG.pack(stored_as(value, Kind.LONG)))

    def write_float(self, value: float) -> None:
        """Write a number of 32 bits."""
        self._append(_FLOAT.pack(stored_as(value, Kind.FLOAT)))

    def write_double(self, value: float) -> None:
        """Write a number of 64 bits."""
        self._append(_DOUBLE.pack(stored_as(value, Kind.DOUBLE)))

    def write_utf(self, value: str) -> None:
        """Write a string as Java's `writeUTF` does: its length in 16 bits, then modified UTF-8."""
        raw = encode_modified_utf8(value)
        self._append(_UNSIGNED_SHORT.pack(len(raw)) + raw)

    def write_bytes(self, value: bytes | bytearray | memoryview) -> None:
        """Write bytes."""
        if not isinstance(value, bytes | bytearray | memoryview):
            raise MessageFormatError(f"{value!r} is no bytes.")
        self._append(value)

    def write_object(self, value: Any) -> None:
        """Write a value as its type says: a `str` as `write_utf` does, a `float` as a double.

        Raises:
            MessageFormatError: it is of another type, or a plain `int`: how many bytes one has is for `Byte`, `Short`,
                `Int` or `Long` to say.
        """
        write = _WRITERS.get(type(value))
        if write is None:
            raise MessageFormatError(
                f"A bytes message can hold bool, Byte, Short, Int, Long, Float, float, Char, str and bytes, not "
                f"{type(value).__name__}."
            )
        write(self, value)

    def _take(self, layout: struct.Struct) -> Any:
        self._check_readable()
        end = self._position + layout.size
        body = self._read_body()
        if end > len(body):
            raise MessageEOFError()
        value = layout.unpack_from(body, self._position)[0]
        self._position = end
        return value

    def _append(self, raw: bytes | bytearray | memoryview) -> None:
        self._check_writable()
        if self._written is None:
            self._written = bytearray(self._body_value)
        self._written += raw

    def _check_readable(self) -> None:
        if not self._body_read_only:
            raise MessageNotReadableError("The message's body is being written; call reset() to read it.")

    def _empty_body(self) -> bytes:
        return b""

    def _assignable_body(self) -> Any:
        return self.body or None

    def get_body(self, kind: type[Any]) -> Any:
        """The whole body if `kind` is `bytes` or a base of it; None if it is empty. Resets the message.

        Raises:
            MessageFormatError: `kind` is another type.
        """
        self.reset()
        return super().get_body(kind)

    def _encoded_body(self) -> bytes:
        body = self._body_value if self._written is None else self._written
        size = len(body)
        if size < 256:
            return _SHORT_DATA_PREFIXES[size] + body
        return b"".join((_DATA_PREFIX, b"\xb0", size.to_bytes(4, "big"), body))


_WRITERS: dict[type, Any] = {
    bool: BytesMessage.write_boolean,
    Byte: BytesMessage.write_byte,
    Short: BytesMessage.write_short,
    Int: BytesMessage.write_int,
    Long: BytesMessage.write_long,
    Float: BytesMessage.write_float,
    float: BytesMessage.write_double,
    Char: BytesMessage.write_char,
    str: BytesMessage.write_utf,
    bytes: BytesMessage.write_bytes,
    bytearray: BytesMessage.write_bytes,
    memoryview: BytesMessage.write_bytes,
}

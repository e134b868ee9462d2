"""Bodies of large messages: in a file of the application, or in a temporary file."""

from __future__ import annotations

import io
import os
import tempfile
import threading
from typing import Any, BinaryIO, Protocol

from legato.amqp.codec.stubs import find_body
from legato.errors import JMSError, MessageFormatError

SECTION_BYTES_MAX = (1 << 32) - 1
"""The most that one AMQP data section holds (AMQP 1.6.19)."""
_BEGINNING_BYTES = 64
"""Of a body, what tells its kind however it is written."""
_DATA_PREFIX = b"\x00\x53\x75\xb0"
_SHORT_DATA, _LONG_DATA = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0"


class Region(Protocol):
    """Bytes that any thread can read in pieces, repeatedly."""

    @property
    def size(self) -> int:
        """How many there are."""

    def read(self, at: int, length: int) -> bytes:
        """At most so many from there; none at the end. Raises OSError or ValueError if the file does not let us."""


class FileRegion:
    """A file of the application, from its present position to its end.

    Raises:
        MessageFormatError: it is no binary file that can be read from any position.
    """

    def __init__(self, file: BinaryIO) -> None:
        try:
            self._begin = file.tell()
            self.size = file.seek(0, os.SEEK_END) - self._begin
            file.seek(self._begin)
            binary = isinstance(file.read(0), bytes)
            if file.writable():
                file.flush()
        except (AttributeError, OSError, ValueError) as error:
            raise MessageFormatError(
                "A message's stream must be an open binary file that can be read from any position, as after a "
                f"failover it is sent again from its beginning; not {file!r}: {error}.",
                linked=error,
            ) from error
        if not binary:
            raise MessageFormatError(f"A message's stream must be a binary file; open {file!r} with mode 'rb'.")
        if self.size > SECTION_BYTES_MAX:
            raise MessageFormatError(f"A message's stream may have {SECTION_BYTES_MAX} bytes, not {self.size}.")
        self._file = file
        self._lock = threading.Lock()
        # Of other kinds the number may be that of something else: of compressed bytes, for example.
        self._is_plain = isinstance(file, io.BufferedReader | io.BufferedRandom | io.FileIO)

    def read(self, at: int, length: int) -> bytes:
        """See `Region.read`."""
        if self._is_plain:
            return os.pread(self._file.fileno(), min(length, self.size - at), self._begin + at)
        with self._lock:
            self._file.seek(self._begin + at)
            return self._file.read(min(length, self.size - at))


class Spool:
    """An unnamed temporary file for a received body; it ends with its last reference."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="legato-", buffering=0)  # noqa: SIM115 - it lives as long as this
        self.size = 0

    def append(self, data: bytes) -> None:
        """More of the body came; raises OSError if there is no room for it."""
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self.size += len(data)

    def read(self, at: int, length: int) -> bytes:
        """See `Region.read`."""
        return os.pread(self._file.fileno(), min(length, self.size - at), at)


class BodyPart:
    """A part of a region."""

    def __init__(self, region: Region, begin: int, size: int) -> None:
        self._region = region
        self._begin = begin
        self.size = size

    def read(self, at: int, length: int) -> bytes:
        """See `Region.read`."""
        return self._region.read(self._begin + at, min(length, self.size - at))


class LargeData(bytes):
    """The part of a received large message that is in memory: all before its body, and the body's first bytes."""

    body: Spool
    """All of its body sections."""
    body_at: int

    def whole(self) -> bytes:
        """The message as any other; needs memory for all of it."""
        return self[: self.body_at] + self.body.read(0, self.body.size)

    def content(self) -> Region | None:
        """The bytes of its body, if that is one section of data."""
        head = self.body.read(0, len(_DATA_PREFIX) + 4)
        if head.startswith(_LONG_DATA):
            begin, size = len(head), int.from_bytes(head[len(_LONG_DATA) :], "big")
        elif head.startswith(_SHORT_DATA):
            begin, size = len(_SHORT_DATA) + 1, head[len(_SHORT_DATA)]
        else:
            return None
        return BodyPart(self.body, begin, size) if begin + size == self.body.size else None


def large_data(first: bytes, spool: Spool) -> LargeData:
    """A large message as known by its first part; the part's share of the body goes to `spool`.

    Raises:
        ProtocolError: it is no message.
        OSError: there is no room for it.
    """
    at = find_body(first)
    data = LargeData(first[: at + _BEGINNING_BYTES])
    data.body, data.body_at = spool, at
    spool.append(first[at:])
    return data


class FileBody:
    """The body of a message that is made from a file."""

    def __init__(self, file: BinaryIO) -> None:
        self.stream: Region = FileRegion(file)

    def headers(self) -> dict[str, Any]:
        """It has none of its own."""
        return {"properties": {}}

    def body(self) -> bytes:
        """All of the file, in memory."""
        return self.stream.read(0, self.stream.size)

    def body_sections(self) -> bytes:
        """Sections that precede the file's bytes on the wire."""
        return _DATA_PREFIX + self.stream.size.to_bytes(4, "big")

    def content(self) -> Region:
        """The file's bytes."""
        return self.stream


class RegionReader(io.RawIOBase):
    """A region as a file to be read."""

    def __init__(self, region: Region) -> None:
        super().__init__()
        self._region = region
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        data = self._region.read(self._at, len(view))
        view[: len(data)] = data
        self._at += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._region.size}[whence]
        if base + offset < 0:
            raise ValueError(f"negative position {base + offset}")
        self._at = min(base + offset, self._region.size)
        return self._at

    def tell(self) -> int:
        return self._at


def reader(region: Region) -> io.BufferedIOBase:
    """A file that reads a region from its beginning."""
    return io.BufferedReader(RegionReader(region), 1 << 18)


def unreadable(error: Exception) -> JMSError:
    """Why a send from a file failed."""
    return JMSError(f"The message's stream cannot be read any more: {error}. The message was not stored.", linked=error)

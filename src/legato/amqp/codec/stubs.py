"""Stubs of large messages: a data section that stands for the body and names its place.

A stub is the sections before the body, byte by byte, and this section. So it is an AMQP message like any other: it is
read, selected, counted, annotated and moved without the body being there.

    0x00 0x53 0x75 0xa0 32 | large number u64 | size of the body u64 | 16 bytes that no message ends with
"""

from __future__ import annotations

import struct

import msgspec

from legato.amqp.codec.header import DATA, FOOTER, section_at
from legato.amqp.codec.values import malformed, skip_value

STUB_MARK = bytes.fromhex("9b1ec70e5ad041a8b3f2d90c6e7714ff")
"""How a stub ends; a message that came from outside must not."""

_SECTION = struct.Struct(">5sQQ16s")
_OPENING = b"\x00\x53\x75\xa0\x20"
_SIZES = {0xA0: 1, 0xA1: 1, 0xB0: 4, 0xB1: 4, 0xC0: 1, 0xC1: 1, 0xD0: 4, 0xD1: 4}
"""Bytes of the size that follows a constructor of variable width."""


class Stub(msgspec.Struct, frozen=True, gc=False):
    """A stub: the large message's number, and the size of its body sections, footer included."""

    large: int
    size: int


def make_stub(head: bytes, stub: Stub) -> bytes:
    """The message to keep in place of one whose sections before the body are `head`."""
    return head + _SECTION.pack(_OPENING, stub.large, stub.size, STUB_MARK)


def read_stub(message: bytes | memoryview) -> Stub | None:
    """The stub in a stored message; None if the message is whole."""
    if message[-len(STUB_MARK) :] != STUB_MARK or len(message) < _SECTION.size:
        return None
    _, large, size, _ = _SECTION.unpack(message[-_SECTION.size :])
    return Stub(large, size)


def whole_size(message: bytes | memoryview) -> int:
    """How many bytes a stored message has with its body, wherever that is."""
    stub = read_stub(message)
    return len(message) if stub is None else len(message) - _SECTION.size + stub.size


def stub_head(message: bytes) -> bytes:
    """The sections before the body, of a message that is a stub."""
    return message[: -_SECTION.size]


def find_body(data: bytes) -> int:
    """Start of the body in the first bytes of a message.

    Raises:
        ProtocolError: the body does not begin there, or this is no message.
    """
    at = last = 0
    while True:
        code, value_at = section_at(data, at)
        if code > FOOTER:
            raise malformed(f"section 0x{code:x} is unknown")
        if code >= DATA:
            return at
        if code <= last:
            raise malformed("message sections are out of order")
        last = code
        at = skip_value(data, value_at)


def body_bytes_least(data: bytes, at: int) -> int:
    """How many bytes there must be from `at` on, where the body begins, for its first section to be whole; 0 if its
    bytes here do not say so."""
    _, value_at = section_at(data, at)
    width = _SIZES.get(data[value_at] if value_at < len(data) else 0, 0)
    begin = value_at + 1 + width
    return begin - at + int.from_bytes(data[value_at + 1 : begin], "big") if width and begin <= len(data) else 0

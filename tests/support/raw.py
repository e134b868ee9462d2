"""A peer that sends AMQP frames as given, valid or not, and returns the answers."""

from __future__ import annotations

import socket
from typing import Any

from legato.amqp.codec.values import Described, Symbol, UByte, UInt, ULong, encode_value
from legato.amqp.engine.sasl import AMQP_HEADER
from tests.support.amqp_peer import WAIT_S

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
SOURCE, TARGET, COORDINATOR = 0x28, 0x29, 0x30


def frame(code: int, fields: list[Any], payload: bytes = b"", channel: int = 0) -> bytes:
    """A frame of AMQP; a field of the type `Raw` is written as it is."""
    return framed(performative(code, fields) + payload, channel)


def framed(body: bytes, channel: int = 0, kind: int = 0) -> bytes:
    """The body of a frame, with its header."""
    return (len(body) + 8).to_bytes(4, "big") + bytes((2, kind)) + channel.to_bytes(2, "big") + body


class Raw(bytes):
    """A value as it is encoded."""


def encoded(value: Any) -> bytes:
    """A value's bytes."""
    if isinstance(value, Raw):
        return bytes(value)
    if isinstance(value, Described) and isinstance(value.value, list):
        return b"\x00" + encoded(value.descriptor) + raw_list(value.value)
    return encode_value(value)


def raw_list(fields: list[Any]) -> bytes:
    """A list of values, some of which may be `Raw`."""
    content = b"".join(map(encoded, fields))
    return b"\xd0" + (len(content) + 4).to_bytes(4, "big") + len(fields).to_bytes(4, "big") + content


def performative(code: int, fields: list[Any]) -> bytes:
    """A described list."""
    return b"\x00" + encode_value(ULong(code)) + raw_list(fields)


def terminus(kind: int, *fields: Any) -> Described:
    """A source, target or coordinator."""
    return Described(ULong(kind), list(fields))


def opening(container: str = "raw", *rest: Any) -> bytes:
    """The header, Open, and a Begin on channel 0."""
    return AMQP_HEADER + frame(OPEN, [container, None, *rest]) + beginning()


def beginning(channel: int = 0) -> bytes:
    """A Begin with wide windows."""
    return frame(BEGIN, [None, UInt(0), UInt(1 << 20), UInt(1 << 20)], channel=channel)


def receiving(handle: int, address: str, *, source: Any = None, properties: Any = None, channel: int = 0) -> bytes:
    """Attach a receiver."""
    source = source or terminus(SOURCE, address)
    fields = [f"r{handle}", UInt(handle), True, UByte(2), UByte(0), source, terminus(TARGET, f"me-{handle}")]
    return frame(ATTACH, [*fields, None, None, None, None, None, None, properties], channel=channel)


def sending(handle: int, address: str | None, *, target: Any = None, properties: Any = None, channel: int = 0) -> bytes:
    """Attach a sender."""
    target = target or terminus(TARGET, address)
    fields = [f"s{handle}", UInt(handle), False, UByte(2), UByte(0), terminus(SOURCE), target]
    return frame(ATTACH, [*fields, None, None, UInt(0), None, None, None, properties], channel=channel)


def credit(handle: int, count: int, channel: int = 0) -> bytes:
    """A flow that gives a link credit."""
    window = [UInt(0), UInt(1 << 20), UInt(0), UInt(1 << 20)]
    return frame(FLOW, [*window, UInt(handle), UInt(0), UInt(count)], channel=channel)


def sent(handle: int, number: int, message: bytes, *, state: Any = None, settled: bool = False) -> bytes:
    """A transfer of a whole message."""
    tag = number.to_bytes(8, "big")
    return frame(TRANSFER, [UInt(handle), UInt(number), tag, UInt(0), settled, False, None, state], message)


def selecting(text: str) -> Raw:
    """A source's filter with a selector."""
    described = Described(ULong(0x0000468C00000004), text)
    return Raw(encode_value({Symbol("s"): described}))


class RawPeer:
    """A socket to a broker."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)

    def send(self, *parts: bytes) -> None:
        """Write, as far as the broker reads."""
        self.socket.sendall(b"".join(parts))

    def hear_until(self, *texts: bytes) -> bytes:
        """Read until one of these came, or the end."""
        heard = b""
        while not any(text in heard for text in texts):
            try:
                data = self.socket.recv(1 << 16)
            except ConnectionError:
                break
            if not data:
                break
            heard += data
        return heard

    def hear_all(self) -> bytes:
        """Read until the broker hangs up."""
        return self.hear_until(b"\x00 never \x00")

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

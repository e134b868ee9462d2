"""Bodies of messages to the transaction coordinator: declare and discharge (AMQP 4.5.2, 4.5.3)."""

from __future__ import annotations

import msgspec

from legato.amqp.codec.header import VALUE, section_at
from legato.amqp.codec.types import Described, ULong
from legato.amqp.codec.values import decode_value, encode_value, malformed, skip_value

_DECLARE, _DISCHARGE = 0x31, 0x32
_NAMES = {"amqp:declare:list": _DECLARE, "amqp:discharge:list": _DISCHARGE}
_VALUE_PREFIX = b"\x00\x53\x77"
_DECLARE_MESSAGE = b"\x00\x53\x77\x00\x53\x31\x45"
_DISCHARGE_BEGINNING = b"\x00\x53\x77\x00\x53\x32\xc0"
_FAILS = {
    (1, b""): False,
    (2, b"\x40"): False,
    (2, b"\x42"): False,
    (2, b"\x56\x00"): False,
    (2, b"\x41"): True,
    (2, b"\x56\x01"): True,
}
"""By the number of fields, and what comes behind the transaction's id."""
_ID_SIZE = len(_DISCHARGE_BEGINNING) + 3
"""Where the size of the id is, behind the list's size and count and the id's constructor."""


class Declare(msgspec.Struct, frozen=True):
    """Begin a transaction."""


class Discharge(msgspec.Struct, frozen=True):
    """End a transaction: commit it, or roll it back if `fail`."""

    txn_id: bytes
    fail: bool


_ASKED = Declare()


def encode_declare() -> bytes:
    """The message that begins a transaction."""
    return _DECLARE_MESSAGE


def encode_discharge(txn_id: bytes, fail: bool) -> bytes:
    """The message that ends a transaction."""
    return _VALUE_PREFIX + encode_value(Described(ULong(_DISCHARGE), [txn_id, fail]))


def decode_coordinator(data: bytes) -> Declare | Discharge:
    """Read a message to a coordinator; descriptors may be numbers or, from python-proton, symbols.

    Raises:
        ProtocolError: it is neither a declare nor a discharge.
    """
    if data == _DECLARE_MESSAGE:
        return _ASKED
    if data.startswith(_DISCHARGE_BEGINNING) and (usual := _usual_discharge(data)) is not None:
        return usual
    at = 0
    while at < len(data):
        section, at = section_at(data, at)
        if section != VALUE:
            at = skip_value(data, at)
        else:
            value, _ = decode_value(data, at)
            if isinstance(value, Described) and isinstance(value.value, list):
                code = _NAMES.get(value.descriptor) if isinstance(value.descriptor, str) else value.descriptor
                if code == _DECLARE:
                    return Declare()
                if code == _DISCHARGE:
                    return _discharge(value.value)
            break
    raise malformed("a coordinator is sent declares and discharges only")


def _discharge(fields: list[object]) -> Discharge:
    if not fields or not isinstance(fields[0], bytes):
        raise malformed("a discharge without transaction id")
    return Discharge(fields[0], len(fields) > 1 and fields[1] is True)


def _usual_discharge(data: bytes) -> Discharge | None:
    """A discharge as nearly all clients write it, with short lengths and nothing behind it; None for any other."""
    if len(data) <= _ID_SIZE or data[_ID_SIZE - 1] != 0xA0 or data[_ID_SIZE - 3] != len(data) - _ID_SIZE + 2:
        return None
    end = _ID_SIZE + 1 + data[_ID_SIZE]
    fields, flag = data[_ID_SIZE - 2], data[end:]
    fail = _FAILS.get((fields, flag))
    if fail is None or end + len(flag) != len(data):
        return None
    return Discharge(data[_ID_SIZE + 1 : end], fail)

"""Bodies of messages to the transaction coordinator: declare and discharge (AMQP 4.5.2, 4.5.3)."""

from __future__ import annotations

import msgspec

from legato.amqp.codec.header import VALUE, section_at
from legato.amqp.codec.types import Described, ULong
from legato.amqp.codec.values import decode_value, encode_value, malformed, skip_value

_DECLARE, _DISCHARGE = 0x31, 0x32
_NAMES = {"amqp:declare:list": _DECLARE, "amqp:discharge:list": _DISCHARGE}
_VALUE_PREFIX = b"\x00\x53\x77"


class Declare(msgspec.Struct, frozen=True):
    """Begin a transaction."""


class Discharge(msgspec.Struct, frozen=True):
    """End a transaction: commit it, or roll it back if `fail`."""

    txn_id: bytes
    fail: bool


def encode_declare() -> bytes:
    """The message that begins a transaction."""
    return b"\x00\x53\x77\x00\x53\x31\x45"


def encode_discharge(txn_id: bytes, fail: bool) -> bytes:
    """The message that ends a transaction."""
    return _VALUE_PREFIX + encode_value(Described(ULong(_DISCHARGE), [txn_id, fail]))


def decode_coordinator(data: bytes) -> Declare | Discharge:
    """Read a message to a coordinator; descriptors may be numbers or, from python-proton, symbols.

    Raises:
        ProtocolError: it is neither a declare nor a discharge.
    """
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

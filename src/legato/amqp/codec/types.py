"""AMQP's primitive types that Python lacks, as thin subclasses of Python's types (AMQP 1.6)."""

from __future__ import annotations

from typing import Any

import msgspec


class Symbol(str):
    """A symbol: an ASCII name out of a constrained domain."""

    __slots__ = ()


class Char(str):
    """A single Unicode character."""

    __slots__ = ()


class UByte(int):
    """An unsigned integer of 8 bits."""

    __slots__ = ()


class UShort(int):
    """An unsigned integer of 16 bits."""

    __slots__ = ()


class UInt(int):
    """An unsigned integer of 32 bits."""

    __slots__ = ()


class ULong(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class Byte(int):
    """A signed integer of 8 bits."""

    __slots__ = ()


class Short(int):
    """A signed integer of 16 bits."""

    __slots__ = ()


class Int(int):
    """A signed integer of 32 bits."""

    __slots__ = ()


class Timestamp(int):
    """Milliseconds since the epoch."""

    __slots__ = ()


class Float(float):
    """A number of 32 bits; a plain `float` is written with 64."""

    __slots__ = ()


class Decimal(bytes):
    """A decimal of 4, 8 or 16 bytes, carried as it came."""

    __slots__ = ()


class Array(list[Any]):
    """Values of one type; written with the type of its first value."""

    __slots__ = ()


class Described(msgspec.Struct, frozen=True):
    """A value with a descriptor, which is a `ULong` (read as one too) or a `Symbol`."""

    descriptor: Any
    value: Any

"""Literals of selectors to values: Java's numbers, SQL's strings (Jakarta Messaging 3.8.1.1)."""

from __future__ import annotations

import math
import struct

_LONG_MAX = (1 << 63) - 1


class LiteralError(ValueError):
    """A literal out of its type's range, in words for the user."""


def string_of(literal: str) -> str:
    """Value of a string in single quotes; two quotes are one."""
    return literal[1:-1].replace("''", "'")


def literal_of(text: str) -> str:
    """The string literal of a text: what `string_of` turns back into it."""
    return "'" + text.replace("'", "''") + "'"


def integer_of(literal: str) -> int:
    """An exact number; 2**63 is let through, as it may stand behind a minus sign.

    Binary, octal and hexadecimal literals of 64 bits are read as Java does: with the highest bit set they are negative.

    Raises:
        LiteralError: it does not fit a long.
    """
    digits = literal.rstrip("lL").replace("_", "").lower()
    if digits.startswith(("0x", "0b")):
        value = int(digits, 0)
    elif digits.startswith("0"):
        value = int(digits, 8)
    else:
        value = int(digits) if len(digits) < 20 else _LONG_MAX + 2
        if value > _LONG_MAX + 1:
            raise LiteralError("the number does not fit a long")
        return value
    if value >> 64:
        raise LiteralError("the number does not fit a long")
    return value - (1 << 64) if value > _LONG_MAX else value


def real_of(literal: str) -> float:
    """An approximate number; with the suffix `f` it has the precision of Java's float.

    Raises:
        LiteralError: it does not fit a double (a float).
    """
    digits = literal.replace("_", "").lower()
    hexadecimal = digits.startswith("0x")
    single = digits.endswith("f") and (not hexadecimal or "p" in digits)
    digits = digits.rstrip("fd") if not hexadecimal or "p" in digits else digits
    try:
        value = float.fromhex(digits) if hexadecimal else float(digits)
        if single:
            value = struct.unpack(">f", struct.pack(">f", value))[0]
    except (ValueError, OverflowError):
        raise LiteralError("the number is too large") from None
    if math.isinf(value):
        raise LiteralError("the number is too large")
    return value

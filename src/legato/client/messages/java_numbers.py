"""Java's formats of numbers, so that conversions to and from strings equal Java's."""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal

_INTEGER = re.compile(r"[+-]?\d+")
_FLOAT = re.compile(
    r"([+-]?)(?:(NaN|Infinity)"
    r"|((?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?"
    r"|(0[xX](?:[0-9a-fA-F]+\.?[0-9a-fA-F]*|\.[0-9a-fA-F]+)[pP][+-]?[0-9]+)[fFdD]?)"
)
_TRIMMED = "".join(map(chr, range(33)))
"""What `String.trim()` takes away."""
_SINGLE = struct.Struct(">f")
_SINGLE_MAX = 3.4028235677973366e38
"""From here on numbers of 32 bits are infinite: their largest, and half a step."""
_SINGLE_DIGITS_MAX = 9


def parse_integer(text: str, bits: int) -> int | None:
    """The number that `text` spells for Java's `parseLong` and its like; None if none, or not one of so many bits."""
    if not _INTEGER.fullmatch(text) or len(text) > 100:
        return None
    number = int(text)
    limit = 1 << (bits - 1)
    return number if -limit <= number < limit else None


def parse_float(text: str) -> float | None:
    """The number that `text` spells for Java's `parseDouble`; None if none."""
    found = _FLOAT.fullmatch(text.strip(_TRIMMED))
    if found is None:
        return None
    sign, word, digits, hexadecimal = found.groups()
    if hexadecimal is None:
        return float(sign + (word or digits))
    try:
        return float.fromhex(sign + hexadecimal)
    except OverflowError:
        return -math.inf if sign == "-" else math.inf


def single(number: float) -> float:
    """The number of 32 bits next to `number`; infinite beyond the largest."""
    if abs(number) >= _SINGLE_MAX:
        return math.copysign(math.inf, number)
    result: float = _SINGLE.unpack(_SINGLE.pack(number))[0]
    return result


def double_text(number: float) -> str:
    """A double as Java's `Double.toString` writes it."""
    return _text(number, repr(float(number)))


def float_text(number: float) -> str:
    """A float as Java's `Float.toString` writes it: the shortest number that reads as the same 32 bits."""
    if not math.isfinite(number):
        return _text(number, "")
    for digits in range(1, _SINGLE_DIGITS_MAX + 1):
        text = f"{number:.{digits}g}"
        if single(float(text)) == number:
            break
    return _text(number, text)


def _text(number: float, shortest: str) -> str:
    if math.isnan(number):
        return "NaN"
    sign = "-" if math.copysign(1.0, number) < 0 else ""
    if math.isinf(number):
        return sign + "Infinity"
    if number == 0:
        return sign + "0.0"
    decimal = Decimal(shortest)
    if len(decimal.as_tuple().digits) == 1:
        # Java shows two digits at least, and then the two that are nearest.
        decimal = Decimal(f"{number:.1e}")
    digits = "".join(map(str, decimal.as_tuple().digits)).rstrip("0")
    if 1e-3 <= abs(number) < 1e7:
        whole, _, fraction = f"{decimal.copy_abs():f}".partition(".")
        return f"{sign}{whole}.{fraction.rstrip('0') or '0'}"
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{decimal.adjusted()}"

"""Sizes in words: bytes in the unit that makes them short, and as many digits as tell two of them apart."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_DIGITS_MAX = 3


def counted(count: int, noun: str) -> str:
    """A number with its noun, such as `1 record` and `2,000 records`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def size(count: float) -> str:
    """Bytes in the unit that makes them short, such as `3.2 MiB`."""
    value, unit = _scaled(count)
    return f"{value:.0f} {unit}" if unit == "B" or abs(value) >= 100 else f"{value:.1f} {unit}"


def sizes_apart(one: int, other: int) -> tuple[str, str]:
    """Two sizes that a sentence compares: if they differ, so do their words, down to single bytes."""
    told = size(one), size(other)
    if one == other or told[0] != told[1]:
        return told
    for digits in range(1, _DIGITS_MAX + 1):
        told = _with_digits(one, digits), _with_digits(other, digits)
        if told[0] != told[1]:
            return told
    return f"{one:,} bytes", f"{other:,} bytes"


def _with_digits(count: int, digits: int) -> str:
    value, unit = _scaled(count)
    return f"{value:.{digits}f} {unit}"


def _scaled(count: float) -> tuple[float, str]:
    value, unit = float(count), "B"
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            break
        value /= 1024
    return value, unit

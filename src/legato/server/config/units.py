"""Units of settings: `"512 MiB"` in place of bytes, `"5 min"` in place of seconds or milliseconds."""

from __future__ import annotations

import re

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]{1,18}(?:\.[0-9]{1,18})?)\s*([A-Za-z]+)\s*")
"""Of digits there are as many as 64 bits hold."""
_KIND = re.compile(r"(?:^|_)(bytes|ms|s)(?:_max)?$")
SIZES = {
    "b": 1,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
}
"""Bytes of each unit."""
TIMES = {"ms": 0.001, "s": 1.0, "min": 60.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
"""Seconds of each unit."""
_WANTED = {
    "bytes": "a number of bytes, or one with a unit, such as '512 MiB' (B, KiB, MiB, GiB, TiB, kB, MB, GB, TB)",
    "s": "a number of seconds, or one with a unit, such as '5 min' (ms, s, min, h, d)",
    "ms": "a number of milliseconds, or one with a unit, such as '5 min' (ms, s, min, h, d)",
}


def with_unit(name: str, value: object) -> object:
    """The number that the value of a setting stands for; a value without a unit as it is.

    Args:
        name: the setting's, which ends in its unit: `map_bytes`, `redelivery_delay_s`.

    Raises:
        ValueError: it is a text, but neither a number nor one with a unit; the message says what may be given.
    """
    found = _KIND.search(name)
    if found is None or not isinstance(value, str) or name.endswith("_per_s") or _is_number(value):
        return value
    wanted = _WANTED[found[1]]
    number = bytes_of(value) if found[1] == "bytes" else seconds_of(value)
    if number is None:
        raise ValueError(f"give {wanted}")
    return round(number * 1000) if found[1] == "ms" else number


def bytes_of(text: str) -> int | None:
    """The bytes of a size such as `512 MiB`; None if it is none."""
    number = _in(SIZES, text)
    return None if number is None else round(number)


def seconds_of(text: str) -> float | None:
    """The seconds of a length of time such as `5 min`; None if it is none."""
    return _in(TIMES, text)


def _in(units: dict[str, int] | dict[str, float], text: str) -> float | None:
    found = _NUMBER_AND_UNIT.fullmatch(text)
    unit = units.get(found[2].lower()) if found is not None else None
    if found is None or unit is None:
        return None
    return int(found[1]) * unit if found[1].isdecimal() else float(found[1]) * unit


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True

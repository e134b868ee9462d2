"""JSON that is read and written again unchanged: numbers keep all of their digits, and texts what no UTF-8 has."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

NESTED_MAX = 200
"""Levels of lists and objects in each other; what is nested deeper is no JSON here, as nobody could write it again."""


class ExactNumber(float):
    """A number of a JSON text that is written as it was read; a float has fewer digits, and of 1e400 nothing.

    Attributes:
        text: as it was read.
    """

    text: str

    def __new__(cls, text: str) -> ExactNumber:
        """The number that a text is."""
        number = super().__new__(cls, text)
        number.text = text
        return number

    def __eq__(self, other: object) -> bool:
        if isinstance(other, ExactNumber):
            return Decimal(self.text) == Decimal(other.text)
        return float(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(float(self))


def read_json(text: str) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: it is none, or one that is nested too deeply.
    """
    try:
        value = json.loads(text, parse_float=ExactNumber)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level, depth = [value], 0
    while level := [each for node in level if isinstance(node, dict | list) for each in _values(node)]:
        depth += 1
        if depth > NESTED_MAX:
            raise ValueError("it is nested too deeply")
    return value


def _values(node: dict[str, Any] | list[Any]) -> Iterable[Any]:
    return node.values() if isinstance(node, dict) else node


def write_json(value: Any, indent: int | None = None) -> str:
    """The JSON text of a value that `read_json` returned, or of one made of such."""
    numbers: list[str] = []
    mark = uuid.uuid4().hex

    def marked(value: Any) -> Any:
        if isinstance(value, ExactNumber):
            numbers.append(value.text)
            return f"{mark}{len(numbers) - 1}"
        if isinstance(value, dict):
            return {key: marked(each) for key, each in value.items()}
        return [marked(each) for each in value] if isinstance(value, list) else value

    plain = marked(value)
    text = json.dumps(plain, ensure_ascii=False, indent=indent)
    try:
        text.encode()
    except UnicodeEncodeError:  # Half of a pair of UTF-16: it can only be told as an escape.
        text = json.dumps(plain, indent=indent)
    return re.sub(rf'"{mark}(\d+)"', lambda found: numbers[int(found[1])], text)

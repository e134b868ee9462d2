"""Selectors over the bytes of messages: cheap tests exclude most messages first."""

from __future__ import annotations

import re
from collections.abc import Callable

from legato import limits
from legato.amqp.codec.header import PROPERTIES, section_at
from legato.amqp.codec.map_entries import map_entries
from legato.amqp.codec.message_view import Memo, View, entries_of, is_field
from legato.amqp.codec.values import skip_value
from legato.errors import ProtocolError
from legato.selectors import compile_selector

_ENTRIES = b"\x00\x53\x74"
_BODIES = (b"\x00\x53\x75", b"\x00\x53\x76", b"\x00\x53\x77")
_SHORT_LIST, _SHORT_MAP = 0xC0, 0xC1
_LOOKUPS_MAX = 8
"""A selector that looks up more reads all properties of a message once."""
_MAP_BYTES_MAX = 4096
"""Of a larger map too."""
_TEXTS_MAX = 16
_SEARCHES_MAX = 4
"""Searches are to save time: there are not more of them, nor for more texts at once."""
_PREFIX_BYTES_MAX = 4096
_NOTHING = b"\xff"
"""No message begins so."""
_ID_OF_ANOTHER_TYPE = b"ID:AMQP_"
"""How the JMS mapping spells ids that are no strings."""


def matcher(selector_text: str, characters_max: int = limits.SELECTOR_CHARACTERS_MAX) -> Callable[[bytes], bool]:
    """A function that says whether a message, as it is stored, matches; a malformed one never does.

    Args:
        characters_max: a longer selector is refused.

    Raises:
        InvalidSelectorError: the selector does not follow the syntax of Jakarta Messaging 3.8.1.
    """
    selector = compile_selector(selector_text, characters_max)
    if not selector_text.strip():
        return lambda data: True
    matches = selector.matches
    looks_up_often = selector.lookups > _LOOKUPS_MAX
    required = [(name, texts) for name, texts in selector.required if len(texts) <= _TEXTS_MAX][:_SEARCHES_MAX]
    in_fields = [_search(texts) for name, texts in required if is_field(name) and _is_sent_as_text(name, texts)]
    in_entries = [_search(texts) for name, texts in required if not is_field(name)]
    entries = _Entries().of

    def test(data: bytes) -> bool:
        try:
            begin, end = entries(data)
            for search in in_entries:
                if search(data, begin, end) is None:
                    return False
            for search in in_fields:
                if search(data, 0, begin) is None:
                    return False
            view = Memo if looks_up_often or end - begin > _MAP_BYTES_MAX else View
            return matches(view(data, begin, end).get)
        except (ProtocolError, IndexError, ValueError, RecursionError):
            return False

    return test


def _search(texts: tuple[bytes, ...]) -> Callable[[bytes, int, int], object]:
    """A function that finds one of some texts between two places, or None."""
    return re.compile(b"|".join(map(re.escape, texts))).search


class _Entries:
    """The place of the application properties in messages of equal layout."""

    __slots__ = ("_shape",)

    def __init__(self) -> None:
        self._shape = (_NOTHING, 0)
        """The bytes up to the size of the properties, and where this size says that they end."""

    def of(self, data: bytes) -> tuple[int, int]:
        """As `entries_of`."""
        prefix, at = self._shape
        if not data.startswith(prefix):
            at = self._learn(data)
        if not data.startswith(_ENTRIES, at):
            return (at, at) if data.startswith(_BODIES, at) else entries_of(data)
        at += len(_ENTRIES)
        if data[at] == _SHORT_MAP and (end := at + 2 + data[at + 1]) <= len(data):
            return at + 3, end
        return map_entries(data, at)

    def _learn(self, data: bytes) -> int:
        """Take note of the shape of a message; returns where its properties end."""
        at, size = 0, len(data)
        while at < size:
            code, value_at = section_at(data, at)
            if code > PROPERTIES:
                break
            at = skip_value(data, value_at)
            if value_at > _PREFIX_BYTES_MAX:
                continue
            if code == PROPERTIES:
                self._shape = data[: value_at + (2 if data[value_at] == _SHORT_LIST else 5)], at
                return at
        if at <= _PREFIX_BYTES_MAX:
            self._shape = data[: at + len(_ENTRIES)], at
        return at


def _is_sent_as_text(name: str, texts: tuple[bytes, ...]) -> bool:
    """Whether a header field's text stands in the message as it is: some are made from what stands there."""
    if name == "JMSDeliveryMode":
        return False
    return not any(text.startswith(_ID_OF_ANOTHER_TYPE) or _ID_OF_ANOTHER_TYPE.startswith(text) for text in texts)

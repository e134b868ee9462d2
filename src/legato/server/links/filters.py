"""Filters of a source: selectors and no-local, under any of the names that clients give them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from legato.amqp.codec.selection import matcher
from legato.amqp.codec.types import Described
from legato.amqp.engine.terminus import Terminus
from legato.errors import InvalidSelectorError
from legato.server.links.refused import INVALID_FIELD, Refused

SELECTOR = 0x0000468C00000004
NO_LOCAL = 0x0000468C00000003
SELECTOR_DESCRIPTORS = {
    SELECTOR,
    "apache.org:selector-filter:string",
    "apache.org:jms-selector-filter:string",
}
NO_LOCAL_DESCRIPTORS = {
    NO_LOCAL,
    "apache.org:no-local-filter:list",
    "apache.org:jms-no-local-filter:list",
}


class Filters(msgspec.Struct):
    """The filters of a source that the broker applies, and echoes to the client."""

    selector: str = ""
    matches: Callable[[bytes], bool] | None = None
    no_local_key: str = ""
    """Under which the receiver asks not to get what its own connection publishes; empty if it does not."""
    applied: dict[str, Any] = {}

    def ignore_no_local(self) -> None:
        """The source is no topic: only there has no-local a meaning (Jakarta Messaging 8.3.1)."""
        self.applied.pop(self.no_local_key, None)
        self.no_local_key = ""


def read_filters(source: Terminus) -> Filters:
    """The filters of `source`: any key will do, what counts is the descriptor; all of several hold (amqp.md A3).

    Raises:
        Refused: a selector cannot be understood.
    """
    selectors: list[str] = []
    filters = Filters()
    for key, value in source.filters.items():
        if not isinstance(value, Described) or not isinstance(value.descriptor, (int, str)):
            continue
        if value.descriptor in SELECTOR_DESCRIPTORS:
            if not isinstance(value.value, str):
                raise Refused(INVALID_FIELD, "A selector is a string.")
            if value.value.strip():
                selectors.append(str(value.value))
        elif value.descriptor in NO_LOCAL_DESCRIPTORS:
            filters.no_local_key = key
        else:
            continue
        filters.applied[key] = value
    if selectors:
        filters.selector = selectors[0] if len(selectors) == 1 else " AND ".join(f"({text})" for text in selectors)
        filters.matches = compiled(filters.selector)
    return filters


def compiled(selector: str) -> Callable[[bytes], bool]:
    """A function that tells whether a message matches.

    Raises:
        Refused: the selector does not follow the syntax of Jakarta Messaging 3.8.1.
    """
    try:
        return matcher(selector)
    except InvalidSelectorError as error:
        raise Refused(INVALID_FIELD, str(error)) from None

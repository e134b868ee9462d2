"""Client of a broker's management address; commands import the client package only when they need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def request(url: str, operation: str, type: str, name: str = "", **arguments: str | float) -> Any:
    """See `legato.client.management.request`."""
    from legato.client import management

    return management.request(url, operation, type, name, **arguments)


def rows(url: str, type: str, match: str = "") -> Iterator[dict[str, Any]]:
    """See `legato.client.management.rows`."""
    from legato.client import management

    return management.rows(url, type, match)

"""Views: what the console shows at one address, and how it hears of what a visitor wants done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from legato.console.broker_link import BrokerLink
from legato.console.ledger_view import Ledger
from legato.console.visits import Visit

STATUS_AGE_MAX_S = 1.5
ROWS_AGE_MAX_S = 1.0


class Values(dict[str, str]):
    """What was given by name; empty for what was not."""

    def __missing__(self, name: str) -> str:
        return ""


@dataclass
class Asked:
    """What a visitor asked for.

    Attributes:
        values: of the address or the form; the first of each name.
        lists: all of each name.
    """

    visit: Visit
    values: Mapping[str, str]
    lists: Mapping[str, list[str]]
    ledger: Ledger | None
    store: Path | None

    @property
    def link(self) -> BrokerLink:
        """To the brokers, with the visitor's login."""
        return self.visit.broker.link

    def text(self, name: str, default: str = "") -> str:
        """A value, without spaces round it."""
        return self.values.get(name, default).strip()

    def number(self, name: str, default: int, least: int = 1) -> int:
        """A value that is a whole number, or else the default."""
        text = self.values.get(name, "")
        return max(int(text), least) if text.isdecimal() and len(text) < 12 else default

    def rows(self, type: str) -> list[dict[str, Any]]:
        """All queues, topics, subscriptions or connections, as they were a moment ago."""
        found: list[dict[str, Any]] = self.visit.broker.recent.get(type, ROWS_AGE_MAX_S, lambda: self.link.rows(type))
        return found

    def status(self) -> dict[str, Any]:
        """What the primary says of itself, as it was a moment ago."""
        found: dict[str, Any] = self.visit.broker.recent.get(
            "status", STATUS_AGE_MAX_S, lambda: self.link.request("read", "broker", count=0)
        )
        return found


@dataclass(frozen=True)
class View:
    """One page.

    Attributes:
        path: its address.
        title: what a browser's tab is called.
        template: of what is live in it; `page` is the one around that, `page.html` if nothing is around it.
        context: what the template needs.
        needs: the level that a visitor must reach.
        live: whether a page that is open is kept up to date.
    """

    path: str
    title: str
    template: str
    context: Callable[[Asked], dict[str, Any]]
    page: str = "page.html"
    needs: str = "view"
    live: bool = True
    around: Callable[[Asked], dict[str, Any]] = lambda asked: {}


@dataclass(frozen=True)
class Action:
    """What a form does: it says what came of it by the visit, and returns the address of the page to go on with."""

    path: str
    perform: Callable[[Asked], str]
    needs: str = "operate"


@dataclass(frozen=True)
class Slice:
    """One page of a long table."""

    rows: list[Any]
    page: int
    pages: int
    total: int


def sliced(rows: list[Any], page: int, size: int) -> Slice:
    """The rows of a page, the last one if there are fewer."""
    pages = max(1, -(-len(rows) // size))
    page = min(page, pages)
    return Slice(rows[(page - 1) * size : page * size], page, pages, len(rows))

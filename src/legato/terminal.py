"""A terminal: what is printed for people, in which nothing of what others wrote is obeyed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from legato.quoting import lines, quoted


class Terminal(Console):
    """A console of Rich's that takes no text for markup, and shows what a terminal would obey in place of sending it.

    The options are those of `rich.console.Console`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False} | options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See `rich.console.Console`."""
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or text.isprintable() else Segment(lines(text), style)


def cell(word: object, style: str = "") -> Text:
    """A name or an id as a cell of a table."""
    return Text(quoted(word), style=style)


def add_row(table: Table, *cells: object) -> None:
    """Add a row to a table, in which a text is text: no markup, and no control characters."""
    table.add_row(*(Text(lines(each)) if isinstance(each, str) else each for each in cells))  # type: ignore[arg-type]

"""A terminal: what is printed for people, in which nothing of what others wrote is obeyed, and no table is cut."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.measure import Measurement
from rich.padding import Padding
from rich.segment import Segment
from rich.table import Column, Table
from rich.text import Text

from legato.quoting import lines, quoted

_WORD_COLUMNS_MIN = 20
"""A longer word, such as the name of a queue, may be folded in a table, but not into less than so many columns."""
_TEXT_COLUMNS_MIN = 20
"""Nor is a text of several words wrapped into less."""
_UNBOUNDED_COLUMNS = 10_000


class Terminal(Console):
    """A console of Rich's that takes no text for markup, and shows what a terminal would obey in place of sending it.

    A table has its headings whole, and the columns that may not be wrapped. One that has no room for that is printed as
    a paragraph for each row. In a file or pipe tables are as wide as they need.

    The options are those of `rich.console.Console`.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"markup": False, "emoji": False, "highlight": False} | options)
        self._is_bounded = self.is_terminal or "width" in options or "COLUMNS" in os.environ

    def print(self, *objects: Any, **options: Any) -> None:
        """See `rich.console.Console`."""
        super().print(*objects, **{"crop": self._is_bounded} | options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See `rich.console.Console`."""
        options = options or self.options
        if isinstance(renderable, Table) and renderable.columns:
            if not self._is_bounded:
                options = options.update_width(_UNBOUNDED_COLUMNS)
            renderable = _fitted(self, renderable, options)
        for segment in super().render(renderable, options):
            text, style, control = segment
            yield segment if control or text.isprintable() else Segment(lines(text), style)


def cell(word: object, style: str = "") -> Text:
    """A name or an id as a cell of a table."""
    return Text(quoted(word), style=style)


def add_row(table: Table, *cells: object) -> None:
    """Add a row to a table, in which a text is text: no markup, and no control characters."""
    table.add_row(*(Text(lines(each)) if isinstance(each, str) else each for each in cells))  # type: ignore[arg-type]


def _fitted(console: Console, table: Table, options: ConsoleOptions) -> RenderableType:
    """A table with columns that fit the width, or paragraphs in its place."""
    unbounded = options.update_width(_UNBOUNDED_COLUMNS)

    def measured(content: RenderableType) -> Measurement:
        return Measurement.get(console, unbounded, content)

    headings = [measured(column.header if table.show_header else "") for column in table.columns]
    cells = [_measured_cells(column, measured) for column in table.columns]
    most = [max(heading.maximum, inner.maximum) for heading, inner in zip(headings, cells, strict=True)]
    frame = measured(table).maximum - sum(most)
    room = options.max_width - frame
    is_textual = all(isinstance(inner, str | Text) for column in table.columns for inner in column.cells)
    if sum(most) <= room or not is_textual:
        return table
    unwrapped = [max(heading.minimum, inner.maximum) for heading, inner in zip(headings, cells, strict=True)]
    least = [
        max(heading.minimum, inner.maximum if column.no_wrap else inner.minimum)
        for column, heading, inner in zip(table.columns, headings, cells, strict=True)
    ]
    if sum(least) > room:
        return _paragraphs(table, options)
    widths = _shrunk(_shrunk(most, unwrapped, room), least, room)
    fitted = copy(table)
    fitted.columns = [
        replace(column, width=width, header=_divided(column.header, width), overflow="fold")
        for column, width in zip(table.columns, widths, strict=True)
    ]
    return fitted


def _measured_cells(column: Column, measured: Any) -> Measurement:
    """The columns that a column's cells need at least, and at most."""
    found = [measured(inner) for inner in column.cells]
    least = max((inner.minimum for inner in found), default=0)
    most = max((inner.maximum for inner in found), default=0)
    floor = column.min_width or 0
    return Measurement(max(min(least, _WORD_COLUMNS_MIN), min(most, _TEXT_COLUMNS_MIN), floor), max(most, floor))


def _shrunk(widths: list[int], least: list[int], room: int) -> list[int]:
    """Widths that together need no more than there is room for, as far as that goes; the widest shrink first."""
    widths = list(widths)
    for _ in range(sum(widths) - room):
        able = [at for at, width in enumerate(widths) if width > least[at]]
        if not able:
            break
        widths[max(able, key=lambda at: widths[at])] -= 1
    return widths


def _divided(heading: RenderableType, width: int) -> RenderableType:
    """A heading on several lines, divided between words."""
    words, told = str(heading).split(), ""
    for word in words:
        line = told.rpartition("\n")[2]
        told += ("" if not told else " " if len(line) + 1 + len(word) <= width else "\n") + word
    return told if isinstance(heading, str) else heading


def _paragraphs(table: Table, options: ConsoleOptions) -> Group:
    """A table with a paragraph for each row: its first cell, and below it the others with their headings."""
    parts: list[RenderableType] = [Text(str(table.title))] if table.title else []
    headings = [f"{' '.join(str(column.header).split())} ".lstrip() for column in table.columns]
    indent = 2
    if not table.show_header:
        headings, indent = [""] * len(headings), 4
    for row in zip(*(column.cells for column in table.columns), strict=True):
        texts = [inner if isinstance(inner, Text) else Text(str(inner)) for inner in row]
        first = next((at for at, text in enumerate(texts) if text), None)
        if first is None:
            continue
        name = texts[first].copy()
        name.stylize("bold")
        name.overflow = "fold"
        parts.append(name)
        pairs = [Text.assemble((headings[at], "dim"), text) for at, text in enumerate(texts) if at > first and text]
        parts += [Padding(line, (0, 0, 0, indent), expand=False) for line in _packed(pairs, options.max_width - indent)]
    if table.caption:
        parts.append(Text(str(table.caption)))
    return Group(*parts)


def _packed(pairs: Sequence[Text], width: int) -> Iterator[Text]:
    """As many on a line as there is room for."""
    line = Text(overflow="fold")
    for pair in pairs:
        if line and line.cell_len + 2 + pair.cell_len > width:
            yield line
            line = Text(overflow="fold")
        line = Text.assemble(line, "  ", pair, overflow="fold") if line else Text.assemble(pair, overflow="fold")
    if line:
        yield line

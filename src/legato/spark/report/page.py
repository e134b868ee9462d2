"""What pages of results are made of: a verdict, tiles, sections, tables; no script, no font, nothing from outside."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources

_STROKE = 'fill="none" stroke="currentColor" stroke-width="2.6" stroke-linecap="round" stroke-linejoin="round"'
TICK = f'<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M5 12.5l4.5 4.5L19 7.5" {_STROKE}/></svg>'
CROSS = f'<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M6.5 6.5l11 11m0-11l-11 11" {_STROKE}/></svg>'
_LOGO = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M2 15C6 5 18 5 22 15" fill="none" stroke="currentColor"'
    ' stroke-width="2" stroke-linecap="round"/><circle cx="4" cy="19" r="2.2" fill="currentColor"/>'
    '<circle cx="12" cy="19" r="2.2" fill="currentColor"/><circle cx="20" cy="19" r="2.2" fill="currentColor"/></svg>'
)


def page(title: str, sections: Iterable[str]) -> str:
    """A whole page of sections."""
    style = resources.files("legato.spark.report").joinpath("report.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} · Legato</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head><body><main>{''.join(sections)}</main></body></html>\n"
    )


def header(title: str, headline: str, story: str, *, good: bool) -> str:
    """The verdict, in large letters."""
    mark = TICK if good else CROSS
    return (
        f'<header><div class="eyebrow">{_LOGO}<span><b>Legato</b> · {escape(title)}</span></div>'
        f'<div class="verdict{"" if good else " fails"}"><div class="mark">{mark}</div>'
        f"<div><h1>{headline}</h1><p>{story}</p></div></div></header>"
    )


def tile(label: str, value: int | None, wanted: int | None = None) -> str:
    """A number in large letters; good or bad if it is said what it should be. None is unknown."""
    verdict = "" if wanted is None else (" good" if value == wanted else " bad")
    shown = "?" if value is None else f"{value:,}"
    return f'<div class="tile{verdict}"><div class="value">{shown}</div><div class="label">{label}</div></div>'


def section(title: str, note: str, body: str, legend: Sequence[tuple[str, str]] = ()) -> str:
    """A part of a page: a headline with a note and the legend of its picture, and a body of HTML."""
    return (
        f'<section><div class="head"><h2>{title}</h2><span class="note">{note}</span>'
        f"{legend_of(legend) if legend else ''}</div>{body}</section>"
    )


def legend_of(keys: Sequence[tuple[str, str]]) -> str:
    """What the colours of a picture stand for."""
    items = "".join(f'<span style="--key:var(--{colour})">{escape(name)}</span>' for name, colour in keys)
    return f'<div class="legend">{items}</div>'


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], total: Sequence[str] | None = None) -> str:
    """A table; columns whose name starts with `#` hold numbers. Cells are HTML."""
    kinds = [' class="n"' if column.startswith("#") else "" for column in columns]
    head = "".join(
        f"<th{kind} scope=col>{escape(column.removeprefix('#'))}</th>"
        for column, kind in zip(columns, kinds, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, kinds)}</tr>" for row in rows)
    foot = f"<tfoot><tr>{_cells(total, kinds)}</tr></tfoot>" if total else ""
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody>{foot}</table></div>'


def _cells(row: Sequence[str], kinds: Sequence[str]) -> str:
    return "".join(f"<td{kind}>{cell}</td>" for cell, kind in zip(row, kinds, strict=True))


def count(name: str, value: int) -> str:
    """A number in a table: faint if it is zero, marked if nothing should have been counted there."""
    if value == 0:
        return '<span class="zero">0</span>'
    return f'<span class="badge bad">{value:,}</span>' if name in ("lost", "done twice") else f"{value:,}"


def plural(count: int, one: str, many: str | None = None) -> str:
    """How many of what, in words."""
    return f"{count or 'no'} {one if count == 1 else many or one + 's'}"

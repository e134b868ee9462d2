"""Building blocks of result pages: header, tiles, sections, tables.

The markup is in `templates/parts.html`. Texts are escaped; what is markup already has the type `Markup`.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from importlib import resources
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from legato.quoting import lines
from legato.spark.result import CheckResult

Text = str
"""A text, to be escaped, or `Markup`."""

NOTHING = Markup()


@cache
def _parts() -> Any:
    environment = Environment(
        loader=PackageLoader("legato.spark.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("parts.html").module


def page(title: str, sections: Iterable[Markup]) -> str:
    """A whole page of sections; marks of text direction and the like in names are shown, not obeyed."""
    style = Markup(resources.files("legato.spark.report").joinpath("report.css").read_text(encoding="utf-8"))
    return lines(str(_parts().page(title, style, list(sections))))


def header(title: str, headline: str, story: str, *, good: bool) -> Markup:
    """The verdict, in large letters."""
    return _parts().header(title, headline, story, good)


def tile(label: str, value: int | str | None, wanted: int | None = None, *, good: bool | None = None) -> Markup:
    """A number in large letters; good or bad if it is said what it should be, or that it is `good`. None is unknown."""
    if wanted is not None:
        good = value == wanted
    text = "?" if value is None else value if isinstance(value, str) else f"{value:,}"
    return _parts().tile(label, text, "" if good is None else "good" if good else "bad")


def tiles(each: Sequence[Markup]) -> Markup:
    """Tiles side by side."""
    return _parts().tiles(each)


def section(title: str, note: str, body: Markup, legend: Sequence[tuple[str, str]] = ()) -> Markup:
    """A part of a page: a headline with a note and the legend of its picture, and a body."""
    return _parts().section(title, note, body, legend)


def subhead(title: str, legend: Sequence[tuple[str, str]] = ()) -> Markup:
    """A headline within a section, with the legend of what is below it: names, and colours of the style sheet."""
    return _parts().subhead(title, legend)


def picture(svg: str) -> Markup:
    """A picture, given as SVG, that scrolls where it is wider than the page."""
    return _parts().picture(Markup(svg))


def table(columns: Sequence[str], rows: Iterable[Sequence[Text]], total: Sequence[Text] | None = None) -> Markup:
    """A table; columns whose name starts with `#` hold numbers."""
    return _parts().table(columns, list(rows), total)


def count(value: int, *, wanted: bool = True) -> Text:
    """A number in a table: faint if it is zero, marked if nothing should have been counted there."""
    if value == 0:
        zero: Text = _parts().zero()
        return zero
    return f"{value:,}" if wanted else badge(f"{value:,}", good=False)


def badge(text: str, *, good: bool) -> Markup:
    """A short text on a green or red ground."""
    return _parts().badge(text, "good" if good else "bad")


def folded(summary: str, body: Markup) -> Markup:
    """What is shown only to who asks for it."""
    return _parts().folded(summary, body)


def paragraphs(marked: Iterable[str], plain: Iterable[str] = ()) -> Markup:
    """Sentences, those that matter marked, each in a paragraph of its own."""
    return _parts().paragraphs(list(marked), list(plain))


def codes(texts: Iterable[str]) -> Markup:
    """Examples, one after another."""
    return _parts().codes(list(texts))


def complaints(note: str, failed: Iterable[CheckResult]) -> Markup:
    """The checks that do not hold, in a red box, with what to do about it and a link to the rows."""
    return _parts().complaints(note, [(check, _anchor(check), plural(check.count, "row")) for check in failed])


def checks(each: Iterable[CheckResult]) -> Markup:
    """All checks, with examples and stories of those that do not hold."""
    return _parts().checks([(check, _anchor(check)) for check in each])


def footer(facts: int, position: int, seconds: float) -> Markup:
    """What the page rests on."""
    return _parts().footer(f"{facts:,}", f"{position:,}", f"{seconds:.1f}")


def _anchor(check: CheckResult) -> str:
    return "check-" + "".join(letter if letter.isalnum() else "-" for letter in check.name)


def plural(count: int, one: str, many: str | None = None) -> str:
    """How many of what, in words."""
    return f"{count or 'no'} {one if count == 1 else many or one + 's'}"

"""Rendering: templates, static files by their digests, and figures in words."""

from __future__ import annotations

import hashlib
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jinja2

from legato.quoting import escaped, lines, quoted
from legato.sizes import size, sizes_apart

HERE = Path(__file__).parent
CONTENT_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
}


class StaticFiles:
    """The console's own files, in memory; their addresses have their digests, so that browsers keep them."""

    def __init__(self) -> None:
        self.files = {path.name: path.read_bytes() for path in sorted((HERE / "static").iterdir()) if path.is_file()}
        self._digests = {name: hashlib.sha256(data).hexdigest()[:16] for name, data in self.files.items()}

    def address(self, name: str) -> str:
        """Where a browser gets a file."""
        return f"/static/{name}?{self._digests[name]}"


def span(seconds: float | None) -> str:
    """A length of time in the unit that makes it short."""
    if seconds is None:
        return ""
    for limit, divisor, unit in ((0.9995, 0.001, "ms"), (120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def rate(value: float) -> str:
    """Messages a second; empty for none."""
    return "" if not value else f"{value:,.1f}" if value < 10 else f"{value:,.0f}"


def clock(time_us: float) -> str:
    """A time in UTC, with its date if that is another day's."""
    try:
        at = datetime.fromtimestamp(time_us / 1e6, UTC)
    except (ValueError, OverflowError, OSError):
        return str(time_us)
    return at.strftime("%H:%M:%S UTC" if at.date() == datetime.now(UTC).date() else "%Y-%m-%d %H:%M:%S UTC")


def age_ms(since_ms: int) -> str:
    """How long ago; empty if nobody knows."""
    return span(max(time.time() - since_ms / 1000, 0.0)) if since_ms else ""


def plural(number: int, noun: str, nouns: str = "") -> str:
    """A number of things, with its noun."""
    return f"{number:,} {noun if number == 1 else nouns or noun + 's'}"


def address_of(path: str, **values: Any) -> str:
    """A path of the console with what is asked for; what is empty is left out."""
    given = {key: value for key, value in values.items() if value not in ("", None, False)}
    return f"{path}?{urlencode(given)}" if given else path


def make_environment(static: StaticFiles) -> jinja2.Environment:
    """Templates in which all that is put in is data: it is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "size": size,
        "span": span,
        "rate": rate,
        "clock": clock,
        "age_ms": age_ms,
        "word": quoted,
        "line": lambda text: escaped(str(text), 1000),
        "lines": lambda text: lines(str(text)),
        "number": lambda value: f"{value:,}",
    }
    environment.globals |= {"static": static.address, "link": address_of, "plural": plural, "sizes_apart": sizes_apart}
    return environment

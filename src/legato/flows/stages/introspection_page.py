"""The introspection page: the stages as a graph, and a table of their counters. Pure; self-contained."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import Any

BOX_WIDTH, BOX_HEIGHT = 210, 58
COLUMN_WIDTH, ROW_HEIGHT = 300, 84
MARGIN = 16
NAME_CHARS_MAX = 28

_STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --dim: #667; --paper: #fff; --box: #f4f6f8; --line: #9ab;
  --bad: #b42318;  --warn: #b25e09; --good: #1a7f4b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e8eb; --dim: #9aa4ad; --paper: #14171a; --box: #1f2429;
  --line: #55626e; --bad: #ff7b6e; --warn: #f0a94a; --good: #57c78b; } }
body { background: var(--paper); color: var(--ink); font: 14px/1.45 system-ui, sans-serif; margin: 24px; }
h1 { font-size: 20px; margin: 0; } p { color: var(--dim); margin: 2px 0 18px; }
.graph { overflow-x: auto; } svg text { fill: var(--ink); font-size: 12px; } 
svg .dim { fill: var(--dim); font-size: 11px; }
rect { fill: var(--box); stroke: var(--line); } rect.other { fill: none; stroke-dasharray: 4 3; }
rect.open { stroke: var(--bad); stroke-width: 2; } rect.failing { stroke: var(--warn); stroke-width: 2; }
path { fill: none; stroke: var(--line); stroke-width: 1.4; } #tip path { fill: var(--line); stroke: none; }
table { border-collapse: collapse; margin-top: 20px; } th, td { padding: 4px 12px 4px 0; text-align: right; }
th { color: var(--dim); font-weight: normal; } td:first-child, th:first-child, td:last-child, th:last-child {
  text-align: left; } tr + tr td { border-top: 1px solid var(--box); } td:last-child { color: var(--bad); }
.good { color: var(--good); } .bad { color: var(--bad); }
"""


def page(seen: dict[str, Any], *, refresh_s: int = 0) -> str:
    """The page as HTML, whole in itself.

    Args:
        seen: what `introspection.snapshot` found.
        refresh_s: seconds after which a browser asks for it again; 0 for never.
    """
    stages = [stage for endpoint in seen["endpoints"] for stage in endpoint["stages"]]
    when = datetime.fromtimestamp(seen["now_us"] / 1e6, UTC).isoformat(timespec="seconds")
    refresh = f'<meta http-equiv="refresh" content="{refresh_s}">' if refresh_s else ""
    title = escape(seen["service"])
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>{refresh}'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head><body><h1>{title}</h1>'
        f"<p>{escape(seen['host'])}, {escape(seen['versions'])}; {when}</p>"
        f'<div class="graph">{graph(stages)}</div>{table(stages)}</body></html>'
    )


def graph(stages: list[dict[str, Any]]) -> str:
    """Stages, those who call them and those whom they call, as SVG; calls go from left to right if they can."""
    calls = edges(stages)
    places = layout([stage["id"] for stage in stages], calls)
    by_id = {stage["id"]: stage for stage in stages}
    width = 2 * MARGIN + max((column for column, _ in places.values()), default=0) * COLUMN_WIDTH + BOX_WIDTH
    height = 2 * MARGIN + max((row for _, row in places.values()), default=0) * ROW_HEIGHT + BOX_HEIGHT
    drawn = [_edge(places[one], places[other], count) for (one, other), count in calls.items()]
    drawn += [_box(name, place, by_id.get(name)) for name, place in places.items()]
    tip = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
        '<path d="M0 0 8 4 0 8z"/></marker></defs>'
    )
    return f'<svg width="{width}" height="{height}" role="img" aria-label="who calls whom">{tip}{"".join(drawn)}</svg>'


def edges(stages: list[dict[str, Any]]) -> dict[tuple[str, str], int]:
    """Calls between stages, with their number as far as this process saw them."""
    found: dict[tuple[str, str], int] = {}
    for stage in stages:
        for caller, count in stage.get("callers", {}).items():
            found[caller, stage["id"]] = max(found.get((caller, stage["id"]), 0), count)
        for called, count in stage.get("calls", {}).items():
            found[stage["id"], called] = max(found.get((stage["id"], called), 0), count)
    return found


def layout(own: list[str], calls: dict[tuple[str, str], int]) -> dict[str, tuple[int, int]]:
    """Column and row of each: as far right as the shortest way from those whom nobody calls."""
    names = list(dict.fromkeys([*own, *(name for pair in calls for name in pair)]))
    called = {other for one, other in calls if one != other}
    column = {name: 0 for name in names if name not in called} or dict.fromkeys(names[:1], 0)
    waiting = list(column)
    while waiting or len(column) < len(names):
        if not waiting:
            waiting = [next(name for name in names if name not in column)]
            column[waiting[0]] = 0
        one = waiting.pop(0)
        for caller, other in calls:
            if caller == one and other not in column:
                column[other] = column[one] + 1
                waiting.append(other)
    rows: dict[int, int] = {}
    places = {}
    for name in names:
        row = rows[column[name]] = rows.get(column[name], -1) + 1
        places[name] = (column[name], row)
    return places


def _corner(place: tuple[int, int]) -> tuple[int, int]:
    return MARGIN + place[0] * COLUMN_WIDTH, MARGIN + place[1] * ROW_HEIGHT


def _box(name: str, place: tuple[int, int], stage: dict[str, Any] | None) -> str:
    x, y = _corner(place)
    kind, lines = "other", ["elsewhere"]
    if stage is not None:
        failing = stage.get("last_failure_us", 0) > stage.get("last_run_us", 0)
        kind = "open" if stage.get("circuit", "closed") != "closed" else "failing" if failing else "own"
        lines = [
            f"{stage['runs']:,} runs, {stage.get('per_s', 0.0):.1f}/s",
            f"{_ms(stage.get('in_stage_s', 0.0))} in stage, {_ms(stage.get('in_queue_s', 0.0))} in queue",
        ]
    short = name if len(name) <= NAME_CHARS_MAX else f"{name[: NAME_CHARS_MAX - 1]}…"
    texts = "".join(
        f'<text class="dim" x="{x + 10}" y="{y + 35 + 15 * number}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<g><title>{escape(name)}</title><rect class="{kind}" x="{x}" y="{y}" width="{BOX_WIDTH}" '
        f'height="{BOX_HEIGHT}" rx="7"/><text x="{x + 10}" y="{y + 19}">{escape(short)}</text>{texts}</g>'
    )


def _edge(one: tuple[int, int], other: tuple[int, int], count: int) -> str:
    (x1, y1), (x2, y2) = _corner(one), _corner(other)
    y1, y2 = y1 + BOX_HEIGHT // 2, y2 + BOX_HEIGHT // 2
    if other[0] > one[0]:
        x1, bend1, bend2 = x1 + BOX_WIDTH, 45, -45
    elif other[0] < one[0]:
        # Back, a little lower, so that call and answer can be told apart.
        x2, y1, y2, bend1, bend2 = x2 + BOX_WIDTH, y1 + 14, y2 + 14, -45, 45
    else:
        x1, x2, bend1, bend2 = x1 + BOX_WIDTH, x2 + BOX_WIDTH, 45, 45
    middle_x, middle_y = (x1 + x2 + bend1 + bend2) // 2, (y1 + y2) // 2
    return (
        f'<path d="M{x1} {y1} C{x1 + bend1} {y1} {x2 + bend2} {y2} {x2} {y2}" marker-end="url(#tip)"/>'
        f'<text class="dim" text-anchor="middle" x="{middle_x}" y="{middle_y - 4}">{count:,}</text>'
    )


def table(stages: list[dict[str, Any]]) -> str:
    """Counters of the stages, a row each."""
    headings = ("stage", "runs", "/s", "in queue", "in stage", "longest", "failures", "dead letters", "circuit", "last")
    rows = []
    for stage in stages:
        state = stage.get("circuit", "closed")
        cells = (
            escape(stage["id"]),
            f"{stage['runs']:,}",
            f"{stage.get('per_s', 0.0):.1f}",
            _ms(stage.get("in_queue_s", 0.0)),
            _ms(stage.get("in_stage_s", 0.0)),
            _ms(stage.get("in_stage_max_s", 0.0)),
            f"{stage.get('failures', 0):,}",
            f"{stage.get('buried', 0):,}",
            f'<span class="{"good" if state == "closed" else "bad"}">{escape(_circuit(stage))}</span>',
            "<br>".join(_failing(each) for each in stage.get("failing", ())) or escape(stage.get("last_failure", "")),
        )
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{heading}</th>" for heading in headings[:-1])
    return f"<table><tr>{head}<th>last failure</th></tr>{''.join(rows)}</table>"


def _circuit(stage: dict[str, Any]) -> str:
    state = str(stage.get("circuit", "closed"))
    return f"{state}, next try in {_ms(stage['next_try_s'])}" if stage.get("next_try_s") else state


def _failing(failing: dict[str, Any]) -> str:
    """A message that fails, and until when it is tried, if that is a matter of time."""
    until = "" if failing["gives_up_s"] is None else f"; gives up in {max(failing['gives_up_s'], 0):.0f} s"
    return escape(f"attempt {failing['attempt']}: {failing['failure']}{until}")


def _ms(seconds: float) -> str:
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds * 1000:,.1f} ms" if seconds < 1 else f"{seconds:.2f} s"

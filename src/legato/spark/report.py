"""The audit as one page that needs nothing else: no script, no font, no picture from outside."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from importlib import resources
from pathlib import Path

from legato.spark import charts
from legato.spark.causes import causes_chart
from legato.spark.charts import duration, human
from legato.spark.flights import TotalsComparison
from legato.spark.result import AuditResult, CheckResult

_TICK = '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M5 12.5l4.5 4.5L19 7.5" {stroke}/></svg>'
_CROSS = '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M6.5 6.5l11 11m0-11l-11 11" {stroke}/></svg>'
_STROKE = 'fill="none" stroke="currentColor" stroke-width="2.6" stroke-linecap="round" stroke-linejoin="round"'
_LOGO = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M2 15C6 5 18 5 22 15" fill="none" stroke="currentColor"'
    ' stroke-width="2" stroke-linecap="round"/><circle cx="4" cy="19" r="2.2" fill="currentColor"/>'
    '<circle cx="12" cy="19" r="2.2" fill="currentColor"/><circle cx="20" cy="19" r="2.2" fill="currentColor"/></svg>'
)


def write_report(
    path: Path,
    result: AuditResult,
    *,
    totals: TotalsComparison | None = None,
    client_gaps_ms: Mapping[int, float] | None = None,
    title: str = "Delivery audit",
    more: Sequence[str] = (),
    complaints: Sequence[str] = (),
) -> None:
    """Write the page of an audit.

    Args:
        path: the file to write.
        result: the audit.
        totals: what came out against what should have, if that is known.
        client_gaps_ms: by epoch, how long clients saw no broker, if that was measured.
        title: the page's headline.
        more: further sections, as HTML.
        complaints: what is wrong besides what the ledger says: then the page does not say that all is well.
    """
    text = report_page(result, totals, client_gaps_ms or {}, title, more, complaints)
    path.write_text(text, encoding="utf-8")


def report_page(
    result: AuditResult,
    totals: TotalsComparison | None,
    client_gaps_ms: Mapping[int, float],
    title: str,
    more: Sequence[str] = (),
    complaints: Sequence[str] = (),
) -> str:
    """The page as HTML; `more` sections and `complaints` are those of whoever knows more than the ledger."""
    sections = [
        _header(result, totals, title, complaints),
        _tiles(result, totals),
        *more,
        _throughput(result),
        _takeovers(result, client_gaps_ms),
        _latency(result),
        _queues(result),
        _departures(result),
        _topics(result),
        _totals(totals) if totals is not None else "",
        _checks(result.checks),
        _footer(result),
    ]
    return page(title, sections)


def page(title: str, sections: Iterable[str]) -> str:
    """A whole page of sections."""
    style = resources.files("legato.spark").joinpath("report.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(title)} · Legato</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{style}</style></head><body><main>{''.join(sections)}</main></body></html>\n"
    )


def _header(result: AuditResult, totals: TotalsComparison | None, title: str, complaints: Sequence[str]) -> str:
    good = result.passes and (totals is None or totals.equal) and not complaints
    start, end = (datetime.fromtimestamp(us / 1e6, UTC) for us in (result.first_us, result.last_us))
    crashes = sum(not takeover.clean for takeover in result.takeovers)
    headline = "Every message is accounted for." if good else _complaint(result, totals, complaints)
    story = (
        f"{result.total('stored'):,} messages through {len(result.queues)} queues, "
        f"{_plural(crashes, 'crash', 'crashes')} of the broker, {_plural(result.total('lost'), 'message')} lost, "
        f"{result.total('duplicated') or 'none'} done twice."
    )
    return header(f"{title} · {start:%d %B %Y, %H:%M:%S} to {end:%H:%M:%S} UTC", headline, story, good=good)


def header(title: str, headline: str, story: str, *, good: bool) -> str:
    """The verdict, in large letters."""
    mark = (_TICK if good else _CROSS).format(stroke=_STROKE)
    return (
        f'<header><div class="eyebrow">{_LOGO}<span><b>Legato</b> · {escape(title)}</span></div>'
        f'<div class="verdict{"" if good else " fails"}"><div class="mark">{mark}</div>'
        f"<div><h1>{headline}</h1><p>{story}</p></div></div></header>"
    )


def _complaint(result: AuditResult, totals: TotalsComparison | None, complaints: Sequence[str]) -> str:
    failed = sum(check.count > 0 for check in result.checks)
    if failed:
        return f"{failed} of {len(result.checks)} checks do not hold."
    if complaints:
        return f"{_plural(len(complaints), 'complaint')} besides the ledger."
    assert totals is not None
    return "What came out is not what went in."


def _tiles(result: AuditResult, totals: TotalsComparison | None) -> str:
    seconds = result.timeline.bucket_us / 1e6
    consumed: dict[int, int] = {}
    for point in result.timeline.throughput:
        consumed[point.bucket] = consumed.get(point.bucket, 0) + point.consumed
    tiles = [
        _tile("stored", result.total("stored")),
        _tile("consumed", result.total("consumed")),
        _tile("forwarded", result.total("forwarded")),
        _tile("dead-lettered", result.total("dead_lettered")),
        _tile("still waiting", result.total("waiting")),
        _tile("lost", result.total("lost"), wanted=0),
        _tile("done twice", result.total("duplicated"), wanted=0),
        _tile("takeovers", len(result.takeovers)),
        f'<div class="tile"><div class="value">{human(max(consumed.values(), default=0) / seconds)}</div>'
        '<div class="label">consumed a second, peak</div></div>',
    ]
    if totals is not None:
        wrong = len(totals.differences)
        tiles.append(
            f'<div class="tile {"good" if totals.equal else "bad"}"><div class="value">'
            f"{len(totals.carriers) - wrong}/{len(totals.carriers)}</div>"
            '<div class="label">carriers equal</div></div>'
        )
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _tile(label: str, value: int, wanted: int | None = None) -> str:
    verdict = "" if wanted is None else (" good" if value == wanted else " bad")
    return f'<div class="tile{verdict}"><div class="value">{value:,}</div><div class="label">{label}</div></div>'


def section(title: str, note: str, body: str, legend: Sequence[tuple[str, str]] = ()) -> str:
    """A part of a page: a headline with a note and the legend of its picture, and a body of HTML."""
    return (
        f'<section><div class="head"><h2>{title}</h2><span class="note">{note}</span>'
        f"{_legend(legend) if legend else ''}</div>{body}</section>"
    )


def _legend(keys: Sequence[tuple[str, str]]) -> str:
    items = "".join(f'<span style="--key:var(--{colour})">{escape(name)}</span>' for name, colour in keys)
    return f'<div class="legend">{items}</div>'


def _throughput(result: AuditResult) -> str:
    note = f"messages a second, in steps of {duration(result.timeline.bucket_us)}"
    legend = [("stored", "orange"), ("consumed", "blue")]
    if result.takeovers:
        legend.append(("no primary served", "red"))
    return section("Throughput", note, f'<div class="scroll">{charts.throughput_chart(result)}</div>', legend)


def _takeovers(result: AuditResult, client_gaps_ms: Mapping[int, float]) -> str:
    if not result.takeovers:
        return ""
    columns = ["epoch", "from", "to", "how", "#new primary after", "#serving after"]
    if client_gaps_ms:
        columns.append("#gap seen by clients")
    rows = []
    for takeover in result.takeovers:
        row = [
            str(takeover.epoch),
            escape(takeover.former_broker),
            escape(takeover.broker),
            '<span class="badge good">stopped</span>' if takeover.clean else '<span class="badge bad">crashed</span>',
            duration(takeover.duration_ms * 1000),
            "" if takeover.served_ms is None else duration(takeover.served_ms * 1000),
        ]
        if client_gaps_ms:
            gap_ms = client_gaps_ms.get(takeover.epoch)
            row.append("" if gap_ms is None else duration(gap_ms * 1000))
        rows.append(row)
    body = f'<div class="scroll">{charts.reign_chart(result)}</div>{table(columns, rows)}'
    note = "from the last commit of one primary to the first of the next, and to the first message it moved"
    return section("Takeovers", note, body)


_QUEUE_COLOURS = ("blue", "orange", "green", "red", "soft", "ink")


def _latency(result: AuditResult) -> str:
    curve, heat = charts.latency_curve(result), charts.latency_heat_map(result)
    if not curve:
        return ""
    measured = [queue for queue in result.queues if queue.latencies]
    rows = [
        [
            escape(queue.name),
            latency.stage,
            f"{latency.messages:,}",
            *(duration(ms * 1000) for ms in (latency.p50_ms, latency.p95_ms, latency.p99_ms, latency.max_ms)),
        ]
        for queue in measured
        for latency in queue.latencies
    ]
    columns = ["queue", "stage", "#messages", "#p50", "#p95", "#p99", "#longest"]
    consumed = sorted({cell.queue for cell in result.timeline.latency})
    names = {queue.queue: queue.name for queue in result.queues}
    legend = [
        (names.get(queue, str(queue)), _QUEUE_COLOURS[index % len(_QUEUE_COLOURS)])
        for index, queue in enumerate(consumed)
    ]
    body = (
        f'<div class="scroll">{heat}</div>'
        f'<div class="head"><h3>Share of messages that took at most so long</h3>{_legend(legend)}</div>'
        f'<div class="scroll">{curve}</div>{table(columns, rows)}'
    )
    note = "from stored to consumed, over time: the stronger the colour, the more messages"
    return section("Latency", note, body)


def _queues(result: AuditResult) -> str:
    shown = {name: field for name, field in _QUEUE_COLUMNS.items() if name not in _RARE or result.total(field)}
    columns = ["queue", *(f"#{name}" for name in shown)]
    rows = [
        [escape(queue.name), *(_count(name, getattr(queue, field)) for name, field in shown.items())]
        for queue in result.queues
    ]
    total = ["all", *(_count(name, result.total(field)) for name, field in shown.items())]
    rare = "".join(f" + {name}" for name in _RARE if name in shown)
    return section("Queues", f"stored = consumed + dead-lettered{rare} + waiting + lost", table(columns, rows, total))


def _departures(result: AuditResult) -> str:
    rows = [
        [escape(queue.name), how, escape(cause), f"{messages:,}"]
        for queue in result.queues
        for how, causes in (("dead-lettered", queue.dead_letters), ("moved", queue.moves))
        for cause, messages in causes.items()
    ]
    if not rows:
        return ""
    note = "messages that left their queue otherwise, by cause"
    picture = f'<div class="scroll">{causes_chart(result)}</div>'
    legend = [("dead-lettered", "red"), ("moved", "blue")]
    return section("Not consumed", note, picture + table(["queue", "how", "cause", "#messages"], rows), legend)


def _topics(result: AuditResult) -> str:
    rows = [
        [escape(topic.name), *(_count("", value) for value in (topic.published, topic.copies, topic.unheard))]
        for topic in result.topics
    ]
    if not rows:
        return ""
    note = "each copy is a message of its subscription, and accounted for there"
    return section("Topics", note, table(["topic", "#published", "#copies", "#without a subscription"], rows))


_QUEUE_COLUMNS = {
    "stored": "stored",
    "consumed": "consumed",
    "forwarded": "forwarded",
    "dead-lettered": "dead_lettered",
    "moved": "moved",
    "deleted with the queue": "deleted",
    "waiting": "waiting",
    "redelivered": "redelivered",
    "lost": "lost",
    "done twice": "duplicated",
}
_RARE = ("moved", "deleted with the queue")
"""Columns that are left out where they would hold nothing."""


def _count(name: str, value: int) -> str:
    if value == 0:
        return '<span class="zero">0</span>'
    return f'<span class="badge bad">{value:,}</span>' if name in ("lost", "done twice") else f"{value:,}"


def _totals(totals: TotalsComparison) -> str:
    columns = ["carrier", "#flights", "#departure delays, min", "#arrival delays, min", "#distance, miles", ""]
    rows = []
    for carrier in totals.carriers:
        source, collected = carrier.source, carrier.collected
        cells = [
            f"{found:,}" if expected == found else f'<span class="badge bad">{found:,} of {expected:,}</span>'
            for expected, found in (
                (source.flights, collected.flights),
                (source.dep_delay, collected.dep_delay),
                (source.arr_delay, collected.arr_delay),
                (source.distance, collected.distance),
            )
        ]
        badge = '<span class="badge good">equal</span>' if carrier.equal else '<span class="badge bad">differs</span>'
        rows.append([escape(carrier.carrier), *cells, badge])
    sums = [
        sum(getattr(carrier.collected, field) for carrier in totals.carriers)
        for field in ("flights", "dep_delay", "arr_delay", "distance")
    ]
    total = ["all", *(f"{value:,}" for value in sums), ""]
    counts = (
        f"{_plural(totals.missing, 'flight')} missing, {totals.duplicated or 'none'} collected twice, "
        f"{totals.unexpected or 'none'} unexpected"
    )
    examples = "".join(f"<code>{escape(example)}</code>" for example in totals.examples)
    note = f"computed by Spark from the source data, and from the records that came out: {counts}"
    return section("Totals against the source", note, table(columns, rows, total) + examples)


def _checks(checks: Iterable[CheckResult]) -> str:
    items = []
    for check in checks:
        mark = (_CROSS if check.count else _TICK).format(stroke=_STROKE)
        found = ""
        if check.count:
            stories = "".join(f"<code>{escape(_story(example))}</code>" for example in check.examples)
            for name, lines in check.stories.items():
                told = "\n".join(escape(line) for line in lines)
                stories += f"<details><summary>{escape(name)}</summary><pre>{told}</pre></details>"
            found = f' <span class="badge bad">{check.count:,} found</span>{stories}'
        items.append(
            f"<li{' class=fails' if check.count else ''}>{mark}<div>{escape(check.sentence)}{found}</div></li>"
        )
    note = "each is a query over the ledger; none of them may find anything"
    return section("Checks", note, f'<ul class="checks">{"".join(items)}</ul>')


def _story(example: Mapping[str, object]) -> str:
    return ", ".join(f"{name} {value}" for name, value in example.items())


def _footer(result: AuditResult) -> str:
    return (
        f"<footer>{result.facts:,} facts of the broker's log up to position {result.last_position:,}, "
        f"audited by Apache Spark in {result.seconds:.1f} s.</footer>"
    )


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


def _plural(count: int, one: str, many: str | None = None) -> str:
    return f"{count or 'no'} {one if count == 1 else many or one + 's'}"

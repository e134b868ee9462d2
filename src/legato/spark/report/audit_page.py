"""The audit as one page that needs nothing else: no script, no font, no picture from outside."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from legato.spark.quantities import duration, human
from legato.spark.report import charts
from legato.spark.report.departures_chart import causes_chart
from legato.spark.report.flights import TotalsComparison
from legato.spark.report.flow_charts import flows_section
from legato.spark.report.page import CROSS, TICK, count, header, legend_of, page, plural, section, table, tile
from legato.spark.result import AuditResult, CheckResult, Takeover


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
        _complaints(result),
        _tiles(result, totals),
        *more,
        _throughput(result),
        _takeovers(result, client_gaps_ms),
        _latency(result),
        flows_section(result.flows),
        _queues(result),
        _departures(result),
        _topics(result),
        _totals(totals) if totals is not None else "",
        _checks(result.checks),
        _footer(result),
    ]
    return page(title, sections)


def _header(result: AuditResult, totals: TotalsComparison | None, title: str, complaints: Sequence[str]) -> str:
    good = result.passes and (totals is None or totals.equal) and not complaints
    start, end = (datetime.fromtimestamp(us / 1e6, UTC) for us in (result.first_us, result.last_us))
    crashes = sum(not takeover.clean for takeover in result.takeovers)
    headline = "Every message is accounted for." if good else _complaint(result, totals, complaints)
    lost, twice = result.proven("lost"), result.proven("duplicated")
    fate = (
        "what was lost or done twice cannot be told before the ledger is whole."
        if lost is None or twice is None
        else f"{plural(lost, 'message')} lost, {twice or 'none'} done twice."
    )
    story = (
        f"{result.total('stored'):,} messages through {len(result.queues)} queues, "
        f"{plural(crashes, 'crash', 'crashes')} of the broker, {fate}"
    )
    return header(f"{title} · {start:%d %B %Y, %H:%M:%S} to {end:%H:%M:%S} UTC", headline, story, good=good)


def _complaint(result: AuditResult, totals: TotalsComparison | None, complaints: Sequence[str]) -> str:
    if not result.complete:
        return "The ledger is incomplete."
    if not result.passes:
        return result.verdict
    if complaints:
        return f"{plural(len(complaints), 'complaint')} besides the ledger."
    assert totals is not None
    return "What came out is not what went in."


def _complaints(result: AuditResult) -> str:
    """What does not hold, in a red box, with what to do about it and a link to what the ledger says."""
    if result.passes:
        return ""
    items = "".join(
        f"<li>{CROSS}<div><b>{escape(check.complaint or check.sentence)}</b> {escape(check.remedy)} "
        f'<a href="#{_anchor(check)}">{plural(check.count, "row")}</a></div></li>'
        for check in result.failed
    )
    note = "" if result.complete else "while the ledger is incomplete, the others may be only a consequence of that"
    return (
        '<section class="complaints"><div class="head"><h2>What does not hold</h2>'
        f'<span class="note">{note}</span></div><ul class="checks">{items}</ul></section>'
    )


def _anchor(check: CheckResult) -> str:
    return "check-" + "".join(letter if letter.isalnum() else "-" for letter in check.name)


def _tiles(result: AuditResult, totals: TotalsComparison | None) -> str:
    seconds = result.timeline.bucket_us / 1e6
    consumed: dict[int, int] = {}
    for point in result.timeline.throughput:
        consumed[point.bucket] = consumed.get(point.bucket, 0) + point.consumed
    tiles = [
        tile("stored", result.total("stored")),
        tile("consumed", result.total("consumed")),
        tile("forwarded", result.total("forwarded")),
        tile("dead-lettered", result.total("dead_lettered")),
        tile("still waiting", result.total("waiting")),
        tile("lost", result.proven("lost"), wanted=0),
        tile("done twice", result.proven("duplicated"), wanted=0),
        tile("takeovers", len(result.takeovers)),
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
            f'<span class="badge {"good" if takeover.clean else "bad"}">{escape(_how(takeover))}</span>',
            gap_of(takeover, takeover.duration_ms),
            gap_of(takeover, takeover.served_ms),
        ]
        if client_gaps_ms:
            gap_ms = client_gaps_ms.get(takeover.epoch)
            row.append("" if gap_ms is None else duration(gap_ms * 1000))
        rows.append(row)
    body = f'<div class="scroll">{charts.reign_chart(result)}</div>{table(columns, rows)}'
    note = (
        "from when one primary had last served, for all that is known, to the next one's epoch and to its first answer"
    )
    return section("Takeovers", note, body)


def _how(takeover: Takeover) -> str:
    return takeover.how or ("stop" if takeover.clean else "crash")


def gap_of(takeover: Takeover, gap_ms: float | None) -> str:
    """How long nobody served; of a primary that may have been idle before it was gone only how long at most."""
    if gap_ms is None:
        return ""
    return f"{'≤ ' if takeover.at_most else ''}{duration(gap_ms * 1000)}"


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
        f'<div class="head"><h3>Share of messages that took at most so long</h3>{legend_of(legend)}</div>'
        f'<div class="scroll">{curve}</div>{table(columns, rows)}'
    )
    note = "from stored to consumed, over time: the stronger the colour, the more messages"
    return section("Latency", note, body)


def _queues(result: AuditResult) -> str:
    shown = {name: field for name, field in _QUEUE_COLUMNS.items() if name not in _RARE or result.total(field)}
    columns = ["queue", *(f"#{name}" for name in shown)]
    rows = [
        [escape(queue.name), *(_number(name, getattr(queue, field), result) for name, field in shown.items())]
        for queue in result.queues
    ]
    total = ["all", *(_number(name, result.total(field), result) for name, field in shown.items())]
    rare = "".join(f" + {name}" for name in _RARE if name in shown)
    return section("Queues", f"stored = consumed + dead-lettered{rare} + waiting + lost", table(columns, rows, total))


def _number(name: str, value: int, result: AuditResult) -> str:
    unknown = not value and not result.complete and name in ("lost", "done twice")
    return '<span class="badge bad">?</span>' if unknown else count(name, value)


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
        [escape(topic.name), *(count("", value) for value in (topic.published, topic.copies, topic.unheard))]
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
        f"{plural(totals.missing, 'flight')} missing, {totals.duplicated or 'none'} collected twice, "
        f"{totals.unexpected or 'none'} unexpected"
    )
    examples = "".join(f"<code>{escape(example)}</code>" for example in totals.examples)
    note = f"computed by Spark from the source data, and from the records that came out: {counts}"
    return section("Totals against the source", note, table(columns, rows, total) + examples)


def _checks(checks: Iterable[CheckResult]) -> str:
    items = []
    for check in checks:
        mark = CROSS if check.count else TICK
        found = ""
        if check.count:
            stories = "".join(f"<code>{escape(told)}</code>" for told in check.told)
            for name, lines in check.stories.items():
                told = "\n".join(escape(line) for line in lines)
                stories += f"<details><summary>{escape(name)}</summary><pre>{told}</pre></details>"
            found = f' <span class="badge bad">{check.count:,} found</span>{stories}'
        sentence = escape(check.complaint or check.sentence) if check.count else escape(check.sentence)
        fails = ' class="fails"' if check.count else ""
        items.append(f'<li{fails} id="{_anchor(check)}">{mark}<div>{sentence}{found}</div></li>')
    note = "each is a query over the ledger; none of them may find anything"
    return section("Checks", note, f'<ul class="checks">{"".join(items)}</ul>')


def _footer(result: AuditResult) -> str:
    return (
        f"<footer>{result.facts:,} facts of the broker's log up to position {result.last_position:,}, "
        f"audited by Apache Spark in {result.seconds:.1f} s.</footer>"
    )

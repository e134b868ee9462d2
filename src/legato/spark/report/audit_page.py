"""The page of an audit, which needs nothing else: no script, no font, no picture from outside."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from markupsafe import Markup

from legato.quoting import quoted
from legato.spark.quantities import duration, human
from legato.spark.report import charts, page
from legato.spark.report.departures_chart import causes_chart
from legato.spark.report.flights import TotalsComparison
from legato.spark.report.flow_charts import flows_section
from legato.spark.result import Action, Actions, AuditResult, CheckResult, Takeover


def write_report(
    path: Path,
    result: AuditResult,
    *,
    totals: TotalsComparison | None = None,
    client_gaps_ms: Mapping[int, float] | None = None,
    title: str = "Delivery audit",
    more: Sequence[Markup] = (),
    complaints: Sequence[str] = (),
) -> None:
    """Write the page of an audit.

    Args:
        path: the file to write.
        result: the audit.
        totals: what came out against what should have, if that is known.
        client_gaps_ms: by epoch, how long clients saw no broker, if that was measured.
        title: the page's headline.
        more: further sections, as markup.
        complaints: what is wrong besides what the ledger says: then the page does not say that all is well.
    """
    text = report_page(result, totals, client_gaps_ms or {}, title, more, complaints)
    path.write_text(text, encoding="utf-8")


def report_page(
    result: AuditResult,
    totals: TotalsComparison | None,
    client_gaps_ms: Mapping[int, float],
    title: str,
    more: Sequence[Markup] = (),
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
        _actions(result.actions),
        _totals(totals) if totals is not None else page.NOTHING,
        _checks(result.checks),
        page.footer(result.facts, result.last_position, result.seconds),
    ]
    return page.page(title, sections)


def _header(result: AuditResult, totals: TotalsComparison | None, title: str, complaints: Sequence[str]) -> Markup:
    good = result.passes and (totals is None or totals.equal) and not complaints
    start, end = (datetime.fromtimestamp(us / 1e6, UTC) for us in (result.first_us, result.last_us))
    crashes = sum(not takeover.clean for takeover in result.takeovers)
    headline = result.verdict if good else _complaint(result, totals, complaints)
    lost, twice = result.proven("lost"), result.proven("duplicated")
    fate = (
        "what was lost or done twice cannot be told before the ledger is whole."
        if lost is None or twice is None
        else f"{page.plural(lost, 'message')} lost, {twice or 'none'} done twice."
    )
    story = (
        f"{result.total('stored'):,} messages through {len(result.queues)} queues, "
        f"{page.plural(crashes, 'crash', 'crashes')} of the broker, {fate}"
    )
    until = f"{end:%H:%M:%S}" if end.date() == start.date() else f"{end:%d %B %Y, %H:%M:%S}"
    return page.header(f"{title} · {start:%d %B %Y, %H:%M:%S} to {until} UTC", headline, story, good=good)


def _complaint(result: AuditResult, totals: TotalsComparison | None, complaints: Sequence[str]) -> str:
    if not result.complete:
        return "The ledger is incomplete."
    if not result.passes:
        return result.verdict
    if complaints:
        return f"{page.plural(len(complaints), 'complaint')} besides the ledger."
    assert totals is not None
    return "What came out is not what went in."


def _complaints(result: AuditResult) -> Markup:
    """What does not hold, in a red box, with what to do about it and a link to what the ledger says."""
    if result.passes:
        return page.NOTHING
    note = "" if result.complete else "while the ledger is incomplete, the others may be only a consequence of that"
    return page.complaints(note, result.failed)


def _tiles(result: AuditResult, totals: TotalsComparison | None) -> Markup:
    seconds = result.timeline.bucket_us / 1e6
    consumed: dict[int, int] = {}
    for point in result.timeline.throughput:
        consumed[point.bucket] = consumed.get(point.bucket, 0) + point.consumed
    tiles = [
        page.tile("stored", result.total("stored")),
        page.tile("consumed", result.total("consumed")),
        page.tile("forwarded", result.total("forwarded")),
        page.tile("dead-lettered", result.total("dead_lettered")),
        page.tile("still waiting", result.total("waiting")),
        page.tile("lost", result.proven("lost"), wanted=0),
        page.tile("done twice", result.proven("duplicated"), wanted=0),
        page.tile("takeovers", len(result.takeovers)),
        page.tile("consumed a second, peak", human(max(consumed.values(), default=0) / seconds)),
    ]
    if totals is not None:
        wrong = len(totals.differences)
        equal = f"{len(totals.carriers) - wrong}/{len(totals.carriers)}"
        tiles.append(page.tile("carriers equal", equal, good=totals.equal))
    return page.tiles(tiles)


def _throughput(result: AuditResult) -> Markup:
    note = f"messages a second, in steps of {duration(result.timeline.bucket_us)}"
    legend = [("stored", "orange"), ("consumed", "blue")]
    if result.takeovers:
        legend.append(("no primary served", "red"))
    return page.section("Throughput", note, page.picture(charts.throughput_chart(result)), legend)


def _takeovers(result: AuditResult, client_gaps_ms: Mapping[int, float]) -> Markup:
    if not result.takeovers:
        return page.NOTHING
    columns = ["epoch", "from", "to", "how", "#new primary after", "#serving after"]
    if client_gaps_ms:
        columns.append("#gap seen by clients")
    rows = []
    for takeover in result.takeovers:
        row = [
            str(takeover.epoch),
            takeover.former_broker,
            takeover.broker,
            page.badge(_how(takeover), good=takeover.clean),
            gap_of(takeover, takeover.duration_ms),
            gap_of(takeover, takeover.served_ms),
        ]
        if client_gaps_ms:
            gap_ms = client_gaps_ms.get(takeover.epoch)
            row.append("" if gap_ms is None else duration(gap_ms * 1000))
        rows.append(row)
    body = page.picture(charts.reign_chart(result)) + page.table(columns, rows)
    note = (
        "from when one primary had last served, for all that is known, to the next one's epoch and to its first answer"
    )
    return page.section("Takeovers", note, body)


def _actions(actions: Actions | None) -> Markup:
    if actions is None:
        return page.NOTHING
    rows = [
        [
            f"{datetime.fromtimestamp(action.time_us / 1e6, UTC):%Y-%m-%d %H:%M:%S}",
            action.user,
            action.origin,
            in_words(action),
            page.badge(action.decision, good=action.decision == "allowed"),
            action.reason,
            f"{action.count:,}",
        ]
        for action in actions.latest
    ]
    columns = ["at (UTC)", "who", "from", "what", "decision", "why", "#times"]
    return page.section("Who did what", actions_note(actions), page.table(columns, rows))


def in_words(action: Action) -> str:
    """What was done: the operation, and what it was about."""
    words = [quoted(word) for word in (action.operation, action.type, action.object) if word]
    words += ["to", quoted(action.to)] if action.to else []
    words += ["message", quoted(action.message_id)] if action.message_id else []
    return " ".join(words)


def actions_note(actions: Actions) -> str:
    """How much of the audit trail is shown."""
    shown = sum(action.count for action in actions.latest)
    note = "management and denials, as the audit trail has them"
    if shown < actions.total:
        note += f"; the latest {shown:,} of {actions.total:,}"
    if actions.omitted:
        note += f"; {page.plural(actions.omitted, 'denial')} more were not recorded"
    return note


def _how(takeover: Takeover) -> str:
    return takeover.how or ("stop" if takeover.clean else "crash")


def gap_of(takeover: Takeover, gap_ms: float | None) -> str:
    """How long nobody served; of a primary that may have been idle before it was gone only how long at most."""
    if gap_ms is None:
        return ""
    return f"{'≤ ' if takeover.at_most else ''}{duration(gap_ms * 1000)}"


_QUEUE_COLOURS = ("blue", "orange", "green", "red", "soft", "ink")


def _latency(result: AuditResult) -> Markup:
    curve, heat = charts.latency_curve(result), charts.latency_heat_map(result)
    if not curve:
        return page.NOTHING
    measured = [queue for queue in result.queues if queue.latencies]
    rows = [
        [
            queue.name,
            latency.stage,
            f"{latency.messages:,}",
            *(duration(ms * 1000) for ms in (latency.p50_ms, latency.p95_ms, latency.p99_ms, latency.max_ms)),
        ]
        for queue in measured
        for latency in queue.latencies
    ]
    columns = ["queue", "stage", "#messages", "#p50", "#p95", "#p99", "#longest"]
    legend = [(curve.name, _QUEUE_COLOURS[curve.colour]) for curve in charts.latency_curves(result)]
    body = (
        page.picture(heat)
        + page.subhead("Share of messages that took at most so long", legend)
        + page.picture(curve)
        + page.table(columns, rows)
    )
    note = "from stored to consumed, over time: the stronger the colour, the more messages"
    return page.section("Latency", note, body)


def _queues(result: AuditResult) -> Markup:
    shown = {name: field for name, field in _QUEUE_COLUMNS.items() if name not in _RARE or result.total(field)}
    columns = ["queue", *(f"#{name}" for name in shown)]
    rows = [
        [queue.name, *(_number(name, getattr(queue, field), result) for name, field in shown.items())]
        for queue in result.queues
    ]
    total = ["all", *(_number(name, result.total(field), result) for name, field in shown.items())]
    rare = "".join(f" + {name}" for name in _RARE if name in shown)
    return page.section(
        "Queues", f"stored = consumed + dead-lettered{rare} + waiting + lost", page.table(columns, rows, total)
    )


def _number(name: str, value: int, result: AuditResult) -> str:
    unknown = not value and not result.complete and name in ("lost", "done twice")
    return page.badge("?", good=False) if unknown else page.count(value, wanted=name not in ("lost", "done twice"))


def _departures(result: AuditResult) -> Markup:
    rows = [
        [queue.name, how, cause, f"{messages:,}"]
        for queue in result.queues
        for how, causes in (("dead-lettered", queue.dead_letters), ("moved", queue.moves))
        for cause, messages in causes.items()
    ]
    if not rows:
        return page.NOTHING
    note = "messages that left their queue otherwise, by cause"
    picture = page.picture(causes_chart(result))
    legend = [("dead-lettered", "red"), ("moved", "blue")]
    return page.section(
        "Not consumed", note, picture + page.table(["queue", "how", "cause", "#messages"], rows), legend
    )


def _topics(result: AuditResult) -> Markup:
    rows = [
        [topic.name, *(page.count(value) for value in (topic.published, topic.copies, topic.unheard))]
        for topic in result.topics
    ]
    if not rows:
        return page.NOTHING
    note = "each copy is a message of its subscription, and accounted for there"
    return page.section("Topics", note, page.table(["topic", "#published", "#copies", "#without a subscription"], rows))


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


def _totals(totals: TotalsComparison) -> Markup:
    columns = ["carrier", "#flights", "#departure delays, min", "#arrival delays, min", "#distance, miles", ""]
    rows = []
    for carrier in totals.carriers:
        source, collected = carrier.source, carrier.collected
        cells = [
            f"{found:,}" if expected == found else page.badge(f"{found:,} of {expected:,}", good=False)
            for expected, found in (
                (source.flights, collected.flights),
                (source.dep_delay, collected.dep_delay),
                (source.arr_delay, collected.arr_delay),
                (source.distance, collected.distance),
            )
        ]
        badge = page.badge("equal" if carrier.equal else "differs", good=carrier.equal)
        rows.append([carrier.carrier, *cells, badge])
    sums = [
        sum(getattr(carrier.collected, field) for carrier in totals.carriers)
        for field in ("flights", "dep_delay", "arr_delay", "distance")
    ]
    total = ["all", *(f"{value:,}" for value in sums), ""]
    counts = (
        f"{page.plural(totals.missing, 'flight')} missing, {totals.duplicated or 'none'} collected twice, "
        f"{totals.unexpected or 'none'} unexpected"
    )
    note = f"computed by Spark from the source data, and from the records that came out: {counts}"
    return page.section(
        "Totals against the source", note, page.table(columns, rows, total) + page.codes(totals.examples)
    )


def _checks(checks: Iterable[CheckResult]) -> Markup:
    note = "each is a query over the ledger; none of them may find anything"
    return page.section("Checks", note, page.checks(checks))

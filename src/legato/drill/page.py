"""The page of a drill: the audit's page, the clients' results, and the times of the faults."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from markupsafe import Markup

from legato.drill.charts import FAMILIES, STEP_S, clients_chart, gaps_chart, takeovers_chart
from legato.drill.faults import POINTS
from legato.drill.outcome import COLUMNS, WRONG, Outcome, fault_of, verdict_line
from legato.drill.result import RunResult, Struck
from legato.spark.quantities import duration
from legato.spark.report import page
from legato.spark.report.audit_page import write_report
from legato.spark.result import AuditResult


def write_page(path: Path, outcome: Outcome, result: RunResult, audit: AuditResult | None) -> None:
    """Write the page; without an audit it has the clients' part only."""
    path.parent.mkdir(parents=True, exist_ok=True)
    title = f"Drill, seed {outcome.seed}"
    sections = [
        _tiles(outcome),
        _complaints(outcome),
        _clients(result),
        _takeovers(result),
        _gaps(result),
        _told(outcome),
        _kinds(outcome, result),
        _points(outcome),
        _strikes(result.strikes),
    ]
    if audit is not None:
        write_report(
            path,
            audit,
            client_gaps_ms=result.gaps_ms,
            title=title,
            more=sections,
            complaints=outcome.complaints,
        )
        return
    headline = "Every message is accounted for." if outcome.passes else "Not every message is accounted for."
    top = page.header(title, headline, f"{verdict_line(outcome)[2:]}.", good=outcome.passes)
    path.write_text(page.page(title, [top, *sections]), encoding="utf-8")


def _tiles(outcome: Outcome) -> Markup:
    once = outcome.exactly_once
    tiles = [
        page.tile("faults", f"{outcome.faults:,}"),
        page.tile("takeovers", f"{outcome.takeovers:,}"),
        page.tile("clients", f"{outcome.clients:,}"),
        page.tile("clients' processes killed", f"{outcome.clients_killed:,}"),
        page.tile("confirmed to producers", f"{outcome.sent:,}"),
        page.tile("lost", _known(outcome.lost), good=outcome.lost == 0),
        page.tile("done twice", _known(outcome.duplicated), good=outcome.duplicated == 0),
        page.tile(
            f"of {once['sent']:,} in transactions done twice", f"{once['duplicated']:,}", good=not once["duplicated"]
        ),
        page.tile("wrong redelivered flags", f"{outcome.wrong_flags:,}", good=not outcome.wrong_flags),
        page.tile("falsely told", f"{outcome.falsely_told:,}", good=not outcome.falsely_told),
        page.tile("died, and were not to", f"{outcome.died:,}", good=not outcome.died),
    ]
    note = "what clients have on record, each for itself"
    return page.section("What clients say", note, page.tiles(tiles))


def _known(count: int | None) -> str:
    return "?" if count is None else f"{count:,}"


def _clients(result: RunResult) -> Markup:
    note = f"messages a second, in steps of {duration(STEP_S * 1e6)}; above: what the faults befell"
    legend = [("confirmed", "orange"), ("received", "blue")]
    legend += [(f"fault: {name}", colour) for name, (colour, _) in FAMILIES.items()]
    return page.section("What clients saw", note, page.picture(clients_chart(result)), legend)


def _takeovers(result: RunResult) -> Markup:
    if not result.epochs:
        return page.NOTHING
    note = f"{result.takeovers:,} takeovers, as the brokers said; above: what befell them"
    return page.section("Who was the primary", note, page.picture(takeovers_chart(result)))


def _gaps(result: RunResult) -> Markup:
    if not result.gaps:
        return page.NOTHING
    note = f"{len(result.gaps):,} times a client had no broker, for {_spread([gap.gap_ms for gap in result.gaps])}"
    legend = [("less than 300 ms", "blue"), ("less than 1.5 s", "orange"), ("longer", "red")]
    return page.section("Gaps of clients", note, page.picture(gaps_chart(result)), legend)


def _spread(milliseconds: Sequence[float]) -> str:
    return f"{duration(median(milliseconds) * 1000)} in the middle, {duration(max(milliseconds) * 1000)} at most"


def _told(outcome: Outcome) -> Markup:
    rows = [
        [
            Markup.escape(name) + (Markup(" ") + page.badge("tx", good=True) if row["exactly_once"] else ""),
            *(_number(each, row[each]) for each in COLUMNS),
        ]
        for name, row in outcome.configurations.items()
    ]
    note = "each client's own record: what producers were told, what consumers received; tx: in transactions"
    body = page.table(["configuration", *(f"#{each}" for each in COLUMNS.values())], rows)
    return page.section("What clients were told", note, body)


def _number(name: str, value: int) -> str:
    return page.count(value, wanted=name not in WRONG)


def _kinds(outcome: Outcome, result: RunResult) -> Markup:
    gaps: dict[str, list[float]] = {}
    for gap in result.gaps:
        strike = fault_of(gap, result.strikes)
        if strike is not None:
            gaps.setdefault(strike.kind, []).append(gap.gap_ms)
    rows = [
        [kind, f"{times:,}", f"{len(gaps.get(kind, [])):,}", *_gap_cells(gaps.get(kind, []))]
        for kind, times in sorted(outcome.faults_by_kind.items())
    ]
    note = "what each kind of fault cost clients: times without a broker that began with one"
    return page.section(
        "Kinds of faults", note, page.table(["fault", "#struck", "#gaps", "#in the middle", "#longest"], rows)
    )


def _gap_cells(milliseconds: Sequence[float]) -> list[str]:
    if not milliseconds:
        return ["", ""]
    return [duration(median(milliseconds) * 1000), duration(max(milliseconds) * 1000)]


def _points(outcome: Outcome) -> Markup:
    rows = [
        [point, f"{times:,}", text] for point, text in POINTS.items() if (times := outcome.points_by_name.get(point, 0))
    ]
    if not rows:
        return page.NOTHING
    note = "where a process was held while the fault happened"
    return page.section("Points", note, page.table(["point", "#held", "which is"], rows))


def _strikes(strikes: Sequence[Struck]) -> Markup:
    rows = [
        [f"{number:,}", strike.fault, f"{strike.at_s:.1f} s", f"{strike.took_s:.1f} s"]
        for number, strike in enumerate(strikes, 1)
    ]
    body = page.folded(f"all {len(rows):,}", page.table(["", "fault", "#after", "#took"], rows))
    return page.section("Faults", "until all was whole again", body)


def _complaints(outcome: Outcome) -> Markup:
    if not outcome.complaints and not outcome.notes:
        return page.NOTHING
    items = page.paragraphs(outcome.complaints, outcome.notes)
    return page.section("Complaints" if outcome.complaints else "Notes", "", items)

"""The outcome of a drill, from the records of clients and broker."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from legato.drill.checker import Finding
from legato.drill.history import HistoryFinding
from legato.drill.result import Gap, RunResult, Struck
from legato.spark.result import AuditResult

REPORT_DELAY_S = 0.3
"""A client reports a gap so much later than it ended."""
COUNTS = ("sent", "received", "lost", "duplicated", "wrong_flags", "falsely_told", "died")


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a drill; also its JSON.

    `lost`, `duplicated`, `wrong_flags`, `falsely_told` and `died` are those of `checker.Finding`, over all
    subscriptions, with what the broker's own history says added; None if nothing was found, and that history is
    incomplete.
    `configurations` has the same of each, by its name; `exactly_once` adds up those in which all producers number their
    messages and all consumers work in transactions.
    """

    passes: bool
    faults: int
    lost: int | None
    duplicated: int | None
    wrong_flags: int
    falsely_told: int
    died: int
    sent: int
    received: int
    again: int
    dead_lettered: int
    taken_along: int
    rolled_back: int
    clients: int
    clients_killed: int
    drivers_killed: int
    batches: int
    """Of the Spark job."""
    takeovers: int
    points_reached: int
    seconds: float
    seed: int
    longest_gap_ms: float
    audited: str
    """Who audited the broker's history: `spark`, `log`, or `none` where it is somebody else's."""
    contract: str
    exactly_once: dict[str, int]
    configurations: dict[str, dict[str, Any]]
    faults_by_kind: dict[str, int]
    points_by_name: dict[str, int]
    """How many processes were held where."""
    longest_gaps_ms: dict[str, float]
    """By kind of fault, the longest time that a client could do nothing."""
    disk_bytes_max: int
    memory_bytes_max: int
    complaints: list[str]
    notes: list[str]
    strikes: list[dict[str, Any]]


def outcome_of(
    seed: int,
    result: RunResult,
    findings: list[Finding],
    audit: AuditResult | None,
    history: HistoryFinding | None,
    contract: str = "legato",
) -> Outcome:
    """Everything in one object."""
    complaints = list(result.complaints)
    complaints += [example for finding in findings for example in finding.examples]
    lost, duplicated = (sum(getattr(finding, name) for finding in findings) for name in ("lost", "duplicated"))
    if audit is not None:
        lost += audit.total("lost")
        duplicated += audit.total("duplicated")
        complaints += [f"{check.complaint or check.sentence} {check.remedy}".rstrip() for check in audit.failed]
    if history is not None:
        lost += history.lost
        duplicated += history.duplicated
        complaints += history.complaints
    if not any(finding.received for finding in findings):
        complaints.append("Nobody received anything.")
    complete = audit is None or audit.complete
    return Outcome(
        passes=not complaints,
        faults=len(result.strikes),
        lost=lost or (0 if complete else None),
        duplicated=duplicated or (0 if complete else None),
        wrong_flags=sum(finding.wrong_flags for finding in findings),
        falsely_told=sum(finding.falsely_told for finding in findings),
        died=sum(finding.died for finding in findings),
        sent=sum({finding.flow or finding.subscription: finding.sent for finding in findings}.values()),
        received=sum(finding.received for finding in findings),
        again=sum(finding.again for finding in findings),
        dead_lettered=sum(finding.dead_lettered for finding in findings),
        taken_along=sum(finding.taken_along for finding in findings),
        rolled_back=result.rolled_back,
        clients=result.clients,
        clients_killed=result.clients_killed,
        drivers_killed=result.drivers_killed,
        batches=result.batches,
        takeovers=result.takeovers,
        points_reached=result.points_reached,
        seconds=round(result.seconds, 1),
        seed=seed,
        longest_gap_ms=round(max((gap.gap_ms for gap in result.gaps), default=0.0), 1),
        audited="spark" if audit is not None else "log" if history is not None else "none",
        contract=contract,
        exactly_once={
            "configurations": sum(finding.exactly_once for finding in findings),
            **{name: sum(getattr(finding, name) for finding in findings if finding.exactly_once) for name in COUNTS},
        },
        configurations={_configuration(finding.subscription): msgspec.to_builtins(finding) for finding in findings},
        faults_by_kind=dict(Counter(strike.kind for strike in result.strikes)),
        points_by_name=dict(Counter(strike.point for strike in result.strikes if strike.reached)),
        longest_gaps_ms=_longest_gaps(result),
        disk_bytes_max=result.disk_bytes_max,
        memory_bytes_max=result.memory_bytes_max,
        complaints=complaints,
        notes=list(result.notes),
        strikes=[msgspec.to_builtins(strike) for strike in result.strikes],
    )


def _configuration(subscription: str) -> str:
    """Name of a subscription within its drill: without `drill.SEED.`"""
    return subscription.split(".", 2)[-1]


def fault_of(gap: Gap, strikes: Sequence[Struck]) -> Struck | None:
    """The fault in which a client's gap began, or the last one before that."""
    began_s = gap.ended_s - gap.gap_ms / 1000
    return max((each for each in strikes if each.at_s <= began_s + REPORT_DELAY_S), key=_began_at, default=None)


def _began_at(strike: Struck) -> float:
    return strike.at_s


def _longest_gaps(result: RunResult) -> dict[str, float]:
    longest: dict[str, float] = {}
    for gap in result.gaps:
        strike = fault_of(gap, result.strikes)
        if strike is not None:
            longest[strike.kind] = max(longest.get(strike.kind, 0.0), round(gap.gap_ms, 1))
    return longest


def write_json(outcome: Outcome, file: Path) -> None:
    """Write the outcome as one JSON object."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(outcome), indent=2) + b"\n")


COLUMNS = {
    "sent": "confirmed",
    "received": "received",
    "again": "again",
    "dead_lettered": "dead",
    "taken_along": "taken along",
    "lost": "lost",
    "duplicated": "twice",
    "wrong_flags": "wrong flags",
    "falsely_told": "falsely told",
    "died": "died",
}
"""Fields of a finding, and what a table calls them."""
WRONG = ("lost", "duplicated", "wrong_flags", "falsely_told", "died")


def outcome_table(outcome: Outcome) -> Group:
    """The outcome for people: what the clients have on record, by subscription, and the verdict."""
    table = Table(title="what the clients were told", title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("configuration (* in transactions)", no_wrap=True)
    for title in COLUMNS.values():
        table.add_column(title, justify="right", no_wrap=True)
    for name, row in outcome.configurations.items():
        cells = [Text(f"{row[each]:,}", "bold red" if each in WRONG and row[each] else "") for each in COLUMNS]
        table.add_row(name + (" *" if row["exactly_once"] else ""), *cells)
    notes = [Text(f"- {note}", style="dim") for note in outcome.notes]
    sentences = [Text(f"✗ {sentence}", style="red") for sentence in outcome.complaints]
    return Group(table, *notes, *sentences, Text(verdict_line(outcome), "bold green" if outcome.passes else "bold red"))


def _known(count: int | None) -> str:
    return "an unknown number" if count is None else f"{count:,}"


def verdict_line(outcome: Outcome) -> str:
    """The drill in one line."""
    return (
        f"{'✓' if outcome.passes else '✗'} {outcome.faults:,} faults, {outcome.takeovers:,} takeovers, "
        f"{outcome.sent:,} messages confirmed: {_known(outcome.lost)} lost, {_known(outcome.duplicated)} done twice, "
        f"{outcome.wrong_flags:,} wrong flags, {outcome.falsely_told:,} falsely told"
        + (f", {outcome.died:,} died" if outcome.died else "")
        + f"; in transactions {outcome.exactly_once['duplicated']:,} of {outcome.exactly_once['sent']:,} done twice"
        + ("" if outcome.passes else f"; {len(outcome.complaints)} complaints")
    )

"""The result of a drill: what clients and broker have on record, and whether all of it holds."""

from pathlib import Path
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from legato.drill.history import HistoryFinding
from legato.drill.run import RunResult
from legato.drill.verdict import Finding
from legato.spark.result import AuditResult


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a drill, as they are written as JSON.

    `lost`, `duplicated`, `wrong_flags` and `falsely_told` are those of `verdict.Finding`, over all subscriptions, with
    what the broker's own history says added.
    """

    passes: bool
    faults: int
    lost: int
    duplicated: int
    wrong_flags: int
    falsely_told: int
    sent: int
    received: int
    again: int
    dead_lettered: int
    rolled_back: int
    takeovers: int
    points_reached: int
    seconds: float
    seed: int
    longest_gap_ms: float
    audited: str
    """Who audited the broker's history: `spark`, `log`, or `none` where it is somebody else's."""
    complaints: list[str]
    strikes: list[dict[str, Any]]
    subscriptions: list[dict[str, Any]]


def outcome_of(
    seed: int,
    result: RunResult,
    findings: list[Finding],
    audit: AuditResult | None,
    history: HistoryFinding | None,
) -> Outcome:
    """Everything in one object."""
    complaints = list(result.complaints)
    complaints += [example for finding in findings for example in finding.examples]
    lost, duplicated = (sum(getattr(finding, name) for finding in findings) for name in ("lost", "duplicated"))
    if audit is not None:
        lost += audit.total("lost")
        duplicated += audit.total("duplicated")
        complaints += [f"{check.sentence} ({check.count:,} times not)" for check in audit.checks if check.count]
    if history is not None:
        lost += history.lost
        duplicated += history.duplicated
        complaints += history.complaints
    if not any(finding.received for finding in findings):
        complaints.append("Nobody received anything.")
    return Outcome(
        passes=not complaints,
        faults=len(result.strikes),
        lost=lost,
        duplicated=duplicated,
        wrong_flags=sum(finding.wrong_flags for finding in findings),
        falsely_told=sum(finding.falsely_told for finding in findings),
        sent=sum(finding.sent for finding in findings),
        received=sum(finding.received for finding in findings),
        again=sum(finding.again for finding in findings),
        dead_lettered=sum(finding.dead_lettered for finding in findings),
        rolled_back=result.rolled_back,
        takeovers=result.takeovers,
        points_reached=result.points_reached,
        seconds=round(result.seconds, 1),
        seed=seed,
        longest_gap_ms=round(max(result.gaps_ms.values(), default=0.0), 1),
        audited="spark" if audit is not None else "log" if history is not None else "none",
        complaints=complaints,
        strikes=[msgspec.to_builtins(strike) for strike in result.strikes],
        subscriptions=[msgspec.to_builtins(finding) for finding in findings],
    )


def write_json(outcome: Outcome, file: Path) -> None:
    """Write the outcome as one JSON object."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(msgspec.json.format(msgspec.json.encode(outcome), indent=2) + b"\n")


COLUMNS = {
    "sent": "confirmed",
    "received": "received",
    "again": "again, flagged",
    "dead_lettered": "dead",
    "lost": "lost",
    "duplicated": "twice",
    "wrong_flags": "wrong flags",
    "falsely_told": "falsely told",
}
"""Fields of a finding, and what a table calls them."""
_WRONG = ("lost", "duplicated", "wrong_flags", "falsely_told")


def outcome_table(outcome: Outcome) -> Group:
    """The outcome for people: what the clients have on record, by subscription, and the verdict."""
    table = Table(title="what the clients were told", title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("subscription", no_wrap=True)
    for title in COLUMNS.values():
        table.add_column(title, justify="right", no_wrap=True)
    for row in outcome.subscriptions:
        cells = [Text(f"{row[name]:,}", "bold red" if name in _WRONG and row[name] else "") for name in COLUMNS]
        table.add_row(str(row["subscription"]), *cells)
    sentences = [Text(f"✗ {sentence}", style="red") for sentence in outcome.complaints]
    return Group(table, *sentences, Text(verdict_line(outcome), "bold green" if outcome.passes else "bold red"))


def verdict_line(outcome: Outcome) -> str:
    """The drill in one line."""
    return (
        f"{'✓' if outcome.passes else '✗'} {outcome.faults:,} faults, {outcome.takeovers:,} takeovers, "
        f"{outcome.sent:,} messages confirmed: {outcome.lost:,} lost, {outcome.duplicated:,} done twice, "
        f"{outcome.wrong_flags:,} wrong flags, {outcome.falsely_told:,} falsely told"
        + ("" if outcome.passes else f"; {len(outcome.complaints)} complaints")
    )

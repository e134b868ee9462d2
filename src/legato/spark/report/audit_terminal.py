"""The result of an audit in the terminal: failed checks, and tables of queues, topics and takeovers."""

from collections.abc import Mapping
from datetime import UTC, datetime

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from legato.quoting import lines, quoted, sentence
from legato.spark.quantities import duration
from legato.spark.report.audit_page import gap_of, in_words
from legato.spark.report.flow_terminal import flow_tables
from legato.spark.result import BOTH, OF_THE_WHOLE, Actions, AuditResult
from legato.terminal import Terminal, cell


def audit_table(result: AuditResult) -> Group:
    """The result for a terminal: failed checks, the account of each queue, what was not consumed, topics, takeovers."""
    parts: list[Table | Text] = [*complaints(result), _queues_table(result)]
    if any(queue.dead_letters or queue.moves for queue in result.queues):
        parts.append(_departures_table(result))
    if result.topics:
        parts.append(_topics_table(result))
    if result.takeovers:
        parts.append(_takeovers_table(result))
    if result.flows:
        parts += flow_tables(result.flows)
    if result.actions is not None:
        parts.append(_actions_table(result.actions))
    if result.since:
        parts.append(Text(result.since, style="yellow"))
    if not result.passes:
        parts.append(Text(f"✗ {result.verdict}", style="bold red"))
    elif result.is_empty:
        parts.append(Text(result.verdict, style="bold yellow"))
    else:
        parts.append(Text(f"{len(result.checks)} checks hold: every message is accounted for", style="bold green"))
    return Group(*parts)


def complaints(result: AuditResult) -> list[Text]:
    """What does not hold, what to do about it, and what the ledger says of some of the messages."""
    parts: list[Text] = []
    echoes = not result.complete
    for check in result.failed:
        if echoes and check.name not in OF_THE_WHOLE:
            echoes = False
            parts.append(Text("What follows may be only a consequence of that:", style="red"))
        parts.append(Text(lines(f"✗ {check.complaint or check.sentence} {check.remedy}".rstrip()), style="bold red"))
        if check.count > 1:
            parts += [Text(sentence(f"    {told}"), style="red") for told in check.told]
        if check.count > len(check.examples):
            parts.append(Text(f"    and {check.count - len(check.examples):,} more", style="red"))
        for name, story in check.stories.items():
            parts.append(Text(f"    {quoted(name)}", style="bold"))
            parts += [Text(f"      {sentence(line)}") for line in story]
    return parts


def print_audit(result: AuditResult, console: Console | None = None) -> None:
    """Show `audit_table` on a console."""
    (console or Terminal()).print(audit_table(result))


_QUEUE_COLUMNS = {
    "stored": "stored",
    "consumed": "consumed",
    "forwarded": "forwarded",
    "dead_lettered": "dead",
    "moved": "moved",
    "deleted": "deleted",
    "waiting": "waiting",
    "lost": "lost",
    "duplicated": "twice",
}
ACTIONS_MAX = 20
"""Actions that a terminal shows."""
_RARE = ("forwarded", "moved", "deleted")
"""Columns that are left out where they would hold nothing."""


def _queues_table(result: AuditResult) -> Table:
    table = Table(
        title=f"{result.facts:,} facts, {len(result.queues)} queues", title_justify="left", box=SIMPLE_HEAD, padding=0
    )
    # Long names go on in the next line: a number that is cut is a wrong number.
    table.add_column("queue", overflow="fold")
    shown = {field: title for field, title in _QUEUE_COLUMNS.items() if field not in _RARE or result.total(field)}
    for column in (*shown.values(), "p50", "p99"):
        table.add_column(column, justify="right", no_wrap=True)
    for queue in result.queues:
        end_to_end = next((each for each in queue.latencies if each.stage == BOTH), None)
        latencies = (duration(end_to_end.p50_ms * 1e3), duration(end_to_end.p99_ms * 1e3)) if end_to_end else ("", "")
        counts = [_count(column, getattr(queue, column), result) for column in shown]
        table.add_row(cell(queue.name), *counts, *latencies)
    return table


def _count(column: str, value: int, result: AuditResult) -> Text:
    if column not in ("lost", "duplicated"):
        return Text(f"{value:,}")
    if not value and not result.complete:
        return Text("?", style="bold red")
    return Text(f"{value:,}", style="bold red" if value else "")


def _departures_table(result: AuditResult) -> Table:
    table = Table(title="not consumed", title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("queue", overflow="fold")
    for column in ("dead letters", "moved"):
        table.add_column(column)
    for queue in result.queues:
        if queue.dead_letters or queue.moves:
            table.add_row(cell(queue.name), _by_cause(queue.dead_letters), _by_cause(queue.moves))
    return table


def _by_cause(causes: Mapping[str, int]) -> Text:
    return Text(", ".join(f"{messages:,} {sentence(cause)}" for cause, messages in causes.items()))


def _topics_table(result: AuditResult) -> Table:
    table = Table(title="topics", title_justify="left", box=SIMPLE_HEAD, padding=0)
    table.add_column("topic", overflow="fold")
    for column in ("published", "copies", "without a subscription"):
        table.add_column(column, justify="right", no_wrap=True)
    for topic in result.topics:
        table.add_row(cell(topic.name), f"{topic.published:,}", f"{topic.copies:,}", f"{topic.unheard:,}")
    return table


def _actions_table(actions: Actions) -> Table:
    """The latest actions; a terminal shows fewer than the page."""
    table = Table(title="who did what", title_justify="left", box=SIMPLE_HEAD, padding=0, caption_justify="left")
    for column in ("at (UTC)", "who", "from", "what", "decision"):
        table.add_column(column, no_wrap=column in ("at (UTC)", "decision"))
    for action in actions.latest[:ACTIONS_MAX]:
        times = f" ({action.count:,} times)" if action.count > 1 else ""
        table.add_row(
            f"{datetime.fromtimestamp(action.time_us / 1e6, UTC):%m-%d %H:%M:%S}",
            cell(action.user),
            cell(action.origin),
            Text(in_words(action) + times),
            Text(action.decision, style="" if action.decision == "allowed" else "red"),
        )
    return table


def _takeovers_table(result: AuditResult) -> Table:
    table = Table(title="takeovers", title_justify="left", box=SIMPLE_HEAD)
    for column in ("epoch", "from", "to", "how"):
        table.add_column(column, no_wrap=True)
    table.add_column("in charge after", justify="right")
    table.add_column("serving after", justify="right")
    for takeover in result.takeovers:
        table.add_row(
            str(takeover.epoch),
            cell(takeover.former_broker) if takeover.former_broker else "",
            cell(takeover.broker),
            takeover.how or ("stop" if takeover.clean else "crash"),
            gap_of(takeover, takeover.duration_ms),
            gap_of(takeover, takeover.served_ms),
        )
    return table

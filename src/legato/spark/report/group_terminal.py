"""The audits of several groups in the terminal: a line for each group, and what does not hold."""

from __future__ import annotations

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.table import Table
from rich.text import Text

from legato.spark.report.audit_terminal import complaints
from legato.spark.result import AuditResult, GroupAudits
from legato.terminal import Terminal, cell

_COLUMNS = {
    "stored": "stored",
    "consumed": "consumed",
    "dead_lettered": "dead",
    "waiting": "waiting",
    "lost": "lost",
    "duplicated": "twice",
}


def group_table(audits: GroupAudits) -> Group:
    """The results for a terminal: complaints of each group that does not pass, then a line for each group."""
    parts: list[Text | Table] = []
    for name in audits.failed:
        parts += [Text(f"group {name!r}", style="bold red"), *complaints(audits.groups[name])]
    parts.append(_table(audits))
    if audits.failed:
        parts.append(Text(f"✗ {audits.verdict}", style="bold red"))
    else:
        parts.append(Text(audits.verdict, style="bold green"))
    return Group(*parts)


def _table(audits: GroupAudits) -> Table:
    facts = sum(result.facts for result in audits.groups.values())
    title = f"{facts:,} facts, {len(audits.groups):,} groups"
    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD, padding=0, show_footer=True)
    table.add_column("group", overflow="fold", footer="all")
    table.add_column("queues", justify="right", no_wrap=True)
    for column, heading in _COLUMNS.items():
        unproven = any(_unproven(column, result) for result in audits.groups.values())
        footer = "?" if unproven and not audits.total(column) else f"{audits.total(column):,}"
        table.add_column(heading, justify="right", no_wrap=True, footer=footer)
    table.add_column("takeovers", justify="right", no_wrap=True)
    for name, result in audits.groups.items():
        counts = [
            Text("?", style="bold red") if _unproven(column, result) else Text(f"{result.total(column):,}")
            for column in _COLUMNS
        ]
        table.add_row(cell(name), f"{len(result.queues):,}", *counts, f"{len(result.takeovers):,}")
    return table


def _unproven(column: str, result: AuditResult) -> bool:
    return column in ("lost", "duplicated") and result.proven(column) is None


def print_group_audits(audits: GroupAudits) -> None:
    """Show `group_table`."""
    Terminal().print(group_table(audits))

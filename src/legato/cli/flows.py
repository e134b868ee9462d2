"""`legato flows`: trace a flow through its stages."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from legato.cli.commands import Commands
from legato.cli.options import URL_DEFAULT, JsonOption, UrlOption
from legato.cli.output import say, say_json
from legato.quoting import quoted, sentence

PREFIX_DEFAULT = "flows."

app = Commands(
    name="flows",
    help="Follow flows through the stages of services.",
)


@app.callback()
def options() -> None:
    """Options of every command."""


@app.command("trace")
def trace(
    trace_id: Annotated[
        str, typer.Argument(metavar="TRACE_ID", help="The trace id that the initiator gave.", show_default=False)
    ],
    prefix: Annotated[
        str, typer.Option("--prefix", help="Prefix of the names of the flows' queues.", metavar="PREFIX")
    ] = PREFIX_DEFAULT,
    as_json: JsonOption = False,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """Show a flow and the flows that it began: who called whom, and the time in queue, in stage and in database.

    Waiting messages and dead letters are shown with the calls that led to them. Finished runs are shown if their
    service keeps them: `Flows(trace_retention_s=3600)`.

    The exit code is 1 if nothing is found. Example: legato flows trace order:17
    """
    from legato.administration import flow_traces

    steps = flow_traces.steps_of(url, trace_id, prefix)
    if as_json:
        for step in steps:
            say_json(step.as_dict())
    elif steps:
        print_steps(steps)
    if not steps:
        say(
            f"no flow {trace_id} waits, is a dead letter, or has left records: services keep records of finished runs "
            "with Flows(trace_retention_s=...)",
            err=True,
        )
        raise typer.Exit(1)


def print_steps(steps: list[Any]) -> None:
    """The steps of flows, a line each."""
    from rich.table import Table
    from rich.text import Text

    from legato.terminal import Terminal, add_row, cell

    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for heading in ("at", "from", "call", "to", "queue", "stage", "database", "then"):
        right = heading in ("at", "queue", "stage", "database")
        table.add_column(heading, justify="right" if right else "left", no_wrap=heading != "then")
    first_us = steps[0].sent_us
    flow = steps[0].trace_id
    for step in steps:
        if step.trace_id != flow:
            flow = step.trace_id
            add_row(table, "", cell(flow, "bold"))
        add_row(
            table,
            f"+{_duration(step.sent_us - first_us) or '0'}",
            cell(step.sender) if step.sender else "",
            quoted(step.call),
            cell(step.stage),
            _duration(step.in_queue_us),
            _duration(step.in_stage_us),
            _duration(step.database_us),
            Text(sentence(step.then), style="" if step.state in ("done", "passed") else "yellow"),
        )
    console = Terminal()
    console.print(cell(steps[0].trace_id, "bold"))
    console.print(table)


def _duration(microseconds: int) -> str:
    if microseconds <= 0:
        return ""
    if microseconds < 1_000_000:
        return f"{microseconds / 1000:.1f} ms"
    seconds = microseconds / 1_000_000
    return f"{seconds:.2f} s" if seconds < 120 else f"{seconds / 60:.0f} min"

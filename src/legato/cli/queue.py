"""`legato queue` and `legato queues`: list, create, inspect, purge, move, pause, delete, export and import queues."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Annotated, Literal

import typer

from legato.cli.administration import NameArgument, PatternArgument, list_nodes, not_empty, purge_node, show, tell
from legato.cli.commands import Commands
from legato.cli.confirmation import DryRunOption, YesOption, confirm, confirm_on_terminal, messages
from legato.cli.endings import undone_if_ended
from legato.cli.management import node, request
from legato.cli.options import URL_DEFAULT, JsonOption, UrlOption, a_text
from legato.errors import ConfigError, JMSError
from legato.quoting import quoted

app = Commands(
    name="queue",
    help="Create, inspect, empty, move, pause, delete, export and import queues.",
)


@app.command("list")
def queues(match: PatternArgument = "", as_json: JsonOption = False, url: UrlOption = URL_DEFAULT) -> None:
    """List queues with their depth, the age of the oldest message, consumers and rates.

    Examples: legato queues; legato queues 'orders.#' --json
    """
    list_nodes(url, "queue", match, as_json=as_json)


@app.command("show")
def show_queue(name: NameArgument, as_json: JsonOption = False, url: UrlOption = URL_DEFAULT) -> None:
    """Show a queue and its settings.

    Example: legato queue show orders
    """
    show(node(url, "queue", name, changes=False), as_json=as_json)


@app.command("create")
def create(name: NameArgument, url: UrlOption = URL_DEFAULT) -> None:
    """Create a queue; does nothing if there is one.

    Example: legato queue create orders
    """
    request(url, "create", "queue", name)
    tell(f"queue {name} is there")


@app.command("delete")
def delete(
    name: NameArgument, yes: YesOption = False, dry_run: DryRunOption = False, url: UrlOption = URL_DEFAULT
) -> None:
    """Delete a queue and all messages in it. Its producers and consumers are disconnected from it.

    Example: legato queue delete orders --dry-run
    """
    found = node(url, "queue", name)
    if confirm(f"delete queue {name} and the {messages(found['depth'])} in it", yes=yes, dry_run=dry_run):
        gone = request(url, "delete", "queue", name)
        tell(f"deleted queue {name} and {messages(gone['messages'])}")


@app.command("purge")
def purge(
    name: NameArgument, yes: YesOption = False, dry_run: DryRunOption = False, url: UrlOption = URL_DEFAULT
) -> None:
    """Drop the waiting messages of a queue. Messages that a consumer holds stay.

    Example: legato queue purge DLQ.orders --yes
    """
    purge_node(url, "queue", name, yes=yes, dry_run=dry_run)


@app.command("move")
def move(
    name: NameArgument,
    to: Annotated[
        str,
        typer.Argument(
            metavar="TO", help="Where to: a queue, or topic://NAME.", show_default=False, callback=not_empty
        ),
    ],
    selector: Annotated[
        str,
        typer.Option(
            "--selector",
            help="Only messages that match this selector.",
            metavar="SELECTOR",
            show_default=False,
            callback=a_text,
        ),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", help="At most N messages; 0: all.", min=0)] = 0,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """Move waiting messages to another address, oldest first. Their delivery counts begin at 0 again.

    On a terminal it asks first. Example: legato queue move DLQ.orders orders --selector "customer = 'ann'" --limit 10
    """

    found = node(url, "queue", name)

    def what() -> str:
        _refuse_impossible_move(url, name, to, selector)
        of_them = f"{messages(found['depth'])} of queue {name} to {to}"
        if limit:
            of_them = f"at most {limit:,} of the {of_them}"
        return f"move {of_them}" + (f", of those only what matches {selector}" if selector else "")

    if not confirm_on_terminal(what, yes=yes, dry_run=dry_run):
        return
    moved = request(url, "move", "queue", name, to=to, selector=selector, limit=limit)["moved"]
    tell(f"moved {messages(moved)} from {name} to {to}")


def _refuse_impossible_move(url: str, name: str, to: str, selector: str) -> None:
    """Refuse what the broker would: a trial run must not promise it.

    Raises:
        JMSError: the selector is none, or there is nothing to move to.
    """
    from legato.selectors.selector import compile_selector

    if selector.strip():
        compile_selector(selector)
    if to == name:
        raise JMSError("A queue's messages cannot be moved to itself.")
    if to.startswith(("subscription://", "volatile://")):
        request(url, "read", "subscription", to)


@app.command("pause")
def pause(name: NameArgument, url: UrlOption = URL_DEFAULT) -> None:
    """Stop deliveries from a queue until it is resumed, also over restarts. Producers can still send to it.

    Example: legato queue pause orders
    """
    node(url, "queue", name)
    request(url, "pause", "queue", name)
    tell(f"queue {name} is paused")


@app.command("resume")
def resume(name: NameArgument, url: UrlOption = URL_DEFAULT) -> None:
    """Resume deliveries from a paused queue.

    Example: legato queue resume orders
    """
    node(url, "queue", name)
    request(url, "resume", "queue", name)
    tell(f"queue {name} goes on")


FileFormat = Annotated[
    Literal["arrow", "json"] | None,
    typer.Option("--format", help="Default: by the name: .arrow, or .jsonl for JSON lines.", show_default=False),
]


@app.command("export")
def export(
    name: NameArgument,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="A new file: .arrow, or .jsonl for JSON lines.", show_default=False)
    ],
    selector: Annotated[
        str,
        typer.Option(
            "--selector",
            help="Only messages that match this selector.",
            metavar="SELECTOR",
            show_default=False,
            callback=a_text,
        ),
    ] = "",
    file_format: FileFormat = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the file if there is one.")] = False,
    dry_run: DryRunOption = False,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """Write copies of a queue's waiting messages into a file: headers, properties and bodies with their types.

    The messages stay in the queue. Those that consumers hold and those delivered later are not in the file. It gets its
    name when all of it is there. Example: legato queue export orders orders.jsonl
    """
    from legato.cli.output import replaceable
    from legato.cli.queue_files import format_of
    from legato.cli.queue_transfer import export_queue

    form = format_of(file, file_format)
    if replaceable(file).exists() and not overwrite and not dry_run:
        raise ConfigError(f"{file} exists already: choose another name, or add --overwrite.")
    with undone_if_ended():
        count = export_queue(url, name, file, form, selector, dry_run=dry_run)
    tell(f"would export {messages(count)} of {quoted(name)}" if dry_run else f"exported {messages(count)} to {file}")


@app.command("import")
def import_(
    name: NameArgument,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A file of `legato queue export`, or lines of JSON.", show_default=False),
    ],
    file_format: FileFormat = None,
    again: Annotated[
        bool, typer.Option("--again", help="Store the messages once more, though this file was imported before.")
    ] = False,
    dry_run: DryRunOption = False,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """Send the messages of a file to a queue, each exactly once, however often the command is killed and repeated.

    The queue legato.imports keeps how far the import of each file is. The messages get new ids and times of sending.

    Examples: legato queue import orders orders.jsonl; echo '{"body": "tea", "properties": {"pounds": 1}}' > tea.jsonl
    """
    from legato.cli.queue_files import format_of
    from legato.cli.queue_transfer import check_file, check_group, import_id_of, import_queue, imported_before

    total = check_file(file, file_format)
    form = format_of(file, file_format)
    check_group(url, name)
    import_id = import_id_of(file, name, str(uuid.uuid4()) if again else "")
    if dry_run:
        before = 0 if again else imported_before(url, import_id)
        tell(f"would import {messages(total - before)} to {quoted(name)}; {before:,} were imported before")
        return
    done = import_queue(url, name, file, form, total, import_id)
    tell(f"imported {messages(done.stored)} to {quoted(name)}")
    for count, what in (
        (done.before, "imported before"),
        (done.expired, "not stored: time to live over"),
        (done.duplicates, "not stored: duplicate id remembered by the queue"),
    ):
        if count:
            tell(f"{messages(count)} {'was' if count == 1 else 'were'} {what}")

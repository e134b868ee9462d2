"""`legato queue` and `legato queues`: list, create, inspect, purge, move, pause and delete queues."""

from __future__ import annotations

from typing import Annotated

import typer

from legato.cli.administration import NameArgument, PatternArgument, list_nodes, purge_node, show, tell
from legato.cli.confirmation import DryRunOption, YesOption, confirm, messages
from legato.cli.management import request
from legato.cli.options import URL_DEFAULT, JsonOption, UrlOption

app = typer.Typer(
    name="queue",
    help="Create, inspect, empty, move, pause and delete queues.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command("list")
def queues(match: PatternArgument = "", as_json: JsonOption = False, url: UrlOption = URL_DEFAULT) -> None:
    """List queues with their depth, the age of the oldest message, receivers and rates.

    Examples: legato queues; legato queues 'orders.#' --json
    """
    list_nodes(url, "queue", match, as_json=as_json)


@app.command("show")
def show_queue(name: NameArgument, as_json: JsonOption = False, url: UrlOption = URL_DEFAULT) -> None:
    """Show a queue and its settings.

    Example: legato queue show orders
    """
    show(request(url, "read", "queue", name), as_json=as_json)


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
    found = request(url, "read", "queue", name)
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
    to: Annotated[str, typer.Argument(metavar="TO", help="Where to: a queue, or topic://NAME.", show_default=False)],
    selector: Annotated[
        str,
        typer.Option(
            "--selector", help="Only messages that match this selector.", metavar="SELECTOR", show_default=False
        ),
    ] = "",
    limit: Annotated[int, typer.Option("--limit", help="At most N messages; 0: all.", min=0)] = 0,
    url: UrlOption = URL_DEFAULT,
) -> None:
    """Move waiting messages to another address, oldest first. Their delivery counts begin at 0 again.

    Example: legato queue move DLQ.orders orders --selector "customer = 'ann'" --limit 10
    """
    moved = request(url, "move", "queue", name, to=to, selector=selector, limit=limit)["moved"]
    tell(f"moved {messages(moved)} from {name} to {to}")


@app.command("pause")
def pause(name: NameArgument, url: UrlOption = URL_DEFAULT) -> None:
    """Stop deliveries from a queue until it is resumed, also over restarts. Producers can still send to it.

    Example: legato queue pause orders
    """
    request(url, "pause", "queue", name)
    tell(f"queue {name} is paused")


@app.command("resume")
def resume(name: NameArgument, url: UrlOption = URL_DEFAULT) -> None:
    """Resume deliveries from a paused queue.

    Example: legato queue resume orders
    """
    request(url, "resume", "queue", name)
    tell(f"queue {name} goes on")

"""Arguments and output shared by the commands for queues, topics and subscriptions."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from legato.cli.confirmation import confirm, messages
from legato.cli.management import node, request, rows
from legato.cli.options import a_text
from legato.cli.output import say, say_json
from legato.quoting import quoted


def not_empty(name: str) -> str:
    """The name that was given: an empty one, as of a variable of the shell that is not set, names nothing.

    Raises:
        typer.BadParameter: it is empty, or no text in UTF-8.
    """
    if not name:
        raise typer.BadParameter("it is empty")
    return a_text(name)


NameArgument = Annotated[
    str,
    typer.Argument(metavar="NAME", help="Its name, as lists show it.", show_default=False, callback=not_empty),
]
PatternArgument = Annotated[
    str,
    typer.Argument(
        metavar="[PATTERN]",
        help="Only names that match: * is one word, # is any number of words.",
        show_default=False,
        callback=a_text,
    ),
]


def list_nodes(url: str, type: str, match: str, *, as_json: bool) -> None:
    """Print all nodes of a type, by name."""
    found = sorted(rows(url, type, match), key=lambda row: str(row["name"]))
    if as_json:
        say_json(found)
        return
    from legato.cli.rendering import QUEUE_COLUMNS, print_nodes

    columns = {
        "queue": {"name": "name"} | QUEUE_COLUMNS,
        "topic": {"name": "name", "subscriptions": "subscriptions", "bytes": "size", "temporary": "temporary"},
        "subscription": {"name": "name", "address": "topic"} | QUEUE_COLUMNS,
    }
    if not found:
        say(f"nothing matches {match}; * is a whole word" if match else f"there are no {type}s")
        return
    print_nodes(columns[type], found)


def show(told: dict[str, Any], *, as_json: bool) -> None:
    """Print one node, a line for each thing that is known of it."""
    if as_json:
        say_json(told)
        return
    settings = told.pop("settings", {})
    width = max(len(key) for key in (*told, *settings))
    for key, value in told.items():
        say(f"{key:{width}}  {_plain(value)}")
    say("settings", dim=True)
    for key, value in settings.items():
        say(f"{key:{width}}  {_plain(value)}")


def purge_node(url: str, type: str, name: str, *, yes: bool, dry_run: bool) -> None:
    """Drop what waits in a queue or subscription, if that is really wanted."""
    found = node(url, type, name)
    waiting = found["depth"] - found["in_flight"]
    if confirm(f"drop {messages(waiting)} of {name}", yes=yes, dry_run=dry_run):
        tell(f"dropped {messages(request(url, 'purge', type, name)['purged'])} of {name}")


def tell(sentence: str) -> None:
    """Print the result of an operation."""
    say(sentence)


def _plain(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(quoted(item) for item in value) or "none"
    if value is None or value == "":
        return "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else quoted(value)

"""Arguments and output shared by the commands for queues, topics and subscriptions."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from legato.cli.management import rows

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The name.", show_default=False)]
PatternArgument = Annotated[
    str,
    typer.Argument(
        metavar="[PATTERN]", help="Only names that match: * is one word, # is any number of words.", show_default=False
    ),
]
_MOVING = {
    "depth": "depth",
    "bytes": "size",
    "in_flight": "in\nflight",
    "consumers": "recei-\nvers",
    "head_age_s": "oldest",
    "stored_per_s": "in/s",
    "acknowledged_per_s": "out/s",
}
_COLUMNS = {
    "queue": {"name": "name"} | _MOVING,
    "topic": {"name": "name", "subscriptions": "subscriptions", "bytes": "size", "temporary": "temporary"},
    "subscription": {"name": "name", "address": "topic"} | _MOVING,
}
"""What is shown of a node, and under which heading."""


def list_nodes(url: str, type: str, match: str, *, as_json: bool) -> None:
    """Print all nodes of a type, by name."""
    found = sorted(rows(url, type, match), key=lambda row: str(row["name"]))
    if as_json:
        typer.echo(json.dumps(found))
        return
    from legato.cli.rendering import print_nodes

    print_nodes(_COLUMNS[type], found)


def show(told: dict[str, Any], *, as_json: bool) -> None:
    """Print one node, a line for each thing that is known of it."""
    if as_json:
        typer.echo(json.dumps(told))
        return
    settings = told.pop("settings", {})
    width = max(len(key) for key in (*told, *settings))
    for key, value in told.items():
        typer.echo(f"{key:{width}}  {_plain(value)}")
    typer.secho("settings", dim=True)
    for key, value in settings.items():
        typer.echo(f"{key:{width}}  {_plain(value)}")


def tell(sentence: str) -> None:
    """Print the result of an operation."""
    typer.echo(sentence)


def _plain(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(str(item) for item in value) or "none"
    if value is None or value == "":
        return "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)

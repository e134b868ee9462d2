"""`legato connections`: who is connected to the primary."""

from __future__ import annotations

import json
from typing import Any

import typer

from legato.cli.management import rows
from legato.cli.options import URL_DEFAULT, JsonOption, UrlOption


def connections(as_json: JsonOption = False, url: UrlOption = URL_DEFAULT) -> None:
    """List connections: who they are, where from and since when, and how many consumers and producers each has.

    Example: legato connections --json
    """
    found = sorted(rows(url, "connection"), key=lambda row: (row["user"], row["client_id"], row["since_us"]))
    if as_json:
        typer.echo(json.dumps(found))
        return
    from legato.cli.rendering import clock_time

    for row in found:
        typer.echo(f"{row['client_id']}  {_who(row)}")
        typer.echo(
            f"  {row['address']}, since {clock_time(row['since_us'])}: "
            f"{row['consumers']} consumers, {row['producers']} producers"
        )


def _who(row: dict[str, Any]) -> str:
    """User, host, process and product, as far as they are known."""
    words = [
        row["user"],
        row["hostname"] and f"host {row['hostname']}",
        row["pid"] and f"process {row['pid']}",
        f"{row['product']} {row['version']}".strip(),
    ]
    return ", ".join(str(word) for word in words if word)

"""`legato connections`: who is connected to the primary."""

from __future__ import annotations

from typing import Any
from urllib.parse import unquote

from legato.cli.management import rows
from legato.cli.options import URL_DEFAULT, JsonOption, UrlOption
from legato.cli.output import say, say_json
from legato.quoting import quoted
from legato.sizes import counted


def connections(as_json: JsonOption = False, url: UrlOption = URL_DEFAULT) -> None:
    """List connections: who they are, where from and since when, and how many consumers and producers each has.

    Example: legato connections --json
    """
    found = sorted(rows(url, "connection"), key=lambda row: (row["user"], row["client_id"], row["since_us"]))
    if as_json:
        say_json(found)
        return
    from legato.cli.rendering import clock_time

    for row in found:
        say(f"{quoted(_client(row))}  {_who(row)}")
        say(
            f"  {quoted(row['address'])}, since {clock_time(row['since_us'])}: "
            f"{counted(row['consumers'], 'consumer')}, {counted(row['producers'], 'producer')}"
        )


def _client(row: dict[str, Any]) -> str:
    """The client id, in which the name of a user is spelt as it is."""
    user, slash, name = row["client_id"].partition("/")
    return f"{row['user']}/{name}" if slash and unquote(user) == row["user"] else row["client_id"]


def _who(row: dict[str, Any]) -> str:
    """User, host, process and product, as far as they are known."""
    words = [
        row["user"] and quoted(row["user"]),
        row["hostname"] and f"host {quoted(row['hostname'])}",
        row["pid"] and f"process {row['pid']}",
        " ".join(quoted(word) for word in (row["product"], row["version"]) if word),
    ]
    return ", ".join(word for word in words if word)

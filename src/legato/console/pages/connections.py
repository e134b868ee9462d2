"""Connections: who is connected, from where, since when, and with what."""

from __future__ import annotations

from typing import Any

from legato.console.view import Asked, View, sliced

ROWS = 100
SHOWN = ("client_id", "user", "hostname", "address", "product")


def show(asked: Asked) -> dict[str, Any]:
    """All connections by user and client id, in pages."""
    rows = asked.rows("connection")
    match = asked.text("match").lower()
    found = [row for row in rows if not match or any(match in str(row[name]).lower() for name in SHOWN)]
    found.sort(key=lambda row: (row["user"], row["client_id"], row["since_us"]))
    return {
        "match": asked.text("match"),
        "total": len(rows),
        "slow": sum(row["slow_consumers"] for row in rows),
        "slice": sliced(found, asked.number("page", 1), ROWS),
    }


VIEWS = (View("/connections", "Connections", "_connections.html", show, "connections.html"),)

"""How messages and a broker's status look on a terminal and as JSON."""

import base64
import json
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from legato.client import Message


def as_line(message: Message, *, as_json: bool) -> str:
    """A message on one line: its body alone, or everything as JSON."""
    return json.dumps(as_object(message)) if as_json else body_text(message.body)


def as_object(message: Message) -> dict[str, Any]:
    """A message as a JSON object; a bytes body that is not UTF-8 becomes base64 under `body_base64`."""
    result: dict[str, Any] = {
        "message_id": message.message_id,
        "timestamp": _time(message.timestamp),
        "redelivered": message.redelivered,
        "delivery_count": message.delivery_count,
        "priority": message.priority,
    }
    if message.correlation_id is not None:
        result["correlation_id"] = _plain(message.correlation_id)
    if message.properties:
        result["properties"] = {name: _plain(value) for name, value in message.properties.items()}
    body = message.body
    if isinstance(body, bytes):
        try:
            result["body"] = body.decode()
        except UnicodeDecodeError:
            result["body_base64"] = base64.b64encode(body).decode()
    else:
        result["body"] = _plain(body)
    return result


def body_text(body: object) -> str:
    """A body as a line of text; bytes that are not UTF-8 are shown as Python writes them."""
    if isinstance(body, bytes):
        try:
            text = body.decode()
        except UnicodeDecodeError:
            text = repr(body)
    else:
        text = "" if body is None else str(body)
    return text.replace("\n", "\\n")


def _plain(value: object) -> Any:
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value) if isinstance(value, bytes) else str(value)


def _time(milliseconds: int) -> str | None:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat() if milliseconds else None


def print_status(answer: dict[str, Any]) -> None:
    """A broker's status as tables: itself, its queues, and the members of its store if they are known."""
    console = Console()
    if "epoch" in answer:
        console.print(
            f"{answer['role']} [bold]{answer['container_id']}[/], epoch {answer['epoch']}, "
            f"{answer['connections']} connections, store {answer['store_used_bytes'] / 2**20:,.1f} MiB",
            highlight=False,
        )
        if answer.get("producers_refused"):
            console.print(f"Producers are refused: {answer['producers_refused']}", style="red", highlight=False)
        console.print(_table(("name", "depth", "in_flight", "consumers", "stored", "consumed"), answer["queues"]))
        if answer.get("topics"):
            console.print(_table(("name", "subscriptions"), answer["topics"]))
        if answer.get("more"):
            console.print("There are more: legato queues shows all.", style="dim")
    members = answer.get("members")
    if members:
        console.print(_table(tuple(members[0]), members))


def print_table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
    """Rows of one kind as a table."""
    Console().print(_table(columns, rows))


def _table(columns: tuple[str, ...], rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, padding=(0, 2), header_style="dim")
    for column in columns:
        heading = column.removesuffix("_s").replace("_per", "/s").replace("_", " ")
        table.add_column(heading, justify="left" if column in ("name", "address") else "right", overflow="fold")
    for row in rows:
        table.add_row(*(_cell(row[column]) for column in columns))
    return table


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else str(value)

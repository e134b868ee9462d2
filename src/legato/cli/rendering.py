"""Rendering of messages and of a broker's status for the terminal and as JSON."""

import base64
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from textwrap import wrap
from typing import Any

from rich.table import Table

from legato.cli.output import say, say_json
from legato.client import Message
from legato.quoting import WORD_CHARACTERS_MAX, escaped, quoted, sentence
from legato.sizes import size, sizes_apart
from legato.terminal import Terminal, add_row

_NUMBER_AND_UNIT = re.compile(r"(\d) (B|[KMGT]iB|ms|s|min|h|d|UTC)\b")
_KEPT = "\ue000"
"""In the place of a space that stays one while a text is wrapped."""


def say_message(message: Message, *, as_json: bool) -> None:
    """Print a message on one line: its body alone, in which nothing is obeyed by a terminal, or all of it, exactly, as
    JSON."""
    if as_json:
        say_json(as_object(message))
    else:
        say(body_text(message.body))


def as_object(message: Message) -> dict[str, Any]:
    """A message as a JSON object; a bytes body that is not UTF-8 becomes base64 under `body_base64`."""
    result: dict[str, Any] = {
        "message_id": message.message_id,
        "timestamp": time_text(message.timestamp),
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


def time_text(milliseconds: int, timespec: str = "auto") -> str | None:
    """A time since 1970 in ISO 8601; None for 0, and the number itself for a time that no calendar has."""
    if not milliseconds:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec=timespec)
    except (ValueError, OverflowError, OSError):
        return str(milliseconds)


def print_status(answer: dict[str, Any]) -> None:
    """A broker's status in sentences, its queues and topics as tables, and the members of its store if they are known.

    Nothing is wider than the terminal, or than 80 columns if there is none.
    """
    console = Terminal()

    def say(sentence: str, style: str = "") -> None:
        console.print(_wrapped(sentence, console.width), style=style)

    if "epoch" in answer:
        for sentence in broker_lines(answer):
            say(sentence)
        if "failover" in answer:
            for line in failover_lines(answer["failover"], answer["since_us"], answer.get("replication")):
                say(line, "dim")
        for line, style in replication_lines(answer.get("replication")):
            say(line, style)
        for line in group_lines(answer.get("group"), answer.get("queues", ())):
            say(line, "dim" if line.startswith("group") else "yellow")
        if answer.get("producers_refused"):
            say(f"Producers are refused: {answer['producers_refused']}.", "red")
        if slow := answer.get("slow_consumers"):
            who = "1 consumer is" if slow == 1 else f"{slow:,} consumers are"
            say(f"{who} slow while messages wait: legato connections --json shows whose.", "yellow")
        for line in memory_lines(answer.get("memory") or {}):
            say(line, "yellow")
        for line in reader_lines(answer.get("long_readers", [])):
            say(line, "yellow")
        if answer["queues"]:
            say("")
            print_nodes({"name": "queue"} | QUEUE_COLUMNS, answer["queues"])
        if answer.get("topics"):
            say("")
            print_nodes({"name": "topic", "subscriptions": "subscriptions"}, answer["topics"])
        if answer.get("more"):
            say("There are more: legato queues shows all.", "dim")
    members = answer.get("members")
    known = {each["listen"] for each in members or ()} if not answer.get("replication") else None
    if "epoch" in answer and members is not None and known is not None and answer.get("listen") not in known:
        # One that finds no room for its record on a full disk is not among them either.
        say("")
        say(
            f"The broker above, at {quoted(answer['listen'])}, is no process of this store: it seems to serve another "
            "one. --url or LEGATO_URL named it.",
            "yellow",
        )
    if members is not None and not members:
        say("No process uses this store.")
    if members:
        if "epoch" in answer:
            say("")
        say("Processes of this store:")
        for member in members:
            say(f"  {member_line(member)}")
            for line in trouble_lines(member):
                say(f"    {line}", "red")


def _wrapped(text: str, columns: int) -> str:
    """A sentence on lines, none of which ends between a number and its unit."""
    if len(text) <= columns:
        return text
    kept = _NUMBER_AND_UNIT.sub(rf"\1{_KEPT}\2", text)
    lines = wrap(kept, columns, break_on_hyphens=False, break_long_words=False)
    return "\n".join(lines).replace(_KEPT, " ")


def broker_lines(answer: dict[str, Any]) -> list[str]:
    """What a broker is, who is connected, and how much room it has, in sentences."""
    room = max(min(answer["store_capacity_bytes"] - answer["store_used_bytes"], answer["free_disk_bytes"]), 0)
    return [
        f"{quoted(answer['container_id'])} is the {answer['role']} at {quoted(answer['listen'])}, "
        f"in epoch {answer['epoch']}.",
        f"{_clients(answer['connections'])} "
        f"The store uses {size(answer['store_used_bytes'])}, and has room for {size(room)} more.",
    ]


def _clients(connections: int) -> str:
    if connections <= 1:
        return "No client is connected but this command."
    return f"{connections:,} clients are connected, this command and backups included."


def memory_lines(memory: dict[str, Any]) -> list[str]:
    """That connections hold too much memory, and that limits were reached."""
    lines = []
    if stopped := memory.get("stopped"):
        held, mark = sizes_apart(memory["used_bytes"], memory["mark_bytes"])
        who = "1 connection is" if stopped == 1 else f"{stopped:,} connections are"
        lines.append(f"Connections hold {held} in memory; limits.memory is {mark}: {who} not read from.")
    if refusals := memory.get("refusals"):
        times = "once" if refusals == 1 else f"{refusals:,} times"
        lines.append(f"Limits of users, addresses or all were reached {times}; the log says which.")
    return lines


def member_line(member: dict[str, Any]) -> str:
    """A process of a store, in a line."""
    # That of a backup is the last one in which it was the primary, as if it were behind the one that serves.
    epoch = f", epoch {member['epoch']:,}" if member["epoch"] and member["role"] != "backup" else ""
    since = clock_time(member["since_us"])
    stopped = "; it is stopped: continue it (SIGCONT) or end it" if member.get("stopped") else ""
    return f"{member['role']}: process {member['pid']} at {quoted(member['listen'])}{epoch}, since {since}{stopped}"


def _with_full_stop(text: str) -> str:
    """A sentence that another one may have ended already."""
    return text.removesuffix(".") + "."


def trouble_lines(member: dict[str, Any]) -> list[str]:
    """Why the replica of a process waits, in lines."""
    if not member.get("trouble"):
        return []
    since = clock_time(member["trouble_since_us"])
    return [f"It waits since {since}, and goes on trying: {sentence(said)}." for said in member["trouble"]]


def clock_time(time_us: int) -> str:
    """A time of today without its date, another one with it; UTC."""
    time = datetime.fromtimestamp(time_us / 1e6, UTC)
    return time.strftime("%H:%M:%S UTC" if time.date() == datetime.now(UTC).date() else "%Y-%m-%d %H:%M:%S UTC")


def replication_lines(replication: dict[str, Any] | None) -> list[tuple[str, str]]:
    """The replicated log in sentences, each with a style."""
    if replication is None:
        return []
    servers = replication["servers"]
    current = sum(each["current"] for each in servers)
    leader = next((quoted(each["server"]) for each in servers if each["leads"]), "nobody")
    looked_s = replication.get("looked_s")
    looked = f" (asked {age(looked_s)} ago)" if looked_s is not None and round(looked_s) else ""
    lines = [
        (
            f"Replicated: group {quoted(replication['group'])}, record {replication['sequence']:,} of the log; "
            f"{current} of {len(servers)} log servers are current{looked}, {leader} leads; the log keeps "
            f"{size(replication['log_bytes'])}.",
            "dim",
        )
    ]
    if replication["quorum"] is False:
        lines.append(("The log has no quorum: nothing is confirmed until most of its servers are back.", "red"))
    if not replication["sure"]:
        lines.append(
            (
                f"The log has not answered for {replication['lease_ms']} ms: answers are held back until it does.",
                "red",
            )
        )
    if unsynced := [quoted(each["server"]) for each in servers if each["synced"] is False]:
        lines.append((f"{', '.join(unsynced)} confirms before it writes to disk: a power cut loses messages.", "red"))
    lines += [(_with_full_stop(f"The log: {said}"), "yellow") for said in replication["trouble"]]
    lines += [backup_line(each) for each in replication.get("backups", ())]
    return lines


def backup_line(backup: dict[str, Any]) -> tuple[str, str]:
    """Another broker of a group in a sentence, with a style."""
    lacks = "1 record" if backup["behind"] == 1 else f"{backup['behind']:,} records"
    behind = "has all records" if not backup["behind"] else f"is {lacks} behind"
    line = f"The backup at {quoted(backup['listen'])} (Legato {quoted(backup['version'])}) {behind}"
    if backup["away"]:
        line += f" and was last heard {age(backup['heard_s'])} ago"
    if not backup["trouble"]:
        return f"{line}.", "dim"
    return _with_full_stop(f"{line}: {sentence(backup['trouble'])}"), "yellow"


def group_lines(group: dict[str, Any] | None, queues: Iterable[dict[str, Any]] = ()) -> list[str]:
    """The group of a broker, and queues whose messages wait where nobody is sent to any more.

    Args:
        queues: those that are here; of subscriptions with their topics, which the map has.
    """
    if not group:
        return []
    addresses = {queue["name"]: queue.get("address") or queue["name"] for queue in queues}
    found = [f"group {group['name']}, 1 of {group['groups']:,}; revision {group['revision']:,} of the map"]
    found += [
        f"Messages wait in {quoted(queue)}, which is the group {owner}'s by the map: pin "
        f"{quoted(addresses[queue]) if addresses.get(queue, queue) != queue else 'it'} here until it is empty."
        for queue, owner in group["stranded"].items()
    ]
    if group["groups"] > 1 and not group.get("all_looked_at", True):
        found.append(
            "Of queues that are not shown here it was not looked at whether messages wait in them that are another "
            "group's by the map: legato queues shows all, and legato group where MAP ADDRESS... whose they are."
        )
    if group.get("trouble"):
        found.append(_with_full_stop(f"The map of groups in the log: {sentence(group['trouble'])}"))
    return found


def reader_lines(readers: list[dict[str, Any]]) -> list[str]:
    """Sentences about readers that keep the store's file from reusing its free pages."""
    return [
        f"Process {reader['pid']}{_called(reader)} has been reading the store since {clock_time(reader['since_us'])} "
        f"and keeps deleted messages in its file, which has grown by {size(reader['grown_bytes'])} since: "
        f"{'continue it (SIGCONT) or end it' if reader['stopped'] else 'let it finish, or end it'}."
        for reader in readers
    ]


def _called(reader: dict[str, Any]) -> str:
    words = [
        word
        for word in (escaped(reader["command"], WORD_CHARACTERS_MAX), "stopped" if reader["stopped"] else "")
        if word
    ]
    return f" ({', '.join(words)})" if words else ""


QUEUE_COLUMNS = {
    "depth": "depth",
    "bytes": "size",
    "in_flight": "in flight",
    "consumers": "consumers",
    "head_age_s": "oldest",
    "stored_per_s": "in/s",
    "acknowledged_per_s": "out/s",
}
"""What is shown of a queue or subscription, and under which heading."""


def print_nodes(columns: Mapping[str, str], rows: list[dict[str, Any]]) -> None:
    """Queues, topics or subscriptions as a table.

    Args:
        columns: the headings of what is shown of each.
    """
    console = Terminal()
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="dim")
    for column, heading in columns.items():
        textual = column in ("name", "address")
        table.add_column(
            heading, justify="left" if textual else "right", no_wrap=not textual, overflow="fold" if textual else "crop"
        )
    for row in rows:
        cells = [_shown(column, row[column]) for column in columns]
        if row.get("paused"):
            cells[0] += " (paused)"
        add_row(table, *cells)
    console.print(table)
    for row in rows:
        if row.get("damaged"):
            say(f"The {sentence(row['damaged'])}.", fg="red")


def _shown(column: str, value: Any) -> str:
    if column == "bytes":
        return size(value)
    if column == "head_age_s":
        return "" if value is None else age(value)
    if isinstance(value, float):
        return f"{value:,.0f}" if value else ""
    return _cell(value)


def age(seconds: float) -> str:
    """A time in the unit that makes it short."""
    for limit, divisor, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / divisor:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else ""
    if isinstance(value, int):
        return f"{value:,}"
    return "" if value is None else quoted(value)


_CAUSES = {
    "start": "started",
    "crash": "the last primary failed",
    "switchover": "planned switchover",
    "shutdown": "the last primary was stopped",
    "lapsed": "the last primary fenced itself",
    "lost": "the last primary lost the lock",
    "returned": "nobody else could serve",
}


def failover_lines(failover: dict[str, Any], since_us: int, replication: dict[str, Any] | None = None) -> list[str]:
    """The last takeover and what to expect of the next, in sentences.

    Args:
        since_us: when it began to serve.
        replication: of brokers with a replicated log.
    """
    cause = _CAUSES.get(failover["cause"], failover["cause"])
    noticed = f"noticed after {failover['detection_ms']:.0f} ms, " if failover["cause"] == "crash" else ""
    lines = [
        f"Primary since {clock_time(since_us)} ({cause}; {noticed}ready after {failover['takeover_ms'] or 0:.0f} ms)."
    ]
    if not failover["backups"]:
        return [*lines, "There is no backup: if this broker dies, nobody serves."]
    takeover_ms, crash_ms = failover["takeover_ms"] or 0, failover["expected_crash_ms"] or 0
    silence_s = f"{failover['silence_noticed_after_s_min']:g} to {failover['silence_noticed_after_s_max']:g} s"
    ended = "runs again or dies" if failover["self_fencing"] else "dies"
    window_s = failover["clients_return_within_ms"] / 1000
    measured = failover["cause"] == "crash"
    at_least = "" if replication is None or measured else "at least "
    return [
        *lines,
        f"Backups: {', '.join(map(quoted, failover['backups']))}.",
        f"Expected interruption, from the last {'takeover' if measured else 'start or takeover'}: {at_least}"
        f"{crash_ms:.0f} ms after a crash, {failover['expected_switchover_ms'] or 0:.0f} ms at a planned switchover.",
        f"A primary that falls silent is noticed after {silence_s}, and replaced {takeover_ms:.0f} ms after it {ended}."
        if replication is None
        else f"A primary that crashes, falls silent, or whose machine is lost has to be silent for its lease, "
        f"{replication['lease_ms']} ms, before it is replaced; if the log's leader is lost with it, its servers elect "
        "another one first, which takes seconds.",
        f"After a takeover all clients will reconnect within {window_s:g} s, spread over that time."
        if window_s
        else "After a takeover all clients may reconnect immediately.",
    ]

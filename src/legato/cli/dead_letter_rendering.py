"""Rendering of dead letters for the terminal and as JSON."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise, takewhile
from typing import Any

from rich.table import Table
from rich.text import Text

from legato.administration.dead_letters import (
    ELLIPSIS,
    MUTED_AT_MS,
    MUTED_BY,
    MUTED_REASON,
    Letter,
    body_of,
    general,
)
from legato.administration.exact_json import write_json
from legato.cli.output import say, say_json
from legato.cli.rendering import as_object, time_text
from legato.errors import JMSError
from legato.quoting import lines, quoted, sentence
from legato.terminal import Terminal, add_row, cell

ID_CHARS_MIN = 8
ID_END_CHARS_MIN = 4
_WHO = {
    "legato_trace_id": "trace id",
    "legato_flow_id": "flow",
    "legato_stage": "stage",
    "legato_sender": "sent by",
    "legato_service": "service",
    "legato_host": "host",
    "legato_versions": "versions",
    MUTED_REASON: "muted",
    MUTED_BY: "muted by",
    "legato_edited_by": "edited by",
    "legato_edited_from": "edited from",
}


def print_causes(groups: Sequence[tuple[dict[str, Any], Sequence[Letter]]], *, as_json: bool) -> None:
    """Queues of dead letters, and under each what its messages died of, the most frequent first."""
    listed = [
        {"queue": row["name"], "depth": row["depth"], "causes": [_as_cause(same) for same in _by_cause(found)]}
        for row, found in groups
    ]
    if as_json:
        say_json(listed)
        return
    if not listed:
        say("There are no dead letters.")
        return
    console = Terminal()
    for queue in listed:
        console.print(Text.assemble(cell(queue["queue"], "bold"), f"  {queue['depth']:,}"))
        table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
        table.add_column("count", justify="right", min_width=6)
        for column in ("cause", "age", "times", "reason"):
            table.add_column(column, style="dim" if column == "cause" else "", no_wrap=column != "reason")
        for cause in queue["causes"]:
            often = f"reissued {cause['times_max'] - 1}x" if cause["times_max"] > 1 else ""
            reason = sentence(cause["reason"])
            add_row(table, f"{cause['count']:,}", cause["cause"], _age(cause["first_ms"]), often, reason)
        console.print(table)


def _by_cause(found: Sequence[Letter]) -> list[list[Letter]]:
    same: dict[str, list[Letter]] = {}
    for letter in found:
        same.setdefault(letter.cause, []).append(letter)
    return sorted(same.values(), key=len, reverse=True)


def _as_cause(same: Sequence[Letter]) -> dict[str, Any]:
    reasons = {letter.reason for letter in same}
    return {
        "cause": same[0].cause,
        "reason": same[0].summary if len(reasons) == 1 else general(same[0].reason),
        "count": len(same),
        "first_ms": min(letter.dead_since_ms for letter in same),
        "last_ms": max(letter.dead_since_ms for letter in same),
        "times_max": max(letter.times for letter in same),
        "origins": sorted({letter.origin for letter in same}),
        "first_id": same[0].id,
    }


def print_letters(found: Sequence[Letter], *, as_json: bool) -> None:
    """Dead letters, a line each."""
    if as_json:
        for letter in found:
            say_json(as_dict(letter))
        return
    table = Table(box=None, header_style="dim", padding=(0, 2, 0, 0))
    for column in ("id", "since", "attempts", "cause", "trace id", "reason"):
        table.add_column(column, no_wrap=column != "reason", justify="right" if column == "attempts" else "left")
    labels = _labels(found)
    short = _short_ids(labels)
    for letter, label in zip(found, labels, strict=True):
        attempts = letter.properties.get("legato_attempts") or letter.attempts
        age, reason = _age(letter.dead_since_ms), sentence(letter.summary)
        trace_id = quoted(letter.trace_id) if letter.trace_id else ""
        add_row(table, quoted(short[label]), age, quoted(attempts), letter.cause, trace_id, reason)
    Terminal().print(table)


def _labels(found: Sequence[Letter]) -> list[str]:
    """The ids, and the names of those that are copies of one message, or have no id."""
    counts = Counter(letter.id for letter in found)
    return [letter.id if letter.id and counts[letter.id] == 1 else letter.name for letter in found]


def _short_ids(whole_ids: Iterable[str]) -> dict[str, str]:
    """What tells ids apart: their beginnings, or of a producer's, which differ at the end only, that as well."""
    ids = {one: one.removeprefix("ID:") for one in whole_ids}
    same_begins = _same_begins(ids.values())
    same_ends = _same_begins(one[::-1] for one in ids.values())
    short = {}
    for whole, one in ids.items():
        beginning = one[: max(ID_CHARS_MIN, same_begins[one] + 1)]
        ends = max(ID_END_CHARS_MIN, same_ends[one[::-1]] + 1)
        cut = f"{one[:ID_CHARS_MIN]}{ELLIPSIS}{one[-ends:]}"
        short[whole] = min(beginning, cut, key=len)
    return short


def _same_begins(words: Iterable[str]) -> dict[str, int]:
    """With how many letters of each word another one begins as well."""
    known = sorted(set(words))
    same = dict.fromkeys(known, 0)
    for one, other in pairwise(known):
        shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))
        same[one], same[other] = max(same[one], shared), shared
    return same


def print_letter(letter: Letter, *, as_json: bool) -> None:
    """One dead letter, whole."""
    if as_json:
        say_json(as_dict(letter))
        return
    console = Terminal(soft_wrap=True)
    console.print(Text(lines(letter.reason), style="bold red"))
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    attempts = letter.properties.get("legato_attempts") or letter.attempts
    for name, value in (
        ("id", quoted(letter.called)),
        ("came from", quoted(letter.origin or "unknown")),
        ("since", _time(letter.dead_since_ms)),
        ("attempts", quoted(attempts)),
        ("dead letter", "for the first time" if letter.times == 1 else f"{letter.times} times so far"),
        *((label, sentence(letter.properties[key])) for key, label in _WHO.items() if letter.properties.get(key)),
    ):
        add_row(table, name, value)
    if letter.undone:
        add_row(table, "flow", Text("its compensations have begun", style="yellow"))
    console.print(table)
    if letter.history:
        console.print("deliveries", style="dim")
        for attempt in letter.history:
            console.print(f"  {_attempt(attempt)}")
    if letter.stack_trace:
        console.print("stack trace", style="dim")
        console.print(lines(letter.stack_trace))
    console.print("body", style="dim")
    console.print(lines(_body(letter)))


def _attempt(attempt: dict[str, Any]) -> str:
    at_ms = attempt.get("at_ms", 0)
    at = _time(at_ms) if isinstance(at_ms, int) else "?"
    return f"{at}  {sentence(attempt.get('cause', ''))}"


def _body(letter: Letter) -> str:
    try:
        body = body_of(letter.message)
    except JMSError:
        return repr(letter.message.body)
    return body if isinstance(body, str) else write_json(body, indent=2)


def as_dict(letter: Letter) -> dict[str, Any]:
    """A dead letter as JSON has it: the message, and what is known of its death."""
    return {
        "queue": letter.queue,
        "id": letter.id,
        "name": letter.name,
        "cause": letter.cause,
        "reason": letter.reason,
        "stack_trace": letter.stack_trace,
        "origin": letter.origin,
        "times": letter.times,
        "attempts": letter.properties.get("legato_attempts") or letter.attempts,
        "trace_id": letter.trace_id,
        "dead_since_ms": letter.dead_since_ms,
        "muted_at_ms": letter.properties.get(MUTED_AT_MS) or 0,
        "message": as_object(letter.message),
    }


def _age(since_ms: int) -> str:
    if not since_ms:
        return ""
    seconds = max(time.time() - since_ms / 1000, 0.0)
    for limit, size, unit in ((120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def _time(milliseconds: int) -> str:
    return time_text(milliseconds, "milliseconds") or ""

"""The dead-letter workbench: by cause, one by one; edited, sent back at a rate, or muted."""

from __future__ import annotations

import json
import time
from typing import Any

from legato.administration.dead_letter_editor import replace_in
from legato.administration.dead_letters import (
    MUTED_AT_MS,
    MUTED_BY,
    MUTED_REASON,
    STACK_TRACE,
    Letter,
    obstacle,
)
from legato.administration.exact_json import read_json
from legato.administration.letter_names import Identity, name_of, selector_of
from legato.console.dead_letter_index import Entry, Index
from legato.console.jobs import MoveJob
from legato.console.message_view import editable_body, shown_message
from legato.console.rendering import address_of, clock, plural
from legato.console.view import Action, Asked, View, sliced
from legato.core.dead_letters import EXCEPTION, HISTORY
from legato.errors import JMSError
from legato.groups.dead_letters import MUTED_PREFIX

ROWS = 50
INDEX_WAIT_S = 0.25
JOB_WAIT_S = 0.5
"""A few letters are moved before the next page comes."""
CAUSES_SHOWN = 25
EDIT_WAIT_S = 10.0
WHO = {
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


TOLD_APART = (EXCEPTION, HISTORY, STACK_TRACE)
"""Properties that a page shows in a way of their own."""


def is_muted(row: dict[str, Any]) -> bool:
    """Whether a queue holds what was muted."""
    return str(row["name"]).startswith(MUTED_PREFIX)


def letter_queues(asked: Asked, *, muted: bool) -> list[dict[str, Any]]:
    """Queues with dead letters, or with muted ones, the longest first."""
    found = [
        row
        for row in asked.rows("queue")
        if row["depth"] and (is_muted(row) if muted else bool(row.get("dead_letters")))
    ]
    return sorted(found, key=lambda row: (-row["depth"], row["name"]))


def show_causes(asked: Asked) -> dict[str, Any]:
    """Queues, and under each what its messages died of."""
    muted = bool(asked.text("muted"))
    rows = letter_queues(asked, muted=muted)
    listed = []
    until_s = time.monotonic() + INDEX_WAIT_S
    for row in rows:
        index = asked.visit.broker.indexes.of(row["name"])
        index.look(row, max(until_s - time.monotonic(), 0.0))
        causes = index.causes()
        listed.append({"row": row, "index": index, "causes": causes[:CAUSES_SHOWN], "more": len(causes) - CAUSES_SHOWN})
    asked.visit.broker.indexes.keep({row["name"] for row in asked.rows("queue")})
    return {
        "queues": listed,
        "muted": muted,
        "jobs": asked.visit.broker.jobs.all(),
        "total": sum(row["depth"] for row in rows),
        "put_aside": sum(row["depth"] for row in letter_queues(asked, muted=True)),
    }


def index_of(asked: Asked, queue: str, wait_s: float = INDEX_WAIT_S) -> tuple[Index, dict[str, Any]]:
    """The index of a queue, and its row.

    Raises:
        JMSError: there is no such queue.
    """
    row = next((row for row in asked.rows("queue") if row["name"] == queue), None)
    if row is None or not (row.get("dead_letters") or is_muted(row)):
        raise JMSError(f"There is no queue of dead letters with the name {queue}.")
    index = asked.visit.broker.indexes.of(queue)
    index.look(row, wait_s)
    return index, row


def show_queue(asked: Asked, wait_s: float = INDEX_WAIT_S) -> dict[str, Any]:
    """The dead letters of a queue, or those with one cause, in pages."""
    queue, cause = asked.text("queue"), asked.text("cause")
    index, row = index_of(asked, queue, wait_s)
    entries = index.entries(cause)
    causes = index.causes()
    return {
        "queue": queue,
        "cause": next((each for each in causes if each.cause == cause), None) if cause else None,
        "cause_name": cause,
        "causes": causes,
        "index": index,
        "row": row,
        "muted": is_muted(row),
        "slice": sliced(entries, asked.number("page", 1), ROWS),
        "held_back": sum(bool(entry.obstacle) for entry in entries),
        "jobs": [job for job in asked.visit.broker.jobs.all() if job.queue == queue],
    }


def around_queue(asked: Asked) -> dict[str, Any]:
    """The same, for what is not kept up to date: it was waited for already."""
    return show_queue(asked, 0.0)


def show_letter(asked: Asked) -> dict[str, Any]:
    """One dead letter, whole as soon as it is found."""
    queue, name = asked.text("queue"), asked.text("id")
    index, row = index_of(asked, queue)
    entry = index.entry(name)
    letter = index.letter(name)
    if entry is None and letter is None and not index.is_fetching(name) and not index.is_looking:
        raise JMSError(f"{name} is no longer in {queue}.")
    known = letter or entry
    return {
        "queue": queue,
        "id": known.id if known is not None else name,
        "entry": entry,
        "muted": is_muted(row),
        "letter": None if letter is None else describe(letter),
        "is_fetching": index.is_fetching(name),
        "has_ledger": asked.ledger is not None,
    }


def around_letter(asked: Asked) -> dict[str, Any]:
    """What the forms beside a dead letter need; they stay as they are while the rest is kept up to date."""
    queue, name = asked.text("queue"), asked.text("id")
    index, row = index_of(asked, queue, 0.0)
    letter = index.letter(name, 0.0)
    body = editable_body(letter.message) if letter is not None else None
    return {
        "queue": queue,
        "name": letter.name if letter is not None else name,
        "muted": is_muted(row),
        "origin": letter.origin if letter is not None else "",
        "obstacle": obstacle(letter) if letter is not None else "",
        "body": body,
        "found": letter is not None,
    }


def describe(letter: Letter) -> dict[str, Any]:
    """What a page says of a dead letter."""
    attempts = letter.properties.get("legato_attempts") or letter.attempts
    facts = {
        "came from": letter.origin or "unknown",
        "since": clock(letter.dead_since_ms * 1000) if letter.dead_since_ms else "unknown",
        "attempts": str(attempts),
        "dead letter": "for the first time" if letter.times == 1 else f"{letter.times} times so far",
    }
    facts |= {name: str(letter.properties[key]) for key, name in WHO.items() if letter.properties.get(key)}
    if letter.undone:
        facts["its flow"] = "its compensations have begun"
    return {
        "reason": letter.reason,
        "cause": letter.cause,
        "trace_id": letter.trace_id,
        "facts": facts,
        "history": [
            {
                "at": clock(each["at_ms"] * 1000) if isinstance(each.get("at_ms"), int) else "?",
                "cause": str(each.get("cause", "")),
            }
            for each in letter.history
        ],
        "stack_trace": letter.stack_trace,
        "message": shown_message(letter.message, leave_out=TOLD_APART),
    }


# -- what forms do -----------------------------------------------------------------------------------------------


def chosen(asked: Asked, index: Index) -> list[Entry]:
    """The dead letters that a form names: the ticked ones, all with a cause, or all of the queue.

    Raises:
        JMSError: it names none, or the queue has not been looked through yet.
    """
    names = asked.lists.get("id", [])
    if asked.text("scope") == "all" or (not names and asked.text("cause") and asked.text("scope") == "cause"):
        if index.is_looking:
            raise JMSError("The queue is still being looked through: try again when its numbers stand still.")
        found = index.entries(asked.text("cause"))
    else:
        found = [entry for entry in (index.entry(name) for name in names) if entry is not None]
    if not found:
        raise JMSError("Nothing was chosen: tick dead letters, or choose all of them.")
    limit = asked.number("limit", 0, 0)
    return found[:limit] if limit else found


def back_to(asked: Asked) -> str:
    """The page of the queue, or of one cause in it."""
    return address_of("/dead-letters/queue", queue=asked.text("queue"), cause=asked.text("cause"))


def begin(asked: Asked, job: MoveJob) -> str:
    """Start a job; if it is over at once, say what it did."""
    asked.visit.broker.jobs.begin(job)
    job.wait(JOB_WAIT_S)
    if job.is_running:
        asked.visit.say(f"Begun: {plural(job.total, 'dead letter')}. This page shows how far it is.")
    else:
        asked.visit.say(job.sentence, good=not job.error)
    return back_to(asked)


def reissue(asked: Asked) -> str:
    """Send dead letters back to where they came from, or elsewhere."""
    index, _ = index_of(asked, asked.text("queue"), JOB_WAIT_S)
    entries = chosen(asked, index)
    to = asked.text("to")
    forced = bool(asked.text("force"))
    going = [entry for entry in entries if may_go(entry, to, forced)]
    if len(going) < len(entries):
        held = next(entry for entry in entries if not may_go(entry, to, forced))
        asked.visit.say(
            f"{plural(len(entries) - len(going), 'dead letter')} stay: {held.obstacle}, for one.", good=False
        )
    if not going:
        return back_to(asked)
    try:
        per_second = float(asked.text("per_second") or 0)
        if not 0 <= per_second < 1e6:
            raise ValueError
    except ValueError:
        raise JMSError("The rate is a number of messages a second; empty: no limit.") from None
    return begin(asked, MoveJob(asked.link, index, going, "reissued", to=to, per_second=per_second))


def may_go(entry: Entry, to: str, forced: bool) -> bool:
    """Whether a dead letter is sent."""
    if not (to or entry.origin):
        return False
    return forced or not entry.obstacle or (bool(to) and not entry.origin)


def mute(asked: Asked) -> str:
    """Put dead letters aside, with a reason."""
    queue = asked.text("queue")
    reason = asked.text("reason")
    if not reason:
        raise JMSError("Give a reason: others will want to know why nobody needs to look at them.")
    index, _ = index_of(asked, queue, JOB_WAIT_S)
    entries = chosen(asked, index)
    said = {MUTED_REASON: reason, MUTED_BY: who(asked), MUTED_AT_MS: int(time.time() * 1000)}
    job = MoveJob(asked.link, index, entries, "muted", to=MUTED_PREFIX + queue, properties=json.dumps(said))
    return begin(asked, job)


def unmute(asked: Asked) -> str:
    """Put muted dead letters back."""
    queue = asked.text("queue")
    if not queue.startswith(MUTED_PREFIX):
        raise JMSError(f"{queue} has no muted dead letters.")
    index, _ = index_of(asked, queue, JOB_WAIT_S)
    job = MoveJob(
        asked.link,
        index,
        chosen(asked, index),
        "unmuted",
        to=queue.removeprefix(MUTED_PREFIX),
        properties=json.dumps({MUTED_REASON: ""}),
    )
    return begin(asked, job)


def edit(asked: Asked) -> str:
    """Put another body in the place of a dead letter's, and send it back if that is wanted."""
    queue, name = asked.text("queue"), asked.text("id")
    index, _ = index_of(asked, queue, JOB_WAIT_S)
    letter = index.letter(name, EDIT_WAIT_S)
    if letter is None:
        raise JMSError(f"{name} is no longer in {queue}.")
    text = asked.values.get("body", "").replace("\r\n", "\n")
    body: Any = text
    before = editable_body(letter.message)
    if before is None:
        raise JMSError("Its body is no text: it cannot be edited here.")
    was_json = is_json(before)
    if was_json and not is_json(text):
        raise JMSError("Nothing was changed: the body was JSON, and what you wrote is not.")
    if was_json:
        body = read_json(text)
    if text == before:
        asked.visit.say("Nothing was changed: the body is what it was.")
        return address_of("/dead-letters/letter", queue=queue, id=name)
    new_id = replace_in(asked.link.connection(), asked.link.request, letter, body, who(asked))
    asked.visit.say(f"{letter.called} is changed; it is {new_id} now.")
    index.remove([letter.name, name])
    changed = Identity(new_id, letter.origin, letter.sequence)
    if asked.text("reissue"):
        to = asked.text("to") or letter.origin
        if not to:
            raise JMSError("It stays a dead letter: nobody knows where it came from. Name a destination.")
        moved = asked.link.request("move", "queue", queue, to=to, selector=selector_of([changed]), limit=1)["moved"]
        asked.visit.say(f"Sent to {to}." if moved else f"{new_id} was gone already.", good=bool(moved))
        return address_of("/dead-letters/queue", queue=queue)
    return address_of("/dead-letters/letter", queue=queue, id=name_of(changed))


def is_json(text: str) -> bool:
    """Whether a text is JSON."""
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def stop_job(asked: Asked) -> str:
    """Stop a job."""
    job = asked.visit.broker.jobs.find(asked.number("job", 0))
    if job is not None:
        job.stop()
        job.wait(JOB_WAIT_S)
        asked.visit.say(job.sentence)
    return (asked.text("queue") and back_to(asked)) or "/dead-letters"


def who(asked: Asked) -> str:
    """Who did it, for the record."""
    return f"{asked.visit.broker.user or 'somebody'} by the console"


VIEWS = (
    View("/dead-letters", "Dead letters", "_causes.html", show_causes, "causes.html"),
    View("/dead-letters/queue", "Dead letters", "_letters_state.html", show_queue, "letters.html", around=around_queue),
    View("/dead-letters/letter", "Dead letter", "_letter.html", show_letter, "letter.html", around=around_letter),
)
ACTIONS = (
    Action("/dead-letters/reissue", reissue),
    Action("/dead-letters/mute", mute),
    Action("/dead-letters/unmute", unmute),
    Action("/dead-letters/edit", edit, "view"),
    Action("/dead-letters/stop", stop_job),
)

"""Queues, topics and subscriptions: their figures, their first messages, and what an operator does with them."""

from __future__ import annotations

from typing import Any

from legato.administration.letter_names import has_id
from legato.administration.other_groups import refuse_left_behind
from legato.client import Message, Queue
from legato.console.message_view import shown_message, summary
from legato.console.rendering import address_of, plural
from legato.console.view import Action, Asked, View, sliced
from legato.errors import JMSError

ROWS = 50
MESSAGES = 25
KINDS = {"queue": "queues", "topic": "topics", "subscription": "subscriptions"}
SORTS = (
    "name",
    "depth",
    "in_flight",
    "consumers",
    "head_age_s",
    "stored_per_s",
    "acknowledged_per_s",
    "bytes",
    "subscriptions",
)


def show_all(asked: Asked) -> dict[str, Any]:
    """All nodes of a kind, sorted, filtered, in pages."""
    kind = asked.text("kind", "queue")
    kind = kind if kind in KINDS else "queue"
    rows = asked.rows(kind)
    if kind == "queue" and not asked.text("all"):
        rows = [row for row in rows if not row["temporary"]]
    match = asked.text("match")
    found = [row for row in rows if match.lower() in row["name"].lower()] if match else rows
    sort = asked.text("sort")
    if sort not in SORTS or (found and sort not in found[0]):
        sort = "name" if kind == "topic" else "depth"
    descending = asked.text("order", "asc" if sort == "name" else "desc") == "desc"
    # By name within what is equal, so that rows keep their places.
    found = sorted(found, key=lambda row: str(row["name"]))
    found.sort(key=lambda row: row[sort] or (0 if sort != "name" else ""), reverse=descending)
    return {
        "kind": kind,
        "kinds": KINDS,
        "match": match,
        "sort": sort,
        "descending": descending,
        "slice": sliced(found, asked.number("page", 1), ROWS),
        "temporary": sum(row["temporary"] for row in asked.rows(kind)) if kind == "queue" else 0,
        "totals": totals(asked),
    }


def totals(asked: Asked) -> dict[str, Any]:
    """What is said of all queues and subscriptions together."""
    rows = asked.rows("queue") + asked.rows("subscription")
    status = asked.status()
    return {
        "waiting": sum(row["depth"] for row in rows),
        "in_per_s": sum(row["stored_per_s"] for row in rows),
        "out_per_s": sum(row["acknowledged_per_s"] for row in rows),
        "consumers": sum(row["consumers"] for row in rows),
        "dead": sum(row["depth"] for row in rows if row.get("dead_letters")),
        "status": status,
    }


def show_one(asked: Asked) -> dict[str, Any]:
    """One queue, topic or subscription."""
    kind, name = asked.text("kind", "queue"), asked.text("name")
    if kind not in KINDS or not name:
        raise JMSError("Name a queue, topic or subscription.")
    node = asked.link.request("read", kind, name)
    settings = node.pop("settings", {})
    subscriptions = node.pop("subscription_names", [])
    return {"kind": kind, "name": name, "node": node, "settings": settings, "subscriptions": subscriptions}


def around_one(asked: Asked) -> dict[str, Any]:
    """What the forms beside it need."""
    return {"name": asked.text("name"), "kind": asked.text("kind", "queue")}


def show_messages(asked: Asked) -> dict[str, Any]:
    """The first messages of a queue: copies, which stay where they are."""
    name = asked.text("name")
    if not name:
        raise JMSError("Name a queue.")
    found = [summary(message) for message in first_messages(asked, name, asked.text("selector"))]
    return {"name": name, "messages": found, "most": MESSAGES, "selector": asked.text("selector")}


def first_messages(asked: Asked, name: str, selector: str) -> list[Message]:
    """The first few of a queue, and no more of it than that."""
    found: list[Message] = []
    refuse_left_behind(asked.link.request, name)
    with (
        asked.link.connection().create_session() as session,
        session.create_browser(Queue(name), selector) as messages,
    ):
        for message in messages:
            found.append(message)
            if len(found) == MESSAGES:
                break
    return found


def show_message(asked: Asked) -> dict[str, Any]:
    """One message that waits."""
    name, id = asked.text("name"), asked.text("id")
    if not name or not id:
        raise JMSError("Name a queue and a message.")
    refuse_left_behind(asked.link.request, name)
    with (
        asked.link.connection().create_session() as session,
        session.create_browser(Queue(name), has_id(id)) as messages,
    ):
        for message in messages:
            return {"name": name, "message": shown_message(message), "has_ledger": asked.ledger is not None}
    raise JMSError(f"No message with the id {id} waits in {name}.")


# -- what forms do -----------------------------------------------------------------------------------------------


def _here(asked: Asked) -> str:
    return address_of("/queues/one", name=asked.text("name"), kind=asked.text("kind"))


def pause(asked: Asked) -> str:
    """Deliver nothing any more."""
    asked.link.request("pause", asked.text("kind", "queue"), asked.text("name"))
    asked.visit.say(f"{asked.text('name')} is paused: it takes messages and delivers none.")
    return _here(asked)


def resume(asked: Asked) -> str:
    """Deliver again."""
    asked.link.request("resume", asked.text("kind", "queue"), asked.text("name"))
    asked.visit.say(f"{asked.text('name')} delivers again.")
    return _here(asked)


def purge(asked: Asked) -> str:
    """Drop what waits."""
    if not asked.text("sure"):
        raise JMSError("Nothing was dropped: tick the box beside the button to say that it is meant.")
    dropped = asked.link.request("purge", asked.text("kind", "queue"), asked.text("name"))["purged"]
    asked.visit.say(f"Dropped {plural(dropped, 'message')} of {asked.text('name')}.")
    return _here(asked)


def delete(asked: Asked) -> str:
    """Delete it with all that is in it."""
    if not asked.text("sure"):
        raise JMSError("Nothing was deleted: tick the box beside the button to say that it is meant.")
    kind = asked.text("kind", "queue")
    asked.link.request("delete", kind, asked.text("name"))
    asked.visit.say(f"{asked.text('name')} is deleted.")
    return address_of("/queues", kind="" if kind == "queue" else kind)


def create(asked: Asked) -> str:
    """A new queue or topic."""
    kind, name = asked.text("kind", "queue"), asked.text("name")
    asked.link.request("create", kind, name)
    asked.visit.say(f"{name} is created.")
    return _here(asked)


VIEWS = (
    View("/queues", "Queues", "_queues.html", show_all, "queues.html"),
    View("/queues/one", "Queue", "_queue.html", show_one, "queue.html", around=around_one),
    View("/queues/messages", "Messages", "_messages.html", show_messages, live=False),
    View("/queues/message", "Message", "_message.html", show_message, live=False),
)
ACTIONS = (
    Action("/queues/pause", pause),
    Action("/queues/resume", resume),
    Action("/queues/purge", purge),
    Action("/queues/delete", delete),
    Action("/queues/create", create),
)

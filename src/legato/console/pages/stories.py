"""Stories: what happened to one message, from the ledger."""

from __future__ import annotations

from typing import Any

from legato.console.rendering import clock
from legato.console.view import Asked, View
from legato.spark.quantities import duration


def show(asked: Asked) -> dict[str, Any]:
    """The story of the message that is asked for."""
    message = asked.text("message")
    ledger = asked.ledger
    why = (
        "This console has no ledger, in which stories are: start it with --ledger DIR on a machine that has the "
        "broker's ledger, or with [http] console = true in the broker's configuration."
        if ledger is None
        else ledger.obstacle()
    )
    search = ledger.story(message) if ledger is not None and message and not why else None
    begin_us = search.chapters[0].time_us if search is not None and search.chapters else 0
    chapters = (
        []
        if search is None
        else [
            {
                "time": clock(each.time_us),
                "after": "+" + duration(each.time_us - begin_us),
                "epoch": each.epoch,
                "place": f"{each.queue} {each.seq}" if each.queue else "",
                "event": each.event,
            }
            for each in search.chapters
        ]
    )
    return {"message": message, "search": search, "chapters": chapters, "why": why}


def around(asked: Asked) -> dict[str, Any]:
    """What the form above it needs. Whoever loads the page again has what happened since searched, too."""
    message = asked.text("message")
    if asked.ledger is not None:
        asked.ledger.forget_story(message)
    return {"message": message}


VIEWS = (View("/story", "Story", "_story.html", show, "story.html", around=around),)

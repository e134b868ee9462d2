"""Members: the primary, its backups, the takeovers on a time line, and what an administrator does with them."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from legato.console.ledger_view import Epoch
from legato.console.rendering import clock, span
from legato.console.view import Action, Asked, View
from legato.errors import JMSError
from legato.ha.members import list_members

EPOCHS_MAX = 12
LINE_WIDTH = 960
CAUSES = {
    "start": "started",
    "crash": "the last primary failed",
    "switchover": "planned switchover",
    "shutdown": "the last primary was stopped",
    "lapsed": "the last primary fenced itself",
    "lost": "the last primary lost the lock",
}


def show(asked: Asked) -> dict[str, Any]:
    """Who serves, who would take over, and what happened before."""
    status = asked.status()
    failover = status["failover"]
    members, unread = None, ""
    if asked.store is not None:
        try:
            members = msgspec.to_builtins(list_members(asked.store))
        except OSError as error:
            # On the page itself: what is said by the visit would be kept for each look of a page that is open.
            unread = f"The members of {asked.store} cannot be read: {error.strerror}."
    epochs, why = known_epochs(asked, status)
    return {
        "status": status,
        "cause": CAUSES.get(failover["cause"], failover["cause"]),
        "failover": failover,
        "members": members,
        "unread": unread,
        "epochs": epochs[::-1],
        "line": time_line(epochs, time.time() * 1e6),
        "why": why,
        "causes": CAUSES,
    }


def known_epochs(asked: Asked, status: dict[str, Any]) -> tuple[list[Epoch], str]:
    """The last epochs, the first one first; and why there are not more, if that is so."""
    epochs: list[Epoch] = []
    if asked.ledger is None:
        why = (
            "Earlier takeovers are in the ledger, which this console has not: start it with --ledger DIR on a machine "
            "that has the broker's ledger."
        )
    else:
        why = asked.ledger.obstacle()
        if not why:
            epochs = asked.ledger.epochs()
            left = asked.ledger.left
            why = asked.ledger.error or (f"Reading the ledger: {left:,} segments are left." if left else "")
    present = Epoch(
        status["epoch"],
        status["listen"],
        began_us=status["since_us"],
        serving_us=status["since_us"],
        cause=status["failover"]["cause"],
        detection_us=round(status["failover"]["detection_ms"] * 1000),
    )
    epochs = [each for each in epochs if each.epoch < present.epoch] + [
        next((each for each in epochs if each.epoch == present.epoch and each.serving_us), present)
    ]
    return epochs[-EPOCHS_MAX:], why


def time_line(epochs: list[Epoch], now_us: float) -> dict[str, Any]:
    """Bars of epochs from left to right, in pixels; each broker has a lane of its own."""
    brokers = list(dict.fromkeys(each.broker for each in epochs))
    begin_us = min((each.serving_us or each.began_us for each in epochs), default=now_us)
    scale = LINE_WIDTH / max(now_us - begin_us, 1)
    bars = []
    for number, each in enumerate(epochs):
        start_us = each.serving_us or each.began_us
        is_last = number == len(epochs) - 1
        following_us = 0 if is_last else epochs[number + 1].serving_us or epochs[number + 1].began_us
        end_us = now_us if is_last else each.ended_us or min(max(each.last_us, start_us), following_us) or following_us
        bars.append(
            {
                "epoch": each.epoch,
                "x": round((start_us - begin_us) * scale, 1),
                "width": round(max((end_us - start_us) * scale, 2), 1),
                "lane": brokers.index(each.broker),
                "crashed": not is_last and not each.ended_us,
                "title": f"epoch {each.epoch}: {each.broker}, since {clock(start_us)}, "
                f"for {span((end_us - start_us) / 1e6)}",
            }
        )
    ticks = [
        {
            "x": round(LINE_WIDTH * part / 4),
            "text": "now" if part == 4 else clock(begin_us + (now_us - begin_us) * part / 4),
        }
        for part in range(5)
    ]
    return {"brokers": brokers, "bars": bars, "width": LINE_WIDTH, "ticks": ticks}


def switch_over(asked: Asked) -> str:
    """Make a backup take over."""
    if not asked.text("sure"):
        raise JMSError("Nothing was done: tick the box beside the button to say that it is meant.")
    began = asked.link.request_apart("switchover", "broker")
    backups = ", ".join(began.get("backups", [])) or "a backup"
    asked.visit.say(f"Switchover begun in epoch {began['epoch']}: {backups} takes over; this page follows it.")
    return "/members"


def reload(asked: Asked) -> str:
    """Have the broker read its configuration again."""
    answer = asked.link.request("reload", "broker") or {}
    asked.visit.say("The broker has read its configuration again.")
    if places := answer.get("needs_restart"):
        asked.visit.say(f"Changed, and in effect when the broker is started again: {', '.join(places)}.", good=False)
    return "/members"


VIEWS = (View("/members", "Members", "_members.html", show, "members.html"),)
ACTIONS = (
    Action("/members/switchover", switch_over, "administer"),
    Action("/members/reload", reload, "administer"),
)

"""Flows: the stages of services as a graph, with what waits for each; and the way of one flow."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

from legato.administration.flow_traces import Step, steps_in
from legato.client import Queue
from legato.console.message_view import large_body
from legato.console.view import Asked, View
from legato.errors import JMSError, MessageFormatError
from legato.flows.model.wire import PREFIX
from legato.flows.stages.introspection_page import layout
from legato.flows.stages.records import QUEUES, SUFFIX, RunRecord, decode_record

RECORDS_MAX = 100
"""Of each queue of records that are looked at, the oldest that are kept."""
RECORDS_AGE_MAX_S = 10.0
COLUMN_WIDTH, ROW_HEIGHT, BOX_WIDTH, BOX_HEIGHT, MARGIN = 290, 96, 220, 66, 12
NAME_CHARACTERS_MAX = 27


def show(asked: Asked) -> dict[str, Any]:
    """All stages that have a queue, and who calls whom as far as records tell."""
    rows = {
        row["name"]: row
        for row in asked.rows("queue")
        if row["name"].startswith(PREFIX)
        and not row["name"].startswith(PREFIX + SUFFIX)
        and not row.get("dead_letters")
    }
    dead = {row["name"]: row["depth"] for row in asked.rows("queue") if row.get("dead_letters")}
    records: list[RunRecord] = asked.visit.broker.recent.get(
        "flow records", RECORDS_AGE_MAX_S, lambda: read_records(asked)
    )
    stages = {
        name.removeprefix(PREFIX): {
            "name": name.removeprefix(PREFIX),
            "queue": name,
            "row": row,
            "dead": dead.get(f"DLQ.{name}", 0),
            "runs": 0,
            "failed": 0,
            "in_stage_us": 0,
        }
        for name, row in sorted(rows.items())
    }
    for record in records:
        stage = stages.get(record.stage)
        if stage is not None:
            stage["runs"] += 1
            stage["failed"] += bool(record.failure)
            stage["in_stage_us"] += max(record.ended_us - record.taken_us, 0)
    return {"stages": list(stages.values()), "graph": graph(stages, calls_of(records)), "records": len(records)}


def read_records(asked: Asked) -> list[RunRecord]:
    """Records of runs that services keep; few of each queue."""
    found: list[RunRecord] = []
    there = {row["name"] for row in asked.rows("queue") if row["depth"]}
    for number in range(QUEUES):
        name = f"{PREFIX}{SUFFIX}{number:x}"
        if name not in there:
            continue
        with (
            asked.link.connection().create_session() as session,
            session.create_browser(Queue(name)) as messages,
        ):
            for read, message in enumerate(messages):
                if read == RECORDS_MAX:
                    break
                if large_body(message) is not None:
                    continue  # It is none of a service's.
                with suppress(MessageFormatError):
                    found.append(decode_record(str(message.body)))
    return found


def calls_of(records: list[RunRecord]) -> dict[tuple[str, str], int]:
    """How often who called whom."""
    calls: Counter[tuple[str, str]] = Counter()
    for record in records:
        if record.sender and record.call != "reply":
            calls[record.sender, record.stage] += 1
    return dict(calls)


def graph(stages: dict[str, Any], calls: dict[tuple[str, str], int]) -> dict[str, Any]:
    """Boxes and arrows with their places, in pixels."""
    places = layout(list(stages), calls)
    corners = {
        name: (MARGIN + column * COLUMN_WIDTH, MARGIN + row * ROW_HEIGHT) for name, (column, row) in places.items()
    }
    boxes = [
        {
            "name": name,
            "short": name if len(name) <= NAME_CHARACTERS_MAX else f"{name[: NAME_CHARACTERS_MAX - 1]}…",
            "x": x,
            "y": y,
            "stage": stages.get(name),
        }
        for name, (x, y) in corners.items()
    ]
    arrows = []
    for (one, other), count in calls.items():
        (x1, y1), (x2, y2) = corners[one], corners[other]
        y1, y2 = y1 + BOX_HEIGHT // 2, y2 + BOX_HEIGHT // 2
        if x2 > x1:
            x1, bends = x1 + BOX_WIDTH, (45, -45)
        elif x2 < x1:
            x2, y1, y2, bends = x2 + BOX_WIDTH, y1 + 16, y2 + 16, (-45, 45)
        else:
            x1, x2, bends = x1 + BOX_WIDTH, x2 + BOX_WIDTH, (45, 45)
        arrows.append(
            {
                "path": f"M{x1} {y1} C{x1 + bends[0]} {y1} {x2 + bends[1]} {y2} {x2} {y2}",
                "x": (x1 + x2 + sum(bends)) // 2,
                "y": (y1 + y2) // 2 - 5,
                "count": count,
            }
        )
    return {
        "boxes": boxes,
        "arrows": arrows,
        "width": 2 * MARGIN + BOX_WIDTH + 60 + max((column for column, _ in places.values()), default=0) * COLUMN_WIDTH,
        "height": 2 * MARGIN + BOX_HEIGHT + max((row for _, row in places.values()), default=0) * ROW_HEIGHT,
        "box_width": BOX_WIDTH,
        "box_height": BOX_HEIGHT,
    }


def trace(asked: Asked) -> dict[str, Any]:
    """The way of one flow."""
    trace_id = asked.text("trace")
    if not trace_id:
        raise JMSError("Give the trace id of a flow.")
    steps: list[Step] = steps_in(asked.link.connection(), asked.rows("queue"), trace_id, PREFIX)
    return {"trace": trace_id, "steps": steps, "first_us": steps[0].sent_us if steps else 0}


VIEWS = (
    View("/flows", "Flows", "_flows.html", show, "flows.html"),
    View("/flows/trace", "Flow", "_trace.html", trace, "flows.html", live=False),
)

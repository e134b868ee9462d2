"""One run of a stage as a function: from the message that came to those that are to be sent."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from legato.errors import FlowError
from legato.flows.calls import Calls, Place
from legato.flows.context import AfterCommit, Context
from legato.flows.definitions import Stage
from legato.flows.envelope import Call, Envelope, Outgoing
from legato.flows.payloads import from_json, load_state, to_json

if TYPE_CHECKING:
    from sqlalchemy import Connection as DatabaseConnection


@dataclass
class Ran:
    """What a run came to.

    Attributes:
        outgoing: to be sent with its commit.
        after_commit: to be done after it.
    """

    outgoing: list[Outgoing] = field(default_factory=list)
    after_commit: list[AfterCommit] = field(default_factory=list)


def run_stage(
    stage: Stage,
    envelope: Envelope,
    *,
    now_us: int,
    delivery_count: int = 1,
    database: Callable[[], DatabaseConnection] | None = None,
) -> Ran:
    """Call the stage's function, and those that `next_direct` leads to.

    Raises:
        MessageFormatError: what came is not of the class that the stage takes.
        StateVersionError: its state cannot be read.
        IllegalCallFlowError: it made calls that flows do not allow.
        Exception: whatever the function raises.
    """
    endpoint = stage.endpoint
    state = load_state(envelope.state, endpoint.state, endpoint.state_version, endpoint.upcasters, endpoint.id)
    message = from_json(envelope.data, stage.message)
    calls = Calls(envelope, place_of(stage), now_us)
    ran = Ran()
    while True:
        context = Context(calls, endpoint, state, delivery_count=delivery_count, database=database)
        returned = stage.function(context, message)
        if inspect.isawaitable(returned):
            raise FlowError(
                f"{stage.id}: stages are plain functions; {stage.function.__name__} is a coroutine function."
            )
        ran.after_commit += context._after_commit
        if stage.is_last and (calls.made is None or returned is not None):
            calls.reply(to_json(returned))
        if calls.made is not Call.NEXT or context._direct is None:
            break
        state, message = context.state, context._direct
        stage = endpoint.stages[endpoint.stages.index(stage) + 1]
        calls = calls.stepped(place_of(stage))
    ran.outgoing = calls.outgoing
    return ran


def place_of(stage: Stage) -> Place:
    """Where the stage's calls are made from."""
    return Place(stage.id, stage.next_id, may_reply=not stage.endpoint.terminator)

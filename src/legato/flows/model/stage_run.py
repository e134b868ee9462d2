"""One run of a stage, as a function from a message to messages."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from legato.flows.model.calls import Calls, Place, derived_id
from legato.flows.model.context import AfterCommit, Context
from legato.flows.model.definitions import Endpoint, Registry, Stage
from legato.flows.model.envelope import Call, Envelope, Outgoing
from legato.flows.model.payloads import from_json, load_state, to_json
from legato.flows.model.stash import Stash

if TYPE_CHECKING:
    from sqlalchemy import Connection as DatabaseConnection


STASHED = -100
"""Ordinal of the ids of calls that continue a stash."""


@dataclass(slots=True)
class Ran:
    """The result of a run.

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
    complete: Callable[[Coroutine[Any, Any, Any]], Any] | None = None,
) -> Ran:
    """Call the stage's function, and those that `next_direct` leads to.

    Args:
        complete: what gives the result of a coroutine, for stages that are coroutine functions.

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
        if inspect.iscoroutine(returned):
            assert complete is not None
            returned = complete(returned)
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


def continued(stash: Stash, registry: Registry, now_us: int) -> Context[Any]:
    """The context of a stage whose flow was stashed, to make its calls from now.

    The calls are of a run of their own: their ids are not those of the run that stashed.

    Raises:
        StateVersionError: its state cannot be read.
    """
    origin = msgspec.structs.replace(stash.envelope, message_id=derived_id(stash.envelope.message_id, STASHED))
    try:
        endpoint = registry.stage(stash.stage_id).endpoint
    except KeyError:
        endpoint = Endpoint(stash.stage_id)
    state = load_state(stash.state, endpoint.state, endpoint.state_version, endpoint.upcasters, endpoint.id)
    return Context(Calls(origin, stash.place, now_us), endpoint, state)


def place_of(stage: Stage) -> Place:
    """Place from which the stage makes its calls."""
    return Place(stage.id, stage.next_id, not stage.endpoint.terminator)

"""Envelopes and runs for unit tests of flows."""

from __future__ import annotations

from typing import Any

from legato.flows.model.calls import Calls, Place, first_envelope
from legato.flows.model.definitions import Endpoint, Stage
from legato.flows.model.envelope import Call, Envelope, Frame
from legato.flows.model.payloads import to_json

NOW_US = 1_700_000_000_000_000


def envelope_to(to: str, data: Any = None, **fields: Any) -> Envelope:
    """The first message of a flow."""
    return first_envelope(
        message_id="m1",
        flow_id="f1",
        trace_id="order:17",
        sender="test",
        to=to,
        data=to_json(data),
        now_us=NOW_US,
        call=Call.SEND,
        **fields,
    )


def calls_at(stage_id: str, next_id: str | None = None, *, may_reply: bool = True, **fields: Any) -> Calls:
    """What a run of that stage may call."""
    return Calls(envelope_to(stage_id, **fields), Place(stage_id, next_id, may_reply), NOW_US + 1)


def waiting(to: str = "Caller.stage1") -> tuple[Frame, ...]:
    """A stack with somebody who waits for a reply."""
    return (Frame(to),)


def stage_of(endpoint: Endpoint, number: int = 0) -> Stage:
    """One of an endpoint's stages."""
    return endpoint.stages[number]

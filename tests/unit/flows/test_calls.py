"""Which calls a run of a stage may make, and what they become."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from legato.errors import IllegalCallFlowError
from legato.flows.model.calls import Calls, Place, first_envelope, longer
from legato.flows.model.envelope import (
    TRAIL_HOPS_MAX,
    Call,
    Frame,
    Hop,
    Outgoing,
    Reach,
    Saved,
    decode,
    decode_outgoing,
    encode,
    encode_outgoing,
)
from legato.flows.model.payloads import to_json
from legato.limits import FLOW_CALLS_MAX, FLOW_STACK_FRAMES_MAX
from tests.unit.flows.making import NOW_US, calls_at, envelope_to, waiting

STATE = Saved(to_json({"a": 1}), 3)
NULL = to_json(None)


def test_a_request_has_the_next_stage_wait_with_its_state_for_the_reply() -> None:
    """CONTRACT D23."""
    calls = calls_at("A", "A.stage1", stack=waiting())
    calls.request("B", to_json("tea"), STATE)
    (sent,) = calls.outgoing
    assert sent.reach is Reach.STAGE
    assert (sent.envelope.to, sent.envelope.call, sent.envelope.number) == ("B", Call.REQUEST, 2)
    assert sent.envelope.stack == (*waiting(), Frame("A.stage1", STATE))
    assert sent.envelope.trace_id == "order:17"
    assert [hop.to for hop in sent.envelope.trail] == ["A", "B"]


def test_a_reply_goes_to_who_waits_with_the_state_as_it_was() -> None:
    """CONTRACT D23."""
    calls = calls_at("B", stack=(*waiting(), Frame("A.stage1", STATE)))
    calls.reply(to_json(4))
    (sent,) = calls.outgoing
    assert (sent.envelope.to, sent.envelope.state, sent.envelope.stack) == ("A.stage1", STATE, waiting())


def test_a_reply_that_nobody_waits_for_is_not_sent() -> None:
    """CONTRACT D23."""
    calls = calls_at("B")
    calls.reply(NULL)
    assert calls.outgoing == []


def test_a_goto_keeps_who_waits_and_a_next_keeps_the_state() -> None:
    """CONTRACT D23."""
    going = calls_at("A", "A.stage1", stack=waiting())
    going.goto("B", NULL)
    assert going.outgoing[0].envelope.stack == waiting()
    assert going.outgoing[0].envelope.state == Saved()
    onward = calls_at("A", "A.stage1", stack=waiting())
    onward.next(NULL, STATE, delay_ms=5)
    assert (onward.outgoing[0].envelope.state, onward.outgoing[0].delay_ms) == (STATE, 5)


CALLS: dict[str, Callable[[Calls], None]] = {
    "request": lambda calls: calls.request("B", NULL, STATE),
    "reply": lambda calls: calls.reply(NULL),
    "next": lambda calls: calls.next(NULL, STATE),
    "next_direct": lambda calls: calls.next_direct(),
    "goto": lambda calls: calls.goto("B", NULL),
}


@pytest.mark.parametrize("first", CALLS)
@pytest.mark.parametrize("second", CALLS)
def test_only_requests_may_be_combined(first: str, second: str) -> None:
    """CONTRACT D23: anything else is refused when the call is made."""
    calls = calls_at("A", "A.stage1", stack=waiting())
    CALLS[first](calls)
    if first == second == "request":
        CALLS[second](calls)
        assert len(calls.outgoing) == 2
    else:
        with pytest.raises(IllegalCallFlowError, match="has made a call of the kind"):
            CALLS[second](calls)


@pytest.mark.parametrize("call", ["request", "next", "next_direct"])
def test_a_last_stage_cannot_call_for_a_stage_that_is_not_there(call: str) -> None:
    """CONTRACT D23."""
    with pytest.raises(IllegalCallFlowError, match="is the last stage"):
        CALLS[call](calls_at("A"))


def test_a_terminator_cannot_reply() -> None:
    """CONTRACT D23."""
    with pytest.raises(IllegalCallFlowError, match="terminator"):
        calls_at("A", may_reply=False, stack=waiting()).reply(NULL)


def test_a_flow_that_calls_itself_is_stopped_by_its_stack() -> None:
    """CONTRACT D21."""
    full = tuple(Frame(f"S{number}") for number in range(FLOW_STACK_FRAMES_MAX))
    with pytest.raises(IllegalCallFlowError, match="call itself"):
        calls_at("A", "A.stage1", stack=full).request("A", NULL, STATE)
    calls_at("A", "A.stage1", stack=full[1:]).request("A", NULL, STATE)


def test_a_flow_that_does_not_end_is_stopped_by_its_calls_and_may_still_reply() -> None:
    """CONTRACT D21."""
    far = msgspec.structs.replace(envelope_to("A", stack=waiting()), number=FLOW_CALLS_MAX)
    place = Place("A", "A.stage1")
    for call in ("request", "next", "goto"):
        with pytest.raises(IllegalCallFlowError, match="does it end"):
            CALLS[call](Calls(far, place, NOW_US))
    calls = Calls(far, place, NOW_US)
    calls.reply(NULL)
    assert len(calls.outgoing) == 1


def test_what_undoes_a_flow_that_made_all_its_calls_makes_calls_and_ends_too() -> None:
    """CONTRACT D21: compensations that wait for their turn are no calls that wait for each other either."""
    turns = tuple(Frame(f"Undo.{number}", instead=Saved(NULL)) for number in range(FLOW_STACK_FRAMES_MAX))
    undoing = msgspec.structs.replace(envelope_to("Undo", stack=turns), call=Call.COMPENSATE, number=FLOW_CALLS_MAX + 1)
    place = Place("Undo", "Undo.stage1")
    for call in ("request", "next", "goto"):
        CALLS[call](Calls(undoing, place, NOW_US))
    endless = msgspec.structs.replace(undoing, call=Call.NEXT, undoing=True, number=2 * FLOW_CALLS_MAX)
    for call in ("request", "next", "goto"):
        with pytest.raises(IllegalCallFlowError, match="400 are allowed: does it end"):
            CALLS[call](Calls(endless, place, NOW_US))
    calls = Calls(endless, place, NOW_US)
    calls.reply(NULL)
    (sent,) = calls.outgoing
    assert (sent.envelope.call, sent.envelope.to) == (Call.COMPENSATE, turns[-1].to)


def test_a_flow_needs_a_trace_id() -> None:
    """CONTRACT D24."""
    with pytest.raises(IllegalCallFlowError, match="trace id"):
        first_envelope(
            message_id="m", flow_id="f", trace_id="", sender="s", to="A", data=NULL, now_us=NOW_US, call=Call.SEND
        )


def test_a_run_that_is_repeated_sends_messages_of_the_same_ids() -> None:
    """CONTRACT D8: what knows them drops the second of each."""

    def ids() -> list[str]:
        calls = calls_at("A", "A.stage1")
        calls.request("B", NULL, STATE)
        calls.request("C", NULL, STATE)
        return [outgoing.envelope.message_id for outgoing in calls.outgoing]

    assert ids() == ids()
    assert len(set(ids())) == 2


def test_of_a_long_trail_the_middle_is_forgotten() -> None:
    trail: tuple[Hop, ...] = ()
    for number in range(1, 2 * TRAIL_HOPS_MAX):
        trail = longer(trail, Hop(number, Call.NEXT, "A", number))
    assert len(trail) == TRAIL_HOPS_MAX
    assert (trail[0].number, trail[-1].number) == (1, 2 * TRAIL_HOPS_MAX - 1)


def test_what_is_sent_is_what_comes() -> None:
    calls = calls_at("A", "A.stage1", stack=waiting(), sideloads={"picture": b"\x00\xff"}, deadline_us=7)
    calls.luggage.sideloads["page"] = bytes(range(256))
    calls.luggage.properties["tenant"] = "north"
    calls.request("B", to_json({"a": [1, "x"]}), STATE)
    (sent,) = calls.outgoing
    assert decode(encode(sent.envelope)) == sent.envelope
    delayed = Outgoing(sent.envelope, Reach.TOPIC, delay_ms=3, time_to_live_ms=4)
    assert decode_outgoing(encode_outgoing(delayed)) == delayed

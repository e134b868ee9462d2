"""What follows of a flow's failure, and the answers of joins, as pure functions."""

from __future__ import annotations

import msgspec
import pytest

from legato.flows.model.calls import Calls, Place
from legato.flows.model.envelope import Call, Compensation, Envelope, Frame, Outgoing, Reach, Saved, decode, encode
from legato.flows.model.failure_propagation import compensating, consequences
from legato.flows.model.joins import Answers, begin_join, join_of, too_late
from legato.flows.model.payloads import from_json, to_json
from legato.limits import FLOW_CALLS_MAX
from tests.unit.flows.making import NOW_US, calls_at, envelope_to, waiting

UNDO = tuple(Compensation(f"Undo.{name}", to_json(number)) for number, name in enumerate(("one", "two", "three"), 1))
FUTURE = Frame("reply-here", Saved(to_json("key")), Reach.ADDRESS)


def failed(**fields: object) -> Envelope:
    return msgspec.structs.replace(envelope_to("A"), **fields)


@pytest.mark.parametrize("number", [1, FLOW_CALLS_MAX])
def test_compensations_are_asked_one_after_the_other_the_latest_first(number: int) -> None:
    """Also those of a flow that failed because it made too many calls."""
    asked: list[tuple[str, bytes]] = []
    outgoing = compensating(failed(compensations=UNDO, number=number), NOW_US)
    while outgoing:
        (sent,) = outgoing
        asked.append((sent.envelope.to, bytes(sent.envelope.data)))
        calls = Calls(sent.envelope, Place(sent.envelope.to, None), NOW_US)
        calls.reply(to_json("done"))
        outgoing = calls.outgoing
    assert asked == [("Undo.three", b"3"), ("Undo.two", b"2"), ("Undo.one", b"1")]


def test_the_failure_of_a_compensation_begins_no_other_ones() -> None:
    (first,) = compensating(failed(compensations=UNDO), NOW_US)
    assert consequences(first.envelope, "no", NOW_US) == []


def test_a_future_hears_of_the_failure_and_the_stages_in_between_do_not() -> None:
    told, undone = consequences(failed(stack=(FUTURE, *waiting()), compensations=UNDO), "no tea", NOW_US)
    assert (told.reach, told.envelope.to, told.envelope.call) == (Reach.ADDRESS, "reply-here", Call.FAILURE)
    assert (told.envelope.failure, told.envelope.state) == ("no tea", FUTURE.state)
    assert undone.envelope.to == "Undo.three"


def test_a_join_hears_of_the_failure_and_decides() -> None:
    frame = Frame("A.stage1", reach=Reach.ANSWERS, join="j", key="tea")
    (told,) = consequences(failed(stack=(FUTURE, frame, *waiting()), compensations=UNDO), "no tea", NOW_US)
    assert (told.reach, told.envelope.join, told.envelope.key) == (Reach.ANSWERS, "j", "tea")
    assert told.envelope.compensations == UNDO


def joined(*, partial: bool = False, timeout_ms: int = 0) -> list[Outgoing]:
    calls = calls_at("A", "A.stage1", stack=(FUTURE,))
    requests = {key: ("Prices.of", to_json(key)) for key in ("tea", "milk")}
    begin_join(calls, requests, Saved(to_json("state")), partial=partial, timeout_ms=timeout_ms)
    return calls.outgoing


def answer(request: Outgoing, data: object) -> Envelope:
    calls = Calls(request.envelope, Place("Prices.of", None), NOW_US)
    calls.reply(to_json(data))
    (reply,) = calls.outgoing
    assert reply.reach is Reach.ANSWERS
    return reply.envelope


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_join_is_complete_with_all_answers_in_any_order(order: tuple[int, int]) -> None:
    *requests, waits = joined()
    join = join_of(waits.envelope)
    assert waits.reach is Reach.JOINED
    for number in order:
        assert not join.complete
        reply = answer(requests[number], number)
        join = join.with_answer(reply)
        assert join.with_answer(reply) == join
    assert join.complete
    (onward,) = join.outcome(NOW_US)
    assert (onward.envelope.to, onward.envelope.stack) == ("A.stage1", (FUTURE,))
    assert bytes(onward.envelope.state.data) == b'"state"'
    answers = from_json(onward.envelope.data, Answers)
    assert (answers.get("tea", int), answers.get("milk", int), answers.missing) == (0, 1, {})


def test_a_join_whose_time_is_up_fails_or_goes_on_with_what_came() -> None:
    first, _, waits, alarm = joined(timeout_ms=50)
    assert (alarm.reach, alarm.delay_ms, alarm.envelope.key) == (Reach.ANSWERS, 50, "")
    late = join_of(waits.envelope).with_answer(answer(first, 3)).timed_out()
    (told,) = late.outcome(NOW_US)
    assert (told.envelope.to, told.envelope.call) == ("reply-here", Call.FAILURE)
    assert "milk: no answer came in time" in told.envelope.failure
    first, _, waits = joined(partial=True)
    (onward,) = join_of(waits.envelope).with_answer(answer(first, 3)).timed_out().outcome(NOW_US)
    answers = from_json(onward.envelope.data, Answers)
    assert (answers.get("tea", int), list(answers.missing)) == (3, ["milk"])


def test_what_branches_of_a_join_did_is_undone_when_it_fails() -> None:
    first, second, waits = joined()
    undo = msgspec.structs.replace(answer(first, 3), compensations=UNDO[:1])
    failure = msgspec.structs.replace(answer(second, 3), failure="no milk", compensations=UNDO[1:2])
    join = join_of(waits.envelope).with_answer(undo).with_answer(failure)
    told, undone = join.outcome(NOW_US)
    assert "milk: no milk" in told.envelope.failure
    assert (undone.envelope.to, [frame.to for frame in undone.envelope.stack]) == ("Undo.two", ["Undo.one"])


def booked_twice(calls: Calls) -> list[Envelope]:
    """The answers of two branches that did the same, in a flow that had done the same before."""
    calls.compensations = UNDO[:1]
    begin_join(calls, {key: ("Seat.book", to_json(key)) for key in ("one", "two")}, Saved(), timeout_ms=50)
    replies = [answer(request, "booked") for request in calls.outgoing[:2]]
    return [msgspec.structs.replace(reply, compensations=(*reply.compensations, UNDO[0])) for reply in replies]


def test_what_branches_of_a_join_did_alike_is_undone_for_each() -> None:
    calls = calls_at("A", "A.stage1")
    replies = booked_twice(calls)
    join = join_of(calls.outgoing[2].envelope)
    assert join.with_answer(replies[0]).with_answer(replies[1]).onward.compensations == 3 * UNDO[:1]
    # One that waits since a former version began it does not say how many there were before.
    former = msgspec.structs.replace(join, before=None)
    assert former.with_answer(replies[0]).with_answer(replies[1]).onward.compensations == UNDO[:1]


def test_what_a_branch_did_that_answers_after_the_time_of_its_join_is_undone() -> None:
    calls = calls_at("A", "A.stage1")
    reply = decode(encode(booked_twice(calls)[0]))
    (undone,) = too_late(reply, NOW_US)
    assert (undone.envelope.call, undone.envelope.to, undone.envelope.stack) == (Call.COMPENSATE, UNDO[0].to, ())
    assert (undone.envelope.join, undone.envelope.key) == ("", "")
    # A branch that failed late did something, too.
    request = calls.outgoing[0].envelope
    (failure,) = consequences(msgspec.structs.replace(request, compensations=UNDO[:2]), "no seat", NOW_US)
    (undone,) = too_late(failure.envelope, NOW_US)
    assert (undone.envelope.to, undone.envelope.failure) == (UNDO[1].to, "")


def test_nothing_is_undone_of_an_answer_that_was_used_or_did_nothing() -> None:
    first, _, _, alarm = joined(timeout_ms=50)
    assert too_late(answer(first, 3), NOW_US) == []
    assert too_late(msgspec.structs.replace(alarm.envelope, compensations=UNDO), NOW_US) == []
    # A join that waits for ever misses no answer: one that finds it gone came twice.
    first, _, _ = joined()
    assert too_late(msgspec.structs.replace(answer(first, 3), compensations=UNDO), NOW_US) == []


def test_a_join_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        begin_join(calls_at("A", "A.stage1"), {}, Saved())

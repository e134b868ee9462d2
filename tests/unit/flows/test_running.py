"""Declaring endpoints, running their stages as functions, and states of other versions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from legato.errors import IllegalCallFlowError, MessageFormatError, StateVersionError
from legato.flows.model.context import Context
from legato.flows.model.definitions import Endpoint, Policy, Registry
from legato.flows.model.envelope import Envelope, Saved
from legato.flows.model.levels import Transaction
from legato.flows.model.payloads import from_json, to_json
from legato.flows.model.stage_run import continued, run_stage
from legato.flows.model.stash import read_stash
from tests.unit.flows.making import NOW_US, envelope_to, waiting


@dataclass
class Count:
    total: int = 0


def run(endpoint: Endpoint, envelope: Envelope, number: int = 0) -> list[Envelope]:
    ran = run_stage(endpoint.stages[number], envelope, now_us=NOW_US)
    return [outgoing.envelope for outgoing in ran.outgoing]


def counting() -> Endpoint:
    endpoint = Endpoint("Count", state=Count)

    @endpoint.stage
    def begin(context: Context[Count], amount: int) -> None:
        context.state.total += amount
        context.next_direct(amount * 10)

    @endpoint.stage
    def middle(context: Context[Count], amount: int) -> None:
        context.state.total += amount
        context.next(amount * 10)

    @endpoint.last_stage
    def end(context: Context[Count], amount: int) -> int:
        return context.state.total + amount

    return endpoint


def test_state_goes_from_stage_to_stage() -> None:
    """CONTRACT D23: `next_direct` without a message, `next` with one."""
    endpoint = counting()
    (onward,) = run(endpoint, envelope_to("Count", 1, stack=waiting()))
    assert (onward.to, bytes(onward.data), bytes(onward.state.data)) == ("Count.stage2", b"100", b'{"total":11}')
    (reply,) = run(endpoint, onward, 2)
    assert (reply.to, bytes(reply.data)) == ("Caller.stage1", b"111")


def test_what_is_called_with_is_read_at_the_call() -> None:
    """CONTRACT D23: serialised at call time."""
    endpoint = Endpoint("List")

    @endpoint.last_stage
    def reply(context: Context[None], data: list[int]) -> None:
        context.reply(data)
        data.append(4)

    (sent,) = run(endpoint, envelope_to("List", [1], stack=waiting()))
    assert bytes(sent.data) == b"[1]"


def test_a_message_of_another_class_is_refused() -> None:
    with pytest.raises(MessageFormatError, match="not JSON of type int"):
        run(counting(), envelope_to("Count", "many"))


async def yielding(context: Context[None], data: int) -> AsyncIterator[int]:
    """What cannot be a stage."""
    yield data


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (lambda endpoint: endpoint.stage(yielding), "yields; a stage is"),
        (lambda endpoint: endpoint.stage(lambda context: None), "takes 1 arguments"),
        (lambda endpoint: endpoint.stage(lambda context, data: None), "annotate `data`"),
        (lambda endpoint: Endpoint("X", state=Needy), "needs a default"),
        (lambda endpoint: Endpoint("X", state=Counted | None), "cannot be made without arguments"),
    ],
)
def test_a_stage_that_cannot_work_is_refused_when_it_is_declared(declare: Any, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        declare(Endpoint("X"))


class Needy(msgspec.Struct):
    name: str


class Counted(msgspec.Struct):
    count: int = 0


def test_an_endpoint_needs_a_last_stage_and_has_one_at_most() -> None:
    registry = Registry()
    endpoint = registry.add(Endpoint("X"))
    with pytest.raises(ValueError, match="no last stage"):
        registry.stages()

    @endpoint.last_stage
    def last(context: Context[None], data: int) -> int:
        return data

    with pytest.raises(ValueError, match="cannot follow"):
        endpoint.stage(last)
    with pytest.raises(ValueError, match="already"):
        registry.add(Endpoint("X"))


class Old(msgspec.Struct):
    colour: str = ""


class New(msgspec.Struct):
    colours: list[str] = []
    shade: str = "none"


def test_a_state_of_an_older_version_is_brought_up_to_date() -> None:
    endpoint = Endpoint(
        "X",
        state=New,
        state_version=3,
        upcasters={
            1: lambda fields: {"colours": [fields["colour"]]},
            2: lambda fields: {**fields, "shade": "dark"},
        },
    )

    @endpoint.last_stage
    def last(context: Context[New], data: int) -> New:
        return context.state

    old = envelope_to("X", 1, stack=waiting(), state=Saved(to_json(Old("red")), 1))
    (reply,) = run(endpoint, old)
    assert from_json(reply.data, New) == New(["red"], "dark")


@pytest.mark.parametrize(("version", "says"), [(1, "no upcaster"), (4, "start a newer one")])
def test_a_state_that_cannot_be_read_is_refused_clearly(version: int, says: str) -> None:
    endpoint = Endpoint("X", state=New, state_version=3)

    @endpoint.last_stage
    def last(context: Context[New], data: int) -> None:
        return None

    with pytest.raises(StateVersionError, match=says):
        run(endpoint, envelope_to("X", 1, state=Saved(to_json(Old("red")), version)))


def test_a_stash_of_last_year_is_continued_with_upcasters_or_refused() -> None:
    """CONTRACT D23."""
    stashes: list[bytes] = []
    then = Endpoint("X", state=Old)

    @then.stage
    def stash(context: Context[Old], data: int) -> None:
        context.state.colour = "red"
        context.add_sideload("picture", b"p")
        stashes.append(context.stash())

    @then.last_stage
    def last(context: Context[Old], data: int) -> int:
        return data

    run(then, envelope_to("X", 1, stack=waiting(), sideloads={"big": b"x"}))
    stashed = read_stash(stashes[0])
    assert stashed.envelope.sideloads == {}

    def today(**upcasters: Any) -> Registry:
        registry = Registry()
        endpoint = registry.add(Endpoint("X", state=New, state_version=2, **upcasters))
        endpoint.stage(lambda_stage)
        endpoint.last_stage(lambda_stage)
        return registry

    context = continued(stashed, today(upcasters={1: lambda fields: {"colours": [fields["colour"]]}}), NOW_US)
    assert context.state == New(["red"])
    context.next(5)
    assert context.outgoing[0].envelope.to == "X.stage1"
    assert context.outgoing[0].envelope.stack == waiting()
    with pytest.raises(StateVersionError):
        continued(stashed, today(), NOW_US)
    with pytest.raises(MessageFormatError):
        read_stash(b"something else")


def lambda_stage(context: Context[Any], data: int) -> int:
    """A stage that is not run."""
    return data


def test_a_last_stage_has_nothing_to_stash() -> None:
    """CONTRACT D23."""
    endpoint = Endpoint("X")

    @endpoint.last_stage
    def last(context: Context[None], data: int) -> int:
        context.stash()
        return data

    with pytest.raises(IllegalCallFlowError, match="to stash"):
        run(endpoint, envelope_to("X", 1))


def test_what_is_said_for_a_stage_goes_before_the_endpoint_and_that_before_the_service() -> None:
    service = Policy(concurrency=4, deliveries_max=6)
    assert Policy(concurrency=1).over(Policy(concurrency=2, batch_max=9)).over(service) == Policy(
        concurrency=1, batch_max=9, deliveries_max=6
    )


def test_a_transaction_may_be_given_by_its_name() -> None:
    assert Policy(transaction="best-effort").transaction is Transaction.BEST_EFFORT  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="two-phase"):
        Policy(transaction="two-phase")  # type: ignore[arg-type]


def test_a_flow_that_a_stage_begins_is_called_after_its_own_unless_told_otherwise() -> None:
    """CONTRACT D24."""
    endpoint = Endpoint("X")

    @endpoint.last_stage
    def last(context: Context[None], data: int) -> None:
        context.initiate("mail").send("Mail", 1)
        context.initiate("!alone").send("Mail", 1)

    assert [sent.trace_id for sent in run(endpoint, envelope_to("X", 1))] == ["order:17|mail", "alone"]

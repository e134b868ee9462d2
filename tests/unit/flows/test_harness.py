"""The harness that users test their flows with: real stages and transactions, no broker, virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from legato.errors import FlowError, FlowFailedError
from legato.flows import Answers, Context, Flows, RefuseMessage, Request
from legato.testing import FlowHarness
from tests.support.shop import Order, Receipt, declare_place


@pytest.fixture
def flows() -> Flows:
    return Flows("amqp://nobody")


@pytest.fixture
def harness(flows: Flows) -> Iterator[FlowHarness]:
    declare_place(flows)
    with FlowHarness(flows) as harness:
        yield harness


def test_an_endpoint_is_called_and_what_it_asks_is_answered_by_the_test(harness: FlowHarness) -> None:
    prices = harness.mock("Prices.of", lambda item: 3.0)
    assert harness.request("Orders.place", Order("tea", 2), reply=Receipt) == Receipt("tea", 6.0)
    assert prices.requests == ["tea"]
    assert [call.to for call in harness.calls] == ["Orders.place", "Prices.of", "Orders.place.stage1", "the test"]
    harness.assert_no_dead_letters()


def test_an_endpoint_that_nobody_mocked_is_named(harness: FlowHarness) -> None:
    with pytest.raises(FlowError, match=r"Orders.place called Prices.of, which is neither"):
        harness.request("Orders.place", Order("tea", 2))


def test_a_refusal_is_a_dead_letter_with_its_error(harness: FlowHarness) -> None:
    def refuse(item: str) -> float:
        raise RefuseMessage("closed")

    harness.mock("Prices.of", refuse)
    with pytest.raises(FlowFailedError, match="RefuseMessageError: closed"):
        harness.request("Orders.place", Order("tea", 2))
    (letter,) = harness.dead_letters
    assert (letter.stage_id, letter.attempts) == ("Prices.of", 1)
    with pytest.raises(AssertionError, match="closed"):
        harness.assert_no_dead_letters()


def test_a_stage_gets_as_many_attempts_as_its_policy_says() -> None:
    flows = Flows("amqp://nobody")
    attempts: list[int] = []

    @flows.terminator("Fail", deliveries_max=3)
    def fail(context: Context[None], data: int) -> None:
        attempts.append(context.delivery_count)
        if data or context.delivery_count < 2:
            raise ValueError("not yet")

    with FlowHarness(flows) as harness:
        harness.send("Fail", 0)
        harness.assert_no_dead_letters()
        harness.send("Fail", 1)
    assert attempts == [1, 2, 1, 2, 3]
    assert [repr(letter.error) for letter in harness.dead_letters] == ["ValueError('not yet')"]


def test_time_is_virtual() -> None:
    flows = Flows("amqp://nobody")
    rung: list[int] = []
    reminder = flows.endpoint("Reminder")

    @reminder.stage
    def begin(context: Context[None], text: str) -> None:
        context.next(text, delay_ms=24 * 3600 * 1000)

    @reminder.last_stage
    def ring(context: Context[None], text: str) -> None:
        rung.append(flows.clock.now_us())

    with FlowHarness(flows) as harness:
        began_us = harness.clock.now_us()
        harness.send("Reminder", "tea")
        harness.advance(24 * 3600 - 1)
        assert rung == []
        harness.advance(1)
    assert rung == [began_us + 24 * 3600 * 1_000_000]


def test_a_join_times_out_in_virtual_time() -> None:
    flows = Flows("amqp://nobody")
    basket = flows.endpoint("Basket")

    @basket.stage
    def ask(context: Context[None], items: list[str]) -> None:
        context.request_all({item: Request(f"Prices.{item}", item) for item in items}, timeout_s=60, partial=True)

    @basket.last_stage
    def add(context: Context[None], prices: Answers) -> dict[str, str]:
        return {**dict.fromkeys(prices.answers, "here"), **prices.missing}

    slow = flows.endpoint("Prices.milk")
    slow.stage(never)
    slow.last_stage(last)
    with FlowHarness(flows) as harness:
        harness.mock("Prices.tea", lambda item: 3)
        total = harness.request("Basket", ["tea", "milk"], timeout_s=60)
    assert total == {"tea": "here", "milk": "no answer came in time"}


def test_what_a_branch_did_is_undone_if_its_join_has_ended_without_it() -> None:
    flows = Flows("amqp://nobody")
    trip = flows.endpoint("Trip")

    @trip.stage
    def book(context: Context[None], place: str) -> None:
        context.compensate_with("Seat.release", "the train")
        context.request_all({"seat": Request("Seat.book", place)}, timeout_s=60, partial=True)

    @trip.last_stage
    def booked(context: Context[None], answers: Answers) -> list[str]:
        return list(answers.answers)

    slow = flows.endpoint("Seat.book")

    @slow.stage
    def ask(context: Context[None], place: str) -> None:
        context.compensate_with("Seat.release", place)
        context.next(place, delay_ms=90_000)

    slow.last_stage(last)
    with FlowHarness(flows) as harness:
        released = harness.mock("Seat.release", lambda place: None)
        assert harness.request("Trip", "Rome", timeout_s=60) == []
        harness.advance(60)
    assert released.requests == ["Rome"]


def never(context: Context[None], data: str) -> None:
    """A stage that asks for nothing: its flow ends without a reply."""


def last(context: Context[None], data: str) -> str:
    """The stage that is never called."""
    return data


def test_the_database_is_the_stages_own(tmp_path: Path) -> None:
    engine = create_engine(f"sqlite:///{tmp_path / 'orders.db'}")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (item TEXT)"))
    flows = Flows("amqp://nobody", database=engine)

    @flows.terminator("Keep", deliveries_max=2)
    def keep(context: Context[None], item: str) -> None:
        context.database.execute(text("INSERT INTO orders VALUES (:item)"), {"item": item})
        context.initiate("after").send("Mail", item)
        if item == "coffee":
            raise ValueError("no coffee")

    with FlowHarness(flows) as harness:
        mails = harness.mock("Mail", lambda item: None)
        harness.send("Keep", "tea")
        harness.send("Keep", "coffee")
        with engine.connect() as connection:
            assert connection.execute(text("SELECT item FROM orders")).all() == [("tea",)]
    assert mails.requests == ["tea"]
    assert [letter.attempts for letter in harness.dead_letters] == [2]


def test_calls_for_which_a_person_waits_overtake_others(flows: Flows) -> None:
    worked_on: list[str] = []

    @flows.terminator("Orders.log")
    def log(context: Context[None], item: str) -> None:
        worked_on.append(item)

    with FlowHarness(flows) as harness:
        for item, interactive in (("tea", False), ("milk", False), ("coffee", True)):
            with harness.initiation(item, interactive=interactive) as initiation:
                initiation.send("Orders.log", item)
        harness.run()
    assert worked_on == ["coffee", "tea", "milk"]


def test_what_other_programs_would_get_is_kept_by_queue(flows: Flows) -> None:
    @flows.terminator("Orders.export")
    def export(context: Context[None], item: str) -> None:
        context.send_message("departures", {"item": item})

    with FlowHarness(flows) as harness:
        harness.send("Orders.export", "tea")
        assert harness.messages == {"departures": [{"item": "tea"}]}


@pytest.mark.parametrize("raised", [ValueError("no one"), SystemExit(3), asyncio.CancelledError()])
def test_what_fails_after_the_commit_is_logged_and_the_stage_is_not_tried_again(
    flows: Flows, caplog: pytest.LogCaptureFixture, raised: BaseException
) -> None:
    """As with a worker (`test_whatever_is_raised_after_a_commit_the_stage_goes_on`)."""
    worked_on: list[int] = []
    done: list[str] = []

    @flows.terminator("Orders.tell")
    def tell(context: Context[None], item: str) -> None:
        async def fail() -> None:
            raise raised

        worked_on.append(context.delivery_count)
        context.initiate("after").send("Mail", item)
        context.after_commit(fail)
        context.after_commit(lambda: done.append(item))

    with FlowHarness(flows) as harness:
        mails = harness.mock("Mail", lambda item: None)
        harness.send("Orders.tell", "tea")
        harness.assert_no_dead_letters()
    assert (worked_on, mails.requests, done) == ([1], ["tea"], ["tea"])
    assert "Orders.tell: something to be done after the commit failed" in caplog.text
    assert type(raised).__name__ in caplog.text

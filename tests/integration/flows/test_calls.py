"""Futures, joins, deadlines, cancelling, compensation, timers and stashes, on real brokers."""

from __future__ import annotations

import asyncio
import math
import queue
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from legato.client import ConnectionFactory, Queue, TextMessage, management
from legato.flows import (
    Answers,
    Context,
    FlowError,
    FlowFailedError,
    Flows,
    FlowTimeoutError,
    Policy,
    RefuseMessage,
    Request,
)
from legato.flows.stages.worker import StageWorker
from legato.testing import broker
from tests.integration.client.calling import until
from tests.integration.flows.test_service import WAIT_S
from tests.support.broker import BrokerPair
from tests.support.server import free_port
from tests.support.shop import Order, Placing, Receipt, declare_shop

MakeFlows = Callable[..., Flows]
FEW = Policy(concurrency=1)


def test_a_reply_is_waited_for_and_awaited(make_flows: MakeFlows) -> None:
    """CONTRACT D25."""
    flows = make_flows(policy=FEW)
    declare_shop(flows)
    flows.start()
    asked = flows.request("Orders.place", Order("tea", 2), reply=Receipt, trace_id="order:1", timeout_s=WAIT_S)
    assert asked.result() == Receipt("tea", 6.0)

    async def ask() -> Receipt:
        receipt: Receipt = await flows.request("Orders.place", Order("milk", 1), reply=Receipt, trace_id="order:2")
        return receipt

    assert asyncio.run(ask()) == Receipt("milk", 4.0)


def test_futures_outlive_the_broker(make_flows: MakeFlows, pair: BrokerPair) -> None:
    """CONTRACT D25, E2."""
    flows = make_flows(policy=FEW)
    declare_shop(flows)
    flows.start()
    assert flows.request("Orders.place", Order("tea", 1), trace_id="first").result()
    futures = [
        flows.request("Orders.place", Order("tea", number), reply=Receipt, trace_id=f"order:{number}", timeout_s=WAIT_S)
        for number in range(50)
    ]
    pair.kill_primary()
    assert [future.result() for future in futures] == [Receipt("tea", 3.0 * number) for number in range(50)]


def test_a_future_hears_that_its_flow_failed_and_when_its_time_is_up(make_flows: MakeFlows) -> None:
    """CONTRACT D25, D21."""
    flows = make_flows(policy=FEW)

    @flows.single("Orders.refuse")
    def refuse(context: Context[None], item: str) -> str:
        raise RefuseMessage(f"no {item}")

    flows.start()
    with pytest.raises(FlowFailedError, match="RefuseMessageError: no tea"):
        flows.request("Orders.refuse", "tea", trace_id="order:3", timeout_s=WAIT_S).result()
    with pytest.raises(FlowTimeoutError, match=r"Nobody.there did not reply within 0.01 s.*trace order:4"):
        flows.request("Nobody.there", "tea", trace_id="order:4", timeout_s=0.01).result()


def test_a_reply_to_a_process_that_has_ended_costs_the_stage_nothing(make_flows: MakeFlows) -> None:
    """It had replied there before: its session was lost with the reply, and the work done once more."""
    flows, other = make_flows(policy=FEW), make_flows()
    began, go_on, runs = threading.Event(), threading.Event(), list[str]()

    @flows.single("Shop.sell")
    def sell(context: Context[None], item: str) -> str:
        runs.append(item)
        if item == "milk":
            began.set()
            assert go_on.wait(WAIT_S)
        return f"{item} sold"

    flows.start()
    [worker] = flows._workers
    assert isinstance(worker, StageWorker)
    assert other.request("Shop.sell", "tea", trace_id="tea", reply=str, timeout_s=WAIT_S).result() == "tea sold"
    other.request("Shop.sell", "milk", trace_id="milk", reply=str, timeout_s=WAIT_S)
    assert began.wait(WAIT_S)
    [producer] = worker._messaging._sender._producers.values()
    route = producer._route
    assert route is not None
    other.stop()
    until(lambda: route.end.closed)
    go_on.set()
    assert flows.request("Shop.sell", "salt", trace_id="salt", reply=str, timeout_s=WAIT_S).result() == "salt sold"
    assert runs == ["tea", "milk", "salt"]


def test_a_flow_begins_at_a_stage_whose_queue_was_deleted_since(make_flows: MakeFlows, prefix: str) -> None:
    """The first `send()` after that raised, over the link to the former queue."""
    flows = make_flows()
    flows.send("Shop.sell", "tea", trace_id="tea")
    [(_, sender)] = flows._initiator._free
    [producer] = sender._producers.values()
    route = producer._route
    assert route is not None
    management.request(flows.url, "delete", "queue", f"{prefix}Shop.sell")
    until(lambda: route.end.closed)
    flows.send("Shop.sell", "milk", trace_id="milk")
    assert management.request(flows.url, "read", "queue", f"{prefix}Shop.sell")["depth"] == 1


def test_while_no_broker_is_there_futures_time_out_and_the_service_stops() -> None:
    """CONTRACT D25: nobody waits for a connection but who needs it, also who asks in an event loop."""
    flows = Flows(f"amqp://127.0.0.1:{free_port()}?connect_wait_s=10")
    for number in range(2):
        with pytest.raises(FlowTimeoutError):
            flows.request("Prices.of", "tea", trace_id=f"order:{number}", timeout_s=0.01).result()
    waits = flows.request("Prices.of", "tea", trace_id="order:3", timeout_s=WAIT_S)
    assert flows.stop(timeout_s=0.01)
    with pytest.raises(FlowError, match="stopped before the reply came"):
        waits.result()


def test_a_future_may_wait_for_ever_and_others_time_out_nevertheless() -> None:
    """CONTRACT D25."""
    flows = Flows(f"amqp://127.0.0.1:{free_port()}?connect_wait_s=1")
    flows.request("Prices.of", "tea", trace_id="order:1", timeout_s=math.inf)
    with pytest.raises(FlowTimeoutError):
        flows.request("Prices.of", "tea", trace_id="order:2", timeout_s=0.01).result()
    flows.stop(timeout_s=0.01)


class Dear(msgspec.Struct):
    """What an application makes of a price: it may raise whatever it likes."""

    price: float

    def __post_init__(self) -> None:
        raise LookupError(f"too dear: {self.price}")


def test_a_future_hears_why_its_reply_cannot_be_read(make_flows: MakeFlows) -> None:
    """CONTRACT D25: of an error of any class."""
    flows = make_flows(policy=FEW)

    @flows.single("Prices.of")
    def price(context: Context[None], item: str) -> dict[str, float]:
        return {"price": 3.5}

    flows.start()
    with pytest.raises(LookupError, match="too dear"):
        flows.request("Prices.of", "tea", reply=Dear, trace_id="order:1", timeout_s=WAIT_S).result()


def test_of_futures_that_have_their_replies_no_deadlines_are_kept(
    make_flows: MakeFlows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CONTRACT D25: though they would be due tomorrow."""
    monkeypatch.setattr("legato.flows.starting.futures.SETTLED_MAX", 10)
    flows = make_flows(policy=FEW)

    @flows.single("Prices.of")
    def price(context: Context[None], item: str) -> float:
        return 3.5

    flows.start()
    for number in range(40):
        asked = flows.request("Prices.of", "tea", trace_id=f"order:{number}", timeout_s=86_400)
        assert asked.result() == 3.5
    assert len(flows._futures._deadlines) < 20


def declare_basket(flows: Flows, *, timeout_s: float | None = None, partial: bool = False) -> None:
    """An endpoint that asks for the prices of everything at once; nobody answers for coffee."""
    basket = flows.endpoint("Basket.total")

    @basket.stage
    def ask(context: Context[None], items: list[str]) -> None:
        context.request_all(
            {item: Request("Nobody.there" if item == "coffee" else "Prices.of", item) for item in items},
            timeout_s=timeout_s,
            partial=partial,
        )

    @basket.last_stage
    def add(context: Context[None], prices: Answers) -> dict[str, float]:
        return {key: prices.get(key, float) for key in prices.answers} | dict.fromkeys(prices.missing, -1.0)

    @flows.single("Prices.of")
    def price(context: Context[None], item: str) -> float:
        if item == "beer":
            raise RefuseMessage("not here")
        return float(len(item))


def test_a_join_goes_on_when_all_have_answered(make_flows: MakeFlows) -> None:
    flows = make_flows(policy=Policy(concurrency=2))
    declare_basket(flows)
    flows.start()
    futures = [
        flows.request("Basket.total", ["tea", "milk", "sugar"], trace_id=f"basket:{number}", timeout_s=WAIT_S)
        for number in range(5)
    ]
    assert [future.result() for future in futures] == 5 * [{"tea": 3.0, "milk": 4.0, "sugar": 5.0}]
    flows.stop()
    joins = told_of(flows, "Basket.total.stage1.answers")
    assert (joins["runs"], joins["callers"], joins["circuit"]) == (15, {"Prices.of": 15}, "closed")
    assert joins["calls"]["Basket.total.stage1"] >= 5


def told_of(flows: Flows, stage_id: str) -> dict[str, Any]:
    """What a service says of a stage, or of its joins."""
    told = [stage for endpoint in flows.introspection()["endpoints"] for stage in endpoint["stages"]]
    return next(stage for stage in told if stage["id"] == stage_id)


def test_what_is_no_answer_to_a_join_is_a_dead_letter_and_counted() -> None:
    with broker() as running:
        flows = Flows(running.url, policy=FEW)
        declare_basket(flows)
        flows.start()
        with ConnectionFactory(running.url).create_connection() as connection:
            session = connection.create_session()
            session.create_producer(Queue("flows.Basket.total.stage1.answers")).send(TextMessage("nonsense"))
        running.wait_until_empty("flows.Basket.total.stage1.answers")
        [letter] = running.dead_letters()
        assert str(letter.properties["JMS_LEGATO_EXCEPTION"]).startswith("MessageFormatError")
        flows.stop()
        joins = told_of(flows, "Basket.total.stage1.answers")
        assert (joins["failures"], joins["buried"]) == (1, 1)


def test_a_join_outlives_the_broker_and_its_service(make_flows: MakeFlows, pair: BrokerPair) -> None:
    flows = make_flows(policy=FEW)
    declare_basket(flows)
    with flows.initiate("begun before") as initiation:
        for _ in range(10):
            initiation.request("Basket.total", ["tea", "milk"], reply_to="Basket.done")
    flows.start()
    pair.kill_primary()
    flows.stop(timeout_s=0)
    again = make_flows(policy=FEW)
    declare_basket(again)
    totals: queue.SimpleQueue[dict[str, float]] = queue.SimpleQueue()

    @again.terminator("Basket.done")
    def done(context: Context[None], total: dict[str, float]) -> None:
        context.after_commit(lambda: totals.put(total))

    again.start()
    assert [totals.get(timeout=WAIT_S) for _ in range(10)] == 10 * [{"tea": 3.0, "milk": 4.0}]
    assert totals.empty()


def test_a_partial_join_does_without_who_failed_or_was_late(make_flows: MakeFlows, prefix: str) -> None:
    # Nobody is waited for longer than that; on a busy machine those who answer are late, too, if it is little.
    for timeout_s in (0.5, 5.0, 30.0):
        flows = make_flows(policy=FEW, prefix=f"{prefix}{timeout_s}.")
        declare_basket(flows, timeout_s=timeout_s, partial=True)
        flows.start()
        future = flows.request("Basket.total", ["tea", "coffee", "beer"], trace_id="basket", timeout_s=2 * WAIT_S)
        total = future.result()
        if total["tea"] > 0:
            break
    assert total == {"tea": 3.0, "coffee": -1.0, "beer": -1.0}


def test_a_whole_join_fails_if_one_does(make_flows: MakeFlows) -> None:
    flows = make_flows(policy=FEW)
    declare_basket(flows)
    flows.start()
    with pytest.raises(FlowFailedError, match="beer: RefuseMessageError: not here"):
        flows.request("Basket.total", ["tea", "beer"], trace_id="basket", timeout_s=WAIT_S).result()


def declare_trip(flows: Flows, done: queue.SimpleQueue[str], after_flight: Callable[[], None] = lambda: None) -> None:
    """Three bookings, each with what undoes it; the last one fails."""
    trip = flows.endpoint("Trip.book")

    @trip.stage
    def flight(context: Context[None], place: str) -> None:
        done.put("flight booked")
        context.compensate_with("Trip.undo", "flight")
        after_flight()
        context.next(place)

    @trip.stage
    def hotel(context: Context[None], place: str) -> None:
        done.put("hotel booked")
        context.compensate_with("Trip.undo", "hotel")
        context.next(place)

    @trip.last_stage
    def car(context: Context[None], place: str) -> str:
        raise RefuseMessage("no cars left")

    @flows.single("Trip.undo")
    def undo(context: Context[None], what: str) -> None:
        done.put(f"{what} undone")


def test_a_flow_that_fails_is_undone_in_reverse(make_flows: MakeFlows) -> None:
    flows = make_flows(policy=FEW)
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    declare_trip(flows, done)
    flows.start()
    with pytest.raises(FlowFailedError, match="no cars left"):
        flows.request("Trip.book", "Rome", trace_id="trip", timeout_s=WAIT_S).result()
    assert [done.get(timeout=WAIT_S) for _ in range(4)] == [
        "flight booked",
        "hotel booked",
        "hotel undone",
        "flight undone",
    ]


def test_a_cancelled_flow_goes_no_further_and_is_undone(make_flows: MakeFlows) -> None:
    flows = make_flows(policy=FEW)
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    flow_ids: queue.SimpleQueue[str] = queue.SimpleQueue()

    def cancel() -> None:
        """While the flow is between two stages."""
        flow_id = flow_ids.get(timeout=WAIT_S)
        flows.cancel(flow_id)
        until(lambda: flows._cancelled.has(flow_id))

    declare_trip(flows, done, cancel)
    flows.start()
    with flows.initiate("trip") as initiation:
        flow_ids.put(initiation.send("Trip.book", "Rome"))
    # Undoing begins when the next stage refuses the flow: nothing comes after that.
    assert [done.get(timeout=WAIT_S) for _ in range(2)] == ["flight booked", "flight undone"]
    assert done.empty()


def test_what_undoes_a_cancelled_flow_may_have_stages_of_its_own(make_flows: MakeFlows) -> None:
    """It asks others and goes on: that is the cancelled flow, too."""
    flows = make_flows(policy=FEW)
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    flow_ids: queue.SimpleQueue[str] = queue.SimpleQueue()
    trip = flows.endpoint("Trip.book")

    @trip.stage
    def book(context: Context[None], place: str) -> None:
        flow_id = flow_ids.get(timeout=WAIT_S)
        context.compensate_with("Trip.undo", place)
        flows.cancel(flow_id)
        until(lambda: flows._cancelled.has(flow_id))
        context.next(place)

    @trip.last_stage
    def booked(context: Context[None], place: str) -> str:
        raise AssertionError("the flow was cancelled")

    undo = flows.endpoint("Trip.undo")

    @undo.stage
    def ask(context: Context[None], place: str) -> None:
        context.request("Fees.of", place)

    @undo.stage
    def asked(context: Context[None], fee: int) -> None:
        context.request_all({"fee": Request("Fees.of", "Rome")})

    @undo.stage
    def asked_all(context: Context[None], fees: Answers) -> None:
        context.next(fees.get("fee", int))

    @undo.last_stage
    def undone(context: Context[None], fee: int) -> None:
        done.put(f"undone for {fee}")

    @flows.single("Fees.of")
    def fee(context: Context[None], place: str) -> int:
        return len(place)

    flows.start()
    with flows.initiate("trip") as initiation:
        flow_ids.put(initiation.send("Trip.book", "Rome"))
    assert done.get(timeout=WAIT_S) == "undone for 4"


def test_a_flow_that_was_cancelled_before_it_began_never_begins(
    make_flows: MakeFlows, calm_pair: BrokerPair, prefix: str
) -> None:
    flows = make_flows(policy=FEW)
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    declare_trip(flows, done)
    with flows.initiate("trip") as initiation:
        flow_id = initiation.send("Trip.book", "Rome")
    flows.cancel(flow_id)
    flows.start()
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        session = connection.create_session()
        letters = session.create_consumer(session.create_queue(f"DLQ.{prefix}Trip.book"))
        assert letters.receive(WAIT_S) is not None
    assert done.empty()


def test_no_stage_works_on_a_flow_after_its_deadline(make_flows: MakeFlows) -> None:
    flows = make_flows(policy=FEW)
    declare_shop(flows)
    flows.start()
    past = time.time_ns() // 1000 - 1
    with pytest.raises(FlowFailedError, match="deadline"):
        flows.request("Orders.place", Order("tea", 1), trace_id="late", timeout_s=WAIT_S, deadline_us=past).result()


def test_a_timer_is_a_next_with_a_delay(make_flows: MakeFlows) -> None:
    flows = make_flows(policy=FEW)
    reminder = flows.endpoint("Reminder")

    @reminder.stage
    def set_timer(context: Context[None], text: str) -> None:
        context.next(text, delay_ms=300)

    @reminder.last_stage
    def ring(context: Context[None], text: str) -> int:
        return time.time_ns() // 1000 - context.envelope.sent_us

    flows.start()
    assert flows.request("Reminder", "tea", trace_id="tea", timeout_s=WAIT_S).result() >= 300_000


def test_a_stash_is_continued_by_whoever_has_it(make_flows: MakeFlows) -> None:
    """CONTRACT D23."""
    flows = make_flows(policy=FEW)
    stashes: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    approve = flows.endpoint("Orders.approve", state=Placing)

    @approve.stage
    def put_aside(context: Context[Placing], order: Order) -> None:
        context.state.order = order
        stashes.put(context.stash())

    @approve.last_stage
    def approved(context: Context[Placing], by: str) -> str:
        order = context.state.order
        assert order is not None
        return f"{order.item} approved by {by}"

    flows.start()
    future = flows.request("Orders.approve", Order("tea", 1), trace_id="order:5", timeout_s=WAIT_S)
    stash = stashes.get(timeout=WAIT_S)
    with flows.unstash(stash) as context:
        assert context.state.order == Order("tea", 1)
        context.next("Ada")
    assert future.result() == "tea approved by Ada"


def test_what_is_published_comes_to_each_process(make_flows: MakeFlows) -> None:
    """CONTRACT D24."""
    heard: queue.SimpleQueue[tuple[int, str]] = queue.SimpleQueue()
    for number in range(2):
        flows = make_flows(policy=FEW)
        declare_listener(flows, number, heard)
        flows.start()
    with flows.initiate("prices") as initiation:
        initiation.publish("Prices.changed", "tea")
    assert sorted(heard.get(timeout=WAIT_S) for _ in range(2)) == [(0, "tea"), (1, "tea")]


def declare_listener(flows: Flows, number: int, heard: queue.SimpleQueue[tuple[int, str]]) -> None:
    """A subscription terminator that says who it is."""

    @flows.subscription_terminator("Prices.changed")
    def changed(context: Context[None], item: str) -> None:
        heard.put((number, item))

"""Stages that are coroutine functions: the same transactions, one event loop for all of them."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine, text

from legato.errors import FlowFailedError
from legato.flows import Context, Flows, RefuseMessage
from legato.flows.stages.coroutines import _running_loop, complete
from legato.testing import FlowHarness

WAIT_S = 30.0
PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("PLACE", default="nowhere")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/orders.db")
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE orders (item TEXT)"))
    yield engine
    engine.dispose()


@pytest.fixture
def flows(engine: Engine) -> Flows:
    return Flows("amqp://nobody", database=engine)


def orders(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [row[0] for row in connection.execute(text("SELECT item FROM orders"))]


def declare(flows: Flows) -> None:
    """An endpoint of a coroutine function, which calls another one, and a plain last stage."""
    endpoint = flows.endpoint("Orders.place")

    @endpoint.stage
    async def received(context: Context[None], item: str) -> None:
        context.database.execute(text("INSERT INTO orders VALUES (:item)"), {"item": item})
        await asyncio.sleep(0)
        context.request("Prices.of", item)

    @endpoint.last_stage
    def priced(context: Context[None], price: float) -> str:
        return f"{price:.2f}"

    @flows.single("Prices.of")
    async def price(context: Context[None], item: str) -> float:
        await asyncio.sleep(0)
        if item == "nothing":
            raise RefuseMessage("no price")
        return 1.5 * len(item)


def test_a_stage_may_be_a_coroutine_function(flows: Flows, engine: Engine) -> None:
    declare(flows)
    with FlowHarness(flows) as harness:
        assert harness.request("Orders.place", "tea", reply=str) == "4.50"
    assert orders(engine) == ["tea"]


def test_what_a_coroutine_raises_rolls_its_transaction_back(flows: Flows, engine: Engine) -> None:
    attempts: list[int] = []

    @flows.terminator("Fail", deliveries_max=3)
    async def fail(context: Context[None], item: str) -> None:
        context.database.execute(text("INSERT INTO orders VALUES (:item)"), {"item": item})
        context.initiate("on").send("Never", item)
        await asyncio.sleep(0)
        attempts.append(context.delivery_count)
        raise ValueError("broken")

    with FlowHarness(flows) as harness:
        harness.send("Fail", "tea")
        assert [call.to for call in harness.calls] == ["Fail"]
    assert attempts == [1, 2, 3]
    assert [repr(letter.error) for letter in harness.dead_letters] == ["ValueError('broken')"]
    assert orders(engine) == []


def test_a_refusal_of_a_coroutine_is_a_dead_letter_at_once(flows: Flows) -> None:
    declare(flows)
    with FlowHarness(flows) as harness, pytest.raises(FlowFailedError, match="no price"):
        harness.request("Orders.place", "nothing", reply=str)
    assert [letter.attempts for letter in harness.dead_letters] == [1]


def test_what_is_to_be_done_after_the_commit_may_be_a_coroutine_function(flows: Flows) -> None:
    done: list[str] = []

    @flows.terminator("End")
    async def end(context: Context[None], item: str) -> None:
        async def tell() -> None:
            await asyncio.sleep(0)
            done.append(item)

        context.after_commit(tell)

    with FlowHarness(flows) as harness:
        harness.send("End", "tea")
    assert done == ["tea"]


def test_a_harness_can_be_used_where_a_loop_runs(flows: Flows) -> None:
    declare(flows)

    async def main() -> str:
        with FlowHarness(flows) as harness:
            replied: str = harness.request("Orders.place", "tea", reply=str)
            return replied

    assert asyncio.run(main()) == "4.50"


def test_all_coroutines_share_a_loop_and_have_the_context_variables_of_their_workers() -> None:
    meeting = threading.Barrier(2)

    async def look() -> tuple[int, str]:
        await asyncio.to_thread(meeting.wait)  # both are under way
        return id(asyncio.get_running_loop()), PLACE.get()

    found: list[tuple[int, str]] = []

    def work(place: str) -> None:
        PLACE.set(place)
        found.append(complete(look()))

    threads = [threading.Thread(target=work, args=(place,)) for place in ("here", "there")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({loop for loop, _ in found}) == 1
    assert {place for _, place in found} == {"here", "there"}
    assert PLACE.get() == "nowhere"


@pytest.mark.parametrize("error", [SystemExit(3), asyncio.CancelledError(), KeyboardInterrupt()], ids=repr)
def test_what_would_end_a_loop_reaches_the_worker_and_the_loop_goes_on(error: BaseException) -> None:
    async def leave() -> None:
        await asyncio.sleep(0)
        raise error

    async def stay() -> str:
        return "here"

    with pytest.raises(type(error)):
        complete(leave())
    assert complete(stay()) == "here"


def test_a_program_that_ends_in_a_task_of_a_stage_ends_that_stage_only() -> None:
    """It ended the loop, in which every other stage then waited for ever."""

    async def leave() -> None:
        raise SystemExit(3)

    async def wait_for_it() -> None:
        await asyncio.gather(leave())

    async def stay() -> str:
        return "here"

    assert isinstance(_in_a_thread(wait_for_it()), SystemExit)
    assert _in_a_thread(stay()) == "here"


def test_a_stage_that_is_cancelled_before_it_begins_tells_its_worker() -> None:
    held, go_on = threading.Event(), threading.Event()

    async def cancel_all() -> None:
        own = asyncio.current_task()
        held.set()
        go_on.wait(WAIT_S)  # the other stage's beginning is in the loop's queue by then
        await asyncio.sleep(0)
        for task in asyncio.all_tasks() - {own}:
            task.cancel()

    async def stay() -> str:
        return "here"

    canceller = threading.Thread(target=complete, args=(cancel_all(),), daemon=True)
    canceller.start()
    assert held.wait(WAIT_S)
    begun = _running_loop().call_soon_threadsafe

    def begin(*arguments: Any) -> Any:
        handle = begun(*arguments)
        go_on.set()
        return handle

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_running_loop(), "call_soon_threadsafe", begin)
        assert isinstance(_in_a_thread(stay()), asyncio.CancelledError)
    canceller.join(WAIT_S)


def _in_a_thread(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """What `complete` returns or raises."""
    came: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def work() -> None:
        try:
            came.put(complete(coroutine))
        except BaseException as error:
            came.put(error)

    threading.Thread(target=work, daemon=True).start()
    return came.get(timeout=WAIT_S)

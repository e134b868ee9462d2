"""Stages that fail: what becomes of their messages, and of those that wait behind them."""

from __future__ import annotations

import asyncio
import queue
import re
import threading
from collections.abc import Callable
from sqlite3 import OperationalError
from typing import Any

import pytest

from legato.client import BytesMessage, ConnectionFactory, Queue, management
from legato.errors import FlowTimeoutError, JMSError, TransactionRolledBackError
from legato.flows import Context, Flows, Policy
from legato.flows.model.circuit import State
from tests.integration.client.calling import until
from tests.integration.flows.test_service import WAIT_S, dead_letter
from tests.support.broker import BrokerPair


def depth(pair: BrokerPair, name: str) -> int:
    rows = list(management.rows(pair.url, "queue", name))
    return sum(int(row["depth"]) for row in rows)


def test_the_dead_letter_of_a_flow_is_the_brokers_own_and_says_all_that_is_known(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str
) -> None:
    """CONTRACT D2, D20."""
    flows = make_flows(name="shop", version="1.2", policy=Policy(concurrency=1, deliveries_max=2))

    @flows.terminator("Orders.fail")
    def fail(context: Context[None], item: str) -> None:
        raise ValueError(f"no {item}")

    flows.start()
    flows.send("Orders.fail", "coffee", trace_id="order:1")
    said = dead_letter(calm_pair.url, f"{prefix}Orders.fail").properties
    assert said["JMS_LEGATO_CAUSE"] == "rejected"
    assert said["JMS_LEGATO_EXCEPTION"] == "ValueError: no coffee"
    assert said["JMS_LEGATO_ORIGINAL_DESTINATION"] == f"{prefix}Orders.fail"
    assert (said["JMS_LEGATO_DELIVERIES"], said["legato_attempts"], said["JMS_LEGATO_DEAD_LETTER_COUNT"]) == (2, 2, 1)
    assert (said["legato_refused"], said["legato_service"], said["legato_trace_id"]) == (False, "shop 1.2", "order:1")
    assert str(said["legato_stack_trace"]).rstrip().endswith("ValueError: no coffee")
    assert "Python" in str(said["legato_versions"])


def test_a_call_of_what_no_queue_can_be_named_like_is_not_tried_again(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str
) -> None:
    """The stage ran for each attempt, and the broker refused the same name each time."""
    flows = make_flows(policy=Policy(concurrency=1))
    runs: list[str] = []

    @flows.terminator("Orders.call")
    def call(context: Context[None], item: str) -> None:
        runs.append(item)
        context.send_message("Prices\n", item)

    flows.start()
    flows.send("Orders.call", "tea", trace_id="order:2")
    said = dead_letter(calm_pair.url, f"{prefix}Orders.call").properties
    assert str(said["JMS_LEGATO_EXCEPTION"]).startswith(
        "IllegalCallFlowError: 'Prices\\n' cannot be called: The producer"
    )
    assert runs == ["tea"]


def test_what_is_no_flows_message_is_a_dead_letter_at_once(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str
) -> None:
    """CONTRACT D21."""
    flows = make_flows(policy=Policy(concurrency=1, batch_max=10))

    @flows.terminator("Orders.take")
    def take(context: Context[None], item: str) -> None:
        raise AssertionError

    with ConnectionFactory(calm_pair.url).create_connection() as connection, connection.create_session() as session:
        session.create_producer(Queue(f"{prefix}Orders.take")).send(BytesMessage(b"who am I"))
    flows.start()
    with ConnectionFactory(calm_pair.url).create_connection() as connection, connection.create_session() as session:
        connection.start()
        letter = session.create_consumer(Queue(f"DLQ.{prefix}Orders.take")).receive(timeout_s=WAIT_S)
    assert letter is not None
    assert (letter.body, letter.properties["legato_attempts"]) == (b"who am I", 1)
    assert "only flows may send there" in str(letter.properties["JMS_LEGATO_EXCEPTION"])


def test_a_message_at_which_its_workers_died_is_a_dead_letter_before_it_is_tried_again(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str
) -> None:
    """CONTRACT D20: at the start of the delivery after the last one that was allowed."""
    flows = make_flows(policy=Policy(concurrency=1, deliveries_max=2))

    @flows.terminator("Orders.die")
    def die(context: Context[None], item: str) -> None:
        raise AssertionError

    flows.send("Orders.die", "coffee", trace_id="order:1")
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        for _ in range(2):
            with connection.create_session(transacted=True) as session:
                assert session.create_consumer(Queue(f"{prefix}Orders.die")).receive(timeout_s=WAIT_S) is not None
                session.rollback()
    flows.start()
    said = dead_letter(calm_pair.url, f"{prefix}Orders.die").properties
    assert str(said["JMS_LEGATO_EXCEPTION"]).startswith("Every attempt ended without telling why")
    assert said["legato_attempts"] == 3


def test_what_was_sent_before_a_stage_failed_is_not_sent_with_its_dead_letter(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str, monkeypatch: Any
) -> None:
    """CONTRACT D20: the message is buried at its next delivery, with the stack trace of the one that failed."""
    flows = make_flows(policy=Policy(concurrency=1, deliveries_max=1))
    reached: queue.SimpleQueue[str] = queue.SimpleQueue()

    @flows.terminator("Orders.next")
    def following(context: Context[None], item: str) -> None:
        reached.put(item)

    @flows.terminator("Orders.late")
    def late(context: Context[None], item: str) -> None:
        context.initiate("child").send("Orders.next", item)

    class FailsAfterSending:
        """A level whose last step before the commit fails, as a database's deferred constraint does."""

        def perform(self, stage_id: str, received: Any, run: Any, messaging: Any) -> Any:
            ran = [run(one, None) for one in received]
            messaging.send([outgoing for one in ran for outgoing in one.outgoing])
            if stage_id == "Orders.late":
                raise ValueError("the constraint is violated")
            messaging.commit()
            return ran

    monkeypatch.setattr(flows, "level_of", lambda stage: FailsAfterSending())
    flows.start()
    flows.send("Orders.late", "coffee", trace_id="order:1")
    said = dead_letter(calm_pair.url, f"{prefix}Orders.late").properties
    assert said["JMS_LEGATO_EXCEPTION"] == "ValueError: the constraint is violated"
    assert "the constraint is violated" in str(said["legato_stack_trace"])
    flows.send("Orders.next", "milk", trace_id="order:2")
    assert reached.get(timeout=WAIT_S) == "milk"


def test_a_database_that_fails_at_its_commit_costs_its_message_no_attempt(
    make_flows: Callable[..., Flows], monkeypatch: Any
) -> None:
    """CONTRACT D16: its disk is full, say, when the stage has sent already."""
    flows = make_flows(policy=Policy(concurrency=1, deliveries_max=1, circuit_pause_s=0.01))
    reached: queue.SimpleQueue[str] = queue.SimpleQueue()
    full = iter([True] * 3 + [False] * 3)
    deliveries: list[int] = []

    @flows.terminator("Orders.next")
    def following(context: Context[None], item: str) -> None:
        reached.put(item)

    @flows.terminator("Orders.store")
    def store(context: Context[None], item: str) -> None:
        context.initiate("child").send("Orders.next", item)

    class BestEffort:
        """The steps of that level, with a database that cannot commit at first."""

        def perform(self, stage_id: str, received: Any, run: Any, messaging: Any) -> Any:
            ran = [run(one, None) for one in received]
            messaging.send([outgoing for one in ran for outgoing in one.outgoing])
            if stage_id == "Orders.store":
                deliveries.extend(one.delivery_count for one in received)
                if next(full):
                    raise OperationalError("database or disk is full")
            messaging.commit()
            return ran

    monkeypatch.setattr(flows, "level_of", lambda stage: BestEffort())
    flows.start()
    flows.send("Orders.store", "tea", trace_id="order:1")
    flows.send("Orders.store", "milk", trace_id="order:2")
    assert sorted(reached.get(timeout=WAIT_S) for _ in range(2)) == ["milk", "tea"]
    assert deliveries == [1] * 5
    flows.stop()
    assert reached.empty()


def test_a_stage_whose_database_is_down_pauses_and_loses_no_message_to_the_dead_letters(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str
) -> None:
    """CONTRACT D16."""
    flows = make_flows(
        policy=Policy(
            concurrency=2, deliveries_max=3, circuit_failures=3, circuit_pause_s=0.05, circuit_pause_max_s=0.1
        )
    )
    down = threading.Event()
    done: queue.SimpleQueue[str] = queue.SimpleQueue()
    down.set()

    @flows.terminator("Orders.store")
    def store(context: Context[None], item: str) -> None:
        if down.is_set():
            raise ConnectionError("the database is down")
        context.after_commit(lambda: done.put(item))

    items = ["tea", "milk"]
    with flows.initiate("orders") as initiation:
        for item in items:
            initiation.send("Orders.store", item)
    flows.start()
    health = flows.health["Orders.store"]
    until(lambda: health.meter.failures >= 9)
    assert health.circuit.opened
    assert depth(calm_pair, f"DLQ.{prefix}Orders.store") == 0
    down.clear()
    assert sorted(done.get(timeout=WAIT_S) for _ in items) == sorted(items)
    assert health.circuit.state is State.CLOSED
    assert depth(calm_pair, f"DLQ.{prefix}Orders.store") == 0


def test_poison_at_the_head_of_a_queue_does_not_keep_its_circuit_open(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str
) -> None:
    """CONTRACT D16."""
    flows = make_flows(
        policy=Policy(
            concurrency=1, deliveries_max=3, circuit_failures=3, circuit_pause_s=0.05, circuit_pause_max_s=0.1
        )
    )
    done: queue.SimpleQueue[str] = queue.SimpleQueue()

    @flows.terminator("Orders.mixed")
    def mixed(context: Context[None], item: str) -> None:
        if item.startswith("poison"):
            raise ValueError(item)
        context.after_commit(lambda: done.put(item))

    with flows.initiate("orders") as initiation:
        for item in ("poison 1", "poison 2", "poison 3", "tea", "milk"):
            initiation.send("Orders.mixed", item)
    flows.start()
    assert sorted(done.get(timeout=WAIT_S) for _ in range(2)) == ["milk", "tea"]
    until(lambda: depth(calm_pair, f"DLQ.{prefix}Orders.mixed") == 3)
    # They are counted when the commit has returned, after they are there.
    until(lambda: flows.health["Orders.mixed"].meter.buried >= 3)
    assert flows.health["Orders.mixed"].meter.buried == 3


ATTEMPT = re.compile(r"Orders\.\w+: attempt (\d+) failed: (\w+)(?:: [^;]*)?; (.*)\. Message ID:")


def attempts_logged(caplog: pytest.LogCaptureFixture) -> list[tuple[int, str, bool]]:
    """Of each attempt that was logged: its number, its exception, and whether with a traceback."""
    found = [(ATTEMPT.match(record.getMessage()), record.exc_info) for record in caplog.records]
    return [(int(match[1]), match[2], bool(exc_info)) for match, exc_info in found if match]


def test_a_message_that_cannot_reach_its_service_is_given_up_in_time_and_each_attempt_is_a_line(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str, caplog: pytest.LogCaptureFixture
) -> None:
    """CONTRACT D20: `ConnectionError` of one message alone, which is not counted while the stage pauses."""

    def try_for(retry_s: float) -> tuple[Flows, list[int], Any]:
        """The service, the attempts that it made, and what the dead letter says."""
        caplog.clear()
        flows = make_flows(
            prefix=f"{prefix}{retry_s}.",
            policy=Policy(
                concurrency=1,
                deliveries_max=3,
                circuit_failures=2,
                circuit_pause_s=0.02,
                circuit_pause_max_s=0.04,
                environment_retry_s=retry_s,
            ),
        )
        tried: list[int] = []

        @flows.terminator("Orders.pay")
        def pay(context: Context[None], item: str) -> None:
            tried.append(1)
            raise ConnectionError("503")

        flows.start()
        flows.send("Orders.pay", "coffee", trace_id="order:1")
        return flows, tried, dead_letter(calm_pair.url, f"{prefix}{retry_s}.Orders.pay").properties

    # A busy machine makes fewer attempts in a time.
    for retry_s in (0.3, 3.0, 20.0):
        flows, tried, said = try_for(retry_s)
        if len(tried) > 3:
            break
    assert said["JMS_LEGATO_EXCEPTION"] == "ConnectionError: 503"
    assert said["legato_attempts"] == len(tried) > 3
    numbers = list(range(1, len(tried) + 1))
    assert attempts_logged(caplog) == [(number, "ConnectionError", number == 1) for number in numbers]
    assert re.search(r"next try in 0\.0 s; not counted, the message goes to the dead letters in \d+ s", caplog.text)
    assert flows.introspection()["endpoints"][0]["stages"][0]["failing"] == []


def test_while_a_message_is_tried_the_service_shows_how_often_and_for_how_long(
    make_flows: Callable[..., Flows],
) -> None:
    flows = make_flows(policy=Policy(concurrency=1, circuit_failures=2, circuit_pause_s=0.01, circuit_pause_max_s=0.01))

    @flows.terminator("Orders.pay")
    def pay(context: Context[None], item: str) -> None:
        raise TimeoutError("no answer")

    flows.start()
    flows.send("Orders.pay", "coffee", trace_id="order:1")
    until(lambda: flows.health["Orders.pay"].meter.failures >= 4)
    [failing] = flows.introspection()["endpoints"][0]["stages"][0]["failing"]
    assert failing["attempt"] >= 4
    assert failing["failure"] == "TimeoutError: no answer"
    assert 86_000 < failing["gives_up_s"] < 86_400
    assert re.search(r"attempt \d+: TimeoutError: no answer; gives up in \d+ s", flows.introspection_page())


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        RuntimeError("no"),
        SystemExit(1),
        asyncio.CancelledError("no"),
        GeneratorExit("no"),
        JMSError("another broker's"),
        TransactionRolledBackError("another session's"),
        FlowTimeoutError("no"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_whatever_a_stage_raises_its_message_is_a_dead_letter_after_so_many_attempts(
    make_flows: Callable[..., Flows],
    calm_pair: BrokerPair,
    prefix: str,
    caplog: pytest.LogCaptureFixture,
    error: BaseException,
) -> None:
    """CONTRACT D20: none ends the thread, none is taken for the session's own, none is tried for ever."""
    flows = make_flows(policy=Policy(concurrency=1, deliveries_max=3))
    tried: list[int] = []
    done: queue.SimpleQueue[str] = queue.SimpleQueue()

    @flows.terminator("Orders.raise")
    def raising(context: Context[None], item: str) -> None:
        if item == "tea":
            context.after_commit(lambda: done.put(item))
            return
        tried.append(context.delivery_count)
        raise error

    flows.start()
    flows.send("Orders.raise", "coffee", trace_id="order:1")
    said = dead_letter(calm_pair.url, f"{prefix}Orders.raise").properties
    assert str(said["JMS_LEGATO_EXCEPTION"]).startswith(type(error).__name__)
    assert (tried, said["legato_attempts"]) == ([1, 2, 3], 3)
    name = type(error).__name__
    assert attempts_logged(caplog) == [(1, name, True), (2, name, False), (3, name, False)]
    flows.send("Orders.raise", "tea", trace_id="order:2")
    assert done.get(timeout=WAIT_S) == "tea"


@pytest.mark.parametrize("raised", [SystemExit(3), asyncio.CancelledError()])
def test_whatever_is_raised_after_a_commit_the_stage_goes_on(
    make_flows: Callable[..., Flows], raised: BaseException
) -> None:
    """CONTRACT D23: it is logged, what else is to be done is done, and the queue keeps its only worker."""
    flows = make_flows(policy=Policy(concurrency=1))
    done: queue.SimpleQueue[str] = queue.SimpleQueue()

    @flows.terminator("Orders.tell")
    def tell(context: Context[None], item: str) -> None:
        async def fail() -> None:
            raise raised

        context.after_commit(fail)
        context.after_commit(lambda: done.put(item))

    flows.start()
    for item in ("tea", "milk"):
        flows.send("Orders.tell", item, trace_id="order:1")
    assert [done.get(timeout=WAIT_S) for _ in range(2)] == ["tea", "milk"]

"""Endpoints of several stages on real brokers, with messages alone."""

from __future__ import annotations

import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from legato.client import ConnectionFactory, Message, MessageConsumer, Queue, Session, TextMessage
from legato.errors import JMSError
from legato.flows import Context, Flows, Policy, RefuseMessage
from legato.flows.stages.session_worker import SessionWorker
from tests.integration.client.calling import Calling, until
from tests.support.broker import BrokerPair
from tests.support.shop import Order, Receipt, declare_shop

WAIT_S = 60.0

FEW = Policy(concurrency=2)


def test_a_request_goes_through_the_stages_of_two_endpoints_and_its_reply_comes_to_a_terminator(
    make_flows: Callable[..., Flows],
) -> None:
    """CONTRACT D1, D23, D24."""
    flows = make_flows(policy=FEW)
    receipts = declare_shop(flows)
    flows.start()
    with flows.initiate("order:17") as initiation:
        initiation.request("Orders.place", Order("tea", 2), reply_to="Orders.done")
    assert receipts.get(timeout=WAIT_S) == ("order:17", Receipt("tea", 6.0))


def test_flows_go_on_through_the_death_of_the_broker(make_flows: Callable[..., Flows], pair: BrokerPair) -> None:
    """CONTRACT D1, A1."""
    flows = make_flows(policy=FEW)
    receipts = declare_shop(flows)
    flows.start()
    asked = {f"order:{number}" for number in range(200)}
    for trace_id in sorted(asked):
        with flows.initiate(trace_id) as initiation:
            initiation.request("Orders.place", Order("tea", 1), reply_to="Orders.done")
        if trace_id == "order:17":
            pair.kill_primary()
    answered = [receipts.get(timeout=WAIT_S)[0] for _ in asked]
    assert sorted(answered) == sorted(asked)
    assert receipts.empty()


def test_a_flow_does_not_wait_for_those_that_began_before_it(make_flows: Callable[..., Flows]) -> None:
    """CONTRACT D17."""
    flows = make_flows(policy=FEW)
    packed: queue.SimpleQueue[str] = queue.SimpleQueue()
    help_came = threading.Event()

    @flows.terminator("Orders.pack")
    def pack(context: Context[None], item: str) -> None:
        if item == "piano":
            assert help_came.wait(WAIT_S)
        context.after_commit(lambda: packed.put(item))

    flows.start()
    with flows.initiate("orders") as initiation:
        for item in ("piano", "tea", "tea", "tea"):
            initiation.send("Orders.pack", item)
    assert packed.get(timeout=WAIT_S) == "tea"
    help_came.set()
    assert sorted(packed.get(timeout=WAIT_S) for _ in range(3)) == ["piano", "tea", "tea"]


def test_a_message_that_a_stage_refuses_is_a_dead_letter_at_once_and_says_why(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str
) -> None:
    """CONTRACT D21."""
    flows = make_flows(policy=FEW)
    attempts: list[int] = []

    @flows.terminator("Orders.refuse")
    def refuse(context: Context[None], item: str) -> None:
        attempts.append(context.delivery_count)
        raise RefuseMessage(f"no {item} here")

    flows.start()
    flows.send("Orders.refuse", "coffee", trace_id="order:18")
    letter = dead_letter(calm_pair.url, f"{prefix}Orders.refuse")
    assert attempts == [1]
    assert letter.properties["legato_refused"] is True
    assert letter.properties["JMS_LEGATO_EXCEPTION"] == "RefuseMessageError: no coffee here"
    assert "raise RefuseMessage" in str(letter.properties["legato_stack_trace"])


@pytest.mark.parametrize("batch_max", [1, 10])
def test_a_stage_that_keeps_failing_is_tried_so_often_and_then_a_dead_letter(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str, batch_max: int
) -> None:
    """CONTRACT D2, D20."""
    flows = make_flows(policy=Policy(concurrency=1, deliveries_max=3, batch_max=batch_max))
    attempts: list[int] = []
    other: queue.SimpleQueue[str] = queue.SimpleQueue()

    @flows.terminator("Orders.fail")
    def fail(context: Context[None], item: str) -> None:
        if item == "coffee":
            attempts.append(context.delivery_count)
            raise ValueError("the machine is broken")
        context.after_commit(lambda: other.put(item))

    with flows.initiate("orders") as initiation:
        for item in ("tea", "coffee", "milk"):
            initiation.send("Orders.fail", item)
    flows.start()
    letter = dead_letter(calm_pair.url, f"{prefix}Orders.fail")
    # The attempt of a batch is not counted as anybody's own.
    assert attempts == ([1, 2, 3] if batch_max == 1 else [1, 1, 2, 3])
    assert letter.properties["legato_attempts"] == 3
    assert sorted(other.get(timeout=WAIT_S) for _ in range(2)) == ["milk", "tea"]


def dead_letter(url: str, queue_name: str) -> Any:
    """The first dead letter of a queue."""
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        connection.start()
        letter = session.create_consumer(Queue(f"DLQ.{queue_name}")).receive(timeout_s=WAIT_S)
        assert isinstance(letter, TextMessage)
        return letter


def test_what_comes_while_a_service_stops_is_for_others_and_costs_no_attempt(make_flows: Callable[..., Flows]) -> None:
    """It waits for the stages that it has begun; one that had nothing to do began another, which was cut off."""
    flows, other = make_flows(policy=FEW), make_flows(policy=FEW)
    packing, packed = threading.Event(), threading.Event()
    priced: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()

    @flows.terminator("Orders.price")
    def price(context: Context[None], item: str) -> None:
        priced.put(("here", context.delivery_count))

    @flows.terminator("Orders.pack")
    def pack(context: Context[None], item: str) -> None:
        packing.set()
        assert packed.wait(WAIT_S)

    @other.terminator("Orders.price")
    def price_there(context: Context[None], item: str) -> None:
        priced.put(("there", context.delivery_count))

    flows.start()
    flows.send("Orders.pack", "tea", trace_id="order:1")
    assert packing.wait(WAIT_S)
    workers = [worker for worker in flows._workers if worker.name.startswith("Orders.price")]
    stopping = Calling(flows.stop)
    until(lambda: all(worker._ending.is_set() for worker in flows._workers))
    for number in range(len(workers)):
        other.send("Orders.price", "tea", trace_id=f"order:{number}")
    for worker in workers:
        worker._thread.join(WAIT_S)
    packed.set()
    assert stopping.outcome()
    other.start()
    assert [priced.get(timeout=WAIT_S) for _ in workers] == [("there", 1)] * len(workers)


def test_a_service_that_waits_for_its_first_broker_can_be_stopped() -> None:
    """It waits for a minute: who had mistyped the port could not end it with Ctrl-C."""
    program = """
from legato.flows import Context, Flows

flows = Flows("amqp://localhost:1", name="shop")


@flows.single("Shop.sell")
def sell(context: Context[None], item: str) -> str:
    return item


flows.run()
"""
    ends = (signal.SIGINT, signal.SIGTERM)
    services = [subprocess.Popen([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True) for _ in ends]
    for service, end in zip(services, ends, strict=True):
        assert service.stderr is not None
        assert "Waiting for a broker" in service.stderr.readline()
        service.send_signal(end)
    for service in services:
        with service:
            _, printed = service.communicate(timeout=WAIT_S)
            assert (service.returncode, printed) == (0, "")


class _Failing(SessionWorker):
    """A worker of which the broker refuses something at some messages."""

    def consumer(self, session: Session) -> MessageConsumer:
        return session.create_consumer(Queue("failing"))

    def take(self, session: Session, consumer: MessageConsumer, message: Message) -> None:
        session.commit()
        if message.get_body(str) == "bad":
            raise JMSError("refused.")


def test_a_worker_that_works_again_rests_shortly_at_the_next_failure(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, caplog: pytest.LogCaptureFixture
) -> None:
    """After some failures it rested for half a minute at each later one, whatever went well between."""
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        session = connection.create_session()
        for text in ("bad", "bad", "bad", "good", "bad"):
            session.create_producer(Queue("failing")).send(text)
    worker = _Failing(make_flows(), "failing")
    worker.start()
    until(lambda: len(_rests(caplog)) == 4)
    worker.end(WAIT_S)
    assert _rests(caplog) == ["0.1", "0.2", "0.4", "0.1"]


def _rests(caplog: pytest.LogCaptureFixture) -> list[str]:
    told = (record.getMessage() for record in caplog.records if record.name.endswith("session_worker"))
    return [each.rpartition("Again in ")[2].removesuffix(" s.") for each in told]

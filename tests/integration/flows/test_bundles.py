"""Stages that send bundles on real brokers, and flows that plain messages begin and end in."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from legato.amqp.names import FLOW_BUNDLE
from legato.client import BytesMessage, ConnectionFactory, Queue, TextMessage
from legato.flows import Context, Flows, Policy, RefuseMessage, Transaction
from legato.flows.model.wire import envelopes_of
from tests.integration.client.calling import until
from tests.integration.flows.test_failures import depth
from tests.integration.flows.test_service import WAIT_S, dead_letter
from tests.integration.flows.test_tracing import traced
from tests.support.broker import BrokerPair

COUNT = 40
BATCHES = Policy(concurrency=1, batch_max=20, bundle_max=20)


class Item(msgspec.Struct):
    number: int


def begin(flows: Flows, count: int = COUNT) -> None:
    with flows.initiate("items") as initiation:
        for number in range(count):
            initiation.send("Items.take", Item(number), trace_id=f"item:{number}")


@pytest.mark.parametrize("level", list(Transaction))
def test_one_that_fails_leaves_its_bundle_and_goes_to_the_dead_letters_alone(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str, tmp_path: Any, level: Transaction
) -> None:
    """CONTRACT D20: attempts are counted for each message, bundles or not."""
    flows = make_flows(
        database=f"sqlite:///{tmp_path}/test.db", policy=Policy(transaction=level, deliveries_max=2).over(BATCHES)
    )
    endpoint = flows.endpoint("Items.take")
    done: queue.SimpleQueue[tuple[int, int]] = queue.SimpleQueue()

    @endpoint.stage
    def first(context: Context[None], item: Item) -> None:
        context.next(item)

    @endpoint.last_stage
    def second(context: Context[None], item: Item) -> None:
        if item.number == 7:
            raise ValueError("not seven")
        if item.number == 8:
            raise RefuseMessage("nor eight")
        context.after_commit(lambda: done.put((item.number, context.delivery_count)))

    begin(flows)
    flows.start()
    ended = dict(done.get(timeout=WAIT_S) for _ in range(COUNT - 2))
    assert sorted(ended) == [number for number in range(COUNT) if number not in (7, 8)]
    name = f"{prefix}Items.take.stage1"
    until(lambda: depth(calm_pair, f"DLQ.{name}") == 2)
    letters = [dead_letter(calm_pair.url, name) for _ in range(2)]
    said = {str(letter.properties["legato_trace_id"]): letter.properties for letter in letters}
    assert (said["item:7"]["legato_attempts"], said["item:7"]["legato_refused"]) == (2, False)
    assert (said["item:8"]["legato_attempts"], said["item:8"]["legato_refused"]) == (1, True)
    assert done.empty()


def test_a_bundle_is_one_message_that_a_flow_of_it_is_found_in_and_stages_with_smaller_batches_divide_it(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str
) -> None:
    flows = make_flows(policy=BATCHES)
    endpoint = flows.endpoint("Items.take")
    may_go_on = threading.Event()
    batches: queue.SimpleQueue[int] = queue.SimpleQueue()

    @endpoint.stage
    def first(context: Context[None], item: Item) -> None:
        context.next(item)

    @endpoint.last_stage(batch_max=6)
    def second(context: Context[None], item: Item) -> None:
        may_go_on.wait(WAIT_S)
        context.after_commit(lambda: batches.put(item.number))

    begin(flows, 20)
    flows.start()
    name = f"{prefix}Items.take.stage1"
    until(lambda: depth(calm_pair, name) == 4)  # 6 + 6 + 6 + 2
    with ConnectionFactory(calm_pair.url).create_connection() as connection, connection.create_session() as session:
        connection.start()
        counts = [message.properties[FLOW_BUNDLE] for message in session.create_browser(Queue(name))]
    assert counts == [6, 6, 6, 2]
    assert [(step["stage"], step["state"]) for step in traced(calm_pair, prefix, "item:3")] == [
        ("Items.take", "passed"),
        ("Items.take.stage1", "waiting"),
    ]
    may_go_on.set()
    assert sorted(batches.get(timeout=WAIT_S) for _ in range(20)) == list(range(20))


def test_messages_of_other_programs_begin_flows_and_flows_send_such_messages(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str, tmp_path: Any
) -> None:
    flows = make_flows(database=f"sqlite:///{tmp_path}/test.db", policy=Policy(deliveries_max=1).over(BATCHES))
    endpoint = flows.endpoint("Items.take", plain=True)
    out = Queue(f"{prefix}out")

    @endpoint.stage
    def first(context: Context[None], item: Item) -> None:
        context.next(item)

    @endpoint.last_stage
    def second(context: Context[None], item: Item) -> None:
        context.send_message(out.name, Item(item.number + 100))

    with ConnectionFactory(calm_pair.url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(Queue(f"{prefix}Items.take"))
        for number in range(COUNT):
            producer.send(TextMessage(msgspec.json.encode(Item(number)).decode()))
        producer.send(TextMessage("no JSON"))
        begin(flows, 1)
        flows.start()
        connection.start()
        consumer = session.create_consumer(out)
        came = [consumer.receive(timeout_s=WAIT_S) for _ in range(COUNT + 1)]
    numbers = sorted(msgspec.json.decode(message.body)["number"] for message in came if message is not None)
    assert numbers == [100, *range(100, 100 + COUNT)]
    assert "item:0" in {message.correlation_id for message in came if message is not None}
    assert dead_letter(calm_pair.url, f"{prefix}Items.take").body == "no JSON"
    assert not [name for message in came if message is not None for name in message.properties if "legato" in name]


@pytest.mark.parametrize(
    "made",
    [TextMessage(f'{{"unknown":{"[" * 100_000}{"]" * 100_000}}}'), BytesMessage(b'{"name":"\xff"}')],
    ids=["deep", "not UTF-8"],
)
def test_json_of_another_program_that_nobody_can_read_is_a_dead_letter_and_the_worker_goes_on(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str, made: TextMessage | BytesMessage
) -> None:
    flows = make_flows(policy=Policy(concurrency=1))
    endpoint = flows.endpoint("Items.take", plain=True)
    taken: queue.SimpleQueue[int] = queue.SimpleQueue()

    @endpoint.last_stage
    def take(context: Context[None], item: dict[str, Any]) -> None:
        taken.put(item["number"])

    with ConnectionFactory(calm_pair.url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(Queue(f"{prefix}Items.take"))
        producer.send(made)
        producer.send(TextMessage('{"number":2}'))
        flows.start()
        connection.start()
        letter = session.create_consumer(Queue(f"DLQ.{prefix}Items.take")).receive(timeout_s=WAIT_S)
    assert letter is not None
    assert (letter.properties["legato_refused"], letter.properties["legato_attempts"]) == (True, 1)
    assert str(letter.properties["JMS_LEGATO_EXCEPTION"]).startswith("MessageFormatError: ")
    assert taken.get(timeout=WAIT_S) == 2


def test_a_bundle_that_no_flow_has_made_is_a_dead_letter(
    make_flows: Callable[..., Flows], calm_pair: BrokerPair, prefix: str
) -> None:
    flows = make_flows(policy=BATCHES)

    @flows.terminator("Items.take")
    def take(context: Context[None], item: Item) -> None:
        raise AssertionError

    with ConnectionFactory(calm_pair.url).create_connection() as connection, connection.create_session() as session:
        message = TextMessage("[]")
        message.set_property(FLOW_BUNDLE, 3)
        session.create_producer(Queue(f"{prefix}Items.take")).send(message)
    flows.start()
    letter = dead_letter(calm_pair.url, f"{prefix}Items.take")
    assert letter.body == "[]"
    with pytest.raises(Exception, match="not a message of a flow"):
        envelopes_of(letter)

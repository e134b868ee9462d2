"""Numbers and texts of peers that no record can have, or that records would repeat: they cost their sender alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from legato import limits
from legato.amqp.codec.admission import Admission
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.amqp.engine.events import TransferPart
from legato.amqp.engine.outcomes import Rejected
from legato.amqp.names import DUPLICATE_ID
from legato.core.dead_letters import DEAD_LETTER_COUNT
from legato.core.facts import LogRecord, encode_record
from legato.core.settings import AddressSettings
from legato.core.transaction import Disposal
from legato.server.links.link_roles import PublisherLink
from legato.server.messages.message_bodies import MessageBodies
from legato.server.messages.transfers import Transfers, traits_of
from tests.support.scenario import Scenario

LONG_MAX = (1 << 63) - 1


class Link:
    """A receiver that notes what is settled."""

    def __init__(self, port: PublisherLink) -> None:
        self.context = port
        self.settled: list[Any] = []

    def settle(self, _delivery: int, outcome: Any) -> None:
        """See `Receiver.settle`."""
        self.settled.append(outcome)


def message(body: bytes = b"", **properties: Any) -> bytes:
    return encode_message(header=Header(), application_properties=properties or None, body=DataBody(body))


@pytest.fixture
def scenario() -> Scenario:
    scenario = Scenario()
    scenario.broker.kernel.bodies = MessageBodies()
    return scenario


@pytest.mark.parametrize("first", [b"\x01", message()])
def test_a_large_message_under_a_number_that_no_record_can_have_is_refused(scenario: Scenario, first: bytes) -> None:
    """Its refusal was a record that could not be written: the broker ended, and the next one with the resend."""
    shell = SimpleNamespace(full="", audit=None)
    producer = scenario.broker.producers.attach("producer")
    queue = scenario.broker.directory.queue("q")
    scenario.run()
    closer, credit = SimpleNamespace(), SimpleNamespace(owe=lambda *_: None, touch=None)
    transfers = Transfers(
        cast("Any", shell), scenario.broker, *[cast("Any", each) for each in (None, closer, None, credit, None)]
    )
    peer = cast("Any", SimpleNamespace(realm="", user=None, container="c", holdings=None, rights=None))
    link: Any = Link(PublisherLink(peer, queue, producer))
    for data, last in ((first + bytes(1 << 20), False), (b"x", True)):
        transfers.part(peer, TransferPart(link, 1, b"\xff" * 32, data, not last, last, False, None), 1)
    scenario.run()
    (rejected,) = link.settled
    assert isinstance(rejected, Rejected)
    assert "a number of 62 bits" in rejected.description or first == b"\x01"
    assert queue.depth == 0


def test_duplicates_do_not_repeat_a_long_id_of_the_first_message(scenario: Scenario) -> None:
    """47 KB from a peer were a commit of 1 GB."""
    queue = scenario.broker.directory.queue("q")
    admission = Admission(None)

    def send(message_id: str) -> str:
        data = encode_message(
            header=Header(),
            properties=Properties(message_id=message_id),
            application_properties={DUPLICATE_ID: "a"},
            body=DataBody(b""),
        )
        body, told, special = admission.admit(data)
        assert body == data
        assert special is not None
        scenario.broker.publisher.publish(queue, body, told, object(), traits_of(special, scenario.now_us), "c")
        return told

    one, other = send("x" * 500_000), send("x" * 499_999 + "y")
    assert one != other
    assert max(len(one), len(other)) <= limits.ID_CHARACTERS_MAX
    for number in range(100):
        assert send(f"ID:{number}") == f"ID:{number}"
    batch = scenario.broker.take_batch(scenario.now_us)
    assert batch is not None
    assert len(encode_record(LogRecord(1, 1, batch.facts))) < 120 * limits.ID_CHARACTERS_MAX


def test_a_long_id_is_bounded_in_each_message_of_its_shape() -> None:
    admission = Admission(None)
    for number in range(4):
        data = encode_message(
            header=Header(), properties=Properties(message_id=f"{number}" * 4096), body=DataBody(b"body")
        )
        body, told, _ = admission.admit(data)
        assert (body, len(told) <= limits.ID_CHARACTERS_MAX) == (data, True)


def test_a_dead_letter_that_counts_to_the_end_is_one_more_dead_letter(scenario: Scenario) -> None:
    """It left its queue and came to no other one, and its consumer was cut off, like each one after it."""
    scenario.settings["q"] = AddressSettings(maximum_deliveries=1)
    queue = scenario.broker.directory.queue("q")
    for body in (message(b"x", **{DEAD_LETTER_COUNT: LONG_MAX}), message(b"y")):
        scenario.broker.publisher.publish(queue, body, "m", object())
    scenario.run()
    consumer = scenario.consumer("q", 10)
    for held in scenario.in_hand(consumer):
        scenario.broker.settlement.modify(consumer, held, failed=True, undeliverable_here=False)
    scenario.run()
    letters = scenario.broker.directory.find_queue("DLQ.q")
    assert letters is not None
    assert (queue.depth, letters.depth) == (0, 2)


def test_a_transaction_whose_receiver_gives_a_number_that_is_no_long_is_whole(scenario: Scenario) -> None:
    """It ended in the middle: a part was done, and its client was told that nothing was."""
    broker = scenario.broker
    queue, out = broker.directory.queue("q"), broker.directory.queue("out")
    for number in range(3):
        broker.publisher.publish(queue, message(b"%d" % number), f"m{number}", None)
    scenario.run()
    consumer = scenario.consumer("q", 3)
    first, second, third = scenario.in_hand(consumer)
    txn = broker.transactions.declare("peer")
    transaction = broker.transactions.find(txn, "peer")
    assert transaction is not None
    broker.transactions.publish(transaction, out, message(b"sent"), "sent")
    broker.transactions.acknowledge(transaction, consumer, first, Disposal(rejected=True))
    broker.transactions.acknowledge(
        transaction, consumer, second, Disposal(rejected=True, properties=(("n", 1 << 64), ("m", -(1 << 64))))
    )
    broker.transactions.acknowledge(transaction, consumer, third)
    broker.transactions.discharge(txn, "peer", fail=False, token="T")
    scenario.run()
    letters = broker.directory.find_queue("DLQ.q")
    assert letters is not None
    assert (queue.depth, letters.depth, out.depth) == (0, 2, 1)

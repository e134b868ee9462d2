"""What facts count is what there is, also after a commit that found no room: an audit adds it up."""

from typing import TypeVar

import pytest

from legato.core.facts import (
    Fact,
    MessageConsumed,
    MessageDelivered,
    MessageReleased,
    MessageReturned,
    QueueDeleted,
    QueueMarked,
    TransactionCommitted,
)
from legato.core.settings import AddressSettings
from tests.support.scenario import Scenario

Found = TypeVar("Found", bound=Fact)


def facts_of(s: Scenario, kind: type[Found]) -> list[Found]:
    return [fact for _, record in s.store.log(0, 1000) for fact in record.facts if isinstance(fact, kind)]


def test_a_commit_counts_only_what_it_consumed_of_queues_that_are_still_there() -> None:
    s = Scenario()
    s.publish("q", b"1")
    s.publish("r", b"2")
    txn = s.broker.transactions.declare("me")
    transaction = s.broker.transactions.find(txn, "me")
    assert transaction is not None
    for name in ("q", "r"):
        consumer = s.consumer(name, 1)
        s.broker.transactions.acknowledge(transaction, consumer, s.in_hand(consumer)[0])
    s.broker.deletion.delete(s.broker.directory.queue("q"))
    s.broker.transactions.discharge(txn, "me", fail=False, token="end")
    s.run()
    assert len(facts_of(s, MessageConsumed)) == 1
    assert facts_of(s, TransactionCommitted) == [TransactionCommitted(txn, 1, 0)]


@pytest.mark.parametrize("in_the_same_commit", [True, False])
def test_messages_that_found_no_room_were_not_deleted_with_their_queue(in_the_same_commit: bool) -> None:
    s = Scenario()
    s.publish("q", b"1")
    queue = s.broker.directory.queue("q")
    s.broker.publisher.publish(queue, b"2", "2", "refused")
    batch = None if in_the_same_commit else s.broker.take_batch(s.now_us)
    s.broker.deletion.delete(queue)
    batch = batch or s.broker.take_batch(s.now_us)
    assert batch is not None
    s.broker.failed("no room")
    s.run()
    assert list(s.refused) == ["refused"]
    assert facts_of(s, QueueDeleted) == [QueueDeleted(queue.id, "q", 1)]


@pytest.mark.parametrize("deleted_first", [True, False])
def test_what_a_transaction_that_found_no_room_had_consumed_was_deleted_with_the_queue(deleted_first: bool) -> None:
    s = Scenario()
    s.publish("q", b"1", b"2")
    queue = s.broker.directory.queue("q")
    consumer = s.consumer("q", 1)
    txn = s.broker.transactions.declare("me")
    transaction = s.broker.transactions.find(txn, "me")
    assert transaction is not None
    s.broker.transactions.acknowledge(transaction, consumer, s.in_hand(consumer)[0])
    s.broker.transactions.publish(transaction, s.broker.directory.queue("r"), b"3", "3")
    if deleted_first:
        s.broker.deletion.delete(queue)
    s.broker.transactions.discharge(txn, "me", fail=False, token="end")
    if not deleted_first:
        s.broker.deletion.delete(queue)
    s.full = True
    s.run()
    assert list(s.discharge_refused) == ["end"]
    assert facts_of(s, MessageConsumed) == []
    assert facts_of(s, QueueDeleted) == [QueueDeleted(queue.id, "q", 2)]


def test_a_count_is_not_carried_to_where_there_was_no_room() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=0.5)
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    s.broker.settlement.modify(consumer, s.in_hand(consumer)[0], failed=True, undeliverable_here=False)
    s.run()
    s.full = True
    s.wait(1)
    carried = [fact for fact in facts_of(s, MessageReturned) if fact.cause == "carried"]
    assert [(fact.seq, fact.count) for fact in carried] == [(3, 1)], "the second time, and only then"


def test_who_had_a_message_is_told_apart_when_its_dead_letter_found_no_room() -> None:
    """At detail `all` a message has one holder at a time: that its rejection came to nothing ends a holding too."""
    s = Scenario(detailed=True)
    s.publish("q", b"1")
    first = s.consumer("q", 1)
    s.broker.settlement.reject(first, s.in_hand(first)[0], "no")
    s.full = True
    second = s.consumer("q", 1)
    s.run()
    holdings = [
        (type(fact).__name__, fact.consumer) for fact in s.facts if isinstance(fact, MessageDelivered | MessageReleased)
    ]
    assert holdings == [
        ("MessageDelivered", first.id),
        ("MessageReleased", first.id),
        ("MessageDelivered", second.id),
    ]


def test_a_mark_does_not_count_messages_that_found_no_room() -> None:
    s = Scenario()
    s.publish("q", b"1")
    queue = s.broker.directory.queue("q")
    s.broker.publisher.publish(queue, b"2", "2", "refused")
    assert s.broker.take_batch(s.now_us) is not None
    s.broker.mark_queues()
    s.broker.failed("no room")
    s.run()
    s.broker.mark_queues()
    s.run()
    assert facts_of(s, QueueMarked) == [QueueMarked(queue.id, 2, 1, 0)]


def test_a_mark_of_a_topic_counts_what_had_copies_and_found_room() -> None:
    """Of a topic, too, an audit must see a lost tail."""
    s = Scenario()
    topic = s.broker.directory.topic("t")
    s.broker.publisher.publish(topic, b"0", "0", "unheard")
    s.run()
    s.broker.subscriptions.subscribe(topic, "subscription://c/s", container="c", durable=True, shared=True)
    s.broker.publisher.publish(topic, b"1", "1", "stored")
    s.run()
    s.broker.publisher.publish(topic, b"2", "2", "refused")
    assert s.broker.take_batch(s.now_us) is not None
    s.broker.failed("no room")
    s.run()
    s.broker.mark_queues()
    s.run()
    s.broker.mark_queues()
    s.run()
    assert [fact for fact in facts_of(s, QueueMarked) if fact.queue == topic.id] == [QueueMarked(topic.id, 3, 1, 0)]

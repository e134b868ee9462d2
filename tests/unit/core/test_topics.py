"""Topics and their subscriptions."""

from typing import Any

import pytest

from legato.core.facts import MessagePublished
from legato.core.queues import Queue
from legato.core.refusals import SubscriptionInUse
from tests.support.scenario import Scenario


def subscribe(s: Scenario, name: str, *, topic: str = "t", durable: bool = True, **options: Any) -> Queue:
    arguments: dict[str, Any] = {"container": "me", "shared": False} | options
    return s.broker.subscriptions.subscribe(s.broker.directory.topic(topic), name, durable=durable, **arguments)


def test_every_subscription_gets_a_copy_and_the_body_is_stored_once() -> None:
    """Jakarta Messaging 4.2."""
    s = Scenario()
    one, two = s.consumer(subscribe(s, "one"), 10), s.consumer(subscribe(s, "two"), 10)
    s.publish(s.broker.directory.topic("t"), b"1", b"2")
    assert s.received(one) == s.received(two) == [b"1", b"2"]
    assert s.confirmed == [b"1", b"2"]
    published = [fact for fact in s.facts if isinstance(fact, MessagePublished)]
    assert [len(fact.subscriptions) for fact in published] == [2, 2]


def test_what_is_published_before_a_subscription_or_to_nobody_is_not_kept() -> None:
    s = Scenario()
    s.publish(s.broker.directory.topic("t"), b"early")
    assert s.confirmed == [b"early"]
    consumer = s.consumer(subscribe(s, "one"), 10)
    s.publish(s.broker.directory.topic("t"), b"late")
    assert s.received(consumer) == [b"late"]


def test_a_durable_subscription_collects_while_nobody_consumes_also_over_a_takeover() -> None:
    """Jakarta Messaging 8.3.3; promise 6."""
    s = Scenario()
    s.broker.receivers.detach(s.consumer(subscribe(s, "one"), 1), clean=True)
    s.publish(s.broker.directory.topic("t"), b"1", b"2")
    other = s.crash()
    other.publish(other.broker.directory.topic("t"), b"3")
    assert other.received(other.consumer(subscribe(other, "one"), 10)) == [b"1", b"2", b"3"]


def test_a_subscription_takes_only_what_its_selector_matches_and_remembers_that_over_a_takeover() -> None:
    s = Scenario()
    subscribe(s, "red", selector="red")
    s.publish(s.broker.directory.topic("t"), b"red 1", b"blue 2")
    other = s.crash()
    other.publish(other.broker.directory.topic("t"), b"blue 3", b"red 4")
    consumer = other.consumer(subscribe(other, "red", selector="red"), 10)
    assert other.received(consumer) == [b"red 1", b"red 4"]


def test_a_no_local_subscription_does_not_get_what_its_own_connection_publishes() -> None:
    """Jakarta Messaging 8.3.1."""
    s = Scenario()
    consumer = s.consumer(subscribe(s, "one", no_local=True), 10)
    s.publish(s.broker.directory.topic("t"), b"mine", container="me")
    s.publish(s.broker.directory.topic("t"), b"theirs", container="them")
    assert s.received(consumer) == [b"theirs"]


def test_shared_consumers_divide_a_subscription() -> None:
    """Jakarta Messaging 8.3.2."""
    s = Scenario()
    one = s.consumer(subscribe(s, "shared", shared=True), 10)
    two = s.consumer(subscribe(s, "shared", shared=True), 10)
    s.publish(s.broker.directory.topic("t"), b"1", b"2", b"3", b"4")
    assert sorted(s.received(one) + s.received(two)) == [b"1", b"2", b"3", b"4"]


def test_an_unshared_subscription_has_one_consumer() -> None:
    s = Scenario()
    s.consumer(subscribe(s, "one"), 10)
    with pytest.raises(SubscriptionInUse, match="not shared"):
        subscribe(s, "one")


def test_a_shared_subscription_in_use_cannot_get_another_selector_or_topic() -> None:
    """Jakarta Messaging 8.3.4."""
    s = Scenario()
    s.consumer(subscribe(s, "one", shared=True), 10)
    for change in ({"selector": "red"}, {"topic": "other"}, {"no_local": True}):
        with pytest.raises(SubscriptionInUse, match="another topic or selector"):
            subscribe(s, "one", shared=True, **change)
    with pytest.raises(SubscriptionInUse, match="shared"):
        subscribe(s, "one", shared=False)


@pytest.mark.parametrize("change", [{"selector": "red"}, {"topic": "other"}, {"no_local": True}])
def test_an_inactive_durable_subscription_begins_anew_when_it_changes(change: dict[str, Any]) -> None:
    """Jakarta Messaging 8.3.3: as if it was unsubscribed and made again."""
    s = Scenario()
    subscribe(s, "one")
    s.publish(s.broker.directory.topic("t"), b"old red")
    consumer = s.consumer(subscribe(s, "one", **change), 10)
    s.publish(s.broker.directory.topic(str(change.get("topic", "t"))), b"new red", container="them")
    assert s.received(consumer) == [b"new red"]
    again = s.crash()
    assert again.broker.subscriptions.find("one") is not None


def test_unsubscribing_frees_the_name_and_drops_what_waits() -> None:
    s = Scenario()
    queue = subscribe(s, "one")
    s.publish(s.broker.directory.topic("t"), b"1")
    s.broker.subscriptions.unsubscribe(queue)
    s.run()
    assert s.broker.subscriptions.find("one") is None
    assert s.received(s.consumer(subscribe(s, "one"), 10)) == []
    s.broker.deletion.delete(s.broker.directory.topic("t"))
    s.run()
    assert s.crash().broker.subscriptions.find("one") is None


def test_unsubscribing_is_refused_while_there_is_a_consumer() -> None:
    s = Scenario()
    queue = subscribe(s, "one")
    s.consumer(queue, 1)
    with pytest.raises(SubscriptionInUse, match="has a consumer"):
        s.broker.subscriptions.unsubscribe(queue)


def test_a_subscription_that_is_not_durable_ends_with_its_last_consumer() -> None:
    s = Scenario()
    one = s.consumer(subscribe(s, "v", durable=False, shared=True), 1)
    two = s.consumer(subscribe(s, "v", durable=False, shared=True), 1)
    s.broker.receivers.detach(one, clean=True)
    assert s.broker.subscriptions.find("v") is not None
    s.broker.receivers.detach(two, clean=True)
    s.run()
    assert s.broker.subscriptions.find("v") is None
    assert not s.broker.directory.topic("t").subscriptions


def test_what_an_epoch_left_behind_goes_after_a_while_unless_its_client_comes_back() -> None:
    s = Scenario()
    for name in ("returns", "stays away"):
        s.consumer(subscribe(s, name, durable=False), 1)
    other = s.crash()
    consumer = other.consumer(subscribe(other, "returns", durable=False), 10)
    other.publish(other.broker.directory.topic("t"), b"1")
    other.wait(61)
    assert set(other.broker.directory.topic("t").subscriptions) == {"returns"}
    assert other.received(consumer) == [b"1"]
    other.publish(other.broker.directory.topic("t"), b"2")
    other.accept(consumer, *other.in_hand(consumer))
    assert other.crash().broker.subscriptions.find("stays away") is None


def test_a_transaction_publishes_to_topics_at_its_commit() -> None:
    """Jakarta Messaging 6.2.7."""
    s = Scenario()
    consumer = s.consumer(subscribe(s, "one"), 10)
    txn = s.broker.transactions.declare("me")
    transaction = s.broker.transactions.find(txn, "me")
    assert transaction is not None
    s.broker.transactions.publish(transaction, s.broker.directory.topic("t"), b"1", "1")
    s.run()
    assert s.received(consumer) == []
    s.broker.transactions.discharge(txn, "me", fail=False, token="end")
    s.run()
    assert s.received(consumer) == [b"1"]
    assert s.discharged == ["end"]


def test_counts_of_one_subscription_are_not_those_of_another() -> None:
    s = Scenario()
    one, two = s.consumer(subscribe(s, "one"), 1), s.consumer(subscribe(s, "two"), 1)
    s.publish(s.broker.directory.topic("t"), b"1")
    s.broker.settlement.modify(one, s.in_hand(one)[0], failed=True, undeliverable_here=False)
    s.run()
    s.broker.receivers.flow(one, 1, False, s.now_us)
    s.run()
    assert s.in_hand(one)[0].count == 1
    assert s.in_hand(two)[0].count == 0


def test_a_deleted_topic_takes_its_subscriptions_along() -> None:
    s = Scenario()
    consumer = s.consumer(subscribe(s, "one"), 10)
    s.publish(s.broker.directory.topic("t"), b"1")
    topic = s.broker.directory.topic("t")
    assert s.broker.deletion.delete(topic) == [consumer]
    s.broker.publisher.publish(topic, b"2", "2", "2")
    s.run()
    assert s.refused == {"2": "amqp:not-found"}
    assert s.broker.directory.find_topic("t") is None
    assert s.crash().broker.directory.find_topic("t") is None

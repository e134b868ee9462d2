"""Delivery delay and expiry."""

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from legato import limits
from legato.core.facts import MessageMoved, MessageStored
from legato.core.settings import AddressSettings
from legato.core.traits import Traits
from tests.support.scenario import Scenario

SECOND_US = 1_000_000


def test_a_delayed_message_comes_when_it_is_due_also_after_a_takeover() -> None:
    """Jakarta Messaging 7.9."""
    s = Scenario()
    s.publish("q", b"later", deliver_us=s.now_us + 5 * SECOND_US)
    s.publish("q", b"now")
    consumer = s.consumer("q", 10)
    assert s.received(consumer) == [b"now"]
    assert s.confirmed == [b"later", b"now"]
    s.wait(2)
    other = s.crash()
    again = other.consumer("q", 10)
    other.wait(2)
    assert other.received(again) == [b"now"]
    other.wait(1.2)
    assert other.received(again) == [b"later"]
    other.accept(again, *other.in_hand(again))
    assert [queue.depth for queue in other.crash().broker.directory.queues.values()] == []
    assert other.broker.directory.queue("q").depth == other.broker.directory.queues["$schedule"].depth == 0


def test_delayed_messages_come_in_the_order_of_their_times() -> None:
    s = Scenario()
    for delay in (3, 1, 2):
        s.publish("q", b"%d" % delay, deliver_us=s.now_us + delay * SECOND_US)
    consumer = s.consumer("q", 10)
    s.wait(4)
    assert s.received(consumer) == [b"1", b"2", b"3"]


def test_many_messages_may_be_due_in_the_same_instant() -> None:
    s = Scenario()
    due_us = s.now_us + SECOND_US
    s.publish("q", *(b"%d" % n for n in range(700)), deliver_us=due_us)
    other = s.crash()
    other.publish("q", *(b"%d" % n for n in range(700, 1400)), deliver_us=due_us)
    consumer = other.consumer("q", 2000)
    other.wait(2)
    assert len(set(other.received(consumer))) == 1400


def test_a_delayed_publication_reaches_the_subscriptions_of_its_time() -> None:
    s = Scenario()
    topic = s.broker.directory.topic("t")
    s.publish(topic, b"1", deliver_us=s.now_us + SECOND_US)
    consumer = s.consumer(
        s.broker.subscriptions.subscribe(topic, "one", container="me", durable=True, shared=False), 10
    )
    s.wait(2)
    assert s.received(consumer) == [b"1"]


@pytest.mark.parametrize("seen_by", [None, b"1", b"other"])
def test_expired_messages_are_not_delivered(seen_by: bytes | None) -> None:
    """Jakarta Messaging 3.4.9."""
    s = Scenario()
    s.publish("q", b"1", expires_us=s.now_us + SECOND_US)
    s.publish("q", b"2")
    s.now_us += 2 * SECOND_US
    consumer = s.consumer("q", 10, wants=None if seen_by is None else seen_by)
    assert b"1" not in s.received(consumer)
    assert [fact.cause for fact in s.facts if isinstance(fact, MessageMoved)] == ["expired"]


def test_what_waits_expires_without_anybody_looking() -> None:
    s = Scenario()
    s.publish("q", *(b"%d" % n for n in range(1200)), expires_us=s.now_us + SECOND_US)
    s.publish("q", b"stays")
    s.wait(3)
    assert s.broker.directory.queue("q").depth == 1
    assert s.crash().broker.directory.queue("q").depth == 1


def test_a_backlog_that_has_expired_goes_in_slices_before_who_asks_gets_what_has_not() -> None:
    """All of it went in one turn of the loop: of half a million the watchdog would have ended the primary, and then the
    next one."""
    s = Scenario()
    count = 3 * limits.SCAN_MESSAGES + 7
    s.publish("q", *(b"%d" % n for n in range(count)), expires_us=s.now_us + SECOND_US)
    s.publish("q", b"stays")
    s.now_us += 2 * SECOND_US
    consumer = s.consumer("q", 1)
    assert s.received(consumer) == [b"stays"]
    expired = [
        sum(isinstance(fact, MessageMoved) for fact in record.facts)
        for _, record in s.store.log(0, limits.SCAN_MESSAGES)
    ]
    assert sum(expired) == count
    assert max(expired) <= limits.SCAN_MESSAGES


def test_what_expired_in_the_window_is_not_read_into_the_next_one() -> None:
    """It was expired twice, and counted as gone twice. The simulator found it, seed 5302558 of its time."""
    s = Scenario()
    s.publish("q", b"0")
    first = s.consumer("q", 1)
    s.publish("q", b"stays")
    s.publish("q", b"expires", expires_us=s.now_us + SECOND_US)
    s.publish("q", b"stays too")
    s.now_us += 2 * SECOND_US
    s.broker.tick(s.now_us)
    s.broker.receivers.detach(first, clean=True)
    second = s.consumer("q", 5)
    assert [fact.cause for fact in s.facts if isinstance(fact, MessageMoved)] == ["expired"]
    assert s.received(second) == [b"0", b"stays", b"stays too"]
    assert s.broker.directory.queue("q").depth == 3


def test_what_is_in_the_window_expires_too() -> None:
    s = Scenario()
    s.publish("q", b"0")
    consumer = s.consumer("q", 1)
    s.publish("q", b"1", expires_us=s.now_us + SECOND_US)
    s.publish("q", b"2")
    s.wait(2)
    assert s.broker.directory.queue("q").depth == 2
    s.broker.receivers.flow(consumer, 5, False, s.now_us)
    s.run()
    assert s.received(consumer) == [b"0", b"2"]


def test_what_somebody_has_does_not_expire_under_his_hands() -> None:
    s = Scenario()
    s.publish("q", b"1", expires_us=s.now_us + SECOND_US)
    consumer = s.consumer("q", 1)
    s.wait(3)
    s.accept(consumer, *s.in_hand(consumer))
    assert s.broker.directory.queue("q").depth == 0
    assert not [fact for fact in s.facts if isinstance(fact, MessageMoved)]


def test_what_comes_back_after_its_time_is_over_expires() -> None:
    """CONTRACT C9, C11c: after a recover some originals may have expired."""
    s = Scenario()
    s.publish("q", b"1", expires_us=s.now_us + SECOND_US)
    consumer = s.consumer("q", 1)
    s.wait(2)
    s.broker.settlement.modify(consumer, s.in_hand(consumer)[0], failed=True, undeliverable_here=False)
    s.broker.receivers.flow(consumer, 1, False, s.now_us)
    s.run()
    s.received(consumer)
    assert s.in_hand(consumer) == []
    s.wait(1)
    assert s.broker.directory.queue("q").depth == 0


def test_expired_messages_go_to_the_expiry_queue_of_their_address() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(expiry_queue="EXPIRED.{address}")
    s.publish("q", b"1", expires_us=s.now_us + SECOND_US)
    s.wait(3)
    [letter] = s.received(s.consumer("EXPIRED.q", 1))
    assert letter.endswith(b";1")


def test_copies_of_a_topic_expire_each_for_itself() -> None:
    s = Scenario()
    topic = s.broker.directory.topic("t")
    queues = [
        s.broker.subscriptions.subscribe(topic, name, container="me", durable=True, shared=False)
        for name in ("one", "two")
    ]
    consumer = s.consumer(queues[0], 1)
    s.publish(topic, b"1", expires_us=s.now_us + SECOND_US)
    s.wait(3)
    assert [queue.depth for queue in queues] == [1, 0]
    s.accept(consumer, *s.in_hand(consumer))
    assert s.crash().broker.directory.lookup("t") is not None


def test_what_is_due_goes_once_even_if_an_earlier_commit_ends_meanwhile() -> None:
    s = Scenario()
    s.publish("q", b"later", deliver_us=s.now_us + SECOND_US)
    consumer = s.consumer("q", 10)
    s.broker.publisher.publish(s.broker.directory.queue("other"), b"slow", "slow", b"slow")
    slow = s.broker.take_batch(s.now_us)
    assert slow is not None
    s.broker.tick(s.now_us + 2 * SECOND_US)
    s.store.commit(slow)
    s.broker.committed(s.now_us + 2 * SECOND_US)
    s.broker.tick(s.now_us + 2 * SECOND_US)
    s.run()
    assert s.received(consumer) == [b"later"]


def test_very_many_messages_may_be_due_in_the_last_instant() -> None:
    """Behind it there is no place: the broker ended when the first of them became durable."""
    s = Scenario()
    s.publish("q", b"first", deliver_us=limits.TIME_MS_MAX * 1000)
    schedule = s.broker.router.open_schedule
    assert schedule is not None
    others = {limits.TIME_MS_MAX << 14 | number for number in range(1 << 14)}
    schedule.uncommitted.update(others)
    queue = s.broker.directory.queue("q")
    for name, due_us in (("second", limits.TIME_MS_MAX * 1000), ("third", limits.TIME_MS_MAX * 1_000_000)):
        s.broker.publisher.publish(queue, name.encode(), name, name.encode(), Traits(deliver_us=due_us))
    schedule.uncommitted.difference_update(others)
    s.run()
    assert s.confirmed == [b"first", b"second", b"third"]
    consumer = s.consumer("q", 10)
    s.now_us = limits.TIME_MS_MAX * 1000
    s.wait(1)
    assert sorted(s.received(consumer)) == [b"first", b"second", b"third"]


@pytest.mark.parametrize("expires_us", [-5, limits.TIME_MS_MAX * 2000, 1 << 63])
def test_an_expiry_that_a_former_version_added_up_wrong_is_not_stored_again(expires_us: int) -> None:
    """The commit that moved the message ended each broker, or the ledger's exporter could not write it down."""
    s = Scenario()
    s.settings["q"] = AddressSettings(redelivery_delay_s=1.0, maximum_deliveries=5)
    s.publish("q", b"later", expires_us=expires_us, deliver_us=s.now_us + SECOND_US)
    s.publish("q", b"again", expires_us=max(expires_us, 0))
    consumer = s.consumer("q", 10)
    [message] = s.in_hand(consumer)
    before = len(s.facts)
    assert s.broker.settlement.modify(consumer, message, failed=True, undeliverable_here=False)
    s.run()
    s.wait(3)
    assert sorted(s.received(consumer)[-2:]) == [b"again", b"later"]
    stored = [fact for fact in s.facts[before:] if isinstance(fact, MessageStored)]
    assert {fact.expires_us for fact in stored} == {0}
    assert len(stored) == 3


def bytes_stored_by_commit(s: Scenario, after: int) -> list[int]:
    records = [record for _, record in s.store.log(after, limits.SCAN_MESSAGES)]
    return [sum(fact.size for fact in each.facts if isinstance(fact, MessageStored)) for each in records]


def log_length(s: Scenario) -> int:
    return len(s.store.log(0, limits.SCAN_MESSAGES))


def test_large_messages_that_are_due_together_go_in_several_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    """500 of a mebibyte were read and committed in one tick: 500 MiB."""
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 10_000)
    s = Scenario()
    bodies = [b"%d" % n + b"x" * 1000 for n in range(100)]
    s.publish("q", *bodies, deliver_us=s.now_us + SECOND_US)
    before = log_length(s)
    consumer = s.consumer("q", 100)
    s.wait(4)
    assert s.received(consumer) == bodies
    assert max(bytes_stored_by_commit(s, before)) < 12_000


@pytest.mark.parametrize("in_window", [False, True])
def test_large_messages_that_expire_together_go_in_several_commits(
    monkeypatch: pytest.MonkeyPatch, in_window: bool
) -> None:
    monkeypatch.setattr(limits, "BATCH_BYTES_MAX", 10_000)
    s = Scenario()
    s.settings["q"] = AddressSettings(expiry_queue="EXPIRED")
    if in_window:
        s.consumer("q", 1)
        s.publish("q", b"in hand")
    s.publish("q", *(b"%d" % n + b"x" * 1000 for n in range(100)), expires_us=s.now_us + SECOND_US)
    before = log_length(s)
    # While the disk is slow, many ticks come before the next commit.
    s.now_us += 2 * SECOND_US
    for _ in range(20):
        s.now_us += SECOND_US
        s.broker.tick(s.now_us)
    s.wait(4)
    assert s.broker.directory.queue("EXPIRED").depth == 100
    assert max(bytes_stored_by_commit(s, before)) < 14_000


class _Window(deque[Any]):
    """Counts how often somebody looks through all of it."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        self.looks += 1
        return super().__iter__()

    def remove(self, value: Any) -> None:
        self.looks += 1
        super().remove(value)


def test_the_window_is_not_looked_through_for_each_that_is_over_and_in_flight() -> None:
    """600 in flight before a full window held the loop for half a second, several times a second."""
    s = Scenario()
    consumer = s.consumer("q", 100)
    s.publish("q", *(b"%d" % n for n in range(100)), expires_us=s.now_us + SECOND_US)
    s.publish("q", b"stays", b"stays too", expires_us=s.now_us + 60 * SECOND_US)
    s.publish("q", *(b"expires %d" % n for n in range(100)), expires_us=s.now_us + SECOND_US)
    lane = s.broker.directory.queue("q").main
    lane.ready = looked = _Window(lane.ready)
    assert len(looked) == 102
    s.now_us += 2 * SECOND_US
    s.broker.tick(s.now_us)
    assert looked.looks <= 3
    lane.ready = looked = _Window(lane.ready)
    s.now_us += 2 * SECOND_US
    s.broker.tick(s.now_us)
    assert looked.looks <= 3
    s.run()
    assert s.broker.directory.queue("q").depth == 102
    s.accept(consumer, *s.in_hand(consumer))
    s.broker.receivers.flow(consumer, 10, False, s.now_us)
    s.run()
    assert s.received(consumer)[-2:] == [b"stays", b"stays too"]


def test_what_expires_is_looked_for_after_the_clock_was_set_back() -> None:
    """Set back an hour, nothing expired for an hour unless somebody looked."""
    s = Scenario()
    s.wait(1)
    s.now_us += 3600 * SECOND_US
    s.wait(1)
    s.now_us -= 3600 * SECOND_US
    s.publish("q", b"1", expires_us=s.now_us + SECOND_US)
    s.wait(3)
    assert s.broker.directory.queue("q").depth == 0

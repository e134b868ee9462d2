"""Order, credit and settlement on queues."""

from typing import Any

import pytest

from legato import limits
from legato.core.consumers import Cursor
from legato.core.facts import MessageConsumed, MessageDeadLettered, MessageReturned, MessageStored
from legato.core.lanes import Lane
from tests.support.scenario import Scenario


def test_nothing_is_visible_before_its_commit() -> None:
    s = Scenario()
    consumer = s.consumer("q", 10)

    s.broker.publisher.publish(s.broker.directory.queue("q"), b"m1", "m1", "token")
    batch = s.broker.take_batch(s.now_us)
    assert batch is not None
    assert s.broker.take_effects() == []
    assert s.confirmed == []

    s.store.commit(batch)
    s.broker.committed(s.now_us)
    s._perform(s.broker.take_effects())
    assert s.confirmed == ["token"]
    assert s.received(consumer) == [b"m1"]


def test_messages_come_in_order_and_under_credit() -> None:
    s = Scenario()
    s.publish("q", b"1", b"2", b"3", b"4")
    consumer = s.consumer("q", 2)
    assert s.received(consumer) == [b"1", b"2"]

    s.broker.receivers.flow(consumer, 1, False, s.now_us)
    s.run()
    assert s.received(consumer) == [b"3"]


def test_several_consumers_share_a_queue_in_turn() -> None:
    s = Scenario()
    one, two = s.consumer("q", 10), s.consumer("q", 10)
    s.publish("q", *(b"%d" % n for n in range(6)))
    assert s.received(one) == [b"0", b"2", b"4"]
    assert s.received(two) == [b"1", b"3", b"5"]


def test_a_consumer_that_drained_keeps_its_turn() -> None:
    s = Scenario()
    one, two = s.consumer("q", 10), s.consumer("q", 10)
    s.publish("q", b"1")
    s.broker.receivers.flow(two, 10, True, s.now_us)
    s.run()
    s.broker.receivers.flow(two, 10, False, s.now_us)
    s.publish("q", b"2", b"3")
    assert s.received(one) == [b"1", b"3"]
    assert s.received(two) == [b"2"]


def test_an_accepted_message_is_gone_for_good() -> None:
    s = Scenario()
    s.publish("q", b"1")
    consumer = s.consumer("q", 10)
    s.accept(consumer, *s.in_hand(consumer))
    assert any(isinstance(fact, MessageConsumed) for fact in s.facts)

    after = s.crash()
    assert after.received(after.consumer("q", 10)) == []


def test_an_acknowledgement_is_confirmed_when_it_is_durable() -> None:
    s = Scenario()
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    assert s.broker.settlement.acknowledge(consumer, s.in_hand(consumer)[0], confirm=True)
    assert s.acknowledged == []
    s.run()
    assert s.acknowledged == [1]


def test_a_released_message_returns_to_its_place_uncounted() -> None:
    s = Scenario()
    s.publish("q", b"1", b"2", b"3")
    consumer = s.consumer("q", 2)
    first, second = s.in_hand(consumer)
    s.broker.settlement.release(consumer, second)
    s.broker.settlement.release(consumer, first)
    s.run()
    s.received(consumer)

    other = s.consumer("q", 3)
    assert s.received(other) == [b"1", b"2", b"3"]
    assert s.seen["q", 1] == (0, False)
    assert not any(isinstance(fact, MessageReturned) for fact in s.facts)


def test_a_failed_delivery_counts_and_the_count_survives_a_crash() -> None:
    """Promise 4."""
    s = Scenario()
    s.publish("q", b"1")
    for _ in range(2):
        consumer = s.consumer("q", 1)
        message = s.in_hand(consumer)[0]
        s.broker.settlement.modify(consumer, message, failed=True, undeliverable_here=False)
        s.broker.receivers.detach(consumer, clean=True)
        s.run()

    after = s.crash()
    after.consumer("q", 1)
    assert after.seen["q", 1] == (2, True)


def test_a_message_undeliverable_here_goes_to_another_consumer() -> None:
    s = Scenario()
    s.publish("q", b"1")
    one = s.consumer("q", 10)
    s.broker.settlement.modify(one, s.in_hand(one)[0], failed=True, undeliverable_here=True)
    s.run()
    s.received(one)
    assert s.in_hand(one) == []

    two = s.consumer("q", 10)
    assert s.received(two) == [b"1"]


def test_a_rejected_message_goes_to_the_dead_letters_in_one_commit() -> None:
    s = Scenario()
    s.publish("q", b"bad")
    consumer = s.consumer("q", 1)
    s.broker.settlement.reject(consumer, s.in_hand(consumer)[0], "cannot be parsed")
    s.run()

    dead = next(fact for fact in s.facts if isinstance(fact, MessageDeadLettered))
    assert dead.cause == "rejected"
    copy = [fact for fact in s.facts if isinstance(fact, MessageStored)][-1]
    assert copy.origin == (dead.queue, dead.seq)
    [letter] = s.received(s.consumer("DLQ.q", 1))
    assert letter.endswith(b";bad")
    assert b"cannot be parsed" in letter
    assert s.crash().broker.directory.queue("q").depth == 0


def test_what_an_unclean_end_may_have_shown_is_flagged() -> None:
    """CONTRACT B16: every message redeliverable to another receiver is flagged."""
    s = Scenario()
    s.publish("q", b"1", b"2", b"3")
    consumer = s.consumer("q", 2)
    s.broker.receivers.detach(consumer, clean=False)
    other = s.consumer("q", 3)
    assert s.received(other) == [b"1", b"2", b"3"]
    assert [s.seen["q", seq][1] for seq in (1, 2, 3)] == [True, True, False]


def test_only_presented_messages_are_counted_when_a_consumer_ends() -> None:
    """Promise 4: those waiting in a prefetch buffer do not count."""
    s = Scenario()
    s.publish("q", b"1", b"2")
    consumer = s.consumer("q", 2, exact=True)
    s.broker.presentations.present(consumer, s.in_hand(consumer)[0])
    s.broker.receivers.detach(consumer, clean=True)
    s.run()
    s.consumer("q", 2)
    assert s.seen["q", 1] == (1, False)
    assert s.seen["q", 2] == (0, False)


def test_a_crash_flags_all_that_may_have_been_delivered_and_nothing_else() -> None:
    """Promise 4: `redelivered` is never falsely unset."""
    s = Scenario()
    s.publish("q", b"1", b"2", b"3", b"4")
    s.consumer("q", 2)

    after = s.crash()
    after.consumer("q", 4)
    assert [after.seen["q", seq][1] for seq in (1, 2, 3, 4)] == [True, True, False, False]


def test_a_presentation_that_lasted_counts_after_a_crash() -> None:
    s = Scenario()
    s.publish("q", b"1", b"2")
    consumer = s.consumer("q", 2, exact=True)
    s.broker.presentations.present(consumer, s.in_hand(consumer)[0])
    s.broker.tick(s.now_us)
    s.broker.tick(s.now_us)
    s.run()

    after = s.crash()
    after.consumer("q", 2)
    assert after.seen["q", 1] == (1, True)
    assert after.seen["q", 2] == (0, True)


def test_a_drain_gives_everything_there_is_and_then_the_credit_back() -> None:
    """AMQP 2.6.7; amqp.md A5."""
    s = Scenario()
    s.publish("q", b"1", b"2")
    consumer = s.consumer("q", 0)
    s.broker.receivers.flow(consumer, 10, True, s.now_us)
    assert s.drained == []
    s.run()
    assert s.received(consumer) == [b"1", b"2"]
    assert s.drained == [consumer]
    assert consumer.credit == 0

    s.publish("q", b"3")
    assert s.received(consumer) == []


def test_a_backlog_longer_than_the_window_comes_whole_and_in_order() -> None:
    """Promise 6: the heap holds a window, the rest waits on disk."""
    s = Scenario()
    total = 2 * limits.WINDOW_MESSAGES + 17
    s.publish("q", *(b"%d" % n for n in range(total)))
    assert len(s.broker.directory.queue("q").main.ready) == 0, "nobody receives, so nothing is kept in the heap"
    consumer = s.consumer("q", total)
    assert s.received(consumer) == [b"%d" % n for n in range(total)]


def test_publishing_while_the_window_is_behind_keeps_the_order() -> None:
    s = Scenario()
    backlog = limits.WINDOW_MESSAGES + 5
    s.publish("q", *(b"%d" % n for n in range(backlog)))
    consumer = s.consumer("q", 3)
    s.publish("q", b"late")
    s.broker.receivers.flow(consumer, backlog, False, s.now_us)
    s.run()
    assert s.received(consumer) == [*(b"%d" % n for n in range(backlog)), b"late"]


def test_the_window_leaves_the_heap_with_the_last_consumer() -> None:
    s = Scenario()
    s.publish("q", *(b"%d" % n for n in range(100)))
    consumer = s.consumer("q", 10)
    assert len(s.broker.directory.queue("q").main.window()) == limits.FIRST_LOAD_MESSAGES - 10
    s.broker.receivers.detach(consumer, clean=True)
    assert len(s.broker.directory.queue("q").main.ready) == 0
    other = s.consumer("q", 100)
    assert s.received(other) == [b"%d" % n for n in range(100)]


def test_a_browser_sees_what_waits_and_takes_nothing() -> None:
    """Jakarta Messaging 6.1.8."""
    s = Scenario()
    s.publish("q", b"1", b"2", b"3")
    browser = s.broker.browsers.browse(s.broker.directory.queue("q"), None)
    s.broker.browsers.flow(browser, 2, False)
    s.run()
    assert s.shown == [1, 2]
    s.publish("q", b"4")
    s.broker.browsers.flow(browser, 10, True)
    s.run()
    assert s.shown == [1, 2, 3]
    assert s.drained == [browser]
    assert s.broker.directory.queue("q").depth == 4


def test_a_blocked_consumer_gets_nothing_until_its_socket_drains() -> None:
    s = Scenario()
    consumer = s.consumer("q", 10)
    s.broker.receivers.block(consumer, True, s.now_us)
    s.publish("q", b"1")
    assert s.received(consumer) == []
    s.broker.receivers.block(consumer, False, s.now_us)
    s.run()
    assert s.received(consumer) == [b"1"]


def test_what_returns_with_a_count_is_not_overtaken_by_what_returns_without() -> None:
    """The count must be durable first; nothing is dispatched past the message meanwhile."""
    s = Scenario()
    s.publish("q", b"1", b"2")
    consumer = s.consumer("q", 2, exact=True)
    waiting = s.consumer("q", 2)
    s.broker.presentations.present(consumer, s.in_hand(consumer)[0])
    s.broker.receivers.detach(consumer, clean=True)
    s.run()
    assert s.received(waiting) == [b"1", b"2"]


def test_credit_that_is_told_twice_is_used_up_once() -> None:
    """AMQP 2.6.7: more credit and a drain may come in one read, or another consumer's flow between the two."""
    s = Scenario()
    consumer, other = s.consumer("q", 0), s.consumer("q", 0)
    s.publish("q", b"1", b"2", b"3", b"4", b"5", b"6")
    s.broker.receivers.flow(consumer, 1, False, s.now_us)
    s.broker.receivers.flow(other, 1, False, s.now_us)
    s.broker.receivers.flow(consumer, 1, True, s.now_us)
    s.broker.receivers.flow(other, 1, True, s.now_us)
    s.run()
    assert s.received(consumer) == [b"1"]
    assert s.received(other) == [b"2"]


def test_a_consumer_is_given_a_run_at_a_time_until_its_socket_took_it() -> None:
    """Large messages must not pile up in memory, nor the first wait for the last."""
    s = Scenario()
    size = limits.DELIVERY_BYTES_IN_ONE_GO // 2
    s.publish("q", *(b"%d" % n * size for n in range(6)))
    consumer, _ = s.broker.receivers.attach(s.broker.directory.queue("q"), None, "c")
    s.inbox[consumer] = []
    s.broker.receivers.flow(consumer, 6, True, s.now_us)
    s.broker.dispatcher.dispatch_returned(s.now_us)
    while s.step():
        pass
    assert len(s.received(consumer)) == 2
    assert s.drained == [], "there is more to come"
    s.resume()
    assert len(s.received(consumer)) == 2
    s.run()
    assert len(s.received(consumer)) == 2
    assert s.drained == [consumer]


def test_a_drain_waits_for_what_was_published_before_it_and_is_not_durable_yet() -> None:
    """amqp.md A5: a client that sent and then looks must find what it sent."""
    s = Scenario()
    consumer = s.consumer("q", 0)
    s.broker.publisher.publish(s.broker.directory.queue("q"), b"1", "1", None)
    s.broker.receivers.flow(consumer, 5, True, s.now_us)
    assert s.broker.take_effects() == []
    s.run()
    assert s.received(consumer) == [b"1"]
    assert s.drained == [consumer]


def test_a_drain_does_not_wait_for_what_the_store_refused() -> None:
    s = Scenario()
    consumer = s.consumer("q", 0)
    s.broker.publisher.publish(s.broker.directory.queue("q"), b"1", "1", "1")
    s.broker.receivers.flow(consumer, 5, True, s.now_us)
    s.full = True
    s.run()
    assert s.refused == {"1": "amqp:resource-limit-exceeded"}
    assert s.drained == [consumer]


def test_a_browser_sees_what_was_published_before_it_came() -> None:
    s = Scenario()
    s.broker.publisher.publish(s.broker.directory.queue("q"), b"1", "1", None)
    browser = s.broker.browsers.browse(s.broker.directory.queue("q"), None)
    s.broker.publisher.publish(s.broker.directory.queue("q"), b"2", "2", None)
    s.broker.browsers.flow(browser, 5, True)
    s.run()
    assert s.shown == [1]
    assert s.drained == [browser]


def test_what_is_durable_and_not_announced_yet_is_not_waited_for() -> None:
    """A commit may be in the store before the broker hears so; nothing that was visible waits before it."""
    s = Scenario()
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    s.accept(consumer, *s.in_hand(consumer))
    s.broker.publisher.publish(s.broker.directory.queue("q"), b"2", "2", b"2")
    batch = s.broker.take_batch(s.now_us)
    assert batch is not None
    s.store.commit(batch)
    s.broker.directory.queue("q").main.restart()
    s.broker.receivers.flow(consumer, 1, False, s.now_us)
    assert s.received(consumer) == [b"1"]
    s.broker.committed(s.now_us)
    s.run()
    assert s.received(consumer) == [b"2"]


@pytest.mark.parametrize("others", [0, 1])
def test_what_a_consumer_is_not_to_have_again_is_not_looked_through_with_each_flow(
    monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Of 20,000 each flow took all and put them back: half a second for a frame of 30 bytes."""
    looks = 0
    for of, name in ((Lane, "take_returned"), (Cursor, "drop")):
        real = getattr(of, name)

        def counted(self: Any, real: Any = real) -> Any:
            nonlocal looks
            looks += 1
            return real(self)

        monkeypatch.setattr(of, name, counted)
    s = Scenario()
    bodies = [b"%d" % number for number in range(2000)]
    s.publish("q", *bodies)
    refusers = [s.consumer("q", 3000) for _ in range(1 + others)]
    for _ in refusers:
        for consumer in refusers:
            for message in s.in_hand(consumer):
                s.broker.settlement.modify(consumer, message, failed=False, undeliverable_here=True)
        s.run()
    looks = 0
    for _ in range(50):
        for consumer in refusers:
            s.received(consumer)
            s.broker.receivers.flow(consumer, 10, False, s.now_us)
            s.run()
            assert s.received(consumer) == []
    assert looks <= 2 * len(refusers) * len(bodies)
    s.publish("q", b"new")
    assert [body for consumer in refusers for body in s.received(consumer)] == [b"new"]
    taker = s.consumer("q", 3000)
    assert s.received(taker) == bodies
    for consumer in refusers:
        s.broker.receivers.detach(consumer, clean=True)
        s.run()
    s.accept(taker, *s.in_hand(taker))
    assert not s.broker.directory.queue("q").selecting
    s.publish("q", b"last")
    assert s.received(taker)[-1:] == [b"last"]


def test_a_drain_passes_over_all_that_the_consumer_is_not_to_have_again() -> None:
    s = Scenario()
    s.publish("q", *(b"%d" % number for number in range(1500)))
    consumer = s.consumer("q", 1500)
    for message in s.in_hand(consumer):
        s.broker.settlement.modify(consumer, message, failed=False, undeliverable_here=True)
    s.run()
    s.received(consumer)
    s.broker.publisher.publish(s.broker.directory.queue("q"), b"new", "new", b"new")
    s.broker.receivers.flow(consumer, 10, True, s.now_us)
    s.run()
    assert (s.received(consumer), s.drained) == ([b"new"], [consumer])

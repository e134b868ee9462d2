"""Priorities, over the whole backlog."""

from legato import limits
from tests.support.scenario import Scenario


def test_higher_priorities_come_first_and_equal_ones_in_order() -> None:
    """Jakarta Messaging 3.4.10."""
    s = Scenario()
    for priority in (0, 4, 9, 4, 7, 9):
        s.publish("q", b"%d" % priority + b"%d" % len(s.confirmed), priority=priority)
    assert s.received(s.consumer("q", 10)) == [b"92", b"95", b"74", b"41", b"43", b"00"]


def test_a_late_message_of_high_priority_overtakes_a_backlog_on_disk() -> None:
    s = Scenario()
    s.publish("q", *(b"%d" % n for n in range(limits.WINDOW_MESSAGES + 100)))
    consumer = s.consumer("q", 1)
    assert s.received(consumer) == [b"0"]
    s.publish("q", b"urgent", priority=9)
    s.broker.receivers.flow(consumer, 2, False, s.now_us)
    s.run()
    assert s.received(consumer) == [b"urgent", b"1"]


def test_priorities_hold_over_a_takeover_and_for_what_came_back() -> None:
    s = Scenario()
    s.publish("q", b"low", priority=1)
    s.publish("q", b"high", priority=8)
    consumer = s.consumer("q", 1)
    assert s.received(consumer) == [b"high"]
    other = s.crash()
    again = other.consumer("q", 2)
    assert other.received(again) == [b"high", b"low"]
    high, low = (m.seq for m in reversed(other.in_hand(again)))
    assert other.seen["q", high] == (0, True)
    assert other.seen["q", low][0] == 0
    other.accept(again, *other.in_hand(again))
    other.publish("q", b"next", priority=8)
    assert other.crash().broker.directory.queue("q").depth == 1


def test_what_came_back_keeps_its_place_among_its_priority() -> None:
    s = Scenario()
    s.publish("q", b"1", b"2", priority=5)
    consumer = s.consumer("q", 1)
    s.broker.settlement.release(consumer, s.in_hand(consumer)[0])
    s.publish("q", b"3", priority=6)
    s.received(consumer)
    s.broker.receivers.flow(consumer, 3, False, s.now_us)
    s.run()
    assert s.received(consumer) == [b"3", b"1", b"2"]

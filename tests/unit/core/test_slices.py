"""Looking through messages takes no more of a turn than its share, however long one of them takes (SECURITY 8)."""

from __future__ import annotations

from legato import limits
from tests.support.scenario import Scenario

LOOK_MS = 4
PER_SLICE = limits.SCAN_MS // LOOK_MS + 2


class Slow:
    """Selectors that take their time, and a clock that tells of it."""

    def __init__(self, scenario: Scenario) -> None:
        self.now_ms = 0
        self.looked = 0
        self.most = 0
        scenario.broker.kernel.turn_ms = lambda: self.now_ms
        go_on = scenario.broker.go_on

        def counted(now_us: int) -> None:
            before = self.looked
            go_on(now_us)
            self.most = max(self.most, self.looked - before)

        scenario.broker.go_on = counted  # type: ignore[method-assign]

    def wants(self, body: bytes) -> bool:
        self.looked += 1
        self.now_ms += LOOK_MS
        return body == b"red"


def test_a_selecting_consumer_is_served_in_slices() -> None:
    s = Scenario()
    s.publish("q", *[b"blue"] * 60, b"red", b"blue", b"red")
    slow = Slow(s)
    consumer, _ = s.broker.receivers.attach(s.broker.directory.queue("q"), None, "c", matches=slow.wants)
    s.inbox[consumer] = []
    s.broker.receivers.flow(consumer, 5, False, s.now_us)
    s.run()
    assert s.received(consumer) == [b"red", b"red"]
    assert slow.most <= 2 * PER_SLICE
    assert s.scans >= 63 // (2 * PER_SLICE)


def test_a_selecting_browser_is_served_in_slices() -> None:
    s = Scenario()
    s.publish("q", *[b"blue"] * 60, b"red")
    slow = Slow(s)
    browser = s.broker.browsers.browse(s.broker.directory.queue("q"), None, slow.wants)
    s.broker.browsers.flow(browser, 5, True)
    s.run()
    assert len(s.shown) == 1
    assert s.drained == [browser]
    assert slow.most <= PER_SLICE


def test_what_a_move_selects_is_moved_in_slices() -> None:
    s = Scenario()
    s.publish("q", *[b"blue"] * 60, b"red")
    slow = Slow(s)
    s.broker.administration.move(
        s.broker.directory.queue("q"), s.broker.directory.queue("r"), "moved", matches=slow.wants
    )
    s.run()
    assert s.finished == {"moved": 1}
    assert slow.most <= PER_SLICE


def test_queues_that_are_looked_through_have_their_turns_one_after_another() -> None:
    s = Scenario()
    names = [f"q{number}" for number in range(8)]
    for name in names:
        s.publish(name, *[b"blue"] * 20, b"red")
    slow = Slow(s)
    consumers = []
    for name in names:
        consumer, _ = s.broker.receivers.attach(s.broker.directory.queue(name), None, name, matches=slow.wants)
        s.inbox[consumer] = []
        consumers.append(consumer)
        s.broker.receivers.flow(consumer, 5, False, s.now_us)
    s.run()
    assert [s.received(consumer) for consumer in consumers] == [[b"red"]] * 8
    assert slow.most <= 2 * PER_SLICE


def test_a_clock_that_stands_still_sets_no_bound() -> None:
    s = Scenario()
    s.publish("q", *[b"blue"] * 60)
    s.broker.administration.move(
        s.broker.directory.queue("q"), s.broker.directory.queue("r"), "moved", matches=lambda body: True
    )
    s.broker.go_on(s.now_us)
    assert s.step()
    assert s.finished == {"moved": 60}

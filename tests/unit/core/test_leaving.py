"""What it takes that one of many consumers of a queue leaves."""

from __future__ import annotations

import pytest

from legato.core.consumers import Consumer
from legato.core.settings import AddressSettings
from tests.support.scenario import Scenario

MANY = 100


class Looks:
    """Counts how often it is asked whether any consumer is ready."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        is_ready = Consumer.ready.fget  # type: ignore[attr-defined]

        def ready(consumer: Consumer) -> bool:
            self.count += 1
            return bool(is_ready(consumer))

        monkeypatch.setattr(Consumer, "ready", property(ready))


@pytest.mark.parametrize("credit", [0, 5])
def test_many_leave_without_a_look_at_those_who_stay_for_each(monkeypatch: pytest.MonkeyPatch, credit: int) -> None:
    s = Scenario()
    consumers = [s.consumer("q", credit, name=f"{number}") for number in range(MANY)]
    looks = Looks(monkeypatch)
    for consumer in consumers[: MANY // 2]:
        s.broker.receivers.detach(consumer, clean=False)
    assert looks.count == 0
    s.broker.dispatcher.dispatch_returned(s.now_us)
    assert looks.count == MANY // 2
    s.publish("q", b"1")
    assert [len(s.received(consumer)) for consumer in consumers].count(1) == (credit > 0)


def test_the_next_one_of_an_exclusive_queue_is_served_once_the_first_has_left() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(exclusive=True)
    first, second, third = (s.consumer("q", 5, name=name) for name in ("first", "second", "third"))
    s.broker.receivers.detach(first, clean=True)
    s.broker.receivers.detach(second, clean=True)
    s.publish("q", b"1", b"2")
    assert s.received(third) == [b"1", b"2"]


def test_who_selects_no_more_is_not_waited_for_once_it_has_left() -> None:
    s = Scenario()
    selects = s.consumer("q", 5, name="selects", wants=b"x")
    plain = s.consumer("q", 5, name="plain")
    assert plain.queue.selecting
    s.publish("q", b"1", b"x2")
    s.broker.receivers.detach(selects, clean=True)
    s.run()
    assert not plain.queue.selecting
    assert s.received(plain) == [b"1", b"x2"]

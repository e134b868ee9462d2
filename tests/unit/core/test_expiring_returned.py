"""What came back to its place expires too, though nobody with credit looks."""

from collections.abc import Iterator
from typing import Any

import pytest

from legato.core.facts import MessageMoved
from legato.core.settings import AddressSettings
from tests.support.scenario import Scenario

SECOND_US = 1_000_000


def causes(s: Scenario) -> list[str]:
    return [fact.cause for fact in s.facts if isinstance(fact, MessageMoved)]


def test_what_came_back_expires_without_anybody_looking() -> None:
    s = Scenario()
    s.publish("q", b"1", expires_us=s.now_us + SECOND_US)
    consumer = s.consumer("q", 1)
    s.broker.receivers.detach(consumer, clean=True)
    s.run()
    s.wait(3)
    assert causes(s) == ["expired"]
    assert s.broker.directory.queue("q").depth == 0
    assert s.received(s.consumer("q", 5)) == []


def test_producers_that_wait_are_told_when_what_came_back_has_expired() -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=2, when_full="block")
    s.publish("q", b"1", b"2", expires_us=s.now_us + SECOND_US)
    assert s.broker.backpressure.room(s.broker.directory.queue("q")) == 0
    consumer = s.consumer("q", 2, exact=True)
    s.present(consumer, 1)
    s.broker.receivers.detach(consumer, clean=True)
    s.run()
    s.wait(3)
    assert s.rooms == ["q"]
    assert s.broker.backpressure.room(s.broker.directory.queue("q")) == 2


@pytest.mark.parametrize("selecting_at", ["detach", "always", "after"])
def test_what_came_back_and_nobody_wants_expires(selecting_at: str) -> None:
    s = Scenario()
    s.settings["q"] = AddressSettings(max_messages=2, when_full="block", expiry_queue="EXPIRED")
    s.publish("q", b"1", expires_us=s.now_us + SECOND_US)
    s.publish("q", b"2")
    other = s.consumer("q", 5, wants=b"other") if selecting_at == "always" else None
    consumer = s.consumer("q", 5)
    if selecting_at == "detach":
        other = s.consumer("q", 5, wants=b"other")
    s.broker.receivers.detach(consumer, clean=True)
    s.run()
    if selecting_at == "after":
        other = s.consumer("q", 5, wants=b"other")
    assert other is not None
    s.wait(3)
    assert causes(s) == ["expired"]
    assert s.broker.directory.queue("EXPIRED").depth == 1
    s.broker.receivers.detach(other, clean=True)
    s.run()
    last = s.consumer("q", 5)
    assert s.received(last) == [b"2"]
    assert s.broker.directory.queue("q").depth == 1


class _Looked(list[Any]):
    """Counts how often somebody looks through all of it."""

    looks = 0

    def __iter__(self) -> Iterator[Any]:
        self.looks += 1
        return super().__iter__()


def test_what_came_back_is_not_looked_through_for_each_that_expires() -> None:
    """With 50,000 of them the broker stood still for up to half a second, a hundred times."""
    s = Scenario()
    s.publish("q", *[b"%d" % number for number in range(100)], expires_us=s.now_us + SECOND_US)
    s.broker.receivers.detach(s.consumer("q", 100), clean=True)
    s.run()
    lane = s.broker.directory.queue("q").main
    lane.returned = looked = _Looked(lane.returned)
    s.wait(3)
    assert causes(s) == ["expired"] * 100
    assert looked.looks < 100

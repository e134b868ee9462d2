"""What a broker looks at from time to time, of however many connections: some in each turn of its loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from legato.core.consumers import Consumer
from legato.core.message import Message
from legato.server.config.bounds import Timeouts
from legato.server.links.timeouts import REVIEW_EVERY_US, TAKEN_BACK, TimeoutReview
from legato.server.process.timers import Ticking
from tests.support.scenario import Scenario

PEERS = 20
Works = list[Iterator[None]]


class Port:
    """The end of a consumer's link, which notes what is taken back from it."""

    def __init__(self) -> None:
        self.link = self
        self.taken_back: list[int] = []

    def replace_context(self, handle: int, context: object) -> None:
        assert context is TAKEN_BACK
        self.taken_back.append(handle)


def peers_of(consumers: list[Consumer]) -> list[Any]:
    return [SimpleNamespace(receivers={consumer}, slow_consumers=0, container="c", name="p") for consumer in consumers]


def review_of(
    s: Scenario,
    peers: list[Any],
    works: Works,
    seen: list[Any],
    timeouts: Timeouts,
    of_day_us: Callable[[], int] | None = None,
) -> TimeoutReview:
    """A review that notes the peers that it looks at."""

    def timeouts_of(peer: Any) -> Timeouts:
        seen.append(peer)
        return timeouts

    return TimeoutReview(
        s.broker,
        peers,
        timeouts_of,
        lambda: 0.0,
        60.0,
        works.append,
        works.append,
        of_day_us or (lambda: s.now_us),
        lambda: s.now_us,
    )


def test_the_consumers_of_many_connections_are_looked_at_in_steps() -> None:
    """All were, in one turn of the loop four times a second: with 10,000 that took 40 ms of it."""
    s, works, seen = Scenario(), Works(), list[Any]()
    s.publish("q", *(b"%d" % number for number in range(PEERS)))
    review = review_of(s, peers_of([s.consumer("q", 1) for _ in range(PEERS)]), works, seen, Timeouts())
    review.review(s.now_us)
    assert not seen
    (steps,) = works
    for number, _ in enumerate(steps, 1):
        assert len(seen) == number
    assert len(seen) == PEERS


def test_a_review_begins_when_the_one_before_is_over() -> None:
    s, works, seen = Scenario(), Works(), list[Any]()
    review = review_of(s, [], works, seen, Timeouts())
    for _ in range(3):
        review.review(s.now_us)
        s.now_us += REVIEW_EVERY_US
    assert len(works) == 1
    list(works.pop())
    review.review(s.now_us)
    assert len(works) == 1


def take_back_the_first() -> tuple[Scenario, Consumer, list[Message], Iterator[None], Port]:
    """Three deliveries are overdue, with handles from 7: the first is taken back, the steps take back the rest."""
    s, works, seen = Scenario(), Works(), list[Any]()
    s.publish("q", b"1", b"2", b"3")
    consumer = s.consumer("q", 3)
    consumer.port = port = Port()
    messages = s.in_hand(consumer)
    for handle, message in enumerate(messages, 7):
        message.handle = handle
    review = review_of(s, peers_of([consumer]), works, seen, Timeouts(acknowledgement_timeout_s=1))
    review.review(s.now_us)
    list(works.pop())
    s.now_us += 2_000_000
    review.review(s.now_us)
    steps = works.pop()
    next(steps)
    assert port.taken_back == [7]
    return s, consumer, messages, steps, port


def test_what_is_overdue_is_taken_back_in_steps_but_for_what_was_settled_meanwhile() -> None:
    """Of a consumer that had fetched 100,000, the loop waited for all."""
    s, consumer, messages, steps, port = take_back_the_first()
    s.accept(consumer, messages[1])
    list(steps)
    assert port.taken_back == [7, 9]
    s.run()
    assert s.broker.directory.queue("q").depth == 2


def test_a_delivery_that_is_new_is_not_taken_back_with_those_that_are_late() -> None:
    """What was released meanwhile, and came to the same consumer again, counted as late: it is the same message."""
    s, consumer, messages, steps, port = take_back_the_first()
    for message in messages[1:]:
        s.broker.settlement.release(consumer, message)
    s.broker.receivers.flow(consumer, 3, False, s.now_us)
    s.run()
    assert s.in_hand(consumer) == messages
    for handle, message in enumerate(messages, 10):
        message.handle = handle
    list(steps)
    assert port.taken_back == [7]
    assert [message.count for message in messages] == [1, 0, 0]


def test_what_a_client_may_have_shown_before_what_it_reported_is_redelivered_as_seen() -> None:
    """Promise 4: of a lump only the newest message is reported; those before it came to others as first deliveries."""
    s, works, seen = Scenario(), Works(), list[Any]()
    s.publish("q", b"1", b"2", b"3")
    consumer = s.consumer("q", 3, exact=True)
    consumer.port = Port()
    for handle, message in enumerate(s.in_hand(consumer), 7):
        message.handle = handle
    s.present(consumer, 3)
    review = review_of(s, peers_of([consumer]), works, seen, Timeouts(acknowledgement_timeout_s=1))
    review.review(s.now_us)
    list(works.pop())
    s.now_us += 2_000_000
    review.review(s.now_us)
    list(works.pop())
    s.run()
    again = s.in_hand(s.consumer("q", 3, exact=True))
    assert [(message.seq, message.count, message.flagged) for message in again] == [
        (1, 0, True),
        (2, 0, True),
        (3, 1, False),
    ]


@pytest.mark.parametrize("set_by_us", [-3_600_000_000, 3_600_000_000], ids=["back", "forward"])
def test_a_clock_that_is_set_makes_no_consumer_late_and_gives_none_more_time(set_by_us: int) -> None:
    """Nothing was taken back until the clock was where it had been, or all at once."""
    s, works, seen = Scenario(), Works(), list[Any]()
    was_set_by_us = 0
    s.publish("q", b"1")
    consumer = s.consumer("q", 1)
    consumer.port = port = Port()
    s.in_hand(consumer)[0].handle = 7
    timeouts = Timeouts(acknowledgement_timeout_s=1)
    review = review_of(s, peers_of([consumer]), works, seen, timeouts, lambda: s.now_us + was_set_by_us)
    taken_back = []
    for _ in range(3):
        review.review(s.now_us + was_set_by_us)
        list(works.pop())
        taken_back.append(list(port.taken_back))
        s.now_us += 600_000
        was_set_by_us = set_by_us
    assert taken_back == [[], [], [7]]


class LoopWithoutTime:
    """Timers of it never come."""

    def call_later(self, delay_s: float, callback: object) -> object:
        return None


def test_heartbeats_of_many_connections_are_seen_to_in_steps() -> None:
    """All were, in one turn of the loop once a second: with 10,000 that took 50 ms of it."""
    ticked: list[int] = []

    def peer(number: int) -> Any:
        def tick(now_ms: int) -> int:
            ticked.append(number)
            return 0

        amqp = SimpleNamespace(tick=tick, take_events=list)
        return SimpleNamespace(
            amqp=amqp, due_ms=0, opened=True, ended=False, measure=lambda: None, hear_kept=lambda: None
        )

    works = Works()
    shell: Any = SimpleNamespace(
        peers=[peer(number) for number in range(PEERS)], clock=SimpleNamespace(monotonic_ms=lambda: 5)
    )
    executor: Any = SimpleNamespace(touched=SimpleNamespace(add=lambda peer: None))
    nothing: Any = None
    loop = cast(asyncio.AbstractEventLoop, LoopWithoutTime())
    ticking = Ticking(shell, nothing, executor, nothing, nothing, nothing, nothing, nothing, works.append, loop)
    ticking._keep_alive()
    ticking._keep_alive()
    (steps,) = works
    assert not ticked
    for number, _ in enumerate(steps, 1):
        assert len(ticked) == number
    assert len(ticked) == PEERS
    assert {peer.due_ms for peer in shell.peers} == {1005}

"""Random histories of consumers with selectors and message groups: who has credit lacks nothing, and gets the first."""

from __future__ import annotations

import random

import pytest

from legato.core.consumers import Consumer
from legato.core.message import Message
from legato.core.queues import Queue
from tests.support.bodies import TextBodies
from tests.support.scenario import Scenario

WANTS = (None, None, b"red", b"blue", b"group=a")


class History:
    """One queue; after each step all that could happen has happened."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.s = Scenario()
        self.queue: Queue = self.s.broker.directory.queue("q")
        self.consumers: list[Consumer] = []
        self.wants: dict[Consumer, bytes | None] = {}
        self.published = 0
        self.grouped = self.random.random() < 0.7

    def step(self) -> None:
        actions, weights = zip(
            (self.publish, 4), (self.come, 2), (self.flow, 6), (self.accept, 4), (self.release, 2), (self.leave, 1),
            strict=True,
        )  # fmt: skip
        self.random.choices(actions, weights)[0]()
        self.s.run()
        self.check_credit()

    def publish(self) -> None:
        bodies = []
        for _ in range(self.random.randint(1, 6)):
            self.published += 1
            group = self.random.choice(("", "group=a;", "group=b;", "group=a!;", "group=b!;")) if self.grouped else ""
            bodies.append(f"{group}{self.random.choice(('red', 'blue'))} {self.published}".encode())
        self.s.publish("q", *bodies)

    def come(self) -> None:
        if len(self.consumers) < 4:
            wants = self.random.choice(WANTS)
            consumer = self.s.consumer("q", 0, wants=wants)
            self.consumers.append(consumer)
            self.wants[consumer] = wants

    def flow(self) -> None:
        """Whoever gets credit gets the first that there is for it."""
        if not self.consumers:
            return
        consumer = self.random.choice(self.consumers)
        had = set(consumer.unsettled)
        expected = None if consumer.credit else next(iter(self.waiting_for(consumer)), None)
        self.s.received(consumer)
        self.s.broker.receivers.flow(consumer, self.random.choice((1, 1, 2, 8)), False, self.s.now_us)
        self.s.run()
        if expected is not None:
            assert self.s.inbox[consumer][0].seq == expected
        assert had <= consumer.unsettled.keys()

    def accept(self) -> None:
        for message in self.some_in_hand():
            assert message.consumer is not None
            self.s.accept(message.consumer, message)

    def release(self) -> None:
        for message in self.some_in_hand():
            assert message.consumer is not None
            if self.random.random() < 0.2:
                self.s.broker.settlement.modify(message.consumer, message, failed=False, undeliverable_here=True)
            else:
                self.s.broker.settlement.release(message.consumer, message)

    def some_in_hand(self) -> list[Message]:
        if not self.consumers:
            return []
        in_hand = self.s.in_hand(self.random.choice(self.consumers))
        return self.random.sample(in_hand, min(len(in_hand), 3))

    def leave(self) -> None:
        if self.consumers:
            consumer = self.consumers.pop(self.random.randrange(len(self.consumers)))
            self.s.broker.receivers.detach(consumer, clean=True)

    def waiting_for(self, consumer: Consumer) -> list[int]:
        """What waits and may be given to the consumer, by what the store has."""
        in_hands = {seq for other in self.queue.consumers for seq in other.unsettled}
        came_back = {message.seq: message for message in self.queue.main.returned if message.waiting}
        groups, found = self.queue.groups, []
        for stored in self.s.store.messages(self.queue.id, 0, 10_000, 1 << 40):
            group, _ = TextBodies().group(stored.body)
            wants = self.wants[consumer]
            excluded = came_back[stored.seq].excluded if stored.seq in came_back else None
            if (
                stored.seq not in in_hands
                and (wants is None or wants in stored.body)
                and (not group or group in groups.freed or groups.may_have(group, consumer))
                and consumer.id not in (excluded or ())
            ):
                found.append(stored.seq)
        return found

    def check_credit(self) -> None:
        for consumer in self.consumers:
            if consumer.credit:
                assert self.waiting_for(consumer) == [], f"consumer {consumer.id} has credit for them"

    def drain(self) -> None:
        """All leave, and one consumer has the rest in order."""
        while self.consumers:
            self.leave()
        self.s.run()
        last = self.s.consumer("q", 0)
        self.wants[last] = None
        expected = self.waiting_for(last)
        self.s.broker.receivers.flow(last, 10_000, False, self.s.now_us)
        self.s.run()
        assert [message.seq for message in self.s.inbox[last]] == expected


@pytest.mark.parametrize("seed", [*range(40), 290])
def test_who_has_credit_lacks_nothing_and_gets_the_first_that_there_is(seed: int) -> None:
    history = History(seed)
    for _ in range(60):
        history.step()
    history.drain()

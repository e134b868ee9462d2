"""Random histories with crashes at any step: what was confirmed leaves its queue exactly once, and nothing is stuck."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from legato.core.consumers import Consumer
from legato.core.facts import (
    MessageConsumed,
    MessageDeadLettered,
    MessageMoved,
    MessagePublished,
    MessageStored,
    QueueDeleted,
)
from legato.core.queues import Queue
from legato.core.settings import AddressSettings
from legato.core.traits import Traits
from tests.support.scenario import Scenario

COLOURS = (b"red", b"blue", b"green")
POLICIES = (
    AddressSettings(),
    AddressSettings(maximum_deliveries=3),
    AddressSettings(maximum_deliveries=4, redelivery_delay_s=0.3),
    AddressSettings(redelivery_delay_s=0.3, redelivery_blocking="queue", maximum_deliveries=0),
    AddressSettings(redelivery_delay_s=0.3, redelivery_blocking="consumer"),
    AddressSettings(redelivery_delay_s=0.3, redelivery_blocking="group", expiry_queue="expired"),
)


class History:
    """One random run."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.s = Scenario()
        for name in ("q", "r", "t"):
            self.s.settings[name] = self.random.choice(POLICIES)
        self.facts: list[object] = []
        self.confirmed: list[bytes] = []
        self.published = 0
        self.consumers: list[Consumer] = []
        self.transactions: list[bytes] = []

    def run(self, steps: int) -> None:
        steps_of = [
            (self.publish, 8),
            (self.attach, 2),
            (self.flow, 4),
            (self.settle, 8),
            (self.transact, 3),
            (self.leave, 1),
            (self.pass_on, 8),
            (self.let_time_pass, 2),
            (self.administer, 0.3),
            (self.crash, 0.4),
            (self.fill, 0.4),
        ]
        actions, weights = zip(*steps_of, strict=True)
        for action in self.random.choices(actions, weights, k=steps):
            action()

    def publish(self) -> None:
        self.published += 1
        body = self.random.choice(COLOURS) + b" %d" % self.published
        group = self.random.choice(["", "", "", "a", "b"])
        if group:
            body = b"group=%s;" % group.encode() + body
        now_us = self.s.now_us
        traits = Traits(
            self.random.choice([4, 4, 4, 0, 9]),
            self.random.choice([0, 0, 0, now_us + 400_000]),
            self.random.choice([0, 0, 0, now_us + 200_000]),
            group,
        )
        broker = self.s.broker
        node = broker.topic("t") if self.random.random() < 0.4 else broker.queue(self.random.choice("qr"))
        broker.publish(node, body, body.decode(), body, traits, "me")

    def attach(self) -> None:
        if len(self.consumers) > 6:
            return
        wants = self.random.choice([None, None, *COLOURS])
        broker = self.s.broker
        if self.random.random() < 0.5:
            queue: Queue = broker.queue(self.random.choice("qr"))
        else:
            name = self.random.choice(["one", "two", "volatile"])
            queue = broker.subscribe(broker.topic("t"), name, container="me", durable=name != "volatile", shared=True)
            wants = None
        consumer, _ = broker.attach(
            queue,
            None,
            "c",
            reports_presented=self.random.random() < 0.5,
            matches=None if wants is None else lambda body: wants in body,
            priority=self.random.choice([0, 0, 0, 3]),
        )
        self.s.inbox[consumer] = []
        self.consumers.append(consumer)

    def some(self) -> Consumer | None:
        self.consumers = [consumer for consumer in self.consumers if consumer in consumer.queue.consumers]
        return self.random.choice(self.consumers) if self.consumers else None

    def flow(self) -> None:
        if consumer := self.some():
            self.s.broker.flow(consumer, self.random.choice([0, 1, 5, 50]), self.random.random() < 0.3, self.s.now_us)

    def settle(self) -> None:
        consumer = self.some()
        for message in self.s.in_hand(consumer)[: self.random.randint(1, 5)] if consumer else ():
            assert consumer
            broker = self.s.broker
            match self.random.randint(0, 9):
                case 0:
                    broker.release(consumer, message)
                case 1:
                    broker.modify(consumer, message, failed=True, undeliverable_here=self.random.random() < 0.1)
                case 2:
                    broker.reject(consumer, message, "no")
                case 3:
                    broker.present(consumer, message)
                case _:
                    assert broker.acknowledge(consumer, message, confirm=True)

    def transact(self) -> None:
        broker = self.s.broker
        if len(self.transactions) < 3:
            self.transactions.append(broker.declare("me"))
        txn = self.random.choice(self.transactions)
        transaction = broker.transaction(txn, "me")
        assert transaction is not None
        if consumer := self.some():
            for message in self.s.in_hand(consumer)[:2]:
                broker.acknowledge_in(transaction, consumer, message)
        broker.publish_in(transaction, broker.queue("r"), b"blue in a transaction", "")
        if self.random.random() < 0.4:
            self.transactions.remove(txn)
            broker.discharge(txn, "me", fail=self.random.random() < 0.4, token=txn)

    def leave(self) -> None:
        if consumer := self.some():
            self.s.broker.detach(consumer, clean=self.random.random() < 0.7)

    def pass_on(self) -> None:
        """A commit ends, or sockets take something, or not."""
        if self.random.random() < 0.3:
            self.s.broker.dispatch_returned(self.s.now_us)
        for progress in self.random.sample([self.s.step, self.s.resume, self.s.go_on], 2):
            progress()

    def let_time_pass(self) -> None:
        self.s.now_us += 100_000
        self.s.broker.tick(self.s.now_us)

    def administer(self) -> None:
        broker = self.s.broker
        match self.random.randint(0, 3):
            case 0:
                broker.purge(broker.queue("q"), "purge")
            case 1:
                broker.move(broker.queue("DLQ.q"), broker.queue("q"), "move")
            case 2:
                broker.pause(broker.queue("q"), self.random.random() < 0.3)
            case 3 if subscription := broker.find_subscription("two"):
                broker.delete(subscription)

    def crash(self) -> None:
        self.facts += self.s.facts
        self.confirmed += self.s.confirmed
        self.s = self.s.crash()
        self.consumers.clear()
        self.transactions.clear()

    def fill(self) -> None:
        """The next commit finds no room."""
        self.s.full = True

    def heal(self) -> None:
        """Everybody leaves, the rest is consumed by one greedy consumer for each queue."""
        for consumer in self.consumers:
            self.s.broker.detach(consumer, clean=True)
        self.s.broker.disconnect("me")
        self.s.run()
        if self.random.random() < 0.5:
            self.crash()
        for name in ("q", "r"):
            self.s.broker.pause(self.s.broker.queue(name), False)
        greedy = {}
        for _ in range(30):
            for record in list(self.s.store.queues()):
                node = self.s.broker._node(record.queue)
                if isinstance(node, Queue) and node.name not in greedy and not node.is_schedule:
                    greedy[node.name] = self.s.consumer(node, 0)
            for consumer in greedy.values():
                self.s.broker.flow(consumer, 10_000, False, self.s.now_us)
            self.s.run()
            for consumer in greedy.values():
                self.s.accept(consumer, *self.s.in_hand(consumer))
            self.s.wait(0.2)
        self.facts += self.s.facts
        self.confirmed += self.s.confirmed


def check(history: History) -> None:
    stored: dict[tuple[int, int], str] = {}
    left: Counter[tuple[int, int]] = Counter()
    told: set[str] = set()
    deleted: set[int] = set()
    for fact in history.facts:
        match fact:
            case MessageStored(queue=queue, seq=seq, message_id=name):
                assert (queue, seq) not in stored, "no place is given twice"
                stored[queue, seq] = name
                told.add(name)
            case MessagePublished(seq=seq, subscriptions=queues, message_id=name):
                told.add(name)
                for queue in queues:
                    assert (queue, seq) not in stored
                    stored[queue, seq] = name
            case MessageConsumed(queue=queue, seq=seq) | MessageDeadLettered(queue=queue, seq=seq):
                left[queue, seq] += 1
            case MessageMoved(queue=queue, seq=seq):
                left[queue, seq] += 1
            case QueueDeleted(queue=queue):
                deleted.add(queue)
    assert all(count == 1 for count in left.values()), "nothing leaves twice"
    assert left.keys() <= stored.keys(), "nothing leaves that was not there"
    stuck = {place: name for place, name in stored.items() if place not in left and place[0] not in deleted}
    assert not stuck, "nothing is stuck"
    assert {body.decode() for body in history.confirmed if isinstance(body, bytes)} <= told | {""}
    for record in history.s.store.queues():
        if record.kind != 1:
            assert (record.stored - record.consumed, record.bytes) == (0, 0), record


@pytest.mark.parametrize("seed", range(100))
def test_what_was_confirmed_leaves_its_queue_exactly_once(seed: int) -> None:
    history = History(seed)
    history.run(400)
    history.heal()
    check(history)

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
    MessageTaken,
    QueueDeleted,
    TransactionCommitted,
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


class Application:
    """Who consumes under a name, and what it has: it comes back with that after it was cut off."""

    def __init__(self, number: int, queue: Queue) -> None:
        self.link = f"link {number}"
        self.queue = queue.name
        self.queue_id = queue.id
        self.held: set[int] = set()
        """What it was given and has not given back; also what it acknowledged, until that was confirmed."""
        self.acknowledged: set[int] = set()


class History:
    """One random run."""

    def __init__(self, seed: int, *, detailed: bool = False) -> None:
        self.random = random.Random(seed)
        self.s = Scenario(detailed=detailed)
        for name in ("q", "r", "t"):
            self.s.settings[name] = self.random.choice(POLICIES)
        self.facts: list[object] = []
        self.confirmed: list[bytes] = []
        self.published = 0
        self.consumers: list[Consumer] = []
        self.applications: dict[Consumer, Application] = {}
        self.away: list[Application] = []
        """Those that were cut off and may come back."""
        self.came = 0
        self.transactions: list[bytes] = []
        self.cut_off: list[bytes] = []
        """Those whose discharges may be repeated: their clients look for the outcome."""
        self.committed: set[bytes] = set()
        self.rolled_back: set[bytes] = set()
        """Transactions by what somebody who discharged them was told."""

    def run(self, steps: int) -> None:
        steps_of = [
            (self.publish, 8),
            (self.attach, 2),
            (self.flow, 4),
            (self.settle, 8),
            (self.transact, 3),
            (self.discharge_again, 2),
            (self.leave, 1),
            (self.be_cut_off, 1),
            (self.come_back, 2),
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
        node = (
            broker.directory.topic("t")
            if self.random.random() < 0.4
            else broker.directory.queue(self.random.choice("qr"))
        )
        broker.publisher.publish(node, body, body.decode(), body, traits, "me")

    def attach(self) -> None:
        if len(self.consumers) > 6:
            return
        wants = self.random.choice([None, None, *COLOURS])
        broker = self.s.broker
        if self.random.random() < 0.5:
            queue: Queue = broker.directory.queue(self.random.choice("qr"))
        else:
            name = self.random.choice(["one", "two", "volatile"])
            queue = broker.subscriptions.subscribe(
                broker.directory.topic("t"), name, container="me", durable=name != "volatile", shared=True
            )
            wants = None
        consumer, _ = broker.receivers.attach(
            queue,
            None,
            "c",
            reports_presented=self.random.random() < 0.5,
            matches=None if wants is None else lambda body: wants in body,
            priority=self.random.choice([0, 0, 0, 3]),
            name=f"link {self.came}",
        )
        self.s.inbox[consumer] = []
        self.consumers.append(consumer)
        self.applications[consumer] = Application(self.came, queue)
        self.came += 1

    def some(self) -> Consumer | None:
        self.consumers = [consumer for consumer in self.consumers if consumer in consumer.queue.consumers]
        return self.random.choice(self.consumers) if self.consumers else None

    def flow(self) -> None:
        if consumer := self.some():
            self.s.broker.receivers.flow(
                consumer, self.random.choice([0, 1, 5, 50]), self.random.random() < 0.3, self.s.now_us
            )

    def settle(self) -> None:
        consumer = self.some()
        for message in self.s.in_hand(consumer)[: self.random.randint(1, 5)] if consumer else ():
            assert consumer
            broker = self.s.broker
            application = self.applications[consumer]
            application.held.discard(message.seq)
            match self.random.randint(0, 9):
                case 0:
                    broker.settlement.release(consumer, message)
                case 1:
                    broker.settlement.modify(
                        consumer, message, failed=True, undeliverable_here=self.random.random() < 0.1
                    )
                case 2:
                    broker.settlement.reject(consumer, message, "no")
                case 3 | 4 | 5:
                    broker.presentations.present(consumer, message)
                    application.held.add(message.seq)
                case _:
                    assert broker.settlement.acknowledge(consumer, message, confirm=True)
                    application.held.add(message.seq)
                    application.acknowledged.add(message.seq)

    def transact(self) -> None:
        broker = self.s.broker
        if len(self.transactions) < 3:
            self.transactions.append(broker.transactions.declare("me"))
        txn = self.random.choice(self.transactions)
        transaction = broker.transactions.find(txn, "me")
        assert transaction is not None
        if consumer := self.some():
            for message in self.s.in_hand(consumer)[:2]:
                self.applications[consumer].held.discard(message.seq)
                broker.transactions.acknowledge(transaction, consumer, message)
        broker.transactions.publish(transaction, broker.directory.queue("r"), b"blue in a transaction", "")
        if self.random.random() < 0.4:
            self.transactions.remove(txn)
            fail = self.random.random() < 0.4
            broker.transactions.discharge(txn, "me", fail=fail, token=(txn, fail))
            self.cut_off.append(txn)

    def discharge_again(self) -> None:
        """A client whose commit was cut off asks for its outcome, on another connection: soon, late, or repeatedly."""
        for txn in self.cut_off[-3:]:
            self.s.broker.transactions.discharge(txn, "me again", fail=False, token=(txn, False))

    def leave(self) -> None:
        if consumer := self.some():
            self.s.broker.receivers.detach(consumer, clean=self.random.random() < 0.7)

    def be_cut_off(self) -> None:
        """A connection is lost: what its application has is kept for it, or not."""
        if consumer := self.some():
            until_us = self.s.now_us + self.random.choice([200_000, 2_000_000])
            hold_until_us = self.random.choice([0, until_us, until_us])
            self.s.broker.receivers.detach(consumer, clean=False, hold_until_us=hold_until_us, moving=True)
            self.away.append(self.applications.pop(consumer))

    def come_back(self) -> None:
        """An application that was cut off attaches again and hears the truth about what it has."""
        if not self.away:
            return
        application = self.away.pop(self.random.randrange(len(self.away)))
        broker = self.s.broker
        queue = broker.directory.find_queue(application.queue)
        if queue is None or queue.id != application.queue_id:
            return
        if self.random.random() < 0.2:
            application.held = set(sorted(application.held)[::2])
        in_hands = {seq for consumer in queue.consumers for seq in consumer.unsettled}
        consumer, elsewhere = broker.receivers.attach(
            queue, None, "c", reports_presented=True, held=sorted(application.held), name=application.link
        )
        self.s.inbox[consumer] = []
        claimed = [message.seq for message in consumer.first]
        assert len(claimed) == len(set(claimed)), "nothing is claimed twice"
        assert in_hands.isdisjoint(claimed), "nobody loses what it has to who comes back"
        assert set(elsewhere).isdisjoint(claimed)
        for seq in application.held.difference(claimed, elsewhere):
            assert seq in application.acknowledged, "what left the queue and not by another was acknowledged"
            self.check_consumed_by(application, queue.id, seq)
        application.held = set(claimed)
        application.acknowledged.clear()
        self.consumers.append(consumer)
        self.applications[consumer] = application

    def check_consumed_by(self, application: Application, queue: int, seq: int) -> None:
        """If it is on record who consumed the message, it was this application."""
        facts = [*self.facts, *self.s.facts]
        taken = [fact for fact in facts if isinstance(fact, MessageTaken) and (fact.queue, fact.seq) == (queue, seq)]
        assert all(fact.link == application.link for fact in taken), f"{application.link} did not consume {taken}"

    def pass_on(self) -> None:
        """A commit ends, or sockets take something, or not."""
        if self.random.random() < 0.3:
            self.s.broker.dispatcher.dispatch_returned(self.s.now_us)
        for progress in self.random.sample([self.s.step, self.s.resume, self.s.go_on], 2):
            progress()

    def let_time_pass(self) -> None:
        self.s.now_us += 100_000
        self.s.broker.tick(self.s.now_us)

    def administer(self) -> None:
        broker = self.s.broker
        match self.random.randint(0, 3):
            case 0:
                broker.administration.purge(broker.directory.queue("q"), "purge")
            case 1:
                broker.administration.move(broker.directory.queue("DLQ.q"), broker.directory.queue("q"), "move")
            case 2:
                broker.administration.pause(broker.directory.queue("q"), self.random.random() < 0.3)
            case 3 if subscription := broker.subscriptions.find("two"):
                broker.deletion.delete(subscription)

    def keep(self) -> None:
        """What became visible of this epoch."""
        self.facts += self.s.facts
        self.confirmed += self.s.confirmed
        self.committed.update(txn for txn, fail in self.s.discharged if not fail)
        self.rolled_back.update(txn for txn, fail in self.s.discharged if fail)
        self.rolled_back.update(txn for txn, _ in self.s.discharge_refused)

    def crash(self) -> None:
        self.keep()
        self.s = self.s.crash()
        self.away += self.applications.values()
        self.applications.clear()
        self.consumers.clear()
        self.transactions.clear()

    def fill(self) -> None:
        """The next commit finds no room."""
        self.s.full = True

    def heal(self) -> None:
        """Everybody leaves, the rest is consumed by one greedy consumer for each queue."""
        for consumer in self.consumers:
            self.s.broker.receivers.detach(consumer, clean=True)
        self.s.broker.transactions.disconnect("me")
        self.s.run()
        if self.random.random() < 0.5:
            self.s.broker.reservations.release_container("c")
        self.s.wait(2.1)
        assert all(queue.held == 0 for queue in self.s.broker.directory.queues.values())
        if self.random.random() < 0.5:
            self.crash()
        for name in ("q", "r"):
            self.s.broker.administration.pause(self.s.broker.directory.queue(name), False)
        greedy = {}
        for _ in range(30):
            for record in list(self.s.store.queues()):
                node = self.s.broker.directory.node(record.queue)
                if isinstance(node, Queue) and node.name not in greedy and not node.is_schedule:
                    greedy[node.name] = self.s.consumer(node, 0)
            for consumer in greedy.values():
                self.s.broker.receivers.flow(consumer, 10_000, False, self.s.now_us)
            self.s.run()
            for consumer in greedy.values():
                self.s.accept(consumer, *self.s.in_hand(consumer))
            self.s.wait(0.2)
        self.keep()


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
    committed = {fact.txn for fact in history.facts if isinstance(fact, TransactionCommitted)}
    assert history.committed <= committed, "what is told to be committed is"
    assert not history.rolled_back & committed, "what is told to be rolled back is not committed"
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

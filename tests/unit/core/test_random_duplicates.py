"""Random histories with duplicate ids, crashes and full disks: of each id within the window one message is stored."""

from __future__ import annotations

import random

import pytest

from legato.core.facts import DuplicateIdDropped, DuplicateIdKept, MessagePublished, MessageStored
from legato.core.producers import Producer
from legato.core.settings import AddressSettings
from legato.core.topics import Node
from legato.core.traits import Traits
from tests.support.scenario import Scenario

IDS = 12


class History:
    """Senders that try again until they hear; each send is told by its token, of each a few copies may be under way."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.window = self.random.choice([0, 1, 3, 8, 100, 100, 100])
        self.s = Scenario()
        self.s.settings |= dict.fromkeys(
            "qt",
            AddressSettings(duplicate_window=self.window, duplicate_detection=self.random.choice(["id", "message-id"])),
        )
        self.facts: list[object] = []
        self.stored: dict[str, bool] = {}
        """What senders were told of their tokens: that they are stored, or duplicates."""
        self.transactions: list[bytes] = []
        self.unknown: list[tuple[str, bytes, Producer | None, int]] = []
        self.sent = 0

    def run(self, steps: int) -> None:
        actions = [
            self.send,
            self.send_numbered,
            self.send_in_transaction,
            self.end,
            self.commit,
            self.fill,
            self.crash,
        ]
        for action in self.random.choices(actions, [6, 6, 6, 4, 8, 0.5, 0.5], k=steps):
            action()
        self.collect()
        self.s.run()
        self.collect()

    def name(self) -> tuple[str, bytes]:
        self.sent += 1
        duplicate_id = b"%d" % self.random.randint(1, IDS)
        return f"{duplicate_id.decode()}/{self.sent}", duplicate_id

    def node(self) -> Node:
        return self.s.broker.directory.queue("q") if self.random.random() < 0.7 else self.s.broker.directory.topic("t")

    def send(self) -> None:
        token, duplicate_id = self.name()
        self.s.broker.publisher.publish(self.node(), token.encode(), token, token, Traits(duplicate_id=duplicate_id))

    def send_numbered(self) -> None:
        """Mostly a new number, else one of before, as a client does that was not told."""
        producer = self.s.broker.producers.attach("p")
        token, duplicate_id = self.name()
        number = producer.last + 1
        node, traits = self.s.broker.directory.queue("q"), Traits(duplicate_id=duplicate_id)
        for _ in range(self.random.choice([1, 1, 2])):
            self.s.broker.publisher.publish_numbered(node, token.encode(), token, token, producer, number, traits)

    def send_in_transaction(self) -> None:
        if len(self.transactions) < 3:
            self.transactions.append(self.s.broker.transactions.declare("me"))
        transaction = self.s.broker.transactions.find(self.random.choice(self.transactions), "me")
        assert transaction is not None
        token, duplicate_id = self.name()
        traits = Traits(duplicate_id=duplicate_id)
        self.s.broker.transactions.publish(transaction, self.node(), token.encode(), token, traits, "me", token)

    def end(self) -> None:
        if self.transactions:
            txn = self.transactions.pop(self.random.randrange(len(self.transactions)))
            self.s.broker.transactions.discharge(txn, "me", fail=self.random.random() < 0.3, token=txn)

    def commit(self) -> None:
        """A commit begins, or ends; what is sent meanwhile goes with the next."""
        if self.random.random() < 0.5:
            self.s.step()
            return
        batch = self.s.broker.take_batch(self.s.now_us)
        if batch is None:
            return
        for action in self.random.choices([self.send, self.send_numbered, self.send_in_transaction, self.end], k=4):
            action()
        if self.random.random() < 0.2:
            self.s.broker.failed("no room")
        else:
            self.s.store.commit(batch)
            self.s.facts += batch.facts
            self.s.broker.committed(self.s.now_us)
        self.s._perform(self.s.broker.take_effects())

    def fill(self) -> None:
        self.s.full = True

    def crash(self) -> None:
        self.collect()
        self.s = self.s.crash()
        self.transactions.clear()

    def collect(self) -> None:
        self.facts += self.s.facts
        self.s.facts = []
        self.stored |= {token: True for token in self.s.confirmed if isinstance(token, str)}
        self.stored |= dict.fromkeys(self.s.duplicates, False)
        self.s.confirmed, self.s.duplicates = [], []


def check(history: History) -> None:
    windows: dict[int, list[bytes]] = {}
    kept: set[str] = set()
    names: dict[bytes, dict[int, str]] = {}
    for fact in history.facts:
        match fact:
            case DuplicateIdKept(queue, duplicate_id, window, message_id):
                last = windows.setdefault(queue, [])
                assert duplicate_id not in last[-history.window :], "within the window no id is given to two messages"
                assert window == history.window
                last.append(duplicate_id)
                names.setdefault(duplicate_id, {})[queue] = message_id
                kept.add(message_id)
            case DuplicateIdDropped(queue, duplicate_id, message_id, first):
                assert names[duplicate_id][queue] == first, "what is dropped was there"
                assert message_id not in kept
    stored = {
        fact.message_id
        for fact in history.facts
        if isinstance(fact, MessageStored | MessagePublished) and fact.message_id
    }
    dropped = {fact.message_id for fact in history.facts if isinstance(fact, DuplicateIdDropped)}
    assert stored.isdisjoint(dropped)
    assert kept == (stored if history.window else set()), "every message that is stored has its id from then on"
    for token, is_stored in history.stored.items():
        assert token in (stored if is_stored else dropped), "what senders were told is so"


@pytest.mark.parametrize("seed", range(100))
def test_within_the_window_an_id_is_stored_once_and_senders_hear_the_truth(seed: int) -> None:
    """CONTRACT E15, E19; promise 1."""
    history = History(seed)
    history.run(300)
    check(history)

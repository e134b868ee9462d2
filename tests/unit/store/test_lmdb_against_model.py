"""Any sequence of commits, trims, prunings, epochs and reopenings leaves LMDB with what the model has."""

import shutil
import tempfile
from pathlib import Path
from typing import Protocol, TypeVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from legato.core.facts import (
    AnyFact,
    ConsumerAttached,
    DispatchMarked,
    MessageConsumed,
    MessageDeadLettered,
    MessagePresented,
    MessageReturned,
    MessageStored,
    NumberRefused,
    ProducerForgotten,
    ProducerRegistered,
    QueueCreated,
    TransactionCommitted,
)
from legato.ids import make_txn_id
from legato.store.base import Batch
from legato.store.lmdb import LmdbStore
from legato.store.memory import MemoryStore

QUEUES = 3
PRODUCERS = 3
SEQ_MAX = 400
HOUR_US = 3_600_000_000
NO_LIMIT = 1 << 40

T = TypeVar("T")


class Draw(Protocol):
    """What `st.data()` draws with."""

    def __call__(self, strategy: st.SearchStrategy[T]) -> T: ...


queues = st.integers(1, QUEUES)
seqs = st.integers(1, SEQ_MAX)
numbers = st.integers(1, 20)
producers = st.integers(1, PRODUCERS)
counts = st.integers(0, 9)
sizes = st.sampled_from([0, 1, 30, 300, 3_000, 16_000, 40_000])


@st.composite
def runs(draw: st.DrawFn) -> list[AnyFact]:
    """Neighbouring messages with one fate, as batches are made of; seldom alone."""
    queue, first = draw(queues), draw(seqs)
    run = range(first, first + draw(st.sampled_from([1, 2, 10, 200])), draw(st.sampled_from([1, 1, 2, 7])))
    fate = draw(st.sampled_from(["stored", "consumed", "consumed", "returned", "presented", "dead"]))
    size, producer = draw(sizes), draw(st.integers(0, PRODUCERS))
    if fate == "stored":
        return [MessageStored(queue, seq, size, "", producer, seq if producer else 0) for seq in run]
    if fate == "consumed":
        return [MessageConsumed(queue, seq, 1, 1, 1) for seq in run]
    if fate == "returned":
        return [MessageReturned(queue, seq, draw(counts), draw(st.booleans()), 1, "rollback") for seq in run]
    if fate == "presented":
        return [MessagePresented(queue, seq, 1) for seq in run]
    return [MessageDeadLettered(queue, seq, 1, "count", queue % QUEUES + 1, seq) for seq in run]


@st.composite
def others(draw: st.DrawFn) -> list[AnyFact]:
    """A fact of another kind."""
    producer = draw(producers)
    facts: list[AnyFact] = [
        ConsumerAttached(draw(numbers), 1, "c"),
        DispatchMarked(draw(queues), draw(seqs)),
        NumberRefused(producer, draw(numbers)),
        ProducerRegistered(producer, f"producer-{producer}"),
        ProducerForgotten(producer, f"producer-{producer}"),
        TransactionCommitted(make_txn_id(1, draw(numbers)), 1, 1),
    ]
    return [draw(st.sampled_from(facts))]


class LmdbAgainstModel(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="legato-store-"))
        self.store = LmdbStore(self.directory, sync=False)
        self.model = MemoryStore()
        self.now_us = HOUR_US
        self.txns: set[bytes] = set()
        self.waiting: set[tuple[int, int]] = set()
        self.store.begin_epoch("b", self.now_us)
        self.model.begin_epoch("b", self.now_us)
        self.commit([QueueCreated(queue, f"queue-{queue}") for queue in range(1, QUEUES + 1)])

    def commit(self, facts: list[AnyFact]) -> None:
        bodies = [body_of(fact) for fact in facts if isinstance(fact, MessageStored)]
        batch = Batch(self.model.meta().epoch, self.now_us, facts, bodies)
        assert self.store.commit(batch) == self.model.commit(batch)

    def acceptable(self, facts: list[AnyFact]) -> list[AnyFact]:
        """What a broker would say: a message is stored where none is, a forgotten producer stays so for the batch."""
        kept: list[AnyFact] = []
        forgotten: set[int] = set()
        mentioned: set[tuple[int, int]] = set()
        for fact in facts:
            match fact:
                case MessageStored(queue, seq):
                    if (queue, seq) in self.waiting or (queue, seq) in mentioned:
                        continue
                    self.waiting.add((queue, seq))
                case MessageConsumed(queue, seq) | MessageDeadLettered(queue, seq):
                    self.waiting.discard((queue, seq))
                    mentioned.add((queue, seq))
                case MessageReturned(queue, seq) | MessagePresented(queue, seq):
                    mentioned.add((queue, seq))
                case ProducerForgotten(producer):
                    forgotten.add(producer)
                case ProducerRegistered(producer):
                    if producer in forgotten:
                        continue
                    if any(isinstance(other, MessageStored | NumberRefused) for other in kept):
                        continue
                case TransactionCommitted(txn):
                    if txn in self.txns:
                        continue
                    self.txns.add(txn)
            kept.append(fact)
        return kept

    @rule(data=st.data())
    def take_a_step(self, data: st.DataObject) -> None:
        """One rule for all: rules of their own would be switched off by turns, and then little happens."""
        data.draw(st.sampled_from(STEPS))(self, data.draw)

    def commit_a_batch(self, draw: Draw) -> None:
        parts = draw(st.lists(st.one_of(runs(), runs(), others()), min_size=1, max_size=6))
        self.commit(self.acceptable([fact for part in parts for fact in part]))

    def store_at_the_end(self, draw: Draw) -> None:
        record = self.model.queue(f"queue-{draw(queues)}")
        assert record is not None
        run = range(record.last_seq + 1, record.last_seq + 1 + draw(st.sampled_from([1, 20, 200])))
        size, producer = draw(sizes), draw(st.integers(0, PRODUCERS))
        self.commit(self.acceptable([MessageStored(record.queue, seq, size, "", producer, seq) for seq in run]))

    def consume_what_waits(self, draw: Draw) -> None:
        found = self.some_that_wait(draw)
        self.commit(self.acceptable([MessageConsumed(queue, seq, 1, 1, 1) for queue, seq in found]))

    def return_what_waits(self, draw: Draw) -> None:
        count, flagged = draw(counts), draw(st.booleans())
        found = self.some_that_wait(draw)
        self.commit([MessageReturned(queue, seq, count, flagged, 1, "rollback") for queue, seq in found])

    def some_that_wait(self, draw: Draw) -> list[tuple[int, int]]:
        queue, skipped, step = draw(queues), draw(st.sampled_from([0, 1, 30])), draw(st.integers(1, 3))
        found = self.model.messages(queue, 0, NO_LIMIT, NO_LIMIT)[skipped::step]
        return [(queue, message.seq) for message in found[: draw(st.sampled_from([1, 30, 300]))]]

    def remember_and_forget(self, draw: Draw) -> None:
        self.commit(self.acceptable([fact for part in draw(st.lists(others(), min_size=1)) for fact in part]))

    def let_time_pass(self, draw: Draw) -> None:
        self.now_us += draw(st.sampled_from([1, 13, 25])) * HOUR_US
        assert self.store.prune(self.now_us) == self.model.prune(self.now_us)

    def begin_epoch(self, draw: Draw) -> None:
        assert self.store.begin_epoch("b", self.now_us) == self.model.begin_epoch("b", self.now_us)

    def trim_the_log(self, draw: Draw) -> None:
        through, limit = draw(st.integers(0, 30)), draw(st.integers(0, 5))
        assert self.store.trim_log(through, limit) == self.model.trim_log(through, limit)

    def reopen(self, draw: Draw) -> None:
        self.store.close()
        self.store = LmdbStore(self.directory, sync=False)

    def read_some_messages(self, draw: Draw) -> None:
        reading = draw(queues), draw(seqs), draw(st.integers(0, 50)), draw(st.integers(0, 50_000))
        assert list(self.store.messages(*reading)) == list(self.model.messages(*reading))

    @precondition(lambda self: hasattr(self, "store"))
    @invariant()
    def both_hold_the_same(self) -> None:
        store, model = self.store, self.model
        assert store.meta() == model.meta()
        assert list(store.queues()) == list(model.queues())
        for queue in range(1, QUEUES + 1):
            assert store.queue(f"queue-{queue}") == model.queue(f"queue-{queue}")
            everything = (queue, 0, NO_LIMIT, NO_LIMIT)
            assert list(store.messages(*everything)) == list(model.messages(*everything))
        for producer in range(1, PRODUCERS + 1):
            assert store.producer(f"producer-{producer}") == model.producer(f"producer-{producer}")
        for txn in self.txns:
            assert store.outcome(txn) == model.outcome(txn)
        assert store.log_range() == model.log_range()
        last = model.meta().log_position
        assert list(store.log(last - 3, 9)) == list(model.log(last - 3, 9))

    def teardown(self) -> None:
        if hasattr(self, "store"):
            self.store.close()
            shutil.rmtree(self.directory)


STEPS = [
    *[LmdbAgainstModel.store_at_the_end] * 3,
    *[LmdbAgainstModel.consume_what_waits] * 3,
    *[LmdbAgainstModel.commit_a_batch] * 3,
    *[LmdbAgainstModel.return_what_waits] * 2,
    *[LmdbAgainstModel.remember_and_forget] * 2,
    LmdbAgainstModel.let_time_pass,
    LmdbAgainstModel.begin_epoch,
    LmdbAgainstModel.trim_the_log,
    LmdbAgainstModel.reopen,
    LmdbAgainstModel.read_some_messages,
]


def body_of(fact: MessageStored) -> bytes:
    return f"{fact.queue}/{fact.seq};".encode().ljust(fact.size, b".")[: fact.size]


TestLmdbAgainstModel = LmdbAgainstModel.TestCase
TestLmdbAgainstModel.settings = settings(
    max_examples=50, stateful_step_count=20, deadline=None, phases=set(Phase) - {Phase.explain}
)

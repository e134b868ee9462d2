"""Any sequence of commits, trims, prunings, epochs and reopenings leaves LMDB with what the model has."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from legato import limits
from legato.core.facts import (
    AnyFact,
    Kind,
    MessageConsumed,
    MessageMoved,
    MessagePublished,
    MessageReturned,
    MessageStored,
    QueueCreated,
    QueueDeleted,
)
from legato.core.records import ExpiryPlace, QueueRecord, StoredMessage
from legato.ids import make_txn_id
from legato.store.base import Batch, Store
from legato.store.lmdb import LmdbStore
from legato.store.memory import MemoryStore
from tests.conformance.store import apart
from tests.support.examples import examples
from tests.support.fused import fuse
from tests.unit.store.consistency import check_consistent
from tests.unit.store.steps import (
    HOUR_US,
    IDS,
    LANES,
    NO_LIMIT,
    PRODUCERS,
    QUEUES,
    STUB_SIZE,
    TOPICS,
    TXNS,
    Draw,
    body_of,
    expiries,
    has_body,
    ids,
    others,
    runs,
    seqs,
    size_of,
    stub_of,
)
from tests.unit.store.tracking import Tracking

TEMPORARIES_MAX = 4


class LmdbAgainstModel(RuleBasedStateMachine):
    @initialize()
    def open(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="legato-store-"))
        self.store = self.opened()
        self.model = MemoryStore()
        self.now_us = HOUR_US
        self.tracking = Tracking()
        self.drained = True
        self.uploads: list[int] = []
        self.fuses = False
        self.store.begin_epoch("b", self.now_us)
        self.model.begin_epoch("b", self.now_us)
        self.commit([QueueCreated(queue, f"queue-{queue}") for queue in QUEUES])
        self.commit([QueueCreated(topic, f"topic-{topic}", Kind.TOPIC) for topic in TOPICS])
        self.commit([self.new_subscription(topic) for topic in TOPICS for _ in range(2)])

    def opened(self) -> LmdbStore:
        return LmdbStore(self.directory, sync=False)

    def steps(self) -> list[Callable[["LmdbAgainstModel", Draw], None]]:
        return STEPS

    def commit(self, facts: list[AnyFact]) -> None:
        kept = self.tracking.acceptable(facts)
        epoch = self.model.meta().epoch
        bodies = [body_of(fact) for fact in kept if has_body(fact)]
        chunks: list[tuple[int, int, bytes]] = []
        if any(len(body) == STUB_SIZE for body in bodies):
            if not self.drained:
                # A body that comes to a place before all is released there is not a new one, and stubs differ.
                self.drain()
            # A large message that several messages stand for; mostly it came before, and mostly no more of it comes.
            self.uploads.append(large := epoch << 32 | len(self.uploads) + 1)
            bodies = [stub_of(large) if len(body) == STUB_SIZE else body for body in bodies]
            chunks = [(large, 0, b"part"), (large, 1, b"rest")]
            if large % 3:
                self.commit_batch(Batch(epoch, self.now_us, [], [], chunks, steady_us=self.now_us))
                chunks = []
        ended = [large for large in self.uploads[-3:] if large % 4]
        self.drained = self.drained and not any(isinstance(fact, QueueDeleted) for fact in kept)
        self.commit_batch(Batch(epoch, self.now_us, kept, bodies, chunks, ended, steady_us=self.now_us))

    def commit_batch(self, batch: Batch) -> None:
        # Of what the broker stores and consumes in runs, too.
        batch = fuse(batch) if self.fuses else batch
        assert self.store.commit(batch) == self.model.commit(batch)

    def new_subscription(self, topic: int, name: str = "") -> QueueCreated:
        number = self.tracking.next_number()
        return QueueCreated(
            number,
            name or f"s-{number}",
            Kind.SUBSCRIPTION,
            topic,
            "a > 1",
            True,
            "c",
            number % 2 == 0,
            number % 3 == 0,
        )

    def some_queue(self, draw: Draw) -> QueueRecord:
        return draw(st.sampled_from([queue for queue in self.model.queues() if queue.kind != Kind.TOPIC]))

    def some_topic(self, draw: Draw) -> QueueRecord:
        return draw(st.sampled_from([queue for queue in self.model.queues() if queue.kind == Kind.TOPIC]))

    @rule(data=st.data())
    def take_a_step(self, data: st.DataObject) -> None:
        """One rule for all: rules of their own would be switched off by turns, and then little happens."""
        self.fuses = data.draw(st.booleans())
        data.draw(st.sampled_from(self.steps()))(self, data.draw)

    def commit_a_batch(self, draw: Draw) -> None:
        numbers = st.sampled_from([record.queue for record in self.model.queues() if record.kind != Kind.TOPIC])
        addresses = st.sampled_from([*QUEUES, *[record.queue for record in self.model.queues()]])
        parts = draw(
            st.lists(st.one_of(runs(numbers), runs(numbers), others(), ids(addresses)), min_size=1, max_size=6)
        )
        published = self.published(draw) if draw(st.booleans()) else []
        self.commit([*published, *[fact for part in parts for fact in part]])

    def store_at_the_end(self, draw: Draw) -> None:
        record, lane = self.some_queue(draw), draw(st.sampled_from(LANES))
        run = range(1, 1 + draw(st.sampled_from([1, 20, 200])))
        last, producer, expiry = last_of(record, lane), draw(st.integers(0, PRODUCERS)), draw(expiries())
        size = draw(st.integers(0, 9))
        self.commit(
            [
                MessageStored(
                    record.queue, last + n, size_of(size), "", producer, last + n, expires_us=expiry(self.now_us, n)
                )
                for n in run
            ]
        )

    def publish(self, draw: Draw) -> None:
        self.commit(self.published(draw))

    def published(self, draw: Draw) -> list[AnyFact]:
        """Mostly at the end, to all subscriptions; else anywhere and to some."""
        topic, lane, expiry = self.some_topic(draw), draw(st.sampled_from(LANES)), draw(expiries())
        subscribed = [record.queue for record in self.model.subscriptions(topic.queue)]
        skipped, step = draw(st.sampled_from([0, 0, 0, 1, 2])), draw(st.sampled_from([1, 1, 3]))
        last = last_of(topic, lane) if draw(st.booleans()) else (lane << 56) + draw(seqs)
        return [
            MessagePublished(
                topic.queue,
                seq := last + n,
                size_of(seq),
                "",
                [number for number in subscribed if not skipped or (number + n) % (skipped + 1)],
                expires_us=expiry(self.now_us, n),
            )
            for n in range(1, 1 + draw(st.sampled_from([1, 20, 200, 600])) * step, step)
        ]

    def consume_what_waits(self, draw: Draw) -> None:
        found = self.some_that_wait(draw)
        moved = draw(st.booleans())
        self.commit(
            [
                MessageMoved(queue, seq, "purged") if moved else MessageConsumed(queue, seq, 1, 1, 1)
                for queue, seq in found
            ]
        )

    def publish_and_consume(self, draw: Draw) -> None:
        published = self.published(draw)
        copies = [(number, f.seq) for f in published if isinstance(f, MessagePublished) for number in f.subscriptions]
        gone = copies[draw(st.integers(0, 3)) :: draw(st.integers(1, 3))]
        self.commit([*published, *[MessageConsumed(queue, seq, 1, 1, 1) for queue, seq in gone]])

    def bring_copies_back(self, draw: Draw) -> None:
        """Some leave their subscription, and then come back to their places."""
        copies = self.some_that_wait(draw)
        self.commit([MessageMoved(queue, seq, "delayed") for queue, seq in copies])
        if draw(st.booleans()):
            self.drain()
        topics = {record.queue: record.topic for record in self.model.queues()}
        self.commit([MessagePublished(topics[queue], seq, size_of(seq), "", [queue]) for queue, seq in copies])

    def return_what_waits(self, draw: Draw) -> None:
        count, flagged = draw(st.integers(0, 9)), draw(st.booleans())
        cause = draw(st.sampled_from(["rollback", "modified", "carried"]))
        found = self.some_that_wait(draw)
        times = draw(st.sampled_from([1, 1, 12]))
        returned: list[AnyFact] = [MessageReturned(queue, seq, count, flagged, 1, cause) for queue, seq in found]
        self.commit(returned * times)

    def some_that_wait(self, draw: Draw) -> list[tuple[int, int]]:
        queue, skipped, step = self.some_queue(draw).queue, draw(st.sampled_from([0, 1, 30])), draw(st.integers(1, 3))
        lane = draw(st.sampled_from(LANES))
        found = self.model.messages(queue, lane << 56, NO_LIMIT, NO_LIMIT)[skipped::step]
        return [(queue, message.seq) for message in found[: draw(st.sampled_from([1, 30, 300]))]]

    def consume_what_expired(self, draw: Draw) -> None:
        places = self.model.expired(ExpiryPlace(), self.now_us, draw(st.sampled_from([1, 10, 1_000])))
        self.commit([MessageMoved(place.queue, place.seq, "expired") for place in places])

    def subscribe(self, draw: Draw) -> None:
        self.commit([self.new_subscription(self.some_topic(draw).queue)])

    def create_a_temporary(self, draw: Draw) -> None:
        if len(self.model.temporaries(99)) < TEMPORARIES_MAX:
            number = self.tracking.next_number()
            kind = draw(st.sampled_from([Kind.QUEUE, Kind.TOPIC]))
            self.commit([QueueCreated(number, f"t-{number}", kind, container="c", temporary=True)])

    def delete(self, draw: Draw) -> None:
        """Now and then in the batch that publishes, and with another of the same name instead."""
        before = self.published(draw) if draw(st.booleans()) else []
        deletable = [record for record in self.model.queues() if record.kind == Kind.SUBSCRIPTION or record.temporary]
        if not deletable:
            return
        record = draw(st.sampled_from(deletable))
        gone = [record, *(self.model.subscriptions(record.queue) if draw(st.booleans()) else [])]
        after: list[AnyFact] = []
        if record.kind == Kind.SUBSCRIPTION and draw(st.booleans()):
            after.append(self.new_subscription(record.topic, record.name))
        if record.kind == Kind.TOPIC:
            before = []
        self.commit([*before, *[QueueDeleted(each.queue, each.name) for each in reversed(gone)], *after])

    def create_and_delete(self, draw: Draw) -> None:
        created = self.new_subscription(self.some_topic(draw).queue)
        self.commit([created, QueueDeleted(created.queue, created.name)])

    def remember_and_forget(self, draw: Draw) -> None:
        self.commit([fact for part in draw(st.lists(others(), min_size=1)) for fact in part])

    def let_time_pass(self, draw: Draw) -> None:
        self.now_us += draw(st.sampled_from([1, 13, 25])) * HOUR_US
        self.drain()

    def prune_a_little(self, draw: Draw) -> None:
        self.store.prune(self.now_us)
        self.model.prune(self.now_us)

    def drain(self) -> None:
        while self.store.prune(self.now_us):
            pass
        self.model.prune(self.now_us)
        self.drained = True
        assert self.parts(self.store) == self.parts(self.model)

    def parts(self, store: Store) -> list[bytes | None]:
        return [store.chunk(large, 1) for large in self.uploads]

    def begin_epoch(self, draw: Draw) -> None:
        assert self.store.begin_epoch("b", self.now_us) == self.model.begin_epoch("b", self.now_us)

    def trim_the_log(self, draw: Draw) -> None:
        through, limit = draw(st.integers(0, 30)), draw(st.integers(0, 5))
        assert self.store.trim_log(through, limit) == self.model.trim_log(through, limit)

    def reopen(self, draw: Draw) -> None:
        self.store.close()
        self.store = self.opened()

    def read_some_messages(self, draw: Draw) -> None:
        after = (draw(st.sampled_from(LANES)) << 56) + draw(seqs)
        reading = self.some_queue(draw).queue, after, draw(st.integers(0, 50)), draw(st.integers(0, 50_000))
        assert timeless(self.store, *reading) == timeless(self.model, *reading)
        for store in (self.store, self.model):
            assert apart(store.messages_in_runs(*reading)) == list(store.messages(*reading))

    def read_what_expired(self, draw: Draw) -> None:
        """Also going on behind any place, and at any time."""
        limit, now_us = draw(st.integers(0, 50)), self.now_us + draw(st.integers(-3, 30)) * HOUR_US
        places = self.model.expired(ExpiryPlace(), NO_LIMIT, 10_000)
        after = draw(st.sampled_from(places)) if places else ExpiryPlace()
        assert list(self.store.expired(after, now_us, limit)) == list(self.model.expired(after, now_us, limit))

    @precondition(lambda self: hasattr(self, "store"))
    @invariant()
    def both_hold_the_same(self) -> None:
        store, model = self.store, self.model
        check_consistent(store)
        assert all(has or not needed for has, needed in zip(self.parts(store), self.parts(model), strict=True))
        assert store.meta() == model.meta()
        assert self.seen(store.queues()) == self.seen(model.queues())
        for record in model.queues():
            assert store.queue(record.name) == store.queue_by_number(record.queue) is not None
            assert list(store.subscriptions(record.queue)) == list(model.subscriptions(record.queue))
            assert list(store.taken(record.queue)) == list(model.taken(record.queue))
            for lane in LANES:
                everything = (record.queue, lane << 56, NO_LIMIT, NO_LIMIT)
                assert timeless(store, *everything) == timeless(model, *everything)
                assert all(HOUR_US <= message.stored_us <= self.now_us for message in store.messages(*everything))
            assert unread(store, record) == unread(model, record)
        for queue in self.tracking.numbers() if self.drained else ():
            assert store.duplicates(queue) == model.duplicates(queue)
            for number in IDS if model.duplicates(queue)[1] else ():
                assert store.duplicate(queue, b"%d" % number) == model.duplicate(queue, b"%d" % number)
        assert self.seen(store.temporaries(2)) == self.seen(model.temporaries(2))
        expired = ExpiryPlace(), self.now_us, NO_LIMIT
        assert list(store.expired(*expired)) == list(model.expired(*expired))
        for producer in range(1, PRODUCERS + 1):
            assert store.producer(f"producer-{producer}") == model.producer(f"producer-{producer}")
        for number in TXNS:
            assert store.outcome(make_txn_id(1, number)) == model.outcome(make_txn_id(1, number))
        assert store.meta() == model.meta()
        assert list(store.producers(0, NO_LIMIT)) == list(model.producers(0, NO_LIMIT))
        assert store.producers_count() == model.producers_count()
        assert store.log_range() == model.log_range()
        last = model.meta().log_position
        assert list(store.log(last - 3, 9)) == list(model.log(last - 3, 9))

    def seen(self, records: Iterable[QueueRecord]) -> list[QueueRecord]:
        """Of a topic only how many bodies there are, and once all is released that deleted subscriptions held.

        A body that comes back to its place before then is not a new one.
        """
        return [
            replace(
                record,
                stored=record.stored - record.consumed if self.drained else 0,
                consumed=0,
                bytes=record.bytes if self.drained else 0,
            )
            if record.kind == Kind.TOPIC
            else record
            for record in records
        ]

    def teardown(self) -> None:
        if hasattr(self, "store"):
            try:
                self.nothing_is_left_behind()
            finally:
                self.store.close()
                shutil.rmtree(self.directory)

    def nothing_is_left_behind(self) -> None:
        """Once all subscriptions went, no topic holds anything; once all queues went, the store holds nothing."""
        self.commit([QueueDeleted(q.queue, q.name) for q in self.model.queues() if q.kind == Kind.SUBSCRIPTION])
        self.drain()
        self.both_hold_the_same()
        assert all(record.bytes == 0 for record in self.store.queues() if record.kind == Kind.TOPIC)
        self.commit([QueueDeleted(record.queue, record.name) for record in self.model.queues()])
        for store in (self.store, self.model):
            store.begin_epoch("b", self.now_us)
        self.drain()
        kept = {"meta", "log", "producers", "producer_names", "outcomes", "outcome_times"}
        assert {name for name, entries in self.store.entries().items() if entries} <= kept


def last_of(record: QueueRecord, lane: int) -> int:
    """The last sequence of a lane, or where it begins."""
    return record.lanes.get(lane, (lane << 56, 0))[0] if lane else record.last_seq


def timeless(store: Store, queue: int, after: int, limit: int, limit_bytes: int) -> list[StoredMessage]:
    """Messages without when they were stored, which a message shares with its neighbours."""
    return [replace(message, stored_us=0) for message in store.messages(queue, after, limit, limit_bytes)]


def unread(store: Store, record: QueueRecord) -> list[StoredMessage]:
    """Likewise every second one there may be, without its body."""
    asked = [seq for lane in sorted(set(LANES)) for seq in range((lane << 56) + 1, last_of(record, lane) + 2, 2)]
    return [replace(message, stored_us=0) for message in store.unread_messages(record.queue, asked)]


STEPS: list[Callable[[LmdbAgainstModel, Draw], None]] = [
    *[LmdbAgainstModel.store_at_the_end] * 3,
    *[LmdbAgainstModel.publish] * 3,
    *[LmdbAgainstModel.consume_what_waits] * 5,
    *[LmdbAgainstModel.commit_a_batch] * 3,
    *[LmdbAgainstModel.return_what_waits] * 2,
    *[LmdbAgainstModel.delete] * 2,
    LmdbAgainstModel.publish_and_consume,
    LmdbAgainstModel.consume_what_expired,
    *[LmdbAgainstModel.bring_copies_back] * 2,
    LmdbAgainstModel.subscribe,
    LmdbAgainstModel.create_a_temporary,
    LmdbAgainstModel.create_and_delete,
    LmdbAgainstModel.remember_and_forget,
    LmdbAgainstModel.let_time_pass,
    LmdbAgainstModel.prune_a_little,
    LmdbAgainstModel.begin_epoch,
    LmdbAgainstModel.trim_the_log,
    LmdbAgainstModel.reopen,
    LmdbAgainstModel.read_some_messages,
    LmdbAgainstModel.read_what_expired,
]


@pytest.fixture(autouse=True, scope="module")
def forgetful() -> Iterator[None]:
    """Outcomes are forgotten as soon as they are past their time."""
    kept, limits.OUTCOMES_KEPT = limits.OUTCOMES_KEPT, 0
    yield
    limits.OUTCOMES_KEPT = kept


TestLmdbAgainstModel = LmdbAgainstModel.TestCase
TestLmdbAgainstModel.settings = settings(
    max_examples=examples(50), stateful_step_count=20, deadline=None, phases=set(Phase) - {Phase.explain}
)

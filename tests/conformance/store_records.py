"""What every store must do with records of commits. A store's own test module inherits `StoreRecordTests`."""

from __future__ import annotations

import pytest

from legato.core.facts import AnyFact, EpochBegan, ProducerRegistered, QueueCreated
from legato.core.records import Applied, Batch, Meta
from legato.errors import FencedError, StoreCorruptError, StoreError
from legato.store.base import Store
from legato.store.commit_records import (
    Beat,
    CommitRecord,
    EpochRecord,
    decode,
    encode_commit,
    encode_epoch,
)
from legato.store.memory import MemoryStore
from tests.conformance.store import NOW_US, batch_of, consumed, stored, waiting

HERE = Applied(17, b"sixteen bytes 17")


def record_of(store: Store, *facts: AnyFact) -> CommitRecord:
    """The record of the next commit of a store."""
    meta = store.meta()
    return encode_commit(batch_of(meta.epoch, *facts), meta.log_position + 1)[0]


def epoch_of(store: Store, broker: str = "broker-2") -> EpochRecord:
    """The record of the next epoch of a store."""
    meta = store.meta()
    return encode_epoch(meta.epoch + 1, meta.log_position + 1, broker, NOW_US + 5)[0]


class StoreRecordTests:
    """Inherit this."""

    @pytest.fixture
    def epoch(self, store: Store) -> int:
        """An epoch that has begun, with the queue 1, `q`, and the producer 1, `p`."""
        epoch = store.begin_epoch("broker-1", NOW_US).epoch
        store.commit(batch_of(epoch, QueueCreated(1, "q"), ProducerRegistered(1, "p")))
        return epoch

    def test_what_is_prepared_is_seen_when_it_is_finished(self, store: Store, epoch: int) -> None:
        before = store.meta()
        position = store.prepare(record_of(store, stored(1), stored(2)))
        assert (waiting(store), store.meta(), store.log_range()[1]) == ([], before, 2)
        store.finish(HERE)
        assert (waiting(store), store.log_range()[1], position) == ([1, 2], 3, 3)
        assert store.meta() == Meta(
            epoch,
            before.next_queue,
            before.next_producer,
            before.next_consumer,
            3,
            before.steady_us,
            before.outcomes_forgotten_us,
            HERE,
        )

    def test_what_is_abandoned_never_was(self, store: Store, epoch: int) -> None:
        before = store.meta()
        store.prepare(record_of(store, stored(1)))
        store.abandon()
        store.abandon()
        assert (waiting(store), store.meta(), len(store.log(0, 10))) == ([], before, 2)
        store.commit(batch_of(epoch, stored(2)))
        assert waiting(store) == [2]
        with pytest.raises(StoreError, match="no commit is prepared"):
            store.finish(HERE)

    def test_one_commit_is_prepared_at_a_time(self, store: Store, epoch: int) -> None:
        store.prepare(record_of(store, stored(1)))
        with pytest.raises(StoreError, match="prepared already"):
            store.prepare(record_of(store, stored(2)))
        store.finish(HERE)
        assert waiting(store) == [1]

    def test_an_epoch_is_prepared_and_finished_too(self, store: Store, epoch: int) -> None:
        record = epoch_of(store)
        store.prepare(record)
        assert store.meta().epoch == epoch
        store.finish(HERE)
        assert (store.meta().epoch, store.meta().applied) == (epoch + 1, HERE)
        ((position, log),) = store.log(2, 10)
        assert (position, log.epoch, log.time_us, log.facts) == (3, epoch + 1, NOW_US + 5, [EpochBegan("broker-2")])
        with pytest.raises(FencedError):
            store.prepare(record)
        with pytest.raises(FencedError):
            store.commit(batch_of(epoch, stored(1)))

    def test_a_record_of_another_epoch_is_refused(self, store: Store, epoch: int) -> None:
        for other in (epoch - 1, epoch + 1):
            with pytest.raises(FencedError):
                store.prepare(encode_commit(batch_of(other, stored(1)), 3)[0])
        with pytest.raises(FencedError):
            store.prepare(encode_epoch(epoch + 2, 3, "broker-2", NOW_US)[0])
        store.commit(batch_of(epoch, stored(1)))

    @pytest.mark.parametrize("position", [2, 4])
    def test_a_record_that_is_not_the_next_one_is_refused(self, store: Store, epoch: int, position: int) -> None:
        with pytest.raises(StoreCorruptError, match=f"record {position} cannot be applied to a store of 2 commits"):
            store.prepare(encode_commit(batch_of(epoch, stored(1)), position)[0])
        with pytest.raises(StoreCorruptError):
            store.prepare(encode_epoch(epoch + 1, position, "broker-2", NOW_US)[0])
        store.commit(batch_of(epoch, stored(1)))
        assert waiting(store) == [1]

    def test_a_record_that_contradicts_the_state_is_not_prepared(self, store: Store, epoch: int) -> None:
        with pytest.raises(StoreError):
            store.prepare(record_of(store, stored(1, queue=99)))
        with pytest.raises(StoreError):
            store.prepare(encode_commit(Batch(epoch, NOW_US, [stored(1)], [b"not its body"]), 3)[0])
        store.prepare(record_of(store, stored(1)))
        store.finish(HERE)
        assert waiting(store) == [1]

    def test_a_commit_that_is_no_record_is_told_from_one(self, store: Store, epoch: int) -> None:
        store.prepare(record_of(store, stored(1)))
        store.finish(HERE)
        assert store.meta().applied == HERE
        store.commit(batch_of(epoch, stored(2)))
        assert store.meta().applied is None
        store.place(HERE)
        assert (store.meta().applied, store.log_range()[1]) == (HERE, 4)
        store.begin_epoch("broker-2", NOW_US)
        assert store.meta().applied is None

    def test_records_make_the_same_store_elsewhere(self, store: Store) -> None:
        other = MemoryStore()
        facts: list[list[AnyFact]] = [
            [QueueCreated(1, "q"), ProducerRegistered(1, "p")],
            [stored(1), stored(2, producer=1, number=1)],
            [consumed(1), stored(3, size=5_000)],
        ]
        meta = store.meta()
        _, data = encode_epoch(1, 1, "broker-1", NOW_US)
        written = [data]
        for position, batch in enumerate(facts, 2):
            written.append(encode_commit(batch_of(1, *batch, steady_us=NOW_US + position), position)[1])
        for target in (store, other):
            for number, data in enumerate(written, 1):
                record = decode(data)
                assert not isinstance(record, Beat)
                target.prepare(record)
                target.finish(Applied(number, b"digest"))
        assert meta != store.meta() == other.meta()
        assert store.log(0, 10) == other.log(0, 10)
        assert list(store.queues()) == list(other.queues())
        assert store.messages(1, 0, 10, 1 << 20) == other.messages(1, 0, 10, 1 << 20)
        assert store.producer("p") == other.producer("p")

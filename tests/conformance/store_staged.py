"""What every store does with runs that come as blocks: they are messages like any others."""

from collections.abc import Sequence

import pytest

from legato import limits
from legato.core.facts import BatchPublished, ProducerRegistered, QueueCreated, RunStored
from legato.core.records import Batch, ExpiryPlace, PublishedBatch
from legato.errors import StoreError
from legato.store.base import Store
from legato.store.block_writer import new_blocks
from tests.conformance.store import NO_LIMIT, NOW_US, batch_of, body_of, consumed, stored, waiting

HIGH = 10 << 56


def blocks_of(count: int, size: int = 200, expiries: dict[int, int] | None = None) -> list[bytes]:
    """Blocks of messages 1 to `count`."""
    bodies = {seq: body_of(seq, size) for seq in range(1, count + 1)}
    return [bytes(value) for _, value, _ in new_blocks(bodies, list(bodies), NOW_US, expiries or {})]


def staged(epoch: int, *facts: RunStored, blocks: Sequence[Sequence[bytes]]) -> Batch:
    batch = batch_of(epoch, *facts)
    batch.runs = list(blocks)
    return batch


class StoreStagedTests:
    """Inherit this."""

    @pytest.fixture
    def epoch(self, store: Store) -> int:
        epoch = store.begin_epoch("broker", NOW_US).epoch
        store.commit(batch_of(epoch, QueueCreated(1, "q"), ProducerRegistered(1, "sink://s"), stored(1), stored(2)))
        return epoch

    def test_a_run_is_read_message_by_message(self, store: Store, epoch: int) -> None:
        store.commit(staged(epoch, RunStored(1, 3, 300, 60_000, 1, 7), blocks=[blocks_of(300)]))
        found = store.messages(1, 2, NO_LIMIT, NO_LIMIT)
        assert [(m.seq, m.body) for m in found] == [(seq + 2, body_of(seq, 200)) for seq in range(1, 301)]

    def test_counters_and_numbers_follow(self, store: Store, epoch: int) -> None:
        run, other = RunStored(1, 3, 10, 2000, 1, 7), RunStored(1, HIGH + 1, 5, 1000, 1, 7)
        store.commit(staged(epoch, run, other, blocks=[blocks_of(10), blocks_of(5)]))
        record, producer = store.queue("q"), store.producer("sink://s")
        assert record is not None
        assert (record.stored, record.last_seq, record.bytes) == (17, 12, 3040)
        assert record.lanes[10][0] == HIGH + 5
        assert producer is not None
        assert producer.last_number == 7

    def test_a_run_is_consumed_like_any_messages(self, store: Store, epoch: int) -> None:
        store.commit(staged(epoch, RunStored(1, 3, 300, 60_000, 1, 1), blocks=[blocks_of(300)]))
        store.commit(batch_of(epoch, *[consumed(seq) for seq in range(1, 301)]))
        assert waiting(store) == [301, 302]
        record = store.queue("q")
        assert record is not None
        assert record.bytes == 400

    def test_messages_of_a_run_expire(self, store: Store, epoch: int) -> None:
        blocks = blocks_of(3, expiries={2: NOW_US + 5})
        store.commit(staged(epoch, RunStored(1, 3, 3, 600, 1, 1), blocks=[blocks]))
        assert list(store.expired(ExpiryPlace(), NOW_US + 5, 10)) == [ExpiryPlace(NOW_US + 5, 1, 4)]

    @pytest.mark.parametrize(("count", "size"), [(4, 600), (3, 601)])
    def test_blocks_that_are_not_those_of_the_fact_are_refused(
        self, store: Store, epoch: int, count: int, size: int
    ) -> None:
        with pytest.raises(StoreError):
            store.commit(staged(epoch, RunStored(1, 3, count, size, 1, 1), blocks=[blocks_of(3)]))
        assert waiting(store) == [1, 2]

    def test_blocks_without_a_fact_are_refused(self, store: Store, epoch: int) -> None:
        with pytest.raises(StoreError):
            store.commit(staged(epoch, blocks=[blocks_of(3)]))

    def test_the_last_batches_of_a_sink_are_on_record(
        self, store: Store, epoch: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(limits, "BATCHES_KEPT", 2)
        for number in (1, 2, 3):
            store.commit(batch_of(epoch, BatchPublished(1, number, 7, b"rows%d" % number, b"stages")))
        producer = store.producer("sink://s")
        assert producer is not None
        assert producer.last_number == 3
        assert producer.batches == [PublishedBatch(n, 7, b"rows%d" % n, b"stages") for n in (2, 3)]

    def test_names_of_producers_are_found_by_what_they_begin_with(self, store: Store, epoch: int) -> None:
        for number, name in enumerate(("sink://b", "sink:/x", "sink://a", "sinks", "write://c"), 2):
            store.commit(batch_of(epoch, ProducerRegistered(number, name)))
        assert store.producer_names("sink://", 9) == ["sink://a", "sink://b", "sink://s"]
        assert store.producer_names("sink://", 2) == ["sink://a", "sink://b"]
        assert store.producer_names("none", 9) == []

"""How much there is on disk: blocks stay within bounds wherever messages come and go, and sharing is sharing."""

import queue
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.core.facts import Kind, MessagePublished, MessageStored, QueueCreated, QueueDeleted
from legato.core.records import ExpiryPlace
from legato.errors import StoreError
from legato.store.block_writer import BLOCK_MESSAGES, BLOCK_REFERENCES, SPLIT_BODY_BYTES
from legato.store.lmdb import PRUNE_MESSAGES, LmdbStore
from tests.conformance.store import NOW_US, batch_of, consumed, stored, waiting
from tests.unit.store.consistency import blocks

TOPIC = 2
SUBSCRIPTIONS = range(10, 20)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    """Queue 1, the topic 2 and its ten subscriptions, in epoch 1."""
    store = LmdbStore(tmp_path, sync=False)
    store.begin_epoch("b", NOW_US)
    subscriptions = [QueueCreated(number, f"s{number}", Kind.SUBSCRIPTION, TOPIC) for number in SUBSCRIPTIONS]
    store.commit(batch_of(1, QueueCreated(1, "q"), QueueCreated(TOPIC, "t", Kind.TOPIC), *subscriptions))
    yield store
    store.close()


def published(seq: int, size: int = 20) -> MessagePublished:
    """To all subscriptions."""
    return MessagePublished(TOPIC, seq, size, "", [*SUBSCRIPTIONS])


def test_what_a_commit_publishes_is_one_block_more_for_each_subscription(store: LmdbStore) -> None:
    for first in (1, 501):
        store.commit(batch_of(1, *[published(seq, size=1_000) for seq in range(first, first + 500)]))
    held = blocks(store)
    assert sum(block.queue in SUBSCRIPTIONS for block in held) == 2 * len(SUBSCRIPTIONS)
    assert all(block.topic == TOPIC for block in held if block.queue in SUBSCRIPTIONS)
    assert sum(block.total_size() for block in held if block.queue == TOPIC) == 1_000 * 1_000
    assert len(blocks(store, "copies")) == 2


def test_what_subscriptions_acknowledge_does_not_write_bodies_again(store: LmdbStore) -> None:
    store.commit(batch_of(1, *[published(seq, size=10_000) for seq in range(1, 501)]))
    store.trim_log(1_000, 1_000)
    written = (store.path / "data.mdb").stat().st_size
    for number in SUBSCRIPTIONS[1:]:
        store.commit(batch_of(1, *[consumed(seq, queue=number) for seq in range(1, 501)]))
    assert (store.path / "data.mdb").stat().st_size - written < 500 * 10_000 // 4
    assert sum(block.total_size() for block in blocks(store, "copies")) == 500
    store.commit(batch_of(1, *[consumed(seq, queue=SUBSCRIPTIONS[0]) for seq in range(1, 501)]))
    assert blocks(store) == blocks(store, "copies") == []


@pytest.mark.parametrize(("size", "bound"), [(20, BLOCK_MESSAGES), (300, SPLIT_BODY_BYTES // 300)])
def test_blocks_stay_small_when_messages_come_at_random_places(store: LmdbStore, size: int, bound: int) -> None:
    seqs = random.Random(1).sample(range(1 << 54, (1 << 54) + (1 << 30)), 2_000)
    for first in range(0, 2_000, 50):
        store.commit(batch_of(1, *[stored(seq, size=size) for seq in seqs[first : first + 50]]))
    held = blocks(store)
    assert all(block.count <= bound for block in held)
    assert len(held) < 4 * len(seqs) // bound, "blocks are less than a quarter full on average"
    assert waiting(store) == sorted(seqs)


def test_blocks_of_references_stay_small_when_copies_come_back(store: LmdbStore) -> None:
    for remainder in (1, 0):
        store.commit(batch_of(1, *[published(seq) for seq in range(1, 3_001) if seq % 2 == remainder]))
    held = [block for block in blocks(store) if block.queue in SUBSCRIPTIONS]
    assert all(block.count <= BLOCK_REFERENCES for block in held)
    assert all(block.count <= BLOCK_REFERENCES for block in blocks(store, "copies"))
    assert waiting(store, SUBSCRIPTIONS[3]) == list(range(1, 3_001))


def test_only_blocks_in_which_messages_expire_are_larger_for_it(store: LmdbStore) -> None:
    store.commit(batch_of(1, *[stored(seq) for seq in range(1, 101)]))
    store.commit(batch_of(1, MessageStored(1, 101, 20, "", expires_us=NOW_US), stored(102)))
    first, second = blocks(store)
    assert (first.expiries, second.expiries) == ((), (NOW_US, 0))
    assert store.entries()["expiries"] == 1
    store.commit(batch_of(1, consumed(101)))
    assert blocks(store)[1].expiries == ()
    assert store.entries()["expiries"] == 0


def test_expiring_messages_that_are_neighbours_share_an_entry_of_the_index(store: LmdbStore) -> None:
    facts = [MessageStored(1, seq, 20, "", expires_us=NOW_US + seq) for seq in range(1, 501)]
    store.commit(batch_of(1, *facts))
    assert store.entries()["expiries"] == len(blocks(store)) == 500 // BLOCK_MESSAGES
    places = store.expired(ExpiryPlace(), NOW_US + 200, 1_000)
    assert [place.seq for place in places] == list(range(1, 201))


def test_a_deleted_queue_is_removed_bit_by_bit(store: LmdbStore) -> None:
    seqs = range(1, 2 * PRUNE_MESSAGES + 11)
    store.commit(batch_of(1, *[stored(seq) for seq in seqs]))
    store.commit(batch_of(1, QueueDeleted(1, "q")))
    left = []
    while store.prune(NOW_US):
        left.append(sum(block.count for block in blocks(store)))
    assert left == [PRUNE_MESSAGES + 10, 10, 0]
    assert store.entries()["deleted"] == 0


def test_removing_a_deleted_queue_goes_on_where_it_was_when_the_store_is_opened_again(store: LmdbStore) -> None:
    store.commit(batch_of(1, *[published(seq) for seq in range(1, 3_001)]))
    store.commit(batch_of(1, *[QueueDeleted(number, f"s{number}") for number in SUBSCRIPTIONS]))
    store.prune(NOW_US)
    store.close()
    store = LmdbStore(store.path, sync=False)
    while store.prune(NOW_US):
        pass
    record = store.queue("t")
    left = blocks(store), blocks(store, "copies")
    store.close()
    assert left == ([], [])
    assert record is not None
    assert (record.stored, record.consumed, record.bytes) == (3_000, 3_000, 0)


def test_closing_waits_for_a_change_in_another_thread(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, sync=False)
    store.begin_epoch("b", NOW_US)
    store.commit(batch_of(1, QueueCreated(1, "q"), *[stored(seq, size=5_000) for seq in range(1, 2_001)]))
    store.commit(batch_of(1, QueueDeleted(1, "q")))
    outcomes: queue.SimpleQueue[object] = queue.SimpleQueue()

    def prune_until_closed() -> None:
        try:
            while True:
                outcomes.put(store.prune(NOW_US))
        except Exception as error:
            outcomes.put(error)

    thread = threading.Thread(target=prune_until_closed)
    thread.start()
    outcomes.get(timeout=60)
    store.close()
    thread.join(timeout=60)
    assert not thread.is_alive()
    seen: object = None
    while not outcomes.empty():
        seen = outcomes.get()
    assert isinstance(seen, StoreError)


def test_what_cannot_be_read_of_a_deleted_queue_goes_with_it_and_keeps_nothing_behind_it(store: LmdbStore) -> None:
    store.commit(batch_of(1, QueueCreated(3, "after")))
    for first in (1, 2 * BLOCK_MESSAGES, 4 * BLOCK_MESSAGES):
        store.commit(batch_of(1, *[stored(seq) for seq in range(first, first + BLOCK_MESSAGES)]))
    store.commit(batch_of(1, stored(1, queue=3)))
    with store._writing() as txn, txn.cursor(db=store._databases.messages) as cursor:
        assert cursor.first()
        txn.put(cursor.key(), b"\xff" * len(cursor.value()), db=store._databases.messages)
    store.commit(batch_of(1, QueueDeleted(1, "q", 1), QueueDeleted(3, "after", 1)))
    while store.prune(NOW_US):
        pass
    assert {block.queue for block in blocks(store)} == set()
    with store._reading() as txn:
        assert txn.stat(store._databases.deleted)["entries"] == 0

"""Damage that `verify` finds beyond counters and blocks: what messages are found by, and the parts of large ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from legato.amqp.codec.stubs import Stub, make_stub
from legato.core.facts import DuplicateIdKept, Kind, MessagePublished, MessageStored, QueueCreated, QueueDeleted
from legato.core.records import Batch
from legato.errors import StoreCorruptError
from legato.store import backup, values
from legato.store.environment import Databases
from legato.store.keys import chunk_key, expiry_key, number_key, place_key, position_key
from legato.store.larges import NOT_NEEDED
from legato.store.lmdb import LmdbStore

QUEUE, TOPIC, SUBSCRIPTION, DELETED = 1, 2, 3, 4
HEAD = b"\x00\x53\x70\xc0\x02\x01\x41"
PARTS = [b"x" * 1000, b"y" * 1000, b"z"]
LARGE = 1 << 32 | 1
EXPIRES_US = 5_000_000


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """One with a large message, one that expires, a duplicate id, a topic's message, and what a deleted queue held."""
    path = tmp_path / "store"
    filled = LmdbStore(path, sync=False)
    epoch = filled.begin_epoch("here", 1).epoch
    stub = make_stub(HEAD, Stub(LARGE, sum(map(len, PARTS))))
    batch = Batch(
        epoch,
        1,
        [
            QueueCreated(QUEUE, "q"),
            QueueCreated(TOPIC, "t", Kind.TOPIC),
            QueueCreated(SUBSCRIPTION, "s", Kind.SUBSCRIPTION, topic=TOPIC),
            QueueCreated(DELETED, "d"),
            MessageStored(QUEUE, 1, len(stub), "large"),
            MessageStored(QUEUE, 2, 4, "expiring", expires_us=EXPIRES_US),
            DuplicateIdKept(QUEUE, b"id", 10, "m"),
            MessagePublished(TOPIC, 1, 5, "published", [SUBSCRIPTION]),
            MessageStored(DELETED, 1, 4, "gone", expires_us=EXPIRES_US),
        ],
        [stub, b"body", b"topic", b"gone"],
        [(LARGE, index, part) for index, part in enumerate(PARTS)],
    )
    filled.commit(batch)
    filled.commit(Batch(epoch, 2, [QueueDeleted(DELETED, "d")], []))
    filled.close()
    return path


def damage(store: Path, change: Callable[[Any, Databases], object]) -> None:
    """Change something behind the store's back."""
    damaged = LmdbStore(store, sync=False)
    with damaged._writing() as txn:
        assert change(txn, damaged._databases), "there was nothing to damage"
    damaged.close()


def test_large_messages_count_with_their_bodies(store: Path) -> None:
    """It was told of their stubs, of some 50 bytes each."""
    contents = backup.verify(store)
    assert (contents.messages, contents.message_bytes) == (3, len(HEAD) + sum(map(len, PARTS)) + 4 + 5)


Change = Callable[[Any, Databases], object]
DAMAGES: dict[str, tuple[str, Change]] = {
    "a part is missing": ("message 1 of q lacks part 1", lambda t, d: t.delete(chunk_key(LARGE, 1), db=d.chunks)),
    "the last part is missing": (
        "message 1 of q is to have 2,001 bytes after its head; 2,000 are there",
        lambda t, d: t.delete(chunk_key(LARGE, 2), db=d.chunks),
    ),
    "a part is short": ("2,001 .* 1,006 are", lambda t, d: t.put(chunk_key(LARGE, 1), b"short", db=d.chunks)),
    "a large message is not counted": ("removed too early", lambda t, d: t.delete(position_key(LARGE), db=d.larges)),
    "a large message is to be removed": (
        "the parts of message 1 of q would be removed too early",
        lambda t, d: t.put(position_key(LARGE), NOT_NEEDED, db=d.loose),
    ),
    "an expiry leads to nothing": (
        "q lacks its messages from 7 on",
        lambda t, d: t.put(expiry_key(EXPIRES_US, QUEUE, 7), b"", db=d.expiries),
    ),
    "an expiry is missing": (
        "messages of q from 1 on would not expire",
        lambda t, d: t.delete(expiry_key(EXPIRES_US, QUEUE, 1), db=d.expiries),
    ),
    "a copy is not counted": (
        "subscriptions of t have 1 messages, and 0 are counted",
        lambda t, d: t.delete(place_key(TOPIC, 1), db=d.copies),
    ),
    "a duplicate id leads to nothing": (
        "q lacks its duplicate id 1",
        lambda t, d: t.delete(place_key(QUEUE, 1), db=d.duplicate_places),
    ),
    "a duplicate id is forgotten": (
        "q would not know duplicate id 1",
        lambda t, d: all(
            t.delete(key, db=d.duplicates) for key in [bytes(key) for key, _ in t.cursor(db=d.duplicates)]
        ),
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_databases_that_do_not_fit_one_another_are_found(store: Path, name: str) -> None:
    """A broker would have found it when it came to it; `verify` said that all was well."""
    said, change = DAMAGES[name]
    damage(store, change)
    with pytest.raises(StoreCorruptError, match=said):
        backup.verify(store)


def test_what_is_left_of_damage_that_was_given_up_is_no_damage(store: Path) -> None:
    """Whoever deletes a queue that cannot be read leaves counts and parts behind, which only take up room."""

    def leave(txn: Any, databases: Databases) -> object:
        txn.put(position_key(LARGE), values.pack_number(9), db=databases.larges)
        txn.put(chunk_key(LARGE + 1, 4), b"left over", db=databases.chunks)
        txn.put(place_key(DELETED, 1), b"no block", db=databases.messages)
        assert txn.get(number_key(DELETED), db=databases.queues) is None
        return txn.put(expiry_key(EXPIRES_US, DELETED, 9), b"", db=databases.expiries)

    damage(store, leave)
    assert backup.verify(store).messages == 3

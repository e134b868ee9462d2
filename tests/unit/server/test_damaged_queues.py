"""What the broker reads of a damaged store."""

from __future__ import annotations

import logging
from pathlib import Path

import lmdb
import msgspec
import pytest

from legato.core.facts import QueueCreated
from legato.core.records import ExpiryPlace
from legato.server.links.damaged_queues import DamagedQueues, ReadableArchive
from legato.server.links.refused import INTERNAL_ERROR, Refused
from legato.store.keys import place_key
from legato.store.lmdb import LmdbStore
from tests.conformance.store import batch_of, stored


class Numbered:
    id = 1


def test_what_cannot_be_read_is_not_there_and_is_told_of_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = LmdbStore(tmp_path, sync=False)
    epoch = store.begin_epoch("b", 0).epoch
    names = [QueueCreated(1, "bad"), QueueCreated(2, "good")]
    store.commit(
        batch_of(epoch, *names, *[msgspec.structs.replace(stored(1, queue=number), expires_us=9) for number in (1, 2)])
    )
    store.close()
    with lmdb.open(str(tmp_path), max_dbs=64) as environment:
        blocks = environment.open_db(b"messages", create=False)
        with environment.begin(write=True) as txn:
            txn.put(place_key(1, 1), b"nothing of Legato's", db=blocks)
    store = LmdbStore(tmp_path)
    damaged = DamagedQueues(store)
    archive = ReadableArchive(store, damaged)
    damaged.refuse(Numbered())
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert archive.messages(1, 0, 10, 1 << 20) == []
            assert archive.runs(1, 0, 10, 1 << 20, frozenset()) == []
            assert archive.expired(ExpiryPlace(), 10, 10) == []
    assert [message.seq for message in archive.messages(2, 0, 10, 1 << 20)] == [1]
    assert len(caplog.records) == len(list(damaged.all())) == 2
    assert damaged.fresh
    with pytest.raises(Refused, match="queue bad cannot be read: block 1 of queue 1") as refused:
        damaged.refuse(Numbered())
    assert refused.value.condition == INTERNAL_ERROR
    damaged.forget(1)
    damaged.refuse(Numbered())
    store.close()

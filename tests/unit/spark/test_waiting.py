"""What waits in a store is told for every lane of every queue and subscription, and not for topics' bodies."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from legato.core.facts import Kind, MessageConsumed, MessagePublished, MessageStored, QueueCreated
from legato.core.records import StoredMessage
from legato.spark.exporter import Exporter, export_all
from legato.spark.ledger import waiting as waitings
from legato.spark.ledger.waiting import read_waiting
from legato.store.base import Batch
from legato.store.lmdb import LmdbStore
from legato.store.memory import MemoryStore

HIGH, LOW = 10 << 56, 1 << 56


def test_every_lane_and_every_subscription_is_read_and_no_topic(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store")
    store.begin_epoch("broker", 1)
    queues = [
        QueueCreated(1, "q"),
        QueueCreated(2, "topic://t", Kind.TOPIC),
        QueueCreated(3, "subscription:///a", Kind.SUBSCRIPTION, 2),
        QueueCreated(4, "subscription:///b", Kind.SUBSCRIPTION, 2),
    ]
    store.commit(Batch(1, 2, [*queues], []))
    stored = [MessageStored(1, seq, 4, "ID:x") for seq in (1, 2, HIGH + 1, HIGH + 2, LOW + 1)]
    published = [MessagePublished(2, seq, 4, "ID:y", [3, 4]) for seq in (1, HIGH + 1)]
    store.commit(Batch(1, 3, [*stored, *published], [b"body"] * 7))
    store.commit(Batch(1, 4, [MessageConsumed(1, HIGH + 1, 1, 4, 1), MessageConsumed(3, 1, 1, 4, 1)], []))
    store.close()
    export_all(tmp_path / "store", tmp_path / "ledger")
    waiting = read_waiting(tmp_path / "store", tmp_path / "ledger")
    assert waiting is not None
    found = sorted(zip(waiting["queue"].to_pylist(), waiting["seq"].to_pylist(), strict=True))
    assert found == [(1, 1), (1, 2), (1, LOW + 1), (1, HIGH + 2), (3, HIGH + 1), (4, 1), (4, HIGH + 1)]
    store = LmdbStore(tmp_path / "store")
    store.commit(Batch(1, 5, [MessageConsumed(4, 1, 1, 4, 1)], []))
    store.close()
    assert read_waiting(tmp_path / "store", tmp_path / "ledger") is None, "the ledger is behind the store"


class ChangingStore(MemoryStore):
    """A store whose broker consumes a message, and comes to have that in its ledger, while it is read."""

    def __init__(self, ledger: Path) -> None:
        super().__init__()
        self.ledger = ledger
        self.reads = 0

    def messages(self, *place: Any) -> Sequence[StoredMessage]:
        found = super().messages(*place)
        self.reads += 1
        if self.reads == 1:
            self.commit(Batch(1, 3, [MessageConsumed(1, 1, 1, 4, 1), MessageStored(2, 1, 4, "ID:y")], [b"body"]))
            Exporter(self, self.ledger).finish(0.0)
        return found


def test_what_waits_is_that_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A message was said to wait that the ledger says is consumed: `1 message left q and waits there again`."""
    store = ChangingStore(tmp_path)
    store.begin_epoch("broker", 1)
    store.commit(Batch(1, 2, [QueueCreated(1, "a"), QueueCreated(2, "b"), MessageStored(1, 1, 4, "ID:x")], [b"body"]))
    Exporter(store, tmp_path).finish(0.0)
    monkeypatch.setattr(waitings, "settle_store", lambda _directory: None)
    monkeypatch.setattr(waitings, "LmdbStore", lambda *_args, **_options: store)
    assert read_waiting(tmp_path, tmp_path) is None
    settled = read_waiting(tmp_path, tmp_path)
    assert settled is not None
    assert settled.to_pylist() == [{"queue": 2, "seq": 1}]

"""What waits in a store is told for every lane of every queue and subscription, and not for topics' bodies."""

from pathlib import Path

from legato.core.facts import Kind, MessageConsumed, MessagePublished, MessageStored, QueueCreated
from legato.spark.exporter import export_all
from legato.spark.ledger.waiting import read_waiting
from legato.store.base import Batch
from legato.store.lmdb import LmdbStore

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

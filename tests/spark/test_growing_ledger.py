"""An audit of a ledger that grows: a broker comes back while Spark starts, and its exporter goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from legato.core.facts import MessageStored, QueueCreated
from legato.spark.auditor import audit as auditing
from legato.spark.exporter import export_all
from legato.spark.ledger import fact_frames
from legato.store.base import Batch
from legato.store.lmdb import LmdbStore


def commit(store_dir: Path, ledger_dir: Path, epoch: int, *seqs: int) -> None:
    """A broker serves for a while, and stores messages; its exporter is at the end of the log."""
    store = LmdbStore(store_dir)
    store.begin_epoch("broker", epoch)
    created = [QueueCreated(1, "q")] if epoch == 1 else []
    stored = [MessageStored(1, seq, 4, f"ID:{seq}") for seq in seqs]
    store.commit(Batch(epoch, 10 * epoch, [*created, *stored], [b"body"] * len(stored)))
    store.close()
    export_all(store_dir, ledger_dir)


@pytest.mark.slow
def test_messages_that_come_behind_the_look_at_the_store_are_not_lost(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waited was asked first, and the ledger was read afterwards: `2 messages are unaccounted for`."""
    store_dir, ledger_dir = tmp_path / "store", tmp_path / "ledger"
    commit(store_dir, ledger_dir, 1, 1, 2)
    look = auditing._waiting_in

    def look_and_come_back(store: Path, ledger: Path) -> Any:
        found = look(store, ledger)
        commit(store, ledger, 2, 3, 4)
        return found

    monkeypatch.setattr(auditing, "_waiting_in", look_and_come_back)
    result = auditing.audit(ledger_dir, spark, store_dir=store_dir)
    assert [check.name for check in result.checks if check.count] == []
    assert [(queue.waiting, queue.lost) for queue in result.queues] == [(4, 0)]


def test_what_comes_while_spark_starts_is_not_half_in_the_audit(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums were made of the segments at the beginning, and facts looked for in all that there were later."""
    store_dir, ledger_dir = tmp_path / "store", tmp_path / "ledger"
    commit(store_dir, ledger_dir, 1, 1, 2)
    read_ledger, rows = fact_frames.read_ledger, []

    def come_and_read(session: SparkSession, ledger: Path) -> Any:
        commit(store_dir, ledger_dir, 2, 3)
        return read_ledger(session, ledger)

    def as_rows(frame: Any) -> Any:
        rows.append(frame.count())
        return frame

    monkeypatch.setattr(fact_frames, "read_ledger", come_and_read)
    monkeypatch.setattr(auditing, "as_rows", as_rows)
    monkeypatch.setattr(auditing, "_audit_frames", lambda frames, _scope: frames["facts"])
    monkeypatch.setattr(auditing, "_since", lambda _started, found: found)
    auditing.audit(ledger_dir, spark)
    assert rows == [4], "the beginning of the epoch, the queue and its two messages"

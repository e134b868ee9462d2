"""The same records leave the same store, byte for byte, in whatever process and whenever it is pruned (R9).

Python gives strings other hashes in each process; objects are at other addresses. Neither may leave a trace.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from simulator.disk import Disk
from simulator.run import simulate

from legato import limits
from legato.core.facts import (
    AnyFact,
    BatchPublished,
    DuplicateIdKept,
    MessagesAssigned,
    MessageTaken,
    RunStored,
    TransactionCommitted,
)
from legato.core.records import Batch, Meta
from legato.store.commit_records import CommitRecord, decode, encode_commit, encode_epoch
from tests.support.examples import examples
from tests.support.stores import raw
from tests.unit.store.steps import Draw
from tests.unit.store.test_lmdb_against_model import LmdbAgainstModel

SEEDS = {"sinks and topics": 42, "pipelines": 72, "large messages": 124, "duplicate ids": 40}
STEPS = 1_500


class Tape:
    """Records of all commits to one store."""

    def __init__(self) -> None:
        self.records: list[bytes] = []

    def epoch(self, meta: Meta, broker: str, now_us: int) -> None:
        """An epoch began, which led to the state `meta`."""
        self.records.append(encode_epoch(meta.epoch, meta.log_position, broker, now_us)[1])

    def batch(self, batch: Batch, position: int) -> None:
        """A batch was committed."""
        self.records.append(encode_commit(batch, position)[1])


def facts_of(records: list[bytes]) -> list[AnyFact]:
    """All facts of recorded commits."""
    decoded = map(decode, records)
    return [fact for record in decoded if isinstance(record, CommitRecord) for fact in record.batch.facts]


def replayed(records: list[bytes], directory: Path, hash_seed: int) -> dict[str, dict[bytes, bytes]]:
    """All databases after a process of its own has applied them, and has pruned when it liked to."""
    file = directory / "records"
    file.write_bytes(msgspec.msgpack.encode(records))
    store = directory / f"store-{hash_seed}-{len(records)}"
    subprocess.run(
        [sys.executable, "-m", "tests.integration.store.replayer", file, store, str(hash_seed)],
        env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
        check=True,
        timeout=300,
    )
    return raw(store)


def assert_same_everywhere(records: list[bytes], directory: Path) -> dict[str, dict[bytes, bytes]]:
    """Also when it ends somewhere in the middle."""
    for end in (len(records) * 6 // 10, len(records)):
        one, other = (replayed(records[:end], directory, hash_seed) for hash_seed in (1, 2))
        differing = [name for name in one if one[name] != other[name]]
        assert not differing
        assert one.keys() == other.keys()
    return one


def record_simulation(seed: int, monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """The commits of a run of the simulator."""
    tape = Tape()
    begin, commit = Disk.begin_epoch, Disk.commit

    def begin_epoch(self: Disk, broker: str, now_us: int) -> Meta:
        meta = begin(self, broker, now_us)
        tape.epoch(meta, broker, now_us)
        return meta

    def commit_batch(self: Disk, batch: Batch) -> int:
        position = commit(self, batch)
        tape.batch(batch, position)
        return position

    monkeypatch.setattr(Disk, "begin_epoch", begin_epoch)
    monkeypatch.setattr(Disk, "commit", commit_batch)
    outcome = simulate(seed, STEPS)
    assert outcome.violation == ""
    return tape.records


@pytest.mark.parametrize("seed", SEEDS.values(), ids=SEEDS)
def test_two_processes_make_the_same_store_of_a_run_of_brokers(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = record_simulation(seed, monkeypatch)
    assert len(records) > 50
    databases = assert_same_everywhere(records, tmp_path)
    assert sum(map(bool, databases.values())) > 6, "there is something in them"


def test_the_runs_have_what_is_hard_to_do_again(monkeypatch: pytest.MonkeyPatch) -> None:
    records: list[bytes] = []
    for seed in SEEDS.values():
        with monkeypatch.context() as patching:
            records += record_simulation(seed, patching)
    kinds = {type(fact) for fact in facts_of(records)}
    assert kinds >= {RunStored, MessagesAssigned, BatchPublished, TransactionCommitted, MessageTaken, DuplicateIdKept}
    assert any(record.batch.chunks for record in map(decode, records) if isinstance(record, CommitRecord))


class RecordedMachine(LmdbAgainstModel):
    """Any sequence of commits, and the records of all."""

    finished: Callable[[list[bytes]], None]

    def commit_batch(self, batch: Batch) -> None:
        """Commit and record."""
        super().commit_batch(batch)
        if not hasattr(self, "tape"):
            self.tape = Tape()
            self.tape.epoch(Meta(1, log_position=1), "b", self.now_us)
        self.tape.batch(batch, self.store.meta().log_position)

    def begin_epoch(self, draw: Draw) -> None:
        """Begin one and record it."""
        super().begin_epoch(draw)
        self.tape.epoch(self.store.meta(), "b", self.now_us)

    def nothing_is_left_behind(self) -> None:
        """What is left is what is compared."""
        type(self).finished(self.tape.records)


def test_two_processes_make_the_same_store_of_any_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[list[bytes]] = []
    monkeypatch.setattr(limits, "OUTCOMES_KEPT", 0)
    monkeypatch.setattr(RecordedMachine, "finished", runs.append, raising=False)
    run_state_machine_as_test(
        RecordedMachine,
        settings=settings(
            max_examples=examples(10),
            stateful_step_count=40,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )
    for number, records in enumerate(runs):
        (directory := tmp_path / str(number)).mkdir()
        assert_same_everywhere(records, directory)

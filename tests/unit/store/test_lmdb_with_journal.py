"""What a journal holds and the store's file does not: it survives a kill, and it is seen by its process only."""

import errno
import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st

from legato.core.facts import MessageConsumed, ProducerRegistered, QueueCreated
from legato.errors import FencedError, StoreCorruptError, StoreError, StoreFullError
from legato.store import transactions
from legato.store.journal_records import segment_path
from legato.store.lmdb import LmdbStore
from legato.store.settling import settle_store
from legato.store.transactions import Keeping
from tests.conformance.store import batch_of, consumed, stored, waiting
from tests.support.examples import examples
from tests.support.small_disk import SmallDisk, small_disk
from tests.unit.store.steps import Draw
from tests.unit.store.test_lmdb_against_model import STEPS, LmdbAgainstModel, forgetful

__all__ = ["forgetful"]

NEVER = Keeping(checkpoint_s=1e6, journal_bytes=1 << 20, stored_bytes=1 << 20)
"""No checkpoint but those that are asked for."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[LmdbStore]:
    store = LmdbStore(tmp_path / "store", sync=False, keeping=NEVER)
    store.begin_epoch("b", 0)
    store.commit(batch_of(1, QueueCreated(1, "q"), ProducerRegistered(1, "p")))
    yield store
    store.close()


def killed(store: LmdbStore, name: str = "killed") -> Path:
    """The store's directory as it is when its process is killed now."""
    copy = store.path.with_name(name)
    shutil.copytree(store.path, copy, ignore=shutil.ignore_patterns("lock.mdb"))
    return copy


def found(path: Path, *, keeping: Keeping | None = None) -> list[int]:
    """What waits in the queue by those who open the store next."""
    store = LmdbStore(path, sync=False, keeping=keeping)
    try:
        if keeping is not None:
            store.begin_epoch("successor", 1)
        return waiting(store)
    finally:
        store.close()


def as_others_see(path: Path) -> list[int]:
    """What waits in the queue by a process that only reads."""
    reader = LmdbStore(path, read_only=True)
    try:
        return waiting(reader) if reader.queue("q") is not None else []
    finally:
        reader.close()


def fill(store: LmdbStore, first: int, size: int) -> int:
    """Store messages until one is refused; returns that one's number."""
    for seq in range(first, 10_000):
        try:
            store.commit(batch_of(store.meta().epoch, stored(seq, size=size)))
        except StoreFullError:
            return seq
    raise AssertionError("the store took everything")


@pytest.mark.parametrize("keeping", [None, NEVER])
def test_what_was_committed_survives_a_kill_before_any_checkpoint(store: LmdbStore, keeping: Keeping | None) -> None:
    for seq in range(1, 6):
        store.commit(batch_of(1, stored(seq)))
    store.commit(batch_of(1, consumed(2)))
    assert waiting(store) == [1, 3, 4, 5]
    copy = killed(store)
    assert as_others_see(copy) == [], "its file holds nothing of it, else this shows nothing"
    assert found(copy, keeping=keeping) == [1, 3, 4, 5]
    assert as_others_see(copy) == [1, 3, 4, 5]


def test_a_store_is_settled_for_those_who_only_read(store: LmdbStore) -> None:
    store.commit(batch_of(1, stored(1)))
    copy = killed(store)
    settle_store(copy)
    assert as_others_see(copy) == [1]
    settle_store(copy)
    settle_store(copy.with_name("none"))


def test_positions_of_the_log_and_the_state_are_the_same_after_a_kill(store: LmdbStore) -> None:
    positions = [store.commit(batch_of(1, stored(seq))) for seq in range(1, 5)]
    meta, log = store.meta(), store.log(0, 99)
    copy = LmdbStore(killed(store), sync=False)
    assert (copy.meta(), copy.log(0, 99), positions) == (meta, log, [3, 4, 5, 6])
    copy.close()


def test_a_process_killed_while_it_applies_the_journal_leaves_it_for_the_next(store: LmdbStore) -> None:
    for seq in range(1, 4):
        store.commit(batch_of(1, stored(seq)))
    copy = killed(store)
    died = DiesApplying(copy, sync=False, keeping=NEVER)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="died"):
            died.begin_epoch("died", 1)
    died.close()
    assert found(copy) == [1, 2, 3]


class DiesApplying(LmdbStore):
    """Its process dies when it has applied two records."""

    applied = 0

    def _apply_again(self, txn: Any, payload: bytes) -> None:
        super()._apply_again(txn, payload)
        self.applied += 1
        if self.applied % 2 == 0:
            raise RuntimeError("died")


def test_other_processes_see_the_last_checkpoint(store: LmdbStore) -> None:
    store.commit(batch_of(1, stored(1)))
    store.checkpoint()
    store.commit(batch_of(1, stored(2)))
    assert waiting(store) == [1, 2]
    assert as_others_see(killed(store, "before")) == [1]
    store.checkpoint()
    assert as_others_see(killed(store, "after")) == [1, 2]


def test_a_closed_store_needs_no_journal(store: LmdbStore) -> None:
    """Whoever copies the file of a store that was closed has all of it."""
    store.commit(batch_of(1, stored(1)))
    store.close()
    shutil.rmtree(store.path / "journal")
    assert found(store.path) == [1]
    assert found(store.path, keeping=NEVER) == [1]


def test_a_file_without_its_journal_is_refused_if_that_may_hold_something(store: LmdbStore) -> None:
    store.commit(batch_of(1, stored(1)))
    copy = killed(store)
    shutil.rmtree(copy / "journal")
    for keeping in (None, NEVER):
        with pytest.raises(StoreCorruptError, match="is missing"):
            found(copy, keeping=keeping)
    assert as_others_see(copy) == []


def test_a_damaged_record_before_whole_ones_is_refused_and_nothing_is_applied(store: LmdbStore) -> None:
    for seq in range(1, 5):
        store.commit(batch_of(1, stored(seq)))
    copy = killed(store)
    path = segment_path(copy / "journal", 1)
    data = bytearray(path.read_bytes())
    data[4096 + 70] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreCorruptError, match="would be lost"):
        found(copy)
    assert as_others_see(copy) == []


def test_a_refused_batch_leaves_what_was_committed_before_it(store: LmdbStore) -> None:
    """Half of it is in the open transaction when it is found to contradict itself."""
    for seq in range(1, 5):
        store.commit(batch_of(1, stored(seq)))
    meta = store.meta()
    with pytest.raises(StoreError):
        store.commit(batch_of(1, stored(5), MessageConsumed(77, 1, 1, 1, 1)))
    assert (waiting(store), store.meta()) == ([1, 2, 3, 4], meta)
    store.commit(batch_of(1, stored(5)))
    assert waiting(store) == found(killed(store)) == [1, 2, 3, 4, 5]


def test_a_full_map_refuses_the_batch_and_keeps_what_was_committed(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", map_bytes=8 << 20, sync=False, keeping=NEVER)
    epoch = store.begin_epoch("b", 0).epoch
    store.commit(batch_of(epoch, QueueCreated(1, "q")))
    last = fill(store, 1, 10_000)
    assert waiting(store) == list(range(1, last))
    assert found(killed(store)) == list(range(1, last))
    store.commit(batch_of(epoch, *[consumed(seq) for seq in range(1, last)]))
    assert waiting(store) == []
    store.commit(batch_of(epoch, stored(last, size=10_000)))
    store.close()
    assert found(store.path) == [last]


def test_a_journal_that_cannot_be_written_costs_no_commit(store: LmdbStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store's file is written instead: what fails is told when that cannot be written either."""
    store.commit(batch_of(1, stored(1)))

    def refuse(*arguments: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwritev", refuse)
        store.commit(batch_of(1, stored(2)))
        store.commit(batch_of(1, stored(3)))
        assert as_others_see(killed(store, "then")) == [1, 2, 3]
        patch.setattr(os, "pwrite", refuse)
        store.commit(batch_of(1, stored(4)))
    store.commit(batch_of(1, stored(5)))
    assert waiting(store) == found(killed(store)) == [1, 2, 3, 4, 5]


def test_a_store_whose_directory_was_removed_can_still_be_closed(store: LmdbStore) -> None:
    """A commit found no disk to ask for its room, and left LMDB's transaction open: the process never ended."""
    shutil.rmtree(store.path)
    store.commit(batch_of(1, stored(1)))
    store.checkpoint()
    assert waiting(store) == [1]


def test_a_checkpoint_that_fails_keeps_everything_in_the_journal(
    store: LmdbStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seq in range(1, 5):
        store.commit(batch_of(1, stored(seq)))

    def refuse(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(transactions, "write_journal_state", refuse)
        with pytest.raises(StoreFullError):
            store.checkpoint()
        assert waiting(store) == [1, 2, 3, 4]
        assert found(killed(store, "then")) == [1, 2, 3, 4]
    store.checkpoint()
    assert as_others_see(killed(store)) == [1, 2, 3, 4]


def test_a_store_on_a_small_disk_commits_to_its_file_when_the_room_for_a_checkpoint_is_not_certain(
    tmp_path: Path,
) -> None:
    with small_disk(tmp_path / "disk", 24 << 20) as disk:
        check_small_disk(disk)


def check_small_disk(disk: SmallDisk) -> None:
    store = LmdbStore(disk.path / "store", sync=False, keeping=NEVER)
    epoch = store.begin_epoch("b", 0).epoch
    store.commit(batch_of(epoch, QueueCreated(1, "q")))
    store.commit(batch_of(epoch, stored(1)))
    assert store._transactions.due_in_s is not None, "there is room, and its transaction is open"
    disk.fill()
    last = fill(store, 2, 20_000)
    assert waiting(store) == list(range(1, last))
    store.commit(batch_of(epoch, *[consumed(seq) for seq in range(1, last)]))
    assert waiting(store) == []
    store.close()
    assert found(disk.path / "store") == []


def test_a_disk_without_room_for_the_journal_is_served_without(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 8 << 20) as disk:
        first = LmdbStore(disk.path / "store", sync=False)
        first.begin_epoch("a", 0)
        first.commit(batch_of(1, QueueCreated(1, "q")))
        first.close()
        disk.fill()
        store = LmdbStore(disk.path / "store", sync=False, keeping=NEVER)
        epoch = store.begin_epoch("b", 0).epoch
        disk.empty()
        store.commit(batch_of(epoch, stored(1)))
        assert as_others_see(killed(store)) == [1]
        store.close()


def test_the_next_epoch_has_everything_that_was_committed_in_the_one_before(store: LmdbStore) -> None:
    store.commit(batch_of(1, stored(1)))
    copy = killed(store)
    second = LmdbStore(copy, sync=False, keeping=NEVER)
    assert second.begin_epoch("second", 1).epoch == 2
    assert waiting(second) == [1]
    with pytest.raises(FencedError):
        second.commit(batch_of(1, stored(2)))
    second.commit(batch_of(2, stored(2)))
    third = LmdbStore(killed(second, "again"), sync=False, keeping=NEVER)
    third.begin_epoch("third", 2)
    assert waiting(third) == [1, 2]
    second.close()
    third.close()


@pytest.mark.parametrize("size", [1 << 19, 1 << 21])
def test_a_journal_of_another_size_takes_the_place_of_the_former(store: LmdbStore, size: int) -> None:
    store.commit(batch_of(1, stored(1)))
    copy = killed(store)
    assert found(copy, keeping=Keeping(1e6, size)) == [1]
    sizes = {path.stat().st_size for path in (copy / "journal").iterdir()}
    assert max(sizes) == 4096, "the new one was not written to"
    assert found(copy, keeping=NEVER) == [1]


def test_large_commits_and_those_of_sinks_are_written_once(store: LmdbStore) -> None:
    store.commit(batch_of(1, stored(1)))
    store.commit(batch_of(1, stored(2, size=NEVER.record_bytes_max + 1)))
    assert as_others_see(killed(store)) == [1, 2]


def test_a_commit_of_many_messages_is_in_the_file_at_once(tmp_path: Path) -> None:
    """They share the second flush, and a record of them would cost more."""
    with closing(LmdbStore(tmp_path / "store", sync=False, keeping=Keeping(1e6, 8 << 20))) as store:
        store.begin_epoch("b", 0)
        store.commit(batch_of(1, QueueCreated(1, "q"), ProducerRegistered(1, "p")))
        store.commit(batch_of(1, *[stored(seq, size=1 << 10) for seq in range(1, 32)]))
        assert as_others_see(killed(store, "few")) == []
        store.commit(batch_of(1, *[stored(seq, size=1 << 10) for seq in range(32, 64)]))
        assert as_others_see(killed(store, "many")) == [*range(1, 64)]


def test_the_journal_holds_no_more_than_it_may(store: LmdbStore) -> None:
    """A takeover has to apply that."""
    size, checkpoints = 100_000, 0
    before = store.meta().log_position
    for seq in range(1, 60):
        store.commit(batch_of(1, stored(seq, size=size)))
        assert store._transactions._open_bytes <= NEVER.journal_bytes
        checkpoints += store._transactions.due_in_s is None
    assert checkpoints >= 5
    assert store.meta().log_position == before + 59
    assert found(killed(store)) == list(range(1, 60))


def test_a_checkpoint_comes_by_itself(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", sync=False, keeping=Keeping(0.02, 1 << 20))
    store.begin_epoch("b", 0)
    store.commit(batch_of(1, QueueCreated(1, "q")))
    store.commit(batch_of(1, stored(1)))
    came = threading.Event()
    release = store._transactions._journal.release  # type: ignore[union-attr]

    def released(through: int) -> None:
        release(through)
        came.set()

    store._transactions._journal.release = released  # type: ignore[union-attr, method-assign]
    store.commit(batch_of(1, stored(2)))
    assert came.wait(60)
    assert as_others_see(killed(store)) == [1, 2]
    store.close()


def test_changes_of_any_thread_are_made_in_one(store: LmdbStore) -> None:
    """LMDB's lock of writers is a thread's: who began a transaction has to end it."""
    store.commit(batch_of(1, stored(1)))
    failed: list[BaseException] = []

    def work(first: int) -> None:
        try:
            for number in range(10):
                store.commit(batch_of(1, ProducerRegistered(first + number, f"p-{first + number}")))
                store.prune(1)
                store.trim_log(3, 1)
                assert waiting(store) == [1]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(1_000 * number,)) for number in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    assert store.producers_count() == 41
    assert found(killed(store)) == [1]


def test_what_comes_after_the_end_is_refused(store: LmdbStore) -> None:
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.commit(batch_of(1, stored(1)))
    with pytest.raises(StoreError):
        store.meta()


class LmdbWithJournalAgainstModel(LmdbAgainstModel):
    """The same, with a journal, and with kills: what was committed is there, and nothing else."""

    def opened(self) -> LmdbStore:
        return LmdbStore(self.directory, sync=False, keeping=Keeping(1e6, 1 << 18))

    def kill(self, draw: Draw) -> None:
        killed = self.directory.with_name(self.directory.name + "-killed")
        shutil.copytree(self.directory, killed, ignore=shutil.ignore_patterns("lock.mdb"))
        self.store.close()
        shutil.rmtree(self.directory)
        killed.rename(self.directory)
        if draw(st.booleans()):
            LmdbStore(self.directory, sync=False).close()
        self.store = self.opened()
        self.begin_epoch(draw)

    def reopen(self, draw: Draw) -> None:
        super().reopen(draw)
        self.begin_epoch(draw)

    def checkpoint(self, draw: Draw) -> None:
        self.store.checkpoint()

    def steps(self) -> list[Callable[[LmdbAgainstModel, Draw], None]]:
        added = [LmdbWithJournalAgainstModel.kill] * 4 + [LmdbWithJournalAgainstModel.checkpoint]
        return [*STEPS, *cast("list[Callable[[LmdbAgainstModel, Draw], None]]", added)]


TestLmdbWithJournalAgainstModel = LmdbWithJournalAgainstModel.TestCase
TestLmdbWithJournalAgainstModel.settings = settings(
    max_examples=examples(50), stateful_step_count=20, deadline=None, phases=set(Phase) - {Phase.explain}
)

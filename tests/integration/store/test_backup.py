"""Backups of a store from which real brokers serve, under load, and what becomes of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lmdb
import pytest

from legato.client import ConnectionFactory, TextMessage
from legato.core.facts import AnyFact, MessageStored, QueueCreated
from legato.core.records import Batch
from legato.errors import StoreCorruptError, StoreError, StoreFullError
from legato.store import backup, environment, values
from legato.store.keys import number_key
from legato.store.lmdb import LmdbStore
from legato.store.segment_locks import alone_with
from legato.store.segment_names import SegmentSpan, spans
from tests.support.broker import BrokerPair, broker_pair
from tests.support.forked_process import run_legato
from tests.support.server import server
from tests.support.small_disk import small_disk


def legato(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return run_legato(*map(str, words))


class Load:
    """Sends numbers to one queue, and consumes those of another, until told to stop."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.sent = 0
        """So many are confirmed."""
        self.consumed = 0
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._send), threading.Thread(target=self._consume)]

    def _send(self) -> None:
        with ConnectionFactory(self._url).create_connection() as connection, connection.create_session() as session:
            kept = session.create_producer(session.create_queue("kept"))
            passing = session.create_producer(session.create_queue("passing"))
            while not self._stop.is_set():
                kept.send(TextMessage(f"{self.sent} {'x' * 500}"))
                passing.send(TextMessage(str(self.sent)))
                self.sent += 1

    def _consume(self) -> None:
        with ConnectionFactory(self._url).create_connection() as connection, connection.create_session() as session:
            connection.start()
            consumer = session.create_consumer(session.create_queue("passing"))
            while not self._stop.is_set():
                self.consumed += consumer.receive(timeout_s=0.1) is not None

    def wait_for(self, more: int) -> None:
        """Until so many more are sent."""
        goal = self.sent + more
        while self.sent < goal:
            assert self._threads[0].is_alive()
            self._stop.wait(0.01)

    @contextmanager
    def running(self) -> Iterator[Load]:
        for thread in self._threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerPair, Load]]:
    """A pair of brokers that are never idle."""
    with broker_pair(tmp_path_factory.mktemp("loaded")) as pair, Load(pair.url).running() as load:
        load.wait_for(50)
        yield pair, load


def numbers(store: Path, queue: str) -> list[int]:
    """What a broker on a store gives of a queue."""
    with server(store) as broker:
        url = f"amqp://127.0.0.1:{broker.port}"
        with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
            connection.start()
            consumer = session.create_consumer(session.create_queue(queue))
            found = []
            while message := consumer.receive_no_wait(TextMessage):
                found.append(int((message.text or "").split()[0]))
        assert broker.stop() == 0
    return found


def test_a_backup_under_load_holds_all_that_was_confirmed_before_and_nothing_twice(
    loaded: tuple[BrokerPair, Load], tmp_path: Path
) -> None:
    """USERS B4: three plain copies of the file gave one that was corrupt."""
    pair, load = loaded
    confirmed = load.sent
    taken = legato("store", "backup", pair.store, tmp_path / "copy", "--json")
    assert taken.returncode == 0, taken.stderr
    assert load.sent > confirmed, "clients were served meanwhile"
    manifest = json.loads(taken.stdout)["manifest"]
    assert manifest["epoch"] == pair.primary.epoch
    assert sorted(os.listdir(tmp_path / "copy")) == ["backup.json", "data.mdb"]
    restored = legato("store", "restore", tmp_path / "copy", tmp_path / "store")
    assert restored.returncode == 0, restored.stderr
    assert legato("store", "verify", tmp_path / "store").returncode == 0
    kept, passing = numbers(tmp_path / "store", "kept"), numbers(tmp_path / "store", "passing")
    assert len(kept) >= confirmed
    assert kept == list(range(len(kept)))
    assert passing == list(range(passing[0], passing[0] + len(passing))) if passing else True


def test_a_store_can_be_verified_while_brokers_serve_and_while_one_takes_over(
    loaded: tuple[BrokerPair, Load], tmp_path: Path
) -> None:
    """Counters and messages are compared as of one commit, however many follow meanwhile."""
    pair, load = loaded
    for number in range(4):
        if number == 2:
            pair.fail_over()
            load.wait_for(10)
        contents = backup.verify(pair.store)
        assert contents.epoch == pair.primary.epoch
        assert contents.messages > 0
    manifest = backup.take(pair.store, tmp_path / "copy")
    assert manifest.epoch == pair.primary.epoch == 2


# -- without brokers


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a queue of three messages, and two ledger segments, of which one is younger than a backup of now."""
    path = tmp_path / "store"
    filled = LmdbStore(path)
    epoch = filled.begin_epoch("here", 1).epoch
    facts: list[AnyFact] = [QueueCreated(1, "q"), *(MessageStored(1, seq, 4, f"m{seq}") for seq in (1, 2, 3))]
    last = filled.commit(Batch(epoch, 1, facts, [b"body"] * 3))
    filled.close()
    (path / "ledger").mkdir()
    for span in (SegmentSpan(1, last), SegmentSpan(last + 1, last + 5)):
        (path / "ledger" / span.file_name).write_bytes(b"rows")
    return path


ENDED_BEFORE_IT_IS_COMPLETE = """
import os, signal, sys
from legato.cli.main import main
from legato.store import backup

number = int(sys.argv.pop())
backup.complete = lambda *_: os.kill(os.getpid(), number)
# Where the tests run under nohup, their processes inherit that it is ignored.
signal.signal(number, signal.SIG_DFL)
main()
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_backup_that_a_signal_ends_leaves_nothing(store: Path, tmp_path: Path, number: int) -> None:
    """As that of `timeout`: a copy of a day's store stayed, under a name of which the next day knew nothing."""
    (disk := tmp_path / "disk").mkdir()
    words = ["store", "backup", str(store), str(disk / "today"), str(int(number))]
    run = subprocess.run([sys.executable, "-c", ENDED_BEFORE_IT_IS_COMPLETE, *words], capture_output=True, check=False)
    assert (run.returncode, run.stderr) == (-number, b"")
    assert list(disk.iterdir()) == []


def test_users_go_with_a_backup_and_nobody_else_may_read_it(store: Path, tmp_path: Path) -> None:
    """A restored broker without its users would let in whoever is on its machine."""
    (store / "users").write_text("ann\n")
    backup.take(store, tmp_path / "copy")
    backup.restore(tmp_path / "copy", tmp_path / "again")
    assert (tmp_path / "again" / "users").read_text() == "ann\n"
    made = [path for top in ("copy", "again") for path in (tmp_path / top, *(tmp_path / top).rglob("*"))]
    assert [str(path) for path in made if path.stat().st_mode & 0o077] == []
    (tmp_path / "copy" / "users").write_text("ann\nbob\n")
    with pytest.raises(StoreCorruptError, match="users"):
        backup.verify(tmp_path / "copy")


def test_segments_of_later_commits_are_left_out_as_their_numbers_are_given_again(store: Path, tmp_path: Path) -> None:
    manifest = backup.take(store, tmp_path / "copy", ledger=store / "ledger")
    assert list(manifest.segments) == [SegmentSpan(1, manifest.log_position).file_name]
    backup.restore(tmp_path / "copy", tmp_path / "again")
    assert os.listdir(tmp_path / "again" / "ledger") == list(manifest.segments)
    assert backup.verify(tmp_path / "again").messages == 3


def test_a_compaction_meanwhile_takes_no_segment_from_a_backup(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compacted segment ends after the backup's last commit: it is none of its own."""
    ledger, copy_data = store / "ledger", environment.copy_data
    before = sorted(ledger.iterdir())
    at_removal = threading.Event()

    def compact() -> None:
        with alone_with(ledger, lambda _: at_removal.set()):
            for segment in before:
                segment.unlink()
        at_removal.set()

    compaction = threading.Thread(target=compact)

    def copy_then_compact(source: lmdb.Environment, directory: Path, to: Path) -> None:
        copy_data(source, directory, to)
        (ledger / SegmentSpan(1, max(span.last for span in spans(ledger))).file_name).write_bytes(b"rows")
        compaction.start()
        assert at_removal.wait(60)

    monkeypatch.setattr(backup, "copy_data", copy_then_compact)
    manifest = backup.take(store, tmp_path / "copy", ledger=ledger)
    compaction.join()
    assert list(manifest.segments) == [SegmentSpan(1, manifest.log_position).file_name]
    assert [path.exists() for path in before] == [False, False]


@pytest.mark.parametrize("damaged", ["data.mdb", "ledger", "backup.json"])
@pytest.mark.parametrize("how", ["changed", "missing"])
def test_a_backup_that_is_damaged_is_neither_verified_nor_restored(
    store: Path, tmp_path: Path, damaged: str, how: str
) -> None:
    manifest = backup.take(store, tmp_path / "copy", ledger=store / "ledger")
    path = tmp_path / "copy" / damaged
    if damaged == "ledger":
        path /= next(iter(manifest.segments))
    if how == "missing":
        path.unlink()
    else:
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    if (damaged, how) != ("backup.json", "missing"):
        with pytest.raises(StoreCorruptError):
            backup.verify(tmp_path / "copy")
    with pytest.raises(StoreError):
        backup.restore(tmp_path / "copy", tmp_path / "again")
    assert not (tmp_path / "again").exists()
    assert not (tmp_path / "again.partial").exists()


def test_counters_that_do_not_fit_the_messages_are_found(store: Path) -> None:
    damaged = LmdbStore(store)
    record = damaged.queue("q")
    assert record is not None
    record.stored += 1
    with damaged._writing() as txn:
        txn.put(number_key(record.queue), values.encode(record), db=damaged._databases.queues)
    damaged.close()
    with pytest.raises(StoreCorruptError, match="q holds 3 messages; by its counters there are 4"):
        backup.verify(store)


def test_nothing_is_written_over(store: Path, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "precious").write_text("x")
    with pytest.raises(StoreError):
        backup.take(store, tmp_path / "copy")
    backup.take(store, tmp_path / "another")
    with pytest.raises(StoreError):
        backup.restore(tmp_path / "another", tmp_path / "copy")
    assert os.listdir(tmp_path / "copy") == ["precious"]
    told = legato("store", "backup", store, tmp_path / "copy")
    assert (told.returncode, "There is something at" in told.stderr) == (1, True)


def test_a_second_backup_to_the_same_directory_is_refused_and_leaves_the_first_alone(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cron does not wait for the last run: each removed the other's copy, or gave a half one its name."""
    copy_data, to = environment.copy_data, tmp_path / "copy"
    second: list[str] = []

    def copy_while_another_comes(source: lmdb.Environment, directory: Path, to: Path) -> None:
        copy_data(source, directory, to)
        told = legato("store", "backup", store, to)
        second.append(f"{told.returncode} {told.stderr}")

    monkeypatch.setattr(backup, "copy_data", copy_while_another_comes)
    backup.take(store, to)
    assert second[0].startswith("1 ")
    assert f"Another process is writing {to} now" in second[0]
    assert sorted(os.listdir(to)) == ["backup.json", "data.mdb"]
    assert backup.verify(to).messages == 3
    assert sorted(os.listdir(tmp_path)) == ["copy", "store"]


def test_a_directory_of_the_users_with_the_name_of_a_partial_copy_is_kept(store: Path, tmp_path: Path) -> None:
    """It was deleted."""
    backup.take(store, tmp_path / "copy")
    precious = tmp_path / "again.partial"
    precious.mkdir()
    (precious / "data.mdb").write_text("x")
    with pytest.raises(StoreError, match=r"again\.partial is in the way"):
        backup.restore(tmp_path / "copy", tmp_path / "again")
    assert {path: path.read_text() for path in precious.iterdir()} == {precious / "data.mdb": "x"}
    assert not (tmp_path / "again").exists()
    precious.rename(tmp_path / "elsewhere")
    precious.symlink_to(tmp_path / "nowhere")
    with pytest.raises(StoreError, match=r"again\.partial is in the way"):
        backup.restore(tmp_path / "copy", tmp_path / "again")


def test_what_a_killed_backup_left_is_removed_by_the_next(store: Path, tmp_path: Path) -> None:
    kill_while_copying = (
        "import os, signal, sys; from pathlib import Path; from legato.store import backup\n"
        "kill = lambda: os.kill(os.getpid(), signal.SIGKILL)\n"
        "backup.copy_data = lambda source, partial, to: (partial.joinpath('ledger').mkdir(), kill())\n"
        "backup.take(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    killed = subprocess.run([sys.executable, "-c", kill_while_copying, store, tmp_path / "copy"])
    assert killed.returncode == -signal.SIGKILL
    assert "copy.partial" in os.listdir(tmp_path)
    backup.take(store, tmp_path / "copy")
    assert sorted(os.listdir(tmp_path / "copy")) == ["backup.json", "data.mdb"]
    assert sorted(os.listdir(tmp_path)) == ["copy", "store"]


def test_a_full_disk_of_a_backup_is_not_said_to_be_the_stores(store: Path, tmp_path: Path) -> None:
    """Whoever read it looked at the wrong disk."""
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        disk.fill()
        to = disk.path / "copy"
        with pytest.raises(StoreFullError, match=f"^the copy in {to}: no room on the disk"):
            backup.take(store, to)
        disk.leave(16 << 10)
        told = legato("store", "backup", store, to)
        assert told.returncode == 1
        assert f"the copy in {to}: no room on the disk" in told.stderr
        assert os.listdir(disk.path) == ["others"]


def test_no_room_for_a_restored_store_is_a_sentence(store: Path, tmp_path: Path) -> None:
    """Where there was room for its file and not for LMDB's table of readers, the system ended the process."""
    backup.take(store, tmp_path / "copy")
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        disk.fill()
        again, said = disk.path / "again", []
        little = 4 << 10
        for room_bytes in (little, (tmp_path / "copy" / "data.mdb").stat().st_size - little):
            disk.leave(room_bytes)
            told = legato("store", "restore", tmp_path / "copy", again)
            said.append((told.returncode, told.stderr))
            assert os.listdir(disk.path) == ["others"]
        assert said == [
            (1, f"legato: {again} cannot be written: No space left on device.\n"),
            (1, f"legato: the store in {again}: no room on the disk\n"),
        ]


def test_a_backup_on_a_full_disk_is_not_verified_and_that_is_a_sentence(store: Path, tmp_path: Path) -> None:
    """The system ended the process."""
    with small_disk(tmp_path / "disk", 1 << 20) as disk:
        copy = disk.path / "copy"
        backup.take(store, copy)
        disk.fill()
        told = legato("store", "verify", copy)
        assert (told.returncode, told.stderr) == (1, f"legato: the store in {copy}: no room on the disk\n")
        assert sorted(os.listdir(copy)) == ["backup.json", "data.mdb"]
        disk.leave(64 << 10)
        assert backup.verify(copy).messages == 3


@pytest.mark.parametrize(("target", "why"), [("/proc", "Is a directory"), ("/proc/self/mem", "Input/output error")])
def test_what_cannot_be_read_is_named(store: Path, tmp_path: Path, target: str, why: str) -> None:
    """Who may not read the users, or has a bad disk, was told that the copy could not be written."""
    segment = store / "ledger" / SegmentSpan(1, 1).file_name
    segment.symlink_to(target)
    told = legato("store", "backup", store, tmp_path / "copy")
    assert (told.returncode, told.stderr) == (1, f"legato: {segment} cannot be read: {why}.\n")
    assert sorted(os.listdir(tmp_path)) == ["store"]


def test_versions_are_there_before_a_copy_has_its_name(store: Path, tmp_path: Path) -> None:
    """They came after it: a backup that had failed was there all the same."""
    versions = store / "versions.json"
    versions.write_text("[]")
    backup.take(store, tmp_path / "copy")
    backup.restore(tmp_path / "copy", tmp_path / "again")
    assert [(tmp_path / name / "versions.json").read_text() for name in ("copy", "again")] == ["[]", "[]"]
    versions.unlink()
    versions.symlink_to("/proc/self/mem")
    told = legato("store", "backup", store, tmp_path / "failed")
    assert (told.returncode, told.stderr) == (1, f"legato: {versions} cannot be read: Input/output error.\n")
    assert sorted(os.listdir(tmp_path)) == ["again", "copy", "store"]


def test_a_ledger_that_cannot_be_read_is_named(store: Path, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    ledger.write_text("no directory")
    with pytest.raises(StoreError, match=f"^{ledger} cannot be read: Not a directory"):
        backup.take(store, tmp_path / "copy", ledger=ledger)


def test_a_path_without_a_store_is_a_sentence(tmp_path: Path) -> None:
    told = legato("store", "backup", tmp_path / "none", tmp_path / "copy")
    assert (told.returncode, "there is no store in" in told.stderr) == (1, True)
    assert not (tmp_path / "copy").exists()

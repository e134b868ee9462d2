"""A store whose file was lost: no broker serves an empty one in its place, and a first start that died goes on."""

from __future__ import annotations

import shutil
import socket
from pathlib import Path

import pytest

from legato.ha.lock import StoreLock
from legato.spark.exporter import export_all
from legato.store.backup import restore, take
from legato.store.lmdb import LmdbStore
from tests.integration.server.test_journal import confirm, ends_with
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer
from tests.support.monitored import until
from tests.support.server import Server, server


@pytest.fixture
def former(tmp_path: Path) -> Server:
    """A broker that has served, with three messages in its store, and was killed."""
    with server(tmp_path / "store") as running:
        confirm(running.port, b"1", b"2", b"3")
        running.kill()
    return running


def lose(store: Path, *, empty: bool) -> None:
    (store / "data.mdb").unlink()
    if empty:
        (store / "data.mdb").touch(mode=0o600)


def remove(store: Path) -> None:
    """As `rm -rf`, again where a broker that runs has written into it meanwhile."""

    def is_removed() -> bool:
        shutil.rmtree(store, ignore_errors=True)
        return not store.exists()

    until(is_removed)


@pytest.mark.parametrize("empty", [False, True], ids=["missing", "empty"])
def test_a_store_whose_file_is_lost_is_refused_with_what_tells_of_it_and_what_to_do(
    former: Server, tmp_path: Path, empty: bool
) -> None:
    store = former.store
    take(store, tmp_path / "backup")
    last = export_all(store, store / "ledger")
    lose(store, empty=empty)
    for _ in range(2):  # A service manager starts it again.
        said = ends_with(former)
        state = "is empty (0 bytes)" if empty else "is missing"
        assert f"{store / 'data.mdb'} {state}, though there was a store: 1 segment of a ledger, up to commit" in said
        assert (
            f"{last:,}, in {store / 'ledger'}, the journal in {store / 'journal'}, the file reserve, a note of " in said
        )
        assert f"legato store restore BACKUP {store}" in said
        assert f"To begin anew without what was in it, move {store} away" in said
        assert (store / "data.mdb").exists() is empty
        assert "Traceback" not in said
    store.rename(tmp_path / "aside")
    restore(tmp_path / "backup", store)
    former.start()
    assert former.role == "active epoch=2"
    assert Manager(AmqpPeer(former.port)).depth("q") == 3
    former.stop()
    store.rename(tmp_path / "again")
    former.start()
    assert former.role == "active epoch=1"
    former.stop()


def test_any_one_thing_that_a_former_store_left_is_enough(former: Server, tmp_path: Path) -> None:
    """A journal, a reserve, what a replica knew, a copy of before a migration, a ledger elsewhere, the lock's note."""
    store = former.store
    export_all(store, tmp_path / "ledger")
    note = (store / "lock").read_bytes()
    shutil.rmtree(store)

    def refused(*flags: str) -> str:
        former.flags = flags
        return ends_with(former)

    for name, told in [
        ("journal/000001", f"the journal in {store / 'journal'}"),
        ("reserve", "the file reserve"),
        ("versions.json", "the file versions.json"),
        ("before-format-3/data.mdb", "the copy before-format-3"),
        ("lock", "a note of its epoch 1 in the file of its lock"),
    ]:
        path = store / name
        store.mkdir(mode=0o700)
        path.parent.mkdir(mode=0o700, exist_ok=True)
        path.touch(mode=0o600)
        path.write_bytes(note if name == "lock" else b"x")
        assert f"there was a store: {told}. Nothing is served" in refused(), name
        shutil.rmtree(store)
    (tmp_path / "legato.toml").write_text(f'[ledger]\ndirectory = "{tmp_path / "ledger"}"\n')
    said = refused("--config", str(tmp_path / "legato.toml"))
    assert f"move {store} and {tmp_path / 'ledger'} away" in said


def test_a_first_start_that_died_is_gone_on_with(tmp_path: Path) -> None:
    """With everything that it may have left, and an empty file, which LMDB makes before it writes to it."""
    store = tmp_path / "store"
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = Server(store, port=other.getsockname()[1])
        taken.log.touch()
        assert "another program listens there" in ends_with(taken)
    assert (store / "lock").exists()
    assert not (store / "data.mdb").exists()
    for name in ("data.mdb", "lock.mdb", "probe"):
        (store / name).touch(mode=0o600)
    (store / "ledger").mkdir(mode=0o700)
    (store / "journal").mkdir(mode=0o700)
    with server(store) as running:
        assert running.role == "active epoch=1"
        confirm(running.port, b"1")


def test_a_backup_does_not_take_over_a_store_whose_file_was_lost_meanwhile(former: Server) -> None:
    former.start()
    with server(former.store) as backup:
        backup.wait_for_role("backup")
        (former.store / "data.mdb").unlink()
        former.kill()
        backup.wait_for_role("ended")
        assert "is missing, though there was a store" in backup.log.read_text()
    assert (holder := StoreLock(former.store).holder()) is not None
    assert holder.epoch == 2


def test_a_store_that_is_removed_under_primary_and_backup_is_not_followed_by_an_empty_one(former: Server) -> None:
    """Whoever got the lock on the new file served epoch 1, as if there had never been a message."""
    former.start()
    with server(former.store) as backup:
        backup.wait_for_role("backup")
        backup.wait_for_log("heartbeats of epoch 2")
        remove(former.store)
        for each in (former, backup):
            each.wait_for_role("ended")
            logged = each.log.read_text()
            assert "data.mdb is missing, though there was a store: " in logged
            assert f"move {former.store} away and start the broker again" in logged
            assert "Traceback" not in logged
        logs = former.log.read_text() + backup.log.read_text()
        assert "its epoch 2, known since before it was removed" in logs
        assert "a note of its epoch 2 in the file of its lock" in ends_with(former)  # as a service manager starts it
        shutil.rmtree(former.store)
        former.start()
        assert former.role == "active epoch=1"
        former.stop()


def test_a_primary_alone_whose_store_is_removed_serves_no_empty_one(former: Server) -> None:
    former.start()
    remove(former.store)
    former.wait_for_role("ended")
    logged = former.log.read_text()
    assert "its epoch 2, known since before it was removed. Nothing is served" in logged
    assert "Traceback" not in logged


def last_commit(store: Path) -> int:
    reader = LmdbStore(store, read_only=True)
    try:
        return reader.log_range()[1]
    finally:
        reader.close()


def test_a_restored_store_does_not_go_on_with_the_ledger_of_a_later_one(former: Server, tmp_path: Path) -> None:
    """Its facts were trimmed as if they were in there, up to the commit with which that ends: they were nowhere."""
    store, ledger = former.store, tmp_path / "ledger"
    take(store, tmp_path / "backup")
    former.start()
    confirm(former.port, *(b"%d" % number for number in range(20)))
    former.kill()
    last = export_all(store, ledger)
    shutil.rmtree(store)
    restore(tmp_path / "backup", store)
    restored = last_commit(store)
    (tmp_path / "legato.toml").write_text(f'[ledger]\ndirectory = "{ledger}"\n')
    former.flags = ("--ledger", "--config", str(tmp_path / "legato.toml"))
    for _ in range(2):  # A service manager starts it again: with commits it would come to the ledger's end.
        said = ends_with(former)
        assert f"The ledger in {ledger} goes up to commit {last:,}, and the store in {store} to {restored}: a " in said
        assert "Traceback" not in said
        assert last_commit(store) == restored
    ledger.rename(tmp_path / "aside")
    former.start()
    assert former.role == "active epoch=2"


def test_a_backup_that_is_told_of_another_ledger_takes_over_and_writes_none(former: Server, tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    last = export_all(former.store, ledger)
    (segment,) = ledger.glob("*.parquet")
    segment.rename(ledger / segment.name.replace(f"{last:016d}.parquet", f"{10 * last:016d}.parquet"))
    (tmp_path / "legato.toml").write_text(f'[ledger]\ndirectory = "{ledger}"\n')
    former.start()
    with server(former.store, "--ledger", "--config", str(tmp_path / "legato.toml")) as backup:
        backup.wait_for_role("backup")
        former.kill()
        backup.wait_for_role("active")
        assert "the ledger is not written: The ledger in" in backup.log.read_text()

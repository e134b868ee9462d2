"""Stores of former formats: all that is in them after their migration, whatever interrupts it, and the way back."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lmdb
import msgspec
import pytest
from typer.testing import CliRunner

from legato import __version__
from legato.cli.main import app
from legato.core.facts import MessageConsumed, MessageStored
from legato.core.records import Batch
from legato.errors import StoreCorruptError, StoreError, StoreFormatError, StoreFullError
from legato.store import backup, migration
from legato.store.backup_files import file_digest, read_manifest, write_manifest
from legato.store.base import FORMAT_VERSION
from legato.store.format_steps import STEPS
from legato.store.lmdb import LmdbStore
from legato.store.migration import Stage, migrate
from tests.support.small_disk import small_disk
from tests.support.stores import FORMER, NAMES, format_of, present, raw, recorded, unpack

KEPT = f"before-format-{FORMAT_VERSION}"
DERIVED = {"1": {"stored_us", "bytes"}}
"""What the migration adds to structs of a format, which did not say it."""


def open_and_close(path: Path) -> None:
    LmdbStore(path).close()


def assert_all_there(name: str, store: Path) -> None:
    """All that the version which wrote a store read from it is there, and nothing that has a meaning was added."""
    before, after = recorded(name), present(store)
    assert before.keys() == after.keys()
    assert after["log"] == [
        [*entry, [[*fact, *now[len(fact) :]] for fact, now in zip(facts, known[3], strict=True)]]
        for (*entry, facts), known in zip(before["log"], after["log"], strict=True)
    ]
    for part in ("meta", "queues", "producers"):
        assert_same(before[part], after[part], DERIVED.get(name, set()))
    for part in before.keys() - {"log", "meta", "queues", "producers"}:
        assert after[part] == before[part], part


def assert_same(before: Any, after: Any, derived: set[str]) -> None:
    """Structs have the same fields, and what they did not have before is empty."""
    if isinstance(before, list):
        for one, other in zip(before, after, strict=True):
            assert_same(one, other, derived) if isinstance(one, dict) else pytest.fail(f"{one} is no struct")
        return
    for field, value in after.items():
        if field == "messages":
            assert_same(before[field], value, derived)
        elif field in before:
            assert value == before[field], field
        else:
            assert not value or field in derived or field == "refused_first", f"{field} was added as {value}"


def test_each_format_there_was_has_a_store() -> None:
    """Who changes the format adds the last store of the former one: `tools/write_stores.py`."""
    assert {format_of(name) for name in NAMES} == {*STEPS, FORMAT_VERSION}
    assert sorted(STEPS) == list(range(1, FORMAT_VERSION))


@pytest.mark.parametrize("name", FORMER)
def test_a_migration_says_in_words_how_far_it_has_come(name: str, tmp_path: Path) -> None:
    said: list[str] = []
    migrate(unpack(name, tmp_path / "store"), progress=said.append)
    assert re.fullmatch(r"copying the store as it was, \d+ MiB", said[0])
    if format_of(name) == 1:  # Format 3 only has more databases.
        assert "format 2, messages: 0 %" in said
    assert said[-1] == f"format {FORMAT_VERSION}, writing to the disk"


@pytest.mark.parametrize("name", NAMES)
def test_a_store_of_a_former_version_has_all_that_was_in_it(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path / "store")
    open_and_close(store)
    assert_all_there(name, store)
    assert raw(store)["meta"][b"format"] == str(FORMAT_VERSION).encode()
    contents = backup.verify(store)
    assert contents.messages == sum(len(queue["messages"]) for queue in recorded(name)["queues"])


def test_a_queue_of_format_1_knows_the_size_of_what_waits_in_it(tmp_path: Path) -> None:
    store = unpack("1", tmp_path / "store")
    open_and_close(store)
    opened = LmdbStore(store, read_only=True)
    for queue in opened.queues():
        messages = opened.messages(queue.queue, 0, 1_000, 1 << 30)
        assert queue.bytes == sum(len(message.body) for message in messages) > 0
        assert {message.stored_us > 1 << 50 for message in messages} == {True}, "the age of its head is known"
    opened.close()


@pytest.mark.parametrize("name", NAMES)
def test_a_migrated_store_takes_up_what_it_was_in_the_middle_of(name: str, tmp_path: Path) -> None:
    """Deleted queues are emptied, refused numbers are known, outcomes are kept, messages come and go."""
    store = LmdbStore(unpack(name, tmp_path / "store"))
    epoch = store.begin_epoch("here", 3_000_000_000_000_000).epoch
    while store.prune(3_000_000_000_000_000):
        pass
    assert store.entries()["deleted"] == 0
    assert store.outcome(b"transaction one")
    assert store.outcome(b"transaction two")
    queue = store.queue("by hand")
    assert queue is not None
    seqs = [message.seq for message in store.messages(queue.queue, 0, 1_000, 1 << 30)]
    assert seqs == [seq for seq in range(1, 41) if seq % 3]
    gone = [MessageConsumed(queue.queue, seq, 1, 1, 1) for seq in seqs]
    store.commit(Batch(epoch, 1, [*gone, MessageStored(queue.queue, 41, 4, "ID:41")], [b"body"]))
    found = store.queue("by hand")
    assert found is not None
    assert (found.stored - found.consumed, found.bytes) == (1, 4)
    store.close()
    assert backup.verify(store.path).format == FORMAT_VERSION


# -- the copy that is kept, and the way back


@pytest.mark.parametrize("name", FORMER)
def test_the_former_store_is_kept_and_the_log_says_where_and_how_to_go_back(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = unpack(name, tmp_path / "store")
    (store / "users").write_text("users")
    former = raw(store)
    with caplog.at_level(logging.INFO):
        open_and_close(store)
    kept = store / KEPT
    said = caplog.messages[-1]
    assert f"format {format_of(name)} is kept in {kept}" in said
    assert f"legato store restore {kept} NEW" in said
    assert sorted(os.listdir(kept)) == ["backup.json", "data.mdb", "users"]
    assert kept.stat().st_mode & 0o77 == 0
    assert backup.verify(kept).format == format_of(name)
    back = tmp_path / "back"
    backup.restore(kept, back)
    assert raw(back) == former, "the version that wrote it finds what it left"
    open_and_close(back)
    assert_all_there(name, back)


def test_a_store_that_went_back_and_is_migrated_again_keeps_both_copies(tmp_path: Path) -> None:
    store = unpack("2", tmp_path / "store")
    open_and_close(store)
    (store / "data.mdb").write_bytes((store / KEPT / "data.mdb").read_bytes())
    (store / "lock.mdb").unlink()
    put_state(store, epoch=99)
    open_and_close(store)
    assert sorted(path.name for path in store.glob("before*")) == [KEPT, f"{KEPT}-2"]
    assert read_manifest(store / KEPT).epoch == 2
    assert read_manifest(store / f"{KEPT}-2").epoch == 99


def put_state(store: Path, **fields: int) -> None:
    """Change a store behind its back, as a former version of a broker would."""
    with lmdb.open(str(store), max_dbs=64) as environment:
        meta = environment.open_db(b"meta", create=False)
        with environment.begin(write=True) as txn:
            state = msgspec.msgpack.decode(txn.get(b"state", db=meta))
            txn.put(b"state", msgspec.msgpack.encode(state | fields), db=meta)


# -- interruptions


@pytest.mark.parametrize("name", ["1", "2"])
def test_a_migration_killed_at_any_stage_leaves_all_as_it_was_or_as_it_will_be(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path / "store")
    command = [sys.executable, "-m", "tests.integration.store.killed_migration", str(store)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    kills = [json.loads(line) for line in lines]
    first = format_of(name)
    copied_once = [(version, stage) for version in range(first + 1, FORMAT_VERSION) for stage in Stage]
    killed_at = [(version, stage) for version, stage, _, _ in kills]
    assert killed_at == [
        *((first, stage) for stage in Stage),
        *((version, stage) for version, stage in copied_once if stage != Stage.COPIED),
        (FORMAT_VERSION, "done"),
    ]
    for version, stage, left, names in kills:
        assert left == version + (stage == Stage.COMMITTED)
        assert (f"{KEPT}.partial" in names) == (stage == Stage.COPIED)
        kept = [found for found in names if found.startswith("before") and not found.endswith(".partial")]
        assert kept == ([] if (version, stage) in [(first, Stage.BEGUN), (first, Stage.COPIED)] else [KEPT])
    assert_all_there(name, store)
    assert backup.verify(store / KEPT).format == format_of(name)


def test_a_second_process_waits_for_a_migration_and_does_what_a_killed_one_left(tmp_path: Path) -> None:
    store = unpack("1", tmp_path / "store")
    code = (
        "import sys, time; from pathlib import Path; from legato.store.migration import Stage, migrate\n"
        "migrate(Path(sys.argv[1]), reached=lambda stage: stage == Stage.KEPT and (print(flush=True), time.sleep(600)))"
    )
    with subprocess.Popen([sys.executable, "-c", code, store], stdout=subprocess.PIPE) as first:
        assert first.stdout is not None
        assert first.stdout.readline()
        code = "import sys; from legato.store.lmdb import LmdbStore; LmdbStore(sys.argv[1]).close()"
        with subprocess.Popen([sys.executable, "-c", code, store]) as second:
            with pytest.raises(subprocess.TimeoutExpired):
                second.wait(0.5)
            first.kill()
            assert second.wait(60) == 0
    assert_all_there("1", store)


@pytest.mark.parametrize(("name", "copies"), [("1", 2), ("2", 1)])
def test_without_room_on_the_disk_nothing_is_changed_and_the_error_says_how_much_it_needs(
    name: str, copies: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = unpack(name, tmp_path / "store")
    former = raw(store)
    wanted = migration.SPARE_BYTES
    free = SimpleNamespace(f_bavail=wanted, f_frsize=1)
    monkeypatch.setattr(os, "statvfs", lambda path: free)
    with pytest.raises(StoreFullError, match=rf"\d+ MiB must be free .* {wanted >> 20} MiB are: make room"):
        LmdbStore(store)
    assert raw(store) == former
    assert not list(store.glob("before*"))
    free.f_bavail += copies * (store / "data.mdb").stat().st_size
    open_and_close(store)
    assert_all_there(name, store)


def test_a_map_that_is_too_small_is_an_error_that_names_the_setting(tmp_path: Path) -> None:
    store = unpack("1", tmp_path / "store")
    with pytest.raises(StoreError, match=r"enlarge store\.map_bytes to \d+ or more") as caught:
        LmdbStore(store, map_bytes=1 << 20)
    LmdbStore(store, map_bytes=int(str(caught.value).split(" to ")[-1].split()[0])).close()
    assert_all_there("1", store)


def test_a_store_of_a_former_format_that_is_damaged_is_said_to_be_corrupt_and_left_alone(tmp_path: Path) -> None:
    store = unpack("1", tmp_path / "store")
    with lmdb.open(str(store), max_dbs=64) as environment:
        messages = environment.open_db(b"messages", create=False)
        with environment.begin(write=True) as txn:
            txn.put(bytes(12), b"?", db=messages)
    former = raw(store)
    with pytest.raises(StoreCorruptError, match=r"the block under 0{24} is not what was written"):
        LmdbStore(store)
    assert raw(store) == former


# -- other commands on former stores


@pytest.mark.parametrize("name", [*FORMER, "3-first"])
def test_who_only_reads_is_told_that_a_broker_migrates_the_store(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path / "store")
    with pytest.raises(StoreFormatError, match=r"when a broker begins to serve from it \(legato serve\)"):
        LmdbStore(store, read_only=True)
    assert not list(store.glob("before*"))


@pytest.mark.parametrize("name", [*FORMER, "3-first"])
def test_a_former_store_is_backed_up_as_it_is_verified_and_restored(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path / "store")
    former = raw(store)
    assert backup.take(store, tmp_path / "copy").format == format_of(name)
    messages = Counter(len(queue["messages"]) for queue in recorded(name)["queues"])
    for path in (store, tmp_path / "copy"):
        contents = backup.verify(path)
        assert (contents.format, contents.epoch) == (format_of(name), 2)
        assert contents.messages == sum(count * times for count, times in messages.items())
    assert raw(store) == former
    backup.restore(tmp_path / "copy", tmp_path / "store-2")
    assert raw(tmp_path / "store-2") == former
    open_and_close(tmp_path / "store-2")
    assert_all_there(name, tmp_path / "store-2")


def test_commands_say_that_a_store_has_a_former_format(tmp_path: Path) -> None:
    store, run = unpack("1", tmp_path / "store"), CliRunner().invoke
    said = run(app, ["store", "verify", str(store)]).stdout
    assert "48 messages of" in said
    assert f"it has format 1: a copy of it was migrated to format {FORMAT_VERSION} and read" in said
    assert run(app, ["store", "backup", str(store), str(tmp_path / "copy")]).exit_code == 0
    said = run(app, ["store", "restore", str(tmp_path / "copy"), str(tmp_path / "new")]).stdout
    assert "it has format 1: the first broker that serves from it brings it to" in said


@pytest.mark.parametrize("room_bytes", [1 << 20, 8 << 20])
def test_the_verification_of_a_former_store_names_the_directory_that_has_no_room(
    room_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither for the copy, which is of 3 MiB, nor for its migration."""
    store = unpack("2", tmp_path / "store")
    with small_disk(tmp_path / "small", room_bytes) as disk:
        monkeypatch.setattr(tempfile, "tempdir", str(disk.path))
        with pytest.raises(StoreFullError, match=rf"no room for it in {disk.path}: .* in the variable TMPDIR"):
            backup.verify(store)
        assert not list(disk.path.glob("legato*"))


@pytest.mark.parametrize("name", ["2", "3"])
def test_a_store_that_lacks_what_each_of_its_format_has_is_not_completed(name: str, tmp_path: Path) -> None:
    store = unpack(name, tmp_path / "store")
    with lmdb.open(str(store), max_dbs=64) as environment:
        deliveries = environment.open_db(b"deliveries", create=False)
        with environment.begin(write=True) as txn:
            txn.drop(deliveries)
    with pytest.raises(StoreCorruptError, match="lacks its deliveries"):
        LmdbStore(store)
    with pytest.raises(StoreCorruptError, match="lacks its deliveries"):
        backup.verify(store)
    assert "deliveries" not in raw(store)


def test_the_verification_of_a_former_store_finds_what_is_missing_in_it(tmp_path: Path) -> None:
    store = unpack("1", tmp_path / "store")
    with lmdb.open(str(store), max_dbs=64) as environment:
        messages = environment.open_db(b"messages", create=False)
        with environment.begin(write=True) as txn, txn.cursor(db=messages) as cursor:
            cursor.first()
            cursor.delete()
    with pytest.raises(StoreCorruptError, match=rf"{store}: orders holds \d+ messages; by its counters there are 7"):
        backup.verify(store)


def test_a_newer_store_is_refused_by_all_and_the_error_names_who_wrote_it(tmp_path: Path) -> None:
    store = tmp_path / "store"
    open_and_close(store)
    backup.take(store, tmp_path / "copy")
    for path in (store, tmp_path / "copy"):
        with lmdb.open(str(path), max_dbs=64) as environment:
            meta = environment.open_db(b"meta", create=False)
            with environment.begin(write=True) as txn:
                assert txn.get(b"written by", db=meta) == __version__.encode()
                txn.put(b"format", str(FORMAT_VERSION + 1).encode(), db=meta)
                txn.put(b"written by", b"7.5.0", db=meta)
        (path / "lock.mdb").unlink()
    before = raw(store)
    newer = rf"format {FORMAT_VERSION + 1}, written by Legato 7\.5\.0; .*: serve it with Legato 7\.5\.0 or a newer one"
    for use in (LmdbStore, migrate, backup.verify, lambda path: backup.take(path, tmp_path / "new")):
        with pytest.raises(StoreFormatError, match=newer) as caught:
            use(store)
        assert caught.value.former == 0
    manifest = read_manifest(tmp_path / "copy")
    manifest.data_sha256 = file_digest(tmp_path / "copy" / "data.mdb")
    (tmp_path / "copy" / "backup.json").unlink()
    write_manifest(tmp_path / "copy", manifest)
    with pytest.raises(StoreFormatError, match=newer):
        backup.restore(tmp_path / "copy", tmp_path / "store-2")
    assert not (tmp_path / "store-2").exists()
    assert raw(store) == before

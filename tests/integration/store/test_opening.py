"""What opening a store refuses, and what another process may do with one that is open."""

import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import lmdb
import pytest

from legato.core.facts import Kind, MessagePublished, QueueCreated
from legato.core.records import ExpiryPlace
from legato.errors import FencedError, StoreCorruptError, StoreError, StoreFormatError
from legato.store.base import FORMAT_VERSION
from legato.store.blocks import pack_references
from legato.store.environment import used_bytes
from legato.store.free_pages import free_pages
from legato.store.keys import expiry_key, number_key, pair_key, place_key
from legato.store.lmdb import LmdbStore
from tests.conformance.store import batch_of, consumed, stored, waiting


@pytest.fixture
def closed_store(tmp_path: Path) -> Path:
    """The directory of a store with a hundred messages, and a megabyte in all."""
    store = LmdbStore(tmp_path, sync=False)
    epoch = store.begin_epoch("b", 0).epoch
    store.commit(batch_of(epoch, QueueCreated(1, "q"), *[stored(seq, size=10_000) for seq in range(1, 101)]))
    store.close()
    return tmp_path


@pytest.fixture
def closed_topic(tmp_path: Path) -> Path:
    """The directory of a store with a hundred messages that two subscriptions share, all of which expire."""
    store = LmdbStore(tmp_path, sync=False)
    epoch = store.begin_epoch("b", 0).epoch
    subscriptions = [QueueCreated(number, f"s{number}", Kind.SUBSCRIPTION, 1) for number in (2, 3)]
    facts = [MessagePublished(1, seq, 20, "", [2, 3], expires_us=9) for seq in range(1, 101)]
    store.commit(batch_of(epoch, QueueCreated(1, "t", Kind.TOPIC), *subscriptions, *facts))
    store.close()
    return tmp_path


def put(directory: Path, database: bytes, key: bytes, value: bytes) -> None:
    """Change a store behind its back."""
    environment = lmdb.open(str(directory), max_dbs=20)
    handle = environment.open_db(database)
    with environment.begin(write=True) as txn:
        txn.put(key, value, db=handle)
    environment.close()


def run(code: str, *arguments: object) -> str:
    """What another Python process prints."""
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_what_was_committed_is_there_after_closing_and_opening(closed_store: Path) -> None:
    store = LmdbStore(closed_store)
    assert waiting(store) == list(range(1, 101))
    assert (store.meta().epoch, store.meta().log_position) == (1, 2)
    store.close()


def test_a_commit_waits_for_the_disk_unless_told_otherwise(tmp_path: Path) -> None:
    system_calls = run(
        "import sys; from legato.store.lmdb import LmdbStore; import lmdb\n"
        "opened = lmdb.open\n"
        "lmdb.open = lambda *a, **k: print(k['sync'], k['metasync'], k.get('writemap', False)) or opened(*a, **k)\n"
        "LmdbStore(sys.argv[1]).close()\n"
        "LmdbStore(sys.argv[1], sync=False).close()",
        tmp_path,
    )
    assert system_calls.splitlines() == ["True True False", "False False False"]


@pytest.mark.parametrize("version", [b"0", b"-1", b"9.9", b"", b"\xff"])
def test_an_unknown_format_is_refused_with_its_name(closed_store: Path, version: bytes) -> None:
    put(closed_store, b"meta", b"format", version)
    named = version.decode(errors="replace")
    with pytest.raises(StoreFormatError, match=rf"has format {named}, .* knows formats 1 to {FORMAT_VERSION}: use the"):
        LmdbStore(closed_store)


def test_a_database_of_someone_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    put(tmp_path, b"theirs", b"key", b"value")
    before = (tmp_path / "data.mdb").read_bytes()
    with pytest.raises(StoreCorruptError, match="not a store"):
        LmdbStore(tmp_path)
    assert (tmp_path / "data.mdb").read_bytes() == before


def test_a_file_of_anything_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"no database\n" * 2_000)
    with pytest.raises(StoreCorruptError, match=r"is damaged \(.*INVALID.*\); .*legato store restore"):
        LmdbStore(tmp_path)


def test_a_directory_in_the_place_of_the_file_is_told_as_such(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").mkdir()
    for read_only in (False, True):
        with pytest.raises(StoreError, match=r"data\.mdb is a directory, .* restore a backup"):
            LmdbStore(tmp_path, read_only=read_only)


def _give_back(environment: Any, chance: Random) -> None:
    """Commit what takes pages and gives most of them back."""
    database = environment.open_db(b"scratch")
    with environment.begin(write=True) as transaction:
        keys = [chance.randbytes(8) for _ in range(chance.randint(1, 80))]
        value = bytes(chance.choice([20, 300, 1500, 3000, 9000, 40000]))
        for key in keys:
            transaction.put(key, value, db=database)
        for key in reversed(keys):
            if chance.random() < 0.95:
                transaction.delete(key, db=database)


@pytest.mark.parametrize("read_only", [False, True])
def test_free_pages_at_the_end_that_were_never_written_are_no_damage(closed_store: Path, read_only: bool) -> None:
    """LMDB counts pages that a commit took and gave back, and does not write them. Any other that is missing is one."""
    file = closed_store / "data.mdb"
    chance = Random(1)
    with lmdb.open(str(closed_store), map_size=1 << 30, max_dbs=40, subdir=True) as environment:
        page_bytes, used, last = environment.stat()["psize"], 0, 0
        while last + 1 >= used // page_bytes:
            _give_back(environment, chance)
            used = used_bytes(environment)
            with file.open("rb", buffering=0) as data:
                last = max(set(range(used // page_bytes)) - free_pages(environment, data))
    os.truncate(file, (last + 1) * page_bytes)
    LmdbStore(closed_store, read_only=read_only).close()
    assert file.stat().st_size == ((last + 1) * page_bytes if read_only else used)
    os.truncate(file, last * page_bytes)
    with pytest.raises(StoreCorruptError, match="cut off"):
        LmdbStore(closed_store, read_only=read_only)


@pytest.mark.parametrize("seed", range(20))
def test_what_lmdb_does_not_write_is_in_its_list_of_free_pages(tmp_path: Path, seed: int) -> None:
    chance = Random(seed)
    with lmdb.open(str(tmp_path), map_size=1 << 28, max_dbs=1, sync=False) as environment:
        for _ in range(chance.randint(1, 12)):
            _give_back(environment, chance)
        page_bytes = environment.stat()["psize"]
        written = (tmp_path / "data.mdb").stat().st_size // page_bytes
        with (tmp_path / "data.mdb").open("rb", buffering=0) as data:
            free = free_pages(environment, data)
        assert free.issuperset(range(written, used_bytes(environment) // page_bytes))
        # Of the others each has its place: two meta pages, the data, the database of databases, and the list itself.
        others = used_bytes(environment) // page_bytes - len(free) - 2
        with environment.begin() as transaction:
            numbers = transaction.stat(environment.open_db(b"scratch", transaction))
        data_pages = numbers["branch_pages"] + numbers["leaf_pages"] + numbers["overflow_pages"]
        assert data_pages < others <= data_pages + 20


def test_a_file_cut_off_is_refused_before_it_can_kill_the_process(closed_store: Path) -> None:
    os.truncate(closed_store / "data.mdb", 200_000)
    with pytest.raises(StoreCorruptError, match="cut off"):
        LmdbStore(closed_store)


@pytest.mark.parametrize("value", [b"", b"\0", b"\x07\0\0\0" + bytes(100), b"\0\0\0\0\0\0\0\x02" + bytes(20)])
def test_a_message_that_is_not_what_was_written_is_said_to_be_corrupt(closed_store: Path, value: bytes) -> None:
    put(closed_store, b"messages", bytes([0, 0, 0, 1]) + (50).to_bytes(8, "big"), value)
    store = LmdbStore(closed_store)
    with pytest.raises(StoreCorruptError, match="block 50 of queue 1"):
        waiting(store)
    with pytest.raises(StoreCorruptError, match="block 50 of queue 1"):
        store.commit(batch_of(1, consumed(50)))
    store.close()


@pytest.mark.parametrize("tag", [2, 3, 255])
def test_a_block_of_another_kind_is_not_taken_for_one_that_is_known(closed_topic: Path, tag: int) -> None:
    for queue in (1, 2):
        put(closed_topic, b"messages", place_key(queue, 1), bytes([tag]) + bytes(40))
    store = LmdbStore(closed_topic)
    with pytest.raises(StoreCorruptError, match="block 1 of queue 2"):
        waiting(store, 2)
    with pytest.raises(StoreCorruptError, match="block 1 of queue 2"):
        store.expired(ExpiryPlace(), 9, 1)
    store.close()


def test_a_copy_without_its_body_is_said_to_be_corrupt(closed_topic: Path) -> None:
    put(closed_topic, b"messages", place_key(2, 1_000), pack_references(1_000, [1_000], [20], 1, 0))
    store = LmdbStore(closed_topic)
    with pytest.raises(StoreCorruptError, match="topic 1 has no body 1000 any more"):
        waiting(store, 2)
    assert waiting(store, 3) == list(range(1, 101))
    store.close()


@pytest.mark.parametrize(
    ("database", "key"),
    [
        (b"subscriptions", pair_key(1, 9)),
        (b"temporaries", number_key(9)),
        (b"deliveries", place_key(2, 5)),
        (b"expiries", expiry_key(1, 2, 77)),
    ],
)
def test_an_index_that_leads_nowhere_is_said_to_be_corrupt(closed_topic: Path, database: bytes, key: bytes) -> None:
    put(closed_topic, database, key, b"?")
    store = LmdbStore(closed_topic)
    with pytest.raises(StoreCorruptError):
        store.subscriptions(1), store.temporaries(9), waiting(store, 2), store.expired(ExpiryPlace(), 9, 9)
    store.close()


def test_a_failed_commit_leaves_shared_bodies_as_they_were(closed_topic: Path) -> None:
    put(closed_topic, b"messages", place_key(3, 1), b"?")
    store = LmdbStore(closed_topic)
    gone = [consumed(seq, queue=queue) for queue in (2, 3) for seq in range(1, 101)]
    with pytest.raises(StoreCorruptError):
        store.commit(batch_of(1, *gone))
    assert waiting(store, 2) == list(range(1, 101))
    assert store.entries()["expiries"] == 2
    store.close()


@pytest.mark.parametrize(
    ("database", "key"),
    [
        (b"meta", b"state"),
        (b"queues", bytes([0, 0, 0, 1])),
        (b"log", (2).to_bytes(8, "big")),
        (b"queue_names", b"=q"),
    ],
)
def test_a_record_that_is_not_what_was_written_is_said_to_be_corrupt(
    closed_store: Path, database: bytes, key: bytes
) -> None:
    put(closed_store, database, key, b"\xc1\xc1")
    store = LmdbStore(closed_store)
    with pytest.raises(StoreCorruptError):
        store.meta(), list(store.queues()), store.log(0, 10), store.queue("q")
    store.close()


def test_reading_where_there_is_no_store_says_so_and_makes_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store in"):
        LmdbStore(tmp_path / "nowhere", read_only=True)
    assert not (tmp_path / "nowhere").exists()


def test_a_path_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError):
        LmdbStore(tmp_path / "file")


def test_another_process_reads_what_was_committed_and_cannot_change_it(closed_store: Path) -> None:
    store = LmdbStore(closed_store)
    store.commit(batch_of(1, consumed(1)))
    answer = run(
        "import sys; from legato.store.lmdb import LmdbStore; from legato.errors import StoreError\n"
        "store = LmdbStore(sys.argv[1], read_only=True)\n"
        "print(store.queue('q').consumed, len(store.log(0, 100)), len(store.messages(1, 0, 1000, 1 << 30)))\n"
        "try: store.begin_epoch('x', 0)\n"
        "except StoreError: print('refused')",
        closed_store,
    )
    assert answer.splitlines() == ["1 3 99", "refused"]
    store.close()


def test_a_reader_sees_commits_made_after_it_opened(closed_store: Path) -> None:
    reader = LmdbStore(closed_store, read_only=True)
    run(
        "import sys; from legato.store.lmdb import LmdbStore\n"
        "from tests.conformance.store import batch_of, consumed\n"
        "store = LmdbStore(sys.argv[1]); store.commit(batch_of(1, *[consumed(seq) for seq in range(1, 100)]))",
        closed_store,
    )
    assert waiting(reader) == [100]
    reader.close()


def test_an_epoch_begun_by_another_process_fences_this_one(closed_store: Path) -> None:
    store = LmdbStore(closed_store)
    epoch = store.begin_epoch("here", 0).epoch
    store.commit(batch_of(epoch, consumed(1)))
    assert run(
        "import sys; from legato.store.lmdb import LmdbStore; from legato.core.facts import *\n"
        "store = LmdbStore(sys.argv[1]); print(store.begin_epoch('there', 0).epoch)",
        closed_store,
    ) == str(epoch + 1)
    before = store.meta()
    with pytest.raises(FencedError, match=f"epoch {epoch} is over: the store is in epoch {epoch + 1}"):
        store.commit(batch_of(epoch, consumed(2)))
    with pytest.raises(FencedError):
        store.trim_log(1, 1)
    with pytest.raises(FencedError):
        store.prune(1 << 60)
    assert store.meta() == before
    assert waiting(store)[0] == 2
    store.close()


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    store.close()
    store.close()
    with pytest.raises(StoreError):
        store.meta()
    with pytest.raises(StoreError):
        store.begin_epoch("b", 0)


def test_without_the_log_the_state_is_the_same(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path, log_facts=False)
    epoch = store.begin_epoch("b", 0).epoch
    assert store.commit(batch_of(epoch, QueueCreated(1, "q"), stored(1), stored(2))) == 0
    assert waiting(store) == [1, 2]
    assert store.log_range() == (1, 0)
    store.close()

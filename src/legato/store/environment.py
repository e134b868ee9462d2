"""The LMDB environment of a store: opens it, checks its format, translates LMDB's errors."""

import errno
import os
import resource
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import lmdb
import msgspec

from legato import __version__, limits
from legato.core.records import Meta
from legato.errors import StoreCorruptError, StoreError, StoreFormatError, StoreFullError
from legato.store import values
from legato.store.base import FORMAT_VERSION
from legato.store.directories import make_directory, sync_directory
from legato.store.format_steps import STEPS
from legato.store.free_pages import free_pages

FORMAT_KEY = b"format"
STATE_KEY = b"state"
WRITTEN_BY_KEY = b"written by"
"""The version of Legato that made the store, or migrated it to its format; stores of early versions do not have it."""

WITH_JOURNAL = b"+journal"
"""Ends the format of a store that is not whole without its journal."""

KEPT_NAME = "before-format-{}"
"""The directory, in a store's, of its copy from before it was migrated to a format."""

DATABASES_MAX = 64
"""More than the databases of any format."""

READERS_MAX = 512
"""Processes and threads that may read at the same time."""
LOCK_TABLE_NAME = "lock.mdb"
LOCK_TABLE_BYTES = 9 * 4096
"""64 bytes for each reader, and a little, in whole pages."""

NEW_STORE_BYTES = 256 << 10
"""More than an empty store takes up."""

_NO_ROOM = (errno.ENOSPC, errno.EFBIG, errno.EDQUOT)
RESTORE = (
    "keep its directory for who can look at it, and restore a backup to a new one (legato store restore BACKUP STORE)"
)
"""What to do with a store that is damaged."""
_CORRUPT = (lmdb.CorruptedError, lmdb.PageNotFoundError, lmdb.InvalidError, lmdb.IncompatibleError)


class Databases(msgspec.Struct, frozen=True):
    """Handles of the named databases, each named as its field.

    `meta`: `format` and `state`. `queues`, `producers`: record by number; `queue_names`, `producer_names`: number by
    name. `subscriptions`: nothing, by the numbers of topic and subscription; `temporaries`, `deleted`: nothing, by
    number. `messages`: block by place; `copies`: block of counts by place in a topic; `expiries`: nothing, by time and
    place of a block. `deliveries`: count, flag and attempts by place. `outcomes`: nothing, by transaction;
    `outcome_times`: the transactions of a commit, by time. `chunks`: bytes, by large number and index; `larges`: how
    many messages refer to it, by large number; `loose`: why there are chunks that no message refers to, by large
    number. `duplicates`: position by number and digest of a duplicate id; `duplicate_places`: digest, producer, number
    and message id by number and position. `taken`: message and who took it, by queue and place in a ring. `log`: log
    record by position.
    """

    meta: Any
    queues: Any
    queue_names: Any
    producers: Any
    producer_names: Any
    subscriptions: Any
    temporaries: Any
    deleted: Any
    messages: Any
    copies: Any
    expiries: Any
    deliveries: Any
    outcomes: Any
    outcome_times: Any
    chunks: Any
    larges: Any
    loose: Any
    duplicates: Any
    duplicate_places: Any
    taken: Any
    log: Any


ADDED = {"taken"}
"""Databases that the first versions of the present format did not make, and do not mind."""

DATA_NAME = "data.mdb"
"""The store's file, in its directory."""


def used_bytes(environment: Any) -> int:
    """How far into the file the pages of the last commit reach."""
    return (int(environment.info()["last_pgno"]) + 1) * int(environment.stat()["psize"])


def refuse_no_file(path: Path) -> None:
    """See that a store's file, if there is one in the directory `path`, is a file.

    Raises:
        StoreError: it is a directory, or something else.
    """
    file = path / DATA_NAME
    if file.exists() and not file.is_file():
        what = "a directory" if file.is_dir() else "no plain file"
        raise StoreError(
            f"{file} is {what}, and has to be the store's file: move it away and put the store's file in its place, or "
            "restore a backup to a new directory (legato store restore BACKUP STORE)"
        )


def open_environment(
    path: Path, *, map_bytes: int, sync: bool, read_only: bool, metasync: bool = True
) -> tuple[Any, Databases]:
    """Open the store's files in the directory `path`; create them unless `read_only`.

    Args:
        path: the directory.
        map_bytes: the largest size of the file.
        sync: wait for the disk in each commit.
        read_only: change nothing.
        metasync: see `LmdbStore`.

    Raises:
        StoreFormatError: it has another format; `former` of the error says whether `migration` can help.
        StoreCorruptError: it is not a store, or damaged.
        StoreError: it cannot be opened; the message says why.
    """
    with lmdb_errors(f"the store in {path}"):
        environment = open_files(path, map_bytes=map_bytes, sync=sync, read_only=read_only, metasync=metasync)
        try:
            databases = _open_databases(environment, path, read_only)
            if sync and not read_only:
                # LMDB sees to what is in the file, not to its name; whoever made it may have died before this.
                sync_directory(path)
                sync_directory(path.parent)
            return environment, databases
        except BaseException:
            environment.close()
            raise


def open_files(path: Path, *, map_bytes: int, sync: bool, read_only: bool, metasync: bool = True) -> Any:
    """Open the LMDB environment in the directory `path`, whatever is in it; create it unless `read_only`.

    Raises:
        lmdb.Error, OSError: it cannot be opened; the caller has `lmdb_errors`.
        StoreError: there is none, or it was cut off.
    """
    refuse_no_file(path)
    if not read_only:
        make_directory(path)
        if not (path / DATA_NAME).exists() or not (path / DATA_NAME).stat().st_size:
            _see_room_for_a_new_store(path)
        _allocate_lock_table(path)
    elif not (path / DATA_NAME).exists():
        raise StoreError(f"there is no store in {path}")
    elif not (path / LOCK_TABLE_NAME).exists():
        try:
            _allocate_lock_table(path)
        except OSError as error:
            if error.errno in _NO_ROOM:
                raise
            # LMDB does without one where nothing can be written at all, and says what it cannot do.
    environment = lmdb.open(
        str(path),
        map_size=map_bytes,
        max_dbs=DATABASES_MAX,
        max_readers=READERS_MAX,
        sync=sync,
        metasync=sync and metasync,
        mode=0o600,
        readonly=read_only,
        readahead=False,
        create=not read_only,
    )
    try:
        environment.reader_check()
        _refuse_truncated(environment, path, read_only)
        return environment
    except BaseException:
        environment.close()
        raise


def copy_data(environment: Any, directory: Path, to: Path) -> None:
    """Write a copy of a store's file, as of the last commit and without free pages, into a directory without one.

    Commits go on meanwhile; what they free is used again when the copy is done.

    Args:
        to: what the copy is called when it cannot be written.

    Raises:
        StoreError: it cannot be written.
        lmdb.Error: the store cannot be read; the caller has `lmdb_errors`.
    """
    try:
        environment.copy(str(directory), compact=True)
    except lmdb.Error as error:
        if getattr(error, "code", 0) <= 0:  # LMDB's own; the system's are of writing: what is read is mapped.
            raise
        with lmdb_errors(f"the copy in {to}"):
            raise


def _allocate_lock_table(path: Path) -> None:
    """LMDB makes its table of readers as a file with holes, and writes to it through a map of memory: where the disk is
    full when a hole is first written to, the system ends the process with SIGBUS.

    Only while this process has not opened the environment: to close the file gives up LMDB's locks on it.

    Raises:
        OSError: there is no room, and not even as much of it as LMDB writes to at once.
    """
    table = path / LOCK_TABLE_NAME
    allocated_bytes = table.stat().st_blocks * 512 if table.exists() else 0
    if allocated_bytes >= LOCK_TABLE_BYTES:
        return
    try:
        allocate(table, 0, LOCK_TABLE_BYTES)
    except OSError:
        # One that is older has what is written to as a rule: its first page.
        if not allocated_bytes:
            table.unlink(missing_ok=True)
            raise


def _see_room_for_a_new_store(path: Path) -> None:
    """LMDB would leave half of a file behind, which nobody can open any more.

    Raises:
        OSError: there is none.
    """
    probe = path / "probe"
    try:
        allocate(probe, 0, NEW_STORE_BYTES)
    finally:
        probe.unlink(missing_ok=True)


def allocate(path: Path, begin: int, size: int) -> None:
    """See that a file, made if need be, has its place on the disk from `begin` on.

    Raises:
        OSError: there is no room.
    """
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.posix_fallocate(file, begin, size)
    finally:
        os.close(file)


def _refuse_truncated(environment: Any, path: Path, read_only: bool) -> None:
    """A page beyond the end of the file would kill the process with SIGBUS when it is read.

    Free pages may be missing though nothing is wrong: what a commit takes and gives back at once is not written, and
    counts all the same. Nobody reads them before they are written.
    """
    file = path / DATA_NAME
    expected, actual = used_bytes(environment), file.stat().st_size
    if not 0 < actual < expected:
        return
    page_bytes = int(environment.stat()["psize"])
    missing = range(actual // page_bytes, expected // page_bytes)
    try:
        with file.open("rb", buffering=0) as data:
            is_whole = free_pages(environment, data).issuperset(missing)
    except (ValueError, struct.error):
        is_whole = False
    if not is_whole:
        raise StoreCorruptError(
            f"the store in {path} is damaged: its file {DATA_NAME} was cut off, and has {actual:,} bytes of at least "
            f"{expected:,}; {RESTORE}"
        )
    if not read_only:
        with suppress(OSError):  # no room: it has to do as it is
            allocate(file, actual, expected - actual)


def encode_format(*, with_journal: bool = False) -> bytes:
    """What a store says of its format.

    Args:
        with_journal: there is a journal without which it is not whole: no version that knows of none may serve it.
    """
    return str(FORMAT_VERSION).encode() + (WITH_JOURNAL if with_journal else b"")


def read_format(environment: Any, path: Path) -> int:
    """The format of the store that is open, which is the present one or one that can be migrated.

    Raises:
        StoreFormatError: it is neither.
        StoreCorruptError: it is no store.
    """
    try:
        (meta,) = open_databases(environment, ["meta"])
        with environment.begin() as txn:
            written, author = txn.get(FORMAT_KEY, db=meta), txn.get(WRITTEN_BY_KEY, db=meta)
    except (lmdb.NotFoundError, lmdb.IncompatibleError):
        written = author = None
    if written is None:
        raise StoreCorruptError(
            f"the database in {path} is not a store of Legato's, or what says so is damaged: name another directory; "
            f"if it was a store, {RESTORE}"
        )
    number = written.removesuffix(WITH_JOURNAL)
    version = int(number) if number.isdigit() else 0
    if version == FORMAT_VERSION or version in STEPS:
        return version
    oldest = min(STEPS, default=FORMAT_VERSION)
    says = f"the store in {path} has format {written.decode(errors='replace')}"
    knows = f"this version of Legato ({__version__}) knows formats {oldest} to {FORMAT_VERSION}"
    if version > FORMAT_VERSION:
        writer = f"Legato {author.decode(errors='replace')}" if author else "a newer version of Legato"
        raise StoreFormatError(
            f"{says}, written by {writer}; {knows}: serve it with {writer} or a newer one. To go back to a former "
            f"version, restore a backup that was taken before the store was migrated, such as a directory "
            f"{KEPT_NAME.format(version)} in it (legato store restore)"
        )
    raise StoreFormatError(f"{says}, {knows}: use the version that wrote it")


def _open_databases(environment: Any, path: Path, read_only: bool) -> Databases:
    with environment.begin() as txn:
        empty = txn.stat()["entries"] == 0
    if empty and not read_only:
        _create(environment)
    version = read_format(environment, path)
    if version != FORMAT_VERSION:
        raise _former(path, version, f"has format {version}, which is migrated to format {FORMAT_VERSION}")
    with environment.begin() as txn:
        missing = [name for name in Databases.__struct_fields__ if txn.get(name.encode()) is None]
    if not set(missing) <= ADDED:
        raise StoreCorruptError(f"the store in {path} lacks its {' and its '.join(missing)}")
    if missing and read_only:
        raise _former(path, version, f"is of an early version of format {version}, and is completed")
    if missing:
        with environment.begin(write=True) as txn:
            for name in missing:
                environment.open_db(name.encode(), txn=txn)
    return Databases(*open_databases(environment, Databases.__struct_fields__))


def open_databases(environment: Any, names: Sequence[str]) -> list[Any]:
    """Handles of databases that are there.

    Raises:
        lmdb.NotFoundError: one is not.
    """
    if environment.flags()["readonly"]:
        return [environment.open_db(name.encode(), create=False) for name in names]
    # Without a transaction each would wait by itself for whoever writes, and hold up all threads of the process.
    with environment.begin(write=True) as txn:
        return [environment.open_db(name.encode(), txn=txn, create=False) for name in names]


def _former(path: Path, version: int, what: str) -> StoreFormatError:
    return StoreFormatError(
        f"the store in {path} {what} when a broker begins to serve from it (legato serve); before that it can be "
        "backed up, restored and verified (legato store)",
        former=version,
    )


def _create(environment: Any) -> None:
    """All databases and the format in one transaction, so that nobody ever sees half a store."""
    with environment.begin(write=True) as txn:
        if txn.stat()["entries"] > 0:
            return
        for name in Databases.__struct_fields__:
            environment.open_db(name.encode(), txn=txn)
        meta = environment.open_db(b"meta", txn=txn)
        txn.put(STATE_KEY, values.encode(Meta()), db=meta)
        txn.put(FORMAT_KEY, encode_format(), db=meta)
        txn.put(WRITTEN_BY_KEY, __version__.encode(), db=meta)


@contextmanager
def lmdb_errors(doing: str) -> Iterator[None]:
    """Turn LMDB's and the system's errors into ours; `doing` begins the sentence."""
    try:
        yield
    except lmdb.MapFullError as error:
        raise StoreFullError(f"{doing}: the map is full; enlarge store.map_bytes") from error
    except lmdb.VersionMismatchError as error:
        raise StoreFormatError(f"{doing} was written by a version of LMDB that we do not know: {error}") from error
    except lmdb.MemoryError as error:
        raise StoreError(
            f"{doing}: {error}. Addresses for all of store.map_bytes are taken at once: set it lower, or let the "
            "process have more (ulimit -v)"
        ) from error
    except _CORRUPT as error:
        raise StoreCorruptError(f"{doing} is damaged ({error}); {RESTORE}") from error
    except lmdb.Error as error:
        if getattr(error, "code", 0) in _NO_ROOM:
            raise StoreFullError(f"{doing}: no room on the disk: {error}") from error
        raise StoreError(f"{doing}: {error}") from error
    except OSError as error:
        if error.errno in _NO_ROOM:
            raise StoreFullError(f"{doing}: no room on the disk") from error
        raise StoreError(f"{doing}: {error}") from error


def disk_is_full(path: Path) -> bool:
    """True if the data file may not grow by what a large commit needs.

    LMDB reports a short write, which is how a disk becomes full, as an input/output error.
    """
    wanted = 2 * limits.BATCH_BYTES_MAX
    status = os.statvfs(path)
    size_limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return status.f_bavail * status.f_frsize < wanted or (
        size_limit != resource.RLIM_INFINITY and (path / DATA_NAME).stat().st_size + wanted > size_limit
    )

"""Ledger segments: Parquet files named by the log positions they hold, so that an export repeats nothing.

1. A segment appears whole or not at all: written under a hidden name, synced, renamed, and the directory synced.
2. One exporter at a time: whoever holds the lock on the ledger's lock file (the kernel frees it when its holder dies).
3. The next exporter begins after the highest position in the names. Nothing else says how far an export came.
4. A segment within the span of another one is replaced by it, and is not read: compaction removes it afterwards.
5. Who reads several segments holds a shared lock, for which a removal waits.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from inspect import signature
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from legato.core.facts import LogRecord
from legato.errors import ConfigError, StoreCorruptError
from legato.spark.ledger.fact_schema import facts_table
from legato.store.segment_locks import alone_with, being_read, lock_of, open_lock
from legato.store.segment_names import SegmentSpan, exported_through, gaps, span_of, spans

__all__ = [
    "TABLES_ANEW",
    "LedgerLock",
    "SegmentSpan",
    "alone_with",
    "being_read",
    "being_read_if_any",
    "commit_in",
    "exported_through",
    "last_commit_of",
    "live",
    "lock_of",
    "opened",
    "refuse_unreadable",
    "segments_of",
    "spans",
    "superseded",
    "sweep",
    "sync",
    "trimmed_by",
    "write_rows",
    "write_segment",
]

LOCK_NAME = "_exporter.lock"
"""Names that begin with `_` or `.` are not data to Spark."""

COMPACTING_PREFIX = ".compacting-"
TRIMMED_KEY = b"legato.trimmed"
"""In a segment's metadata: it stands for a log whose beginning was trimmed, and says from where on."""

_TEMPORARY_PREFIX = ".writing-"
_DICTIONARY_COLUMNS = ["kind", "epoch", "queue", "producer", "txn", "consumer", "attempt", "cause", "name", "size"]
_DICTIONARY_COLUMNS += ["topic", "to_queue", "selector", "container", "tag"]
_DELTA_COLUMNS = ["position", "ordinal", "time_us", "seq", "number", "delivered_us"]
"""From one row to the next these change little: their differences take a quarter of a segment's bytes away."""


_ROW_GROUPS_FROM_ROWS = 20_000
_FEW_ROWS = 5_000
"""A row group of fewer rows costs more than it is worth: some twenty microseconds for each column."""
_BATCH_ROWS = 20_000
"""So many values of a column are encoded at once."""
_LARGE_PAGES = {"max_rows_per_page": 1 << 20} if "max_rows_per_page" in signature(pq.ParquetWriter).parameters else {}
"""Pages end by their bytes, as in versions of Arrow that have no such limit: most columns of a page need few."""
_FROM_A_COPY = "Bring it back from a copy; without it, what it holds is missing from every account."
TABLES_ANEW = "Let legato ledger run make the tables anew, in another directory, or bring the file back from a copy."
"""What to do about a damaged file of the tables that are made of a ledger."""


class LedgerLock:
    """The right to write to a ledger: held by one process at a time."""

    def __init__(self, ledger: Path) -> None:
        ledger.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._file = open_lock(ledger, LOCK_NAME)

    def acquire(self) -> bool:
        """Take the lock if it is free; returns whether we have it now. Does not wait."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Give the lock back."""
        os.close(self._file)


def write_segment(ledger: Path, records: Sequence[tuple[int, LogRecord]]) -> SegmentSpan:
    """Write log records, given as `(position, record)` in their order, as one durable segment.

    The caller holds the `LedgerLock`. Writing the same records again replaces the segment by an equal one.
    """
    span = SegmentSpan(records[0][0], records[-1][0])
    temporary = ledger / f"{_TEMPORARY_PREFIX}{span.file_name}"
    try:
        write_rows(facts_table(records), temporary)
        sync(temporary)
        os.replace(temporary, ledger / span.file_name)
    except OSError:
        # The next try may be of more records, and have another name.
        temporary.unlink(missing_ok=True)
        raise
    sync(ledger)
    return span


def write_rows(table: pa.Table, path: Path) -> None:
    """Write the rows of a segment, each chunk of the table, which are those of one kind, as a row group of its own.

    Whoever asks for one kind of fact then reads nothing else. Small segments are one row group, and neighbouring kinds
    of few rows share one: it is not worth it.
    Pages have checksums: a proof must not rest on what a disk has changed.
    """
    said = [name for name in table.column_names if table.column(name).null_count < len(table)]
    whole = len(table) < _ROW_GROUPS_FROM_ROWS
    lengths = [len(table)] if whole else _row_groups(len(chunk) for chunk in table.column("kind").chunks)
    with pq.ParquetWriter(
        path,
        table.schema,
        # Some forty columns of a segment with plain messages are nulls: compressors for these cost as much as they do.
        compression=dict.fromkeys(table.column_names, "none") | dict.fromkeys(said, "zstd"),
        compression_level=dict.fromkeys(said, 1),
        use_dictionary=_DICTIONARY_COLUMNS,
        column_encoding=dict.fromkeys(_DELTA_COLUMNS, "DELTA_BINARY_PACKED"),
        write_page_checksum=True,
        write_batch_size=_BATCH_ROWS,
        **_LARGE_PAGES,
    ) as writer:
        start = 0
        for length in lengths:
            writer.write_table(table.slice(start, length), row_group_size=max(length, 1))
            start += length


def _row_groups(lengths: Iterable[int]) -> list[int]:
    """How many rows each row group has, of rows of so many of each kind."""
    groups: list[int] = []
    for length in lengths:
        if groups and max(groups[-1], length) < _FEW_ROWS:
            groups[-1] += length
        else:
            groups.append(length)
    return groups


def segments_of(ledger: Path) -> list[Path]:
    """The files of a ledger in the order of its log.

    Raises:
        ConfigError: there are none, or this user may not read them.
        StoreCorruptError: one of them is not whole.
    """
    # A compaction between the listing and the look would take away what is listed.
    with being_read_if_any(ledger):
        return _segments_of(ledger)


def being_read_if_any(place: Path) -> AbstractContextManager[None]:
    """Keep segments from being removed meanwhile, if that is a ledger: a lock's file is put into no other directory."""
    try:
        is_ledger = any(True for _ in spans(place))
    except OSError:
        is_ledger = False
    return being_read(place) if is_ledger else nullcontext()


def _segments_of(ledger: Path) -> list[Path]:
    try:
        segments = [ledger / span.file_name for span in live(spans(ledger))]
    except PermissionError as error:
        raise ConfigError(_forbidden(ledger)) from error
    except NotADirectoryError as error:
        raise ConfigError(f"{ledger} is not a directory. {_WHERE_LEDGERS_ARE}") from error
    if not ledger.exists():
        raise ConfigError(f"There is no directory {ledger}. {_WHERE_LEDGERS_ARE}")
    if not segments:
        raise ConfigError(f"There are no segments of a ledger in {ledger}. {_advice(ledger)}")
    refuse_unreadable(segments)
    return segments


def last_commit_of(segments: Sequence[Path]) -> int:
    """The last commit in segments of a ledger, given in the order of its log."""
    span = span_of(segments[-1].name)
    assert span is not None, segments[-1]
    return span.last


def _advice(place: Path) -> str:
    """What else a directory without segments may be."""
    if (inside := place / "ledger").is_dir():
        return f"Did you mean {inside}?"
    if group := min(place.glob("broker_group=*"), default=None):
        return f"Each group's are in a directory of its own: name one, such as {group}."
    if (place / "silver").is_dir():
        return "What is there are tables, which legato ledger run makes of a ledger, and legato ledger query reads."
    return _WHERE_LEDGERS_ARE


def why_incomplete(ledger: Path) -> str:
    """What a reader of a ledger in which commits are missing has to know; empty if none is.

    By the names of the segments, of which none is opened but the first: it says whether the log was trimmed.
    """
    found = live(spans(ledger))
    missing = gaps(found)
    said: list[str] = []
    if found and _is_trimmed(ledger / found[0].file_name):
        said.append(
            f"The ledger in {ledger} was trimmed through commit {found[0].last}: of what was before, only what waited "
            "then is counted."
        )
    if missing and missing[0].first == 1:
        said.append(f"The ledger in {ledger} begins with commit {found[0].first}: what was before is not counted.")
        del missing[0]
    if missing:
        commits = ", ".join(f"{gap.first}-{gap.last}" for gap in missing)
        said.append(
            f"Commits are missing in {ledger}: {commits}. Nothing of what happened in them is counted; bring their "
            "segments back from a copy."
        )
    return " ".join(said)


def _is_trimmed(segment: Path) -> bool:
    try:
        return trimmed_by(segment) is not None
    except (OSError, pa.ArrowException):
        return False  # Who reads it says what is wrong with it.


_WHERE_LEDGERS_ARE = (
    "A broker writes its ledger to `ledger` in the directory of its store, unless told otherwise, if pyarrow is "
    "installed where it runs (pip install 'legato[ledger]')."
)


def _forbidden(path: Path) -> str:
    return f"This user may not read {path}. Run this as the user of the broker, or change the permissions."


@contextmanager
def opened(path: Path, kind: str = "segment", advice: str = _FROM_A_COPY) -> Iterator[pq.ParquetFile]:
    """A segment, to be read in the block: what is not as it was written is noticed there.

    Segments of former versions have no checksums; in these only what cannot be decoded is noticed.

    Args:
        kind: what the error calls the file.
        advice: what the error says is to be done.

    Raises:
        ConfigError: this user may not read it.
        StoreCorruptError: it is not as it was written.
    """
    with _as_ours(path, kind, advice), pq.ParquetFile(path, page_checksum_verification=True) as file:
        yield file


@contextmanager
def _as_ours(path: Path, kind: str = "segment", advice: str = _FROM_A_COPY) -> Iterator[None]:
    try:
        yield
    except PermissionError as error:
        raise ConfigError(_forbidden(path)) from error
    except (OSError, pa.ArrowException) as error:
        why = " ".join(str(error).split()).rstrip(". ")
        raise StoreCorruptError(f"The {kind} {path} cannot be read: {why}. {advice}") from error


def refuse_unreadable(segments: Iterable[Path]) -> None:
    """See that files are whole segments, by what they say at their ends.

    Raises:
        ConfigError: this user may not read one.
        StoreCorruptError: one is not whole.
    """
    for segment in segments:
        with _as_ours(segment):
            pq.read_metadata(segment)


def refuse_damaged(files: Iterable[Path]) -> None:
    """See that all can be read, and is as it was written: to find out which one another reader stumbled over.

    Raises:
        ConfigError: this user may not read one.
        StoreCorruptError: one is not as it was written.
    """
    for each in files:
        with opened(each) as file:
            for group in range(file.num_row_groups):
                file.read_row_group(group)


def sweep(ledger: Path) -> int:
    """Remove what a killed exporter left half-written; returns how many files. The caller holds the `LedgerLock`."""
    leftovers = list(ledger.glob(f"{_TEMPORARY_PREFIX}*"))
    for path in leftovers:
        path.unlink()
    return len(leftovers)


def live(found: Iterable[SegmentSpan]) -> list[SegmentSpan]:
    """Those that are to be read, in the order of the log: not what lies within another one."""
    kept: list[SegmentSpan] = []
    for span in sorted(found, key=lambda span: (span.first, -span.last)):
        if not kept or span.last > kept[-1].last:
            kept.append(span)
    return kept


def superseded(found: Iterable[SegmentSpan]) -> list[SegmentSpan]:
    """Those that lie within another one."""
    every = sorted(found)
    return sorted({*every} - {*live(every)})


def commit_in(ledger: Path, position: int) -> set[tuple[int, int]]:
    """Epoch and time (in microseconds since 1970) of the commit at a position; empty if the ledger has no fact of it.

    Raises:
        ConfigError: this user may not read the segment.
        StoreCorruptError: it is not as it was written.
    """
    found: set[tuple[int, int]] = set()
    with being_read(ledger):
        for span in live(spans(ledger)):
            if span.first <= position <= span.last:
                with opened(ledger / span.file_name) as file:
                    for group in _groups_with(file, position):
                        rows = file.read_row_group(group, columns=["position", "epoch", "time_us"])
                        rows = rows.filter(pc.equal(rows["position"], position))
                        found.update(zip(rows["epoch"].to_pylist(), rows["time_us"].to_pylist(), strict=True))
    return found


def _groups_with(file: pq.ParquetFile, position: int) -> Iterator[int]:
    """The row groups that may have facts of the commit at a position."""
    column = file.schema_arrow.get_field_index("position")
    for group in range(file.num_row_groups):
        statistics = file.metadata.row_group(group).column(column).statistics
        if statistics is None or not statistics.has_min_max or statistics.min <= position <= statistics.max:
            yield group


def trimmed_by(segment: Path) -> bytes | None:
    """What a segment says of the log that was trimmed before it; None of most."""
    metadata: dict[bytes, bytes] = pq.read_metadata(segment).metadata or {}
    return metadata.get(TRIMMED_KEY)


def sync(path: Path) -> None:
    """Make a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

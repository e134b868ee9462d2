"""Compaction of a ledger: many small segments become few, which say the same.

A segment appears whole or not at all, and what it replaces goes afterwards. Between the two, both are there: then a
segment within the span of another one is not read (`segments.live`). So a compaction may be killed at any point, and
the next one finishes it. Readers hold a lock while they read (`segments.being_read`); files go when nobody does.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from legato.errors import ConfigError, StoreCorruptError, StoreFormatError
from legato.spark.ledger.fact_schema import SCHEMA, TAGS
from legato.spark.ledger.segments import (
    COMPACTING_PREFIX,
    SegmentSpan,
    alone_with,
    live,
    lock_of,
    opened,
    segments_of,
    superseded,
    sync,
    trimmed_by,
    write_rows,
)
from legato.store.segment_names import span_of, spans

ROWS_MAX = 250_000
"""Of a segment: who reads one holds it in memory."""

_LOCK_NAME = "_compactor.lock"


class Merge(NamedTuple):
    """Neighbouring segments that become one."""

    span: SegmentSpan
    sources: list[Path]
    rows: int
    bytes: int


class Compacted(NamedTuple):
    """What a compaction did: how many files and bytes there were, and are."""

    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int


def merges_of(ledger: Path, rows_max: int = ROWS_MAX) -> list[Merge]:
    """What a compaction would do.

    Raises:
        ConfigError: there is no ledger in the directory.
        StoreCorruptError: a segment is not whole.
    """
    merges: list[Merge] = []
    together: list[tuple[Path, int]] = []

    def end() -> None:
        if len(together) > 1:
            sources = [path for path, _ in together]
            size = sum(path.stat().st_size for path in sources)
            span = SegmentSpan(_span(sources[0]).first, _span(sources[-1]).last)
            merges.append(Merge(span, sources, sum(rows for _, rows in together), size))
        together.clear()

    for path in segments_of(ledger):
        if trimmed_by(path) is not None:
            end()
            continue
        rows = pq.read_metadata(path).num_rows
        # What is missing between two segments stays visible in their names.
        follows = not together or _span(together[-1][0]).last + 1 == _span(path).first
        if not follows or sum(rows for _, rows in together) + rows > rows_max:
            end()
        together.append((path, rows))
    end()
    return merges


def compact(ledger: Path, rows_max: int = ROWS_MAX, tell: Callable[[str], object] = lambda _line: None) -> Compacted:
    """Make few segments of many. Exporters, audits and queries may be at work meanwhile.

    Args:
        ledger: directory of the segments.
        rows_max: of a segment.
        tell: is given a line now and then.

    Raises:
        ConfigError: there is no ledger, this user may not write it, or another compaction or trim is at work.
        StoreCorruptError: a segment is not whole.
    """
    with changing(ledger, tell):
        before = segments_of(ledger)
        bytes_before = sum(path.stat().st_size for path in before)
        merges = merges_of(ledger, rows_max)
        for number, merge in enumerate(merges, 1):
            _merge(ledger, merge, tell)
            tell(f"{number:,} of {len(merges):,}: {len(merge.sources):,} segments became {merge.span.file_name}")
        after = segments_of(ledger)
        return Compacted(len(before), len(after), bytes_before, sum(path.stat().st_size for path in after))


@contextmanager
def changing(ledger: Path, tell: Callable[[str], object]) -> Iterator[None]:
    """Be the only one who replaces segments, and finish what one before was killed at.

    Raises:
        ConfigError: somebody else does, or this user may not.
    """
    segments_of(ledger)
    try:
        lock = lock_of(ledger, _LOCK_NAME, wait=False)
    except PermissionError as error:
        raise ConfigError(f"This user may not write {ledger}. Run this as the user of the broker.") from error
    if lock is None:
        raise ConfigError(f"Another compaction or trim of {ledger} is at work: let it finish.")
    try:
        _remove_unfinished(ledger)
        if gone := superseded(spans(ledger)):
            with alone_with(ledger, tell):
                remove(ledger, [ledger / span.file_name for span in gone])
        yield
    finally:
        with suppress(OSError):
            # Of one that failed: on a full disk its room is wanted.
            _remove_unfinished(ledger)
        os.close(lock)


def _remove_unfinished(ledger: Path) -> None:
    for unfinished in ledger.glob(f"{COMPACTING_PREFIX}*"):
        unfinished.unlink()


def _merge(ledger: Path, merge: Merge, tell: Callable[[str], object]) -> None:
    temporary = ledger / f"{COMPACTING_PREFIX}{merge.span.file_name}"
    write_rows(merged(merge.sources), temporary)
    if pq.read_metadata(temporary).num_rows != merge.rows:
        raise StoreCorruptError(f"{temporary} does not hold what it is made of; nothing was changed.")
    replace(ledger, temporary, merge.span, merge.sources, tell)


def replace(
    ledger: Path, temporary: Path, span: SegmentSpan, sources: Sequence[Path], tell: Callable[[str], object]
) -> None:
    """Put a segment in the place of those within its span, once nobody reads."""
    newest = max(source.stat().st_mtime_ns for source in sources)
    os.utime(temporary, ns=(newest, newest))
    sync(temporary)
    with alone_with(ledger, tell):
        os.replace(temporary, ledger / span.file_name)
        sync(ledger)
        remove(ledger, [source for source in sources if source.name != span.file_name])


def remove(ledger: Path, segments: Sequence[Path]) -> None:
    """Remove files durably."""
    for segment in segments:
        segment.unlink()
    sync(ledger)


def merged(sources: Sequence[Path]) -> pa.Table:
    """The rows of segments in today's columns: a chunk for each kind of fact, in the order of the log."""
    table = pa.concat_tables([read_rows(path) for path in sources])
    return by_kind(table)


def by_kind(table: pa.Table) -> pa.Table:
    """The same rows, a chunk for each kind of fact; within it their order is kept."""
    kinds = table.column("kind").cast(pa.string())
    chunks = [
        table.filter(pc.equal(kinds, kind) if kind is not None else pc.is_null(kinds)).combine_chunks()
        for kind in pc.unique(kinds).to_pylist()
    ]
    return pa.concat_tables(chunks) if chunks else table


def read_rows(path: Path) -> pa.Table:
    """The rows of a segment in today's columns, in the order in which it holds them.

    Raises:
        StoreCorruptError: it is not whole.
        StoreFormatError: a newer version wrote it, and says in it what this one does not know.
    """
    with opened(path) as file:
        table = file.read()
    kinds = table.column("kind").cast(pa.string())
    _refuse_unknown(path, "columns", set(table.column_names) - set(SCHEMA.names))
    _refuse_unknown(path, "facts", {kind for kind in pc.unique(kinds).to_pylist() if kind and kind not in TAGS})
    columns = []
    for field in SCHEMA:
        if field.name == "kind":
            columns.append(kinds.combine_chunks().dictionary_encode().cast(field.type))
        elif field.name in table.column_names:
            columns.append(table.column(field.name).cast(field.type))
        elif field.name == "tag":
            columns.append(pa.array([TAGS.get(kind) for kind in kinds.to_pylist()], pa.int8()))
        else:
            columns.append(pa.nulls(len(table), field.type))
    return pa.table(columns, schema=SCHEMA)


def _refuse_unknown(path: Path, what: str, names: set[str]) -> None:
    """Keep what this version would leave out of the segment that it makes of others."""
    if names:
        said = ", ".join(sorted(names))
        raise StoreFormatError(
            f"{path} has {what} that this version of Legato does not know ({said}), and would lose: nothing was "
            "changed. Use the version that wrote it, or a newer one."
        )


def _span(path: Path) -> SegmentSpan:
    span = span_of(path.name)
    assert span is not None, path
    return span


__all__ = [
    "Compacted",
    "Merge",
    "by_kind",
    "changing",
    "compact",
    "live",
    "merged",
    "merges_of",
    "read_rows",
    "replace",
]

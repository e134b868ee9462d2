"""Trimming of a ledger: the facts of its beginning go, but for those that the rest cannot be understood without.

In the place of the trimmed segments is one that holds what is still needed: the messages that waited at its end, and
what their queues, producers and consumers are called. Its metadata say up to which commit the log was trimmed, and what
had been counted by then. So an audit knows from when on it can speak, and takes nothing for lost that was trimmed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from legato.errors import StoreCorruptError
from legato.spark.ledger.compaction import by_kind, changing, read_rows, replace
from legato.spark.ledger.fact_schema import SCHEMA
from legato.spark.ledger.segments import (
    COMPACTING_PREFIX,
    TRIMMED_KEY,
    SegmentSpan,
    opened,
    segments_of,
    trimmed_by,
    write_rows,
)
from legato.store.segment_names import span_of

_GONE = ("MessageConsumed", "MessageDeadLettered", "MessageMoved")
_OF_MESSAGES = (
    *("MessageStored", *_GONE, "MessageReturned", "MessagePresented", "MessageDelivered", "MessageSeen"),
    *("MessageReleased", "MessageTaken", "MessageOfFlow"),
)
_OF_LIVING_QUEUES = ("QueueCreated", "QueueGrouped")
_LAST_OF_QUEUES = ("QueueMarked", "DispatchMarked")
_OF_EPOCHS = ("EpochBegan", "ServingBegan", "EpochEnded")


class Trimmed(NamedTuple):
    """What a ledger says of its beginning that was trimmed."""

    through: int
    """The last commit of which facts may be missing."""
    us: int
    """Its time, in microseconds since 1970."""
    first: int
    """With which commit the ledger began: that of a broker whose store is a copy of another's begins with the copy."""
    counters: dict[int, tuple[int, int]]
    """By queue: how many facts that stored a message are missing, and how many by which one left."""


class Trim(NamedTuple):
    """What a trim does: the segments that go, their rows and bytes, and the commits and times that they are of.

    Attributes:
        first: with which commit the ledger begins; those before are in no segment.
    """

    sources: list[Path]
    rows: int
    bytes: int
    first: int
    through: int
    us: int


def trimmed_of(ledger: Path) -> Trimmed | None:
    """What a ledger says of its beginning; None if nothing was trimmed."""
    segments = segments_of(ledger)
    said = trimmed_by(segments[0])
    if said is None:
        return None
    told = json.loads(said)
    counters = {int(queue): (stored, gone) for queue, (stored, gone) in told["counters"].items()}
    span = span_of(segments[0].name)
    assert span is not None
    return Trimmed(told["through"], told["us"], span.first, counters)


def trim_of(ledger: Path, before_us: int) -> Trim | None:
    """What would go of a ledger if all is trimmed that happened before a time; the last segment always stays.

    Raises:
        ConfigError: there is no ledger in the directory.
        StoreCorruptError: a segment is missing between others, or one is not whole.
    """
    sources: list[Path] = []
    us = rows = first = expected = 0
    for path in segments_of(ledger)[:-1]:
        span = span_of(path.name)
        assert span is not None
        first = first or span.first
        expected = expected or first
        last_us = _last_us(path)
        if last_us >= before_us:
            break
        if span.first != expected:
            raise StoreCorruptError(
                f"The commits {expected}-{span.first - 1} are missing in {ledger}: nothing is trimmed. "
                "Restore them first."
            )
        expected = span.last + 1
        sources.append(path)
        us = max(us, last_us)
        rows += pq.read_metadata(path).num_rows
    if not sources or (len(sources) == 1 and trimmed_by(sources[0]) is not None):
        return None
    return Trim(sources, rows, sum(path.stat().st_size for path in sources), first, expected - 1, us)


def trim(ledger: Path, before_us: int, tell: Callable[[str], object] = lambda _line: None) -> Trim | None:
    """Let go of what happened before a time. Exporters, audits and queries may be at work meanwhile.

    Raises:
        ConfigError: there is no ledger, this user may not write it, or another compaction or trim is at work.
        StoreCorruptError: a segment is missing between others, or one is not whole.
    """
    with changing(ledger, tell):
        wanted = trim_of(ledger, before_us)
        if wanted is None:
            return None
        rest, counters = _rest_of(wanted.sources)
        said = {"through": wanted.through, "us": wanted.us, "counters": counters}
        # What was never there stays visible in the name.
        span = SegmentSpan(wanted.first, wanted.through)
        temporary = ledger / f"{COMPACTING_PREFIX}{span.file_name}"
        write_rows(rest.replace_schema_metadata({TRIMMED_KEY: json.dumps(said).encode()}), temporary)
        replace(ledger, temporary, span, wanted.sources, tell)
        return wanted


def _last_us(path: Path) -> int:
    with opened(path) as file:
        return int(pc.max(file.read(columns=["time_us"]).column("time_us")).as_py() or 0)


def _rest_of(sources: Sequence[Path]) -> tuple[pa.Table, dict[int, tuple[int, int]]]:
    """The rows that are still needed, and by queue what is counted in the others."""
    stored: set[tuple[int, int]] = set()
    gone: set[tuple[int, int]] = set()
    deleted: set[int] = set()
    forgotten: set[int] = set()
    epoch = 0
    for path in sources:
        rows = _Rows(read_rows(path))
        stored |= rows.places("MessageStored")
        gone |= rows.places(*_GONE)
        # Memory is for what waits, not for all that ever was.
        settled = stored & gone
        stored -= settled
        gone -= settled
        deleted |= set(rows.of("QueueDeleted").column("queue").to_pylist())
        forgotten |= set(rows.of("ProducerForgotten").column("producer").to_pylist())
        epoch = max(epoch, pc.max(rows.table.column("epoch")).as_py() or 0)
    waiting = {place for place in stored | gone if place[0] not in deleted}

    kept: list[pa.Table] = []
    attached: list[pa.Table] = []
    counters: Counter[tuple[int, bool]] = Counter()
    before: dict[int, tuple[int, int]] = {}
    for path in sources:
        if (said := trimmed_by(path)) is not None:
            before = {int(queue): tuple(counts) for queue, counts in json.loads(said)["counters"].items()}
        rows = _Rows(read_rows(path))
        counters.update(_counted(rows.table))
        of_messages = rows.at("queue", waiting, *_OF_MESSAGES)
        copies = of_messages.filter(pc.is_valid(of_messages.column("topic")))
        published = set(zip(copies.column("topic").to_pylist(), copies.column("seq").to_pylist(), strict=True))
        living = rows.of(*_OF_LIVING_QUEUES, *_LAST_OF_QUEUES, "DuplicateIdKept")
        # The queue that they came from may be gone; what counts is the assignment that they are numbered in.
        assigned = rows.of("MessagesAssigned")
        epochs = rows.of(*_OF_EPOCHS)
        producers = rows.of("ProducerRegistered")
        kept += [
            of_messages,
            rows.at("queue", published, "MessagePublished"),
            living.filter(pc.invert(_is_in(living.column("queue"), deleted))),
            assigned.filter(pc.invert(_is_in(assigned.column("to_queue"), deleted))),
            epochs.filter(pc.equal(epochs.column("epoch"), epoch)),
            producers.filter(pc.invert(_is_in(producers.column("producer"), forgotten))),
        ]
        attached.append(rows.of("ConsumerAttached"))
    rest = pa.concat_tables(kept)
    consumers = pa.concat_tables(attached)
    used = set(rest.column("consumer").to_pylist()) - {None}
    recent = pc.or_(pc.equal(consumers.column("epoch"), epoch), _is_in(consumers.column("consumer"), used))
    rest = _last_only(pa.concat_tables([rest, consumers.filter(recent)]))
    # A transaction is whole or not told of.
    txn = rest.schema.get_field_index("txn")
    rest = rest.set_column(txn, SCHEMA.field("txn"), pa.nulls(len(rest), pa.binary()))
    counters.subtract(_counted(rest))
    for queue, (more_stored, more_gone) in before.items():
        counters[queue, False] += more_stored
        counters[queue, True] += more_gone
    queues = {queue for queue, _ in counters if queue not in deleted}
    order = [("position", "ascending"), ("ordinal", "ascending")]
    return by_kind(rest.sort_by(order)), {queue: (counters[queue, False], counters[queue, True]) for queue in queues}


class _Rows:
    """The rows of a segment, by kind."""

    def __init__(self, table: pa.Table) -> None:
        self.table = table
        self._kinds = table.column("kind").cast(pa.string())

    def of(self, *kinds: str) -> pa.Table:
        """Those of some kinds."""
        return self.table.filter(pc.is_in(self._kinds, pa.array(kinds)))

    def places(self, *kinds: str) -> set[tuple[int, int]]:
        """Queue and place of those of some kinds."""
        rows = self.of(*kinds)
        return set(zip(rows.column("queue").to_pylist(), rows.column("seq").to_pylist(), strict=True))

    def at(self, column: str, places: set[tuple[int, int]], *kinds: str) -> pa.Table:
        """Those of some kinds at some places."""
        rows = self.of(*kinds)
        found = zip(rows.column(column).to_pylist(), rows.column("seq").to_pylist(), strict=True)
        return rows.filter(pa.array([place in places for place in found], pa.bool_()))


def _is_in(column: pa.ChunkedArray, values: set[int]) -> pa.ChunkedArray:
    return pc.fill_null(pc.is_in(column, pa.array(sorted(values), column.type)), False)


def _counted(rows: pa.Table) -> Counter[tuple[int, bool]]:
    """By queue and whether messages left it: how many facts say so (see `auditor/high_water_marks.py`)."""
    kinds = rows.column("kind").cast(pa.string())
    heard = pc.fill_null(pc.greater(rows.column("stored"), 0), False)
    stored = pc.or_(pc.equal(kinds, "MessageStored"), pc.and_(pc.equal(kinds, "MessagePublished"), heard))
    counts: Counter[tuple[int, bool]] = Counter()
    for is_gone, mask in ((False, stored), (True, pc.is_in(kinds, pa.array(_GONE)))):
        queues = np.asarray(rows.column("queue").filter(pc.fill_null(mask, False)).drop_null())
        numbers, times = np.unique(queues, return_counts=True)
        counts.update({(int(number), is_gone): int(many) for number, many in zip(numbers, times, strict=True)})
    return counts


def _last_only(rows: pa.Table) -> pa.Table:
    """Of marks the last of each queue, of duplicate ids those that the queue still remembers."""
    kinds = rows.column("kind").cast(pa.string()).to_pylist()
    queues, positions = rows.column("queue").to_pylist(), rows.column("position").to_pylist()
    ordinals, windows = rows.column("ordinal").to_pylist(), rows.column("stored").to_pylist()
    latest_first = sorted(range(len(rows)), key=lambda row: (positions[row], ordinals[row] or 0), reverse=True)
    seen: Counter[tuple[str, int]] = Counter()
    keep = [True] * len(rows)
    for row in latest_first:
        if kinds[row] in _LAST_OF_QUEUES or kinds[row] == "DuplicateIdKept":
            seen[kinds[row], queues[row]] += 1
            most = (windows[row] or 1) if kinds[row] == "DuplicateIdKept" else 1
            keep[row] = seen[kinds[row], queues[row]] <= most
    return rows.filter(pa.array(keep, pa.bool_()))

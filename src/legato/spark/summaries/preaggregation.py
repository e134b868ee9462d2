"""Pre-aggregation of segments in NumPy and Arrow: commits, transactions, facts about queues and epochs, producers.

Rows for commits and transactions as `fact_frames` makes them in SQL, and the facts about queues and epochs: a hundredth
of the ledger or less, of which Spark asks the rest. The rows add up: a transaction may have one for each segment that
tells of it.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from legato.core.lanes import LANE_SHIFT
from legato.spark.ledger.fact_filter import NUMBERED, OF_QUEUES_AND_EPOCHS, SENT, FactFilter
from legato.spark.ledger.fact_schema import SCHEMA, TAGS
from legato.spark.ledger.segments import opened
from legato.spark.summaries.producer_order_numpy import registrations_of, runs_of

COMMITS, TRANSACTIONS, QUEUE_AND_EPOCH_FACTS, NUMBERS, REGISTRATIONS = HELD = (
    "commits",
    "transactions",
    "queue_and_epoch_facts",
    "numbers",
    "registrations",
)
"""What is pre-aggregated: `QUEUE_AND_EPOCH_FACTS` are facts about queues and epochs, and all of commits with marks.

`NUMBERS` and `REGISTRATIONS` are those of producers.
"""

_PLACE = ("position", "epoch", "queue", "tag", "cause")
_OF_COMMITS = ("ordinal", "time_us", "stored", "consumed", "seq", "topic")
_OF_PRODUCERS = ("producer", "name")
_OF_TRANSACTIONS = ("txn", "origin_seq", "consumed")
_MARK = TAGS["QueueMarked"]
_NAMES = pa.array({tag: name for name, tag in TAGS.items()}.values())
_TAGS = pa.array(TAGS.values(), pa.int8())
_CONSUMED, _COMMITTED, _ROLLED_BACK = (
    FactFilter((kind,)) for kind in ("MessageConsumed", "TransactionCommitted", "TransactionRolledBack")
)

_PLAIN = SCHEMA.set(SCHEMA.get_field_index("kind"), pa.field("kind", pa.string()))

_COMMIT_SUMS = {
    "time_us": ("time_us", "min"),
    "facts": ("one", "sum"),
    "first_ordinal": ("ordinal", "min"),
    "last_ordinal": ("ordinal", "max"),
    "said": ("stored", "sum"),
    "done": ("consumed", "sum"),
    "heard": ("heard", "sum"),
    "copies": ("copy", "sum"),
    "last_seq": ("first_lane_seq", "max"),
}
_TRANSACTION_SUMS = {
    "stored": ("is_sent", "sum"),
    "consumed": ("is_consumed", "sum"),
    "committed": ("is_committed", "sum"),
    "rolled_back": ("is_rolled_back", "sum"),
    "stored_said": ("stored_said", "max"),
    "consumed_said": ("consumed_said", "max"),
    "stored_queue_min": ("sent_queue", "min"),
    "stored_queue_max": ("sent_queue", "max"),
}


class SegmentBatch(NamedTuple):
    """Some segments, and the directory for what they come to; `candidates` are counted in each commit."""

    number: int
    segments: Sequence[Path]
    directory: Path
    candidates: dict[str, FactFilter]


def preaggregate(batch: SegmentBatch) -> None:
    """Write what the facts of some segments come to, a file for each name in `HELD`.

    Raises:
        StoreCorruptError: a segment is not as it was written.
    """
    nothing = SCHEMA.empty_table()
    found = {
        COMMITS: [commits_of(nothing, batch.candidates)],
        TRANSACTIONS: [transactions_of(nothing)],
        QUEUE_AND_EPOCH_FACTS: [nothing.cast(_PLAIN)],
        NUMBERS: [runs_of(nothing)],
        REGISTRATIONS: [registrations_of(nothing)],
    }
    columns = _columns(batch.candidates)
    for path in batch.segments:
        with opened(path) as file:
            segment = _Segment(file)
            marked = segment.marked()
            for group in range(file.num_row_groups):
                facts = segment.read(group, columns)
                found[COMMITS].append(commits_of(facts, batch.candidates))
                found[TRANSACTIONS].append(transactions_of(facts))
                found[NUMBERS].append(runs_of(facts))
                found[REGISTRATIONS].append(registrations_of(facts))
                chosen = _queue_and_epoch_facts(facts, marked)
                if pc.any(chosen).as_py():
                    found[QUEUE_AND_EPOCH_FACTS].append(segment.read(group, SCHEMA.names).filter(chosen).cast(_PLAIN))
    for name, tables in found.items():
        pq.write_table(pa.concat_tables(tables), batch.directory / name / f"part-{batch.number:05d}.parquet")


def _columns(candidates: dict[str, FactFilter]) -> list[str]:
    asked = {column for filter_ in candidates.values() for column in filter_.columns}
    return sorted({*_PLACE, *_OF_COMMITS, *_OF_TRANSACTIONS, *_OF_PRODUCERS, *SENT.columns, *NUMBERED.columns, *asked})


class _Segment:
    """A file of facts, whose columns are read as they are today: former versions lack some, and number no kinds."""

    def __init__(self, file: pq.ParquetFile) -> None:
        self._file = file
        self._names = set(file.schema_arrow.names)
        self._kind = "tag" if "tag" in self._names else "kind"
        self._kind_column = file.schema_arrow.get_field_index(self._kind)

    def read(self, group: int, columns: Sequence[str]) -> pa.Table:
        """Columns of a row group."""
        there = [name for name in columns if name in self._names]
        facts = self._file.read_row_group(group, columns=sorted({*there, self._kind}), use_threads=False)
        if self._kind == "kind":
            numbers = pc.take(_TAGS, pc.index_in(facts.column("kind").cast(pa.string()), _NAMES))
            facts = facts.append_column("tag", numbers)
        for name in columns:
            if name not in facts.column_names:
                facts = facts.append_column(name, pa.nulls(len(facts), SCHEMA.field(name).type))
        return facts.select(columns)

    def marked(self) -> pa.Array:
        """The positions of commits with marks in them."""
        found = [pa.array([], pa.int64())]
        for group in range(self._file.num_row_groups):
            said = self._file.metadata.row_group(group).column(self._kind_column).statistics
            if said is None or not said.has_min_max or said.min != said.max or said.min in (_MARK, "QueueMarked"):
                places = self.read(group, ["position", "tag"])
                found.append(places.filter(pc.equal(places.column("tag"), _MARK)).column("position").combine_chunks())
        return pc.unique(pa.concat_arrays(found))


def _queue_and_epoch_facts(facts: pa.Table, marked: pa.Array) -> pa.ChunkedArray:
    return pc.or_(OF_QUEUES_AND_EPOCHS.mask(facts), pc.is_in(facts.column("position"), marked))


def commits_of(facts: pa.Table, candidates: dict[str, FactFilter]) -> pa.Table:
    """The rows of some facts' commits: see `fact_frames.commits`."""
    stored, seq = facts.column("stored"), facts.column("seq")
    heard = pc.greater(stored, 0)
    counts = pc.and_(pc.less(seq, 1 << LANE_SHIFT), pc.or_(pc.is_null(stored), pc.fill_null(heard, False)))
    given = {
        **{name: facts.column(name) for name in (*_PLACE, "ordinal", "time_us", "stored", "consumed")},
        "one": _ones(len(facts)),
        "heard": _counted(heard),
        "copy": _counted(pc.is_valid(facts.column("topic"))),
        "first_lane_seq": pc.if_else(counts, seq, None),
    }
    sums = dict(_COMMIT_SUMS)
    for name, filter_ in candidates.items():
        given[name] = _counted(filter_.mask(facts))
        sums[name] = (name, "sum")
    return _grouped(pa.table(given), _PLACE, sums)


def transactions_of(facts: pa.Table) -> pa.Table:
    """The rows of some facts' transactions: see `fact_frames.transactions`."""
    facts = facts.filter(pc.is_valid(facts.column("txn")))
    sent, queue = SENT.mask(facts), facts.column("queue")
    committed = _COMMITTED.mask(facts)
    given = {
        "txn": facts.column("txn"),
        "is_sent": _counted(sent),
        "is_consumed": _counted(_CONSUMED.mask(facts)),
        "is_committed": _counted(committed),
        "is_rolled_back": _counted(_ROLLED_BACK.mask(facts)),
        "stored_said": pc.if_else(committed, facts.column("stored"), None),
        "consumed_said": pc.if_else(committed, facts.column("consumed"), None),
        "sent_queue": pc.if_else(sent, queue, None),
    }
    return _grouped(pa.table(given), ("txn",), _TRANSACTION_SUMS)


def _grouped(table: pa.Table, by: Sequence[str], sums: dict[str, tuple[str, str]]) -> pa.Table:
    found = table.group_by(list(by), use_threads=False).aggregate(list(sums.values()))
    columns = {name: found.column(f"{column}_{how}") for name, (column, how) in sums.items()}
    return pa.table({name: found.column(name) for name in by} | columns)


def _ones(length: int) -> pa.Array:
    return pa.array(np.ones(length, np.int64))


def _counted(mask: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.fill_null(mask, False).cast(pa.int64())

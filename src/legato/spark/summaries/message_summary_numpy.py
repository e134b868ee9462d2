"""Message summaries in NumPy, for tasks that read segments themselves; `message_summary_sql.py` is the model.

A fraction of a microsecond a fact, where the query takes two, and nothing has to be compiled first.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from legato.ids import TXN_ID_BYTES
from legato.spark.ledger.fact_schema import PLACE_SHIFT, TAGS
from legato.spark.ledger.segments import opened
from legato.spark.summaries.message_summary import (
    CARRIED,
    CLAIMED,
    CONSUMED,
    COUNTS,
    KINDS,
    LEFT_COUNTS,
    LEFT_KINDS,
    MESSAGE,
    MESSAGE_TYPES,
    ONE_CLAIMED,
    ONE_PRESENTED,
    PRESENTED,
    RETURNED,
    STORED,
    TALLY,
    WEIGHTS,
)

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

Tallies = Mapping[str, Ints]
"""The columns `queue`, `seq` and of those of `TALLY` all to which there is something to add, each row of one message.
What a row does not know is the `NOTHING` of the column."""

_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
NOTHING = {name: {"sum": 0, "min": _GREATEST, "max": _LEAST}[how] for name, how in TALLY.items()}
"""What adds nothing to a column of a tally."""

_ADDING = {"sum": np.add, "min": np.minimum, "max": np.maximum}
_TYPES = {"int": pa.int32(), "bigint": pa.int64()}

_TOLD = [TAGS[kind] for kind in KINDS]
_LEFT = [TAGS[kind] for kind in LEFT_KINDS]
_WEIGHTS = {TAGS[kind]: weight for kind, weight in WEIGHTS.items()}
_READ = ["queue", "seq", "position", "ordinal", "epoch", "time_us", "delivered_us", "attempt", "cause", "producer"]
_OF_ANY_KIND = {"first_delivered_us": "delivered_us", "delivered_us": "delivered_us", "producer": "producer"}
_TXN_PREFIX_BYTES = TXN_ID_BYTES - 8


def read_segment(path: Path) -> list[Tallies]:
    """What the facts of a segment add to the tallies of their messages, apart by kind of fact.

    Raises:
        StoreCorruptError: it is not as it was written.
    """
    found: list[Tallies] = []
    with opened(path) as file:
        # Segments of former versions do not number kinds.
        kind = "tag" if "tag" in file.schema_arrow.names else "kind"
        column = file.schema_arrow.get_field_index(kind)
        for group in range(file.num_row_groups):
            said = file.metadata.row_group(group).column(column).statistics
            if said is not None and said.has_min_max and said.min == said.max and _tag(said.min) not in _TOLD:
                continue
            facts = file.read_row_group(group, columns=[*_READ, "txn", kind], use_threads=False)
            found += [tallies_of(_tag(each), some) for each, some in _by_kind(facts, kind) if _tag(each) in _TOLD]
    return found


def _tag(kind: int | str) -> int:
    return TAGS[kind] if isinstance(kind, str) else kind


def _by_kind(facts: pa.Table, kind: str) -> Iterator[tuple[int | str, pa.Table]]:
    kinds = facts.column(kind)
    present = [each for each in pc.unique(kinds).to_pylist() if each is not None]
    for each in present:
        whole = len(present) == 1 and not kinds.null_count
        yield each, facts if whole else facts.filter(pc.equal(kinds, each))


def tallies_of(tag: int, facts: pa.Table) -> Tallies:
    """What facts of one kind add to the tallies of their messages, a row a fact: see `message_summary_sql.tallies`."""
    epoch = numbers_in(facts, "epoch", 0)
    added = {"queue": numbers_in(facts, "queue", 0), "seq": numbers_in(facts, "seq", 0)}
    added |= {"first_epoch": epoch, "last_epoch": epoch}
    if tag in _WEIGHTS:
        side = "left" if tag in _LEFT else "stored"
        added["left"] = np.full(len(facts), _WEIGHTS[tag])
        added[f"{side}_us"] = numbers_in(facts, "time_us", 0)
        added[f"{side}_place"] = numbers_in(facts, "position", 0) << PLACE_SHIFT | numbers_in(facts, "ordinal", 0)
    if tag in (RETURNED, PRESENTED):
        added["back"] = _returned(facts) if tag == RETURNED else np.full(len(facts), ONE_PRESENTED)
    if tag in (RETURNED, CONSUMED):
        name = "attempt" if tag == CONSUMED else "returned_attempt"
        added[name] = numbers_in(facts, "attempt", NOTHING[name])
    if tag in (STORED, CONSUMED) and _is_known(facts, "txn"):
        added["sent_txn" if tag == STORED else "consumed_txn"] = _counters(facts.column("txn"))
    if _is_known(facts, "delivered_us"):
        added |= {
            name: numbers_in(facts, "delivered_us", NOTHING[name]) for name in ("first_delivered_us", "delivered_us")
        }
    if _is_known(facts, "producer"):
        added["producer"] = numbers_in(facts, "producer", NOTHING["producer"])
    return added


def _is_known(facts: pa.Table, name: str) -> bool:
    return bool(facts.column(name).null_count < len(facts))


def numbers_in(facts: pa.Table, name: str, nothing: int) -> Ints:
    """A column as numbers, with `nothing` where it has none."""
    column = facts.column(name)
    filled = pc.fill_null(column.cast(pa.int64()), nothing) if column.null_count else column
    return np.asarray(filled).astype(np.int64, copy=False)


def _returned(facts: pa.Table) -> Ints:
    causes = pc.fill_null(facts.column("cause").cast(pa.string()), "")
    claimed, carried = np.asarray(pc.equal(causes, CLAIMED)), np.asarray(pc.equal(causes, CARRIED))
    return np.where(claimed, ONE_CLAIMED, np.where(carried, 0, 1))


def _counters(txns: pa.ChunkedArray) -> Ints:
    """The counters in transactions' ids; nothing where there is none."""
    encoded = txns.combine_chunks().dictionary_encode()
    values = np.array([*map(_counter, encoded.dictionary.to_pylist()), _LEAST])
    return values.take(np.asarray(encoded.indices.fill_null(-1)))


def _counter(txn: bytes) -> int:
    counter = int.from_bytes(txn[_TXN_PREFIX_BYTES:TXN_ID_BYTES])
    return counter if len(txn) > _TXN_PREFIX_BYTES and counter <= _GREATEST else _LEAST


def add_up(pieces: Sequence[Tallies]) -> Tallies:
    """One row for each message of all pieces, ascending by queue and place, in all columns."""
    queue, seq = (np.concatenate([np.zeros(0, np.int64), *(piece[name] for piece in pieces)]) for name in MESSAGE)
    order = order_of(queue, seq)
    queue, seq = queue[order], seq[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = (queue[1:] != queue[:-1]) | (seq[1:] != seq[:-1])
    rows = np.empty(len(order), np.int64)
    rows[order] = np.cumsum(is_first) - 1
    sums = {"queue": queue[is_first], "seq": seq[is_first]}
    sums |= {name: np.full(len(sums["seq"]), nothing) for name, nothing in NOTHING.items()}
    begin = 0
    for piece in pieces:
        end = begin + len(piece["seq"])
        for name in TALLY.keys() & piece.keys():
            _ADDING[TALLY[name]].at(sums[name], rows[begin:end], piece[name])
        begin = end
    return sums


def order_of(queue: Ints, seq: Ints) -> Ints:
    """The order by queue and place; equal ones stay as they are."""
    if not len(seq):
        return np.zeros(0, np.int64)
    low, high = int(seq.min()), int(seq.max())
    bits = (high - low).bit_length()
    if queue.min() >= 0 and int(queue.max()).bit_length() + bits < 64:
        # Both in one number are sorted several times as fast.
        return np.argsort(queue << bits | (seq - low), kind="stable")
    return np.lexsort((seq, queue))


def rows_of(tallies: Tallies, chosen: Mask) -> Tallies:
    """Some of the rows."""
    return {name: column[chosen] for name, column in tallies.items()}


def is_open(tallies: Tallies) -> Mask:
    """Which messages may still leave their queue, or have left it and were not seen to be stored; in all columns."""
    found: Mask = (_count(tallies, "stored_count") == 0) | (_left_count(tallies) == 0)
    return found


def _count(tallies: Tallies, name: str) -> Ints:
    column, shift, bits = COUNTS[name]
    return (tallies[column] >> shift) & ((1 << bits) - 1)


def _left_count(tallies: Tallies) -> Ints:
    return sum((_count(tallies, name) for name in LEFT_COUNTS), np.zeros(1, np.int64))


def messages_of(tallies: Tallies) -> pa.Table:
    """The rows of silver, of tallies in all columns: see `message_summary_sql.messages`."""

    def column(name: str) -> pa.Array:
        if name in COUNTS:
            return pa.array(_count(tallies, name))
        if name == "left_count":
            return pa.array(_left_count(tallies))
        return pa.array(tallies[name], mask=tallies[name] == NOTHING[name] if name in TALLY else None)

    return pa.table({name: column(name).cast(_TYPES[spelled]) for name, spelled in MESSAGE_TYPES.items()})


def tallied(messages: pa.Table) -> Tallies:
    """The tallies from which these rows were made, in all columns."""
    found = {name: numbers_in(messages, name, 0) for name in MESSAGE}
    found |= {"left": np.zeros(len(messages), np.int64), "back": np.zeros(len(messages), np.int64)}
    for name, (column, shift, _) in COUNTS.items():
        found[column] = found[column] + (numbers_in(messages, name, 0) << shift)
    return found | {name: numbers_in(messages, name, NOTHING[name]) for name in TALLY if name not in found}

"""Facts as one flat Arrow table: what a segment of the ledger holds, a row for each fact."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Any

import pyarrow as pa

from legato.core import facts as f
from legato.core.facts import LogRecord

COLUMNS: dict[str, pa.DataType] = {
    "position": pa.int64(),
    "ordinal": pa.int32(),
    "epoch": pa.int32(),
    "time_us": pa.int64(),
    "kind": pa.dictionary(pa.int8(), pa.string()),
    "queue": pa.int32(),
    "seq": pa.int64(),
    "size": pa.int32(),
    "message_id": pa.string(),
    "producer": pa.int32(),
    "number": pa.int64(),
    "txn": pa.binary(),
    "consumer": pa.int32(),
    "delivered_us": pa.int64(),
    "attempt": pa.int32(),
    "flagged": pa.bool_(),
    "cause": pa.string(),
    "origin_queue": pa.int32(),
    "origin_seq": pa.int64(),
    "dead_queue": pa.int32(),
    "dead_seq": pa.int64(),
    "name": pa.string(),
    "stored": pa.int64(),
    "consumed": pa.int64(),
}
"""Every column of the ledger and its type. Columns only get added, at the end; absent values are null.

`position` and `ordinal` say where the fact stands in the log; `time_us`, `delivered_us` are microseconds since 1970.
`attempt` is the delivery that was consumed, or the count that a returned message keeps. `name` is the name that a
queue, producer, consumer's container or broker was given. `stored` and `consumed` are the counters of a `QueueMarked`
and the numbers of messages sent and received by a transaction.
"""

SCHEMA = pa.schema(list(COLUMNS.items()))

Column = list[Any]
_Rows = list[Any]


def _same(*names: str) -> Callable[[_Rows], dict[str, Column]]:
    """Columns named as the fact's own fields."""

    def build(rows: _Rows) -> dict[str, Column]:
        return {name: [getattr(fact, name) for fact in rows] for name in names}

    return build


def _stored(rows: list[f.MessageStored]) -> dict[str, Column]:
    return {
        "queue": [fact.queue for fact in rows],
        "seq": [fact.seq for fact in rows],
        "size": [fact.size for fact in rows],
        "message_id": [fact.message_id for fact in rows],
        "producer": [fact.producer or None for fact in rows],
        "number": [fact.number if fact.producer else None for fact in rows],
        "txn": [fact.txn or None for fact in rows],
        "origin_queue": [fact.origin[0] if fact.origin else None for fact in rows],
        "origin_seq": [fact.origin[1] if fact.origin else None for fact in rows],
    }


def _consumed(rows: list[f.MessageConsumed]) -> dict[str, Column]:
    return {
        "queue": [fact.queue for fact in rows],
        "seq": [fact.seq for fact in rows],
        "consumer": [fact.consumer for fact in rows],
        "delivered_us": [fact.delivered_us for fact in rows],
        "attempt": [fact.attempt for fact in rows],
        "txn": [fact.txn or None for fact in rows],
    }


def _returned(rows: list[f.MessageReturned]) -> dict[str, Column]:
    return {
        **_same("queue", "seq", "flagged", "consumer", "cause")(rows),
        "attempt": [fact.count for fact in rows],
        "txn": [fact.txn or None for fact in rows],
    }


def _transaction(rows: list[f.TransactionCommitted | f.TransactionRolledBack]) -> dict[str, Column]:
    return {
        "txn": [fact.txn for fact in rows],
        "stored": [fact.sent for fact in rows],
        "consumed": [fact.received for fact in rows],
    }


def _marked(rows: list[f.QueueMarked]) -> dict[str, Column]:
    return {**_same("queue", "stored", "consumed")(rows), "seq": [fact.last_seq for fact in rows]}


def _renamed(**columns: str) -> Callable[[_Rows], dict[str, Column]]:
    """Columns on the left from the fact's fields on the right."""

    def build(rows: _Rows) -> dict[str, Column]:
        return {column: [getattr(fact, field) for fact in rows] for column, field in columns.items()}

    return build


_BUILDERS: dict[type[f.Fact], Callable[[Any], dict[str, Column]]] = {
    f.EpochBegan: _renamed(name="broker"),
    f.EpochEnded: _renamed(cause="reason"),
    f.QueueCreated: _same("queue", "name"),
    f.ProducerRegistered: _same("producer", "name"),
    f.ProducerForgotten: _same("producer", "name"),
    f.ConsumerAttached: _renamed(consumer="consumer", queue="queue", name="container"),
    f.MessageStored: _stored,
    f.MessageConsumed: _consumed,
    f.MessageReturned: _returned,
    f.MessagePresented: _same("queue", "seq", "consumer"),
    f.MessageDeadLettered: _same("queue", "seq", "consumer", "cause", "dead_queue", "dead_seq"),
    f.DispatchMarked: _same("queue", "seq"),
    f.NumberRefused: _same("producer", "number"),
    f.DuplicateDropped: _same("producer", "number"),
    f.TransactionCommitted: _transaction,
    f.TransactionRolledBack: lambda rows: {**_transaction(rows), "cause": [fact.cause for fact in rows]},
    f.QueueMarked: _marked,
}


def facts_table(records: Iterable[tuple[int, LogRecord]]) -> pa.Table:
    """The facts of `records`, given as `(position, record)`, as a table in `SCHEMA`.

    Built column by column, one kind of fact after the other: rows of a table are grouped by kind.
    """
    rows: dict[type[f.Fact], _Rows] = defaultdict(list)
    places: dict[type[f.Fact], list[tuple[int, int, int, int]]] = defaultdict(list)
    for position, record in records:
        epoch, time_us = record.epoch, record.time_us
        for ordinal, fact in enumerate(record.facts):
            kind = type(fact)
            rows[kind].append(fact)
            places[kind].append((position, ordinal, epoch, time_us))
    pieces = [_piece(kind, facts, places[kind]) for kind, facts in rows.items()]
    return pa.concat_tables(pieces).unify_dictionaries() if pieces else SCHEMA.empty_table()


def _piece(kind: type[f.Fact], facts: _Rows, places: list[tuple[int, int, int, int]]) -> pa.Table:
    length = len(facts)
    columns: dict[str, Any] = dict(
        zip(("position", "ordinal", "epoch", "time_us"), zip(*places, strict=True), strict=True)
    )
    columns |= _BUILDERS[kind](facts)
    arrays = []
    for name, dtype in COLUMNS.items():
        if name == "kind":
            indices = pa.repeat(pa.scalar(0, pa.int8()), length)
            arrays.append(pa.DictionaryArray.from_arrays(indices, pa.array([kind.__name__])))
        elif name in columns:
            arrays.append(pa.array(columns[name], dtype))
        else:
            arrays.append(pa.nulls(length, dtype))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)

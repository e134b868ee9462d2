"""The schema of the ledger: facts as one flat Arrow table, a row for each fact."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
    "topic": pa.int32(),
    "expires_us": pa.int64(),
    "to_queue": pa.int32(),
    "to_seq": pa.int64(),
    "waiting": pa.int64(),
    "paused": pa.bool_(),
    "queue_kind": pa.int8(),
    "temporary": pa.bool_(),
    "shared": pa.bool_(),
    "selector": pa.string(),
    "no_local": pa.bool_(),
    "container": pa.string(),
    "duplicate_id": pa.binary(),
    "group_id": pa.string(),
    "flow_id": pa.string(),
    "trace_id": pa.string(),
    "stage": pa.string(),
    "call": pa.string(),
    "tag": pa.int8(),
    "link": pa.string(),
    "deliveries_max": pa.int32(),
    "expired_us": pa.int64(),
    "at_us": pa.int64(),
    "detection_us": pa.int64(),
    "event": pa.string(),
    "operation": pa.string(),
    "object_type": pa.string(),
    "to_name": pa.string(),
    "decision": pa.string(),
    "user_name": pa.string(),
    "origin": pa.string(),
    "mechanism": pa.string(),
    "reason": pa.string(),
    "omitted": pa.int64(),
}
"""Every column of the ledger and its type. Columns only get added, at the end; absent values are null.

`tag` is the number of the `kind`: Spark compares numbers much faster than texts; segments of former versions lack it.
`position` and `ordinal` say where the fact stands in the log; `time_us`, `delivered_us` and `expires_us` are
microseconds since 1970. `attempt` is the delivery that was consumed, or the count that a returned message keeps. `name`
is the name that a queue, producer, consumer's container, link or broker was given, or the message id of the message
that was stored in place of a duplicate. `number` is that of a producer's message, or of a flow's call. `stored` and
`consumed` are the counters of a `QueueMarked`, the numbers of messages sent and received by a transaction, the copies
of a publication, the messages of a `BatchPublished` (whose digest is its `duplicate_id`), the calls of a
`MessageOfFlow`, and the window of a `DuplicateIdKept`. `link` is that of a consumer
that attached, `name` and `container` of an `ActionAudited` are
its object and its client, `deliveries_max` the setting that a dead letter died of, `expired_us` the broker's clock
when a message
that left as expired was found to be over, `at_us` when a primary began to serve.

A `MessagePublished` has one row, whose `queue` is the topic, and for each copy a further one of kind `MessageStored`
at the same position and ordinal, whose `queue` is the subscription and whose `topic` is that topic: in the account of
messages a copy is a message of its subscription. Only copies have a `topic` among stored messages; what they do not
have (message id, producer, transaction) is in the row of the publication. A `MessagesStored` or `MessagesConsumed` has
no row of its own: each of its messages has one of kind `MessageStored` or `MessageConsumed`, with an ordinal of its
own. A record without facts has one row, without a kind, so that its position is not missing.
"""

ASSIGNED = "assigned"
"""The cause with which messages move into an assignment."""

COPY = "kind = 'MessageStored' and topic is not null"
"""SQL: the row is a further one of a `MessagePublished`, not that of a fact."""

SCHEMA = pa.schema(list(COLUMNS.items()))

PLACE_SHIFT = 20
"""Where a fact stands in the log, in one number: its position, and in the lowest bits its ordinal."""

TAGS: dict[str, int] = {fact.__name__: int(str(fact.__struct_config__.tag)) for fact in f.Fact.__subclasses__()}
"""The number of each kind of fact, in the log as in the ledger; it never changes."""

Column = list[Any]
Place = tuple[int, int, int, int]
"""Position, ordinal, epoch and time of a row."""

_Rows = list[Any]


def _same(*names: str) -> Callable[[_Rows], dict[str, Column]]:
    """Columns named as the fact's own fields."""

    def build(rows: _Rows) -> dict[str, Column]:
        return {name: [getattr(fact, name) for fact in rows] for name in names}

    return build


def _stored(rows: list[f.MessageStored]) -> dict[str, Column]:
    return {"queue": [fact.queue for fact in rows], **_message(rows)}


def _published(rows: list[f.MessagePublished]) -> dict[str, Column]:
    return {
        "queue": [fact.topic for fact in rows],
        "stored": [len(fact.subscriptions) for fact in rows],
        **_message(rows),
    }


def _message(rows: list[f.MessageStored] | list[f.MessagePublished]) -> dict[str, Column]:
    return {
        "seq": [fact.seq for fact in rows],
        "size": [fact.size for fact in rows],
        "message_id": [fact.message_id for fact in rows],
        "producer": [fact.producer or None for fact in rows],
        "number": [fact.number if fact.producer else None for fact in rows],
        "txn": [fact.txn or None for fact in rows],
        "origin_queue": [fact.origin[0] if fact.origin else None for fact in rows],
        "origin_seq": [fact.origin[1] if fact.origin else None for fact in rows],
        "expires_us": [fact.expires_us or None for fact in rows],
    }


def _created(rows: list[f.QueueCreated]) -> dict[str, Column]:
    return {
        **_same("queue", "name", "no_local", "temporary", "shared")(rows),
        "queue_kind": [fact.kind for fact in rows],
        "topic": [fact.topic or None for fact in rows],
        "selector": [fact.selector or None for fact in rows],
        "container": [fact.container or None for fact in rows],
    }


def _moved(rows: list[f.MessageMoved]) -> dict[str, Column]:
    return {
        **_same("queue", "seq", "cause")(rows),
        "to_queue": [fact.to_queue or None for fact in rows],
        "to_seq": [fact.to_seq if fact.to_queue else None for fact in rows],
        "expired_us": [fact.expired_us or None for fact in rows],
    }


def _dead_lettered(rows: list[f.MessageDeadLettered]) -> dict[str, Column]:
    return {
        **_same("queue", "seq", "consumer", "cause", "dead_queue", "dead_seq")(rows),
        "deliveries_max": [fact.deliveries_max or None for fact in rows],
    }


def _attached(rows: list[f.ConsumerAttached]) -> dict[str, Column]:
    return {
        **_same("consumer", "queue")(rows),
        "name": [fact.container for fact in rows],
        "link": [fact.link or None for fact in rows],
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


def _identified(rows: list[f.DuplicateIdKept] | list[f.DuplicateIdDropped]) -> dict[str, Column]:
    return {
        "queue": [fact.queue for fact in rows],
        "message_id": [fact.message_id for fact in rows],
        "producer": [fact.producer or None for fact in rows],
        "number": [fact.number if fact.producer else None for fact in rows],
        "duplicate_id": [fact.id for fact in rows],
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


_OF_ACTIONS = {
    **{
        name: name
        for name in ("event", "operation", "decision", "origin", "mechanism", "reason", "message_id", "omitted")
    },
    "name": "object",
    "container": "client",
    "object_type": "object_type",
    "to_name": "to",
    "user_name": "user",
}
"""Columns of an `ActionAudited`, and its fields."""

_BUILDERS: dict[type[f.Fact], Callable[[Any], dict[str, Column]]] = {
    f.EpochBegan: _renamed(name="broker"),
    f.ServingBegan: _same("at_us", "cause", "detection_us"),
    f.EpochEnded: _renamed(cause="reason"),
    f.QueueCreated: _created,
    f.QueueDeleted: _same("queue", "name", "waiting"),
    f.QueuePaused: _same("queue", "paused"),
    f.QueueGrouped: _same("queue"),
    f.ProducerRegistered: _same("producer", "name"),
    f.ProducerForgotten: _same("producer", "name"),
    f.ConsumerAttached: _attached,
    f.MessageStored: _stored,
    f.MessagePublished: _published,
    f.MessageMoved: _moved,
    f.MessageConsumed: _consumed,
    f.MessageReturned: _returned,
    f.MessagePresented: _same("queue", "seq", "consumer"),
    f.MessageDelivered: lambda rows: {
        **_same("queue", "seq", "consumer", "attempt", "flagged", "delivered_us")(rows),
        "group_id": [fact.group or None for fact in rows],
    },
    f.MessageSeen: _same("queue", "seq", "consumer"),
    f.MessageReleased: _same("queue", "seq", "consumer", "flagged"),
    f.MessageDeadLettered: _dead_lettered,
    f.DispatchMarked: _same("queue", "seq"),
    f.NumberRefused: _same("producer", "number"),
    f.DuplicateDropped: _same("producer", "number"),
    f.DuplicateIdKept: lambda rows: {**_identified(rows), "stored": [fact.window for fact in rows]},
    f.DuplicateIdDropped: lambda rows: {
        **_identified(rows),
        "name": [fact.first_message_id for fact in rows],
        "txn": [fact.txn or None for fact in rows],
    },
    f.TransactionCommitted: _transaction,
    f.TransactionRolledBack: lambda rows: {**_transaction(rows), "cause": [fact.cause for fact in rows]},
    f.MessagesAssigned: _renamed(
        queue="queue", seq="seq", size="size", stored="count", to_queue="to_queue", to_seq="to_seq"
    ),
    f.AssignmentAcknowledged: _renamed(queue="queue", seq="through", consumed="count"),
    f.RunStored: _renamed(queue="queue", seq="seq", size="size", stored="count", producer="producer", number="number"),
    f.BatchPublished: lambda rows: {
        **_renamed(producer="producer", number="number", stored="count")(rows),
        "duplicate_id": [fact.digest or None for fact in rows],
    },
    f.AssignmentFenced: _renamed(queue="queue", number="fence"),
    f.MessageTaken: _renamed(queue="queue", seq="seq", container="container", name="link"),
    f.QueueMarked: _marked,
    f.ActionAudited: lambda rows: {
        column: [getattr(fact, field) or None for fact in rows] for column, field in _OF_ACTIONS.items()
    },
    f.MessageOfFlow: lambda rows: {
        **_same("queue", "seq", "stage", "number")(rows),
        **{name: [getattr(fact, name) or None for fact in rows] for name in ("flow_id", "trace_id", "call")},
        "stored": [fact.count for fact in rows],
    },
}


_RUNS = f.MessagesStored | f.MessagesConsumed
"""Several facts in one: each message has a row and an ordinal of its own, as if it had a fact of its own."""


def facts_table(records: Iterable[tuple[int, LogRecord]]) -> pa.Table:
    """The facts of `records`, given as `(position, record)`, as a table in `SCHEMA`.

    Built column by column, one kind of fact after the other: rows of a table are grouped by kind.
    """
    rows: dict[type[f.Fact], _Rows] = defaultdict(list)
    places: dict[type[f.Fact], list[Place]] = defaultdict(list)
    empty: list[Place] = []
    for position, record in records:
        epoch, time_us = record.epoch, record.time_us
        if not record.facts:
            empty.append((position, 0, epoch, time_us))
        ordinal = 0
        for fact in record.facts:
            kind = type(fact)
            rows[kind].append(fact)
            places[kind].append((position, ordinal, epoch, time_us))
            ordinal += fact.count if isinstance(fact, _RUNS) else 1
    stored, consumed = rows.pop(f.MessagesStored, []), rows.pop(f.MessagesConsumed, [])
    pieces = [_piece(kind, facts, places[kind]) for kind, facts in rows.items()]
    if publications := rows.get(f.MessagePublished):
        pieces.append(_copies(publications, pieces[list(rows).index(f.MessagePublished)]))
    if assigned := rows.get(f.MessagesAssigned):
        pieces += _assigned(assigned, pieces[list(rows).index(f.MessagesAssigned)])
    if runs := rows.get(f.RunStored):
        pieces.append(_run(runs, pieces[list(rows).index(f.RunStored)]))
    if acknowledged := rows.get(f.AssignmentAcknowledged):
        pieces.append(_acknowledged(acknowledged, pieces[list(rows).index(f.AssignmentAcknowledged)]))
    if stored:
        pieces.append(_stored_runs(stored, places[f.MessagesStored]))
    if consumed:
        pieces.append(_consumed_runs(consumed, places[f.MessagesConsumed]))
    if empty:
        pieces.append(_table(None, _placed(empty), len(empty)))
    return pa.concat_tables(pieces).unify_dictionaries() if pieces else SCHEMA.empty_table()


def _piece(kind: type[f.Fact], facts: _Rows, places: list[Place]) -> pa.Table:
    return _table(kind.__name__, _placed(places) | _BUILDERS[kind](facts), len(facts))


def _placed(places: list[Place]) -> dict[str, Any]:
    return dict(zip(("position", "ordinal", "epoch", "time_us"), zip(*places, strict=True), strict=True))


_COPIED = ("position", "ordinal", "epoch", "time_us", "seq", "size", "origin_queue", "origin_seq", "expires_us")
"""What a copy's row has of its publication's. Texts and the producer are said once: a copy costs a few numbers."""


def _copies(publications: list[f.MessagePublished], rows: pa.Table) -> pa.Table:
    """A row for each copy of these publications, whose own rows are `rows`."""
    subscriptions = pa.array([fact.subscriptions for fact in publications], pa.list_(pa.int32()))
    publication = pc.list_parent_indices(subscriptions)
    columns: dict[str, Any] = {name: rows.column(name).take(publication).combine_chunks() for name in _COPIED}
    columns["topic"] = rows.column("queue").take(publication).combine_chunks()
    columns["queue"] = subscriptions.flatten()
    return _table(f.MessageStored.__name__, columns, len(publication))


def _assigned(facts: list[f.MessagesAssigned], rows: pa.Table) -> list[pa.Table]:
    """For each message that was assigned, a row that it moved and one that it is stored, as for any that moves."""
    counts = np.array([fact.count for fact in facts])
    place, steps = _each(rows, counts)
    seqs = np.repeat([fact.seq for fact in facts], counts) + steps
    numbers = np.repeat([fact.to_seq for fact in facts], counts) + steps
    queues = np.repeat([fact.queue for fact in facts], counts)
    targets = np.repeat([fact.to_queue for fact in facts], counts)
    moved = place | {
        "queue": pa.array(queues, pa.int32()),
        "seq": pa.array(seqs),
        "cause": pa.repeat(pa.scalar(ASSIGNED), len(steps)),
        "to_queue": pa.array(targets, pa.int32()),
        "to_seq": pa.array(numbers),
    }
    stored = place | {
        "queue": pa.array(targets, pa.int32()),
        "seq": pa.array(numbers),
        "origin_queue": pa.array(queues, pa.int32()),
        "origin_seq": pa.array(seqs),
    }
    count = len(steps)
    return [_table(f.MessageMoved.__name__, moved, count), _table(f.MessageStored.__name__, stored, count)]


def _run(facts: list[f.RunStored], rows: pa.Table) -> pa.Table:
    """For each message of a run, a row that it is stored."""
    counts = np.array([fact.count for fact in facts])
    place, steps = _each(rows, counts)
    columns = place | {
        "queue": pa.array(np.repeat([fact.queue for fact in facts], counts), pa.int32()),
        "seq": pa.array(np.repeat([fact.seq for fact in facts], counts) + steps),
    }
    return _table(f.MessageStored.__name__, columns, len(steps))


def _acknowledged(facts: list[f.AssignmentAcknowledged], rows: pa.Table) -> pa.Table:
    """For each message that a pipeline is done with, a row that it was consumed."""
    counts = np.array([fact.count for fact in facts])
    place, steps = _each(rows, counts)
    columns = place | {
        "queue": pa.array(np.repeat([fact.queue for fact in facts], counts), pa.int32()),
        "seq": pa.array(np.repeat([fact.through - fact.count + 1 for fact in facts], counts) + steps),
        "consumer": pa.repeat(pa.scalar(0, pa.int32()), len(steps)),
        "attempt": pa.repeat(pa.scalar(1, pa.int32()), len(steps)),
    }
    columns["delivered_us"] = place["time_us"]
    return _table(f.MessageConsumed.__name__, columns, len(steps))


def _stored_runs(facts: list[f.MessagesStored], places: list[Place]) -> pa.Table:
    """A row for each message of the runs, as of facts of one message each."""
    counts, steps, columns = _each_of_runs(facts, places)
    ends = [np.frombuffer(fact.ends, ">u4").astype(np.int32) for fact in facts]
    columns["size"] = pa.array(np.concatenate([np.diff(each, prepend=np.int32(0)) for each in ends]))
    columns["message_id"] = pa.concat_arrays([_ids(fact) for fact in facts])
    numbered = np.repeat([fact.producer > 0 for fact in facts], counts)
    producers = np.repeat([fact.producer for fact in facts], counts)
    columns["producer"] = pa.array(producers, pa.int32(), mask=~numbered)
    columns["number"] = pa.array(np.repeat([fact.number for fact in facts], counts) + steps, pa.int64(), mask=~numbered)
    return _table(f.MessageStored.__name__, columns, len(steps))


def _ids(fact: f.MessagesStored) -> pa.Array:
    """The message ids of a run, of equal length, as texts."""
    width = len(fact.ids) // fact.count
    offsets = np.arange(fact.count + 1, dtype=np.int32) * width
    return pa.Array.from_buffers(pa.string(), fact.count, [None, pa.py_buffer(offsets), pa.py_buffer(fact.ids)])


def _consumed_runs(facts: list[f.MessagesConsumed], places: list[Place]) -> pa.Table:
    """A row for each message of the runs, as of facts of one message each."""
    counts, steps, columns = _each_of_runs(facts, places)
    columns["consumer"] = pa.array(np.repeat([fact.consumer for fact in facts], counts), pa.int32())
    columns["delivered_us"] = pa.array(np.repeat([fact.delivered_us for fact in facts], counts), pa.int64())
    columns["attempt"] = pa.repeat(pa.scalar(1, pa.int32()), len(steps))
    return _table(f.MessageConsumed.__name__, columns, len(steps))


def _each_of_runs(
    facts: Sequence[f.MessagesStored | f.MessagesConsumed], places: list[Place]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], dict[str, Any]]:
    """How many messages each run has; of each message its number within its run, from 0; and where its row stands."""
    counts = np.array([fact.count for fact in facts])
    begins = np.cumsum(counts) - counts
    steps = np.arange(int(counts.sum())) - np.repeat(begins, counts)
    columns: dict[str, Any] = {}
    for name, values in zip(("position", "ordinal", "epoch", "time_us"), zip(*places, strict=True), strict=True):
        repeated = np.repeat(np.array(values, np.int64), counts)
        columns[name] = pa.array(repeated + steps if name == "ordinal" else repeated, COLUMNS[name])
    columns["queue"] = pa.array(np.repeat([fact.queue for fact in facts], counts), pa.int32())
    columns["seq"] = pa.array(np.repeat(np.array([fact.seq for fact in facts], np.int64), counts) + steps)
    return counts, steps, columns


def _each(rows: pa.Table, counts: npt.NDArray[np.int64]) -> tuple[dict[str, Any], npt.NDArray[np.int64]]:
    """Where the rows of each fact stand, and their numbers within it, from 0."""
    fact = pa.array(np.repeat(np.arange(len(counts)), counts))
    place = {
        name: rows.column(name).take(fact).combine_chunks() for name in ("position", "ordinal", "epoch", "time_us")
    }
    begins = np.cumsum(counts) - counts
    return place, np.arange(int(counts.sum())) - np.repeat(begins, counts)


def _table(kind: str | None, columns: dict[str, Any], length: int) -> pa.Table:
    arrays = []
    # Offsets of texts are one more than there are, and no value is wider.
    zeroes = pa.py_buffer(bytes(8 * (length + 1)))
    for name, dtype in COLUMNS.items():
        if name == "kind" and kind is not None:
            indices = pa.repeat(pa.scalar(0, pa.int8()), length)
            arrays.append(pa.DictionaryArray.from_arrays(indices, pa.array([kind])))
        elif name == "tag" and kind is not None:
            arrays.append(pa.repeat(pa.scalar(TAGS[kind], dtype), length))
        elif name in columns:
            column = columns[name]
            arrays.append(column if isinstance(column, pa.Array) else pa.array(column, dtype))
        else:
            arrays.append(_nulls(length, dtype, zeroes))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def _nulls(length: int, dtype: pa.DataType, zeroes: pa.Buffer) -> pa.Array:
    """`pa.nulls` without memory of its own: of forty columns that a kind of fact does not have, all share `zeroes`."""
    if pa.types.is_dictionary(dtype):
        return pa.nulls(length, dtype)
    return pa.Array.from_buffers(dtype, length, [zeroes] * dtype.num_buffers, null_count=length)


def row_count(record: LogRecord) -> int:
    """How many rows the facts of a record become."""
    further = 0
    for fact in record.facts:
        if isinstance(fact, f.MessagePublished):
            further += len(fact.subscriptions)
        elif isinstance(fact, f.MessagesAssigned):
            further += 2 * fact.count
        elif isinstance(fact, f.AssignmentAcknowledged | f.RunStored):
            further += fact.count
        elif isinstance(fact, _RUNS):
            further += fact.count - 1
    return max(len(record.facts), 1) + further

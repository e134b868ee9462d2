"""The schema of the ledger: facts as one flat Arrow table, a row for each fact."""

from collections.abc import Callable, Iterable, Sequence
from itertools import compress
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

Column = list[Any] | None
"""Values, or None where all are null."""

_Rows = list[Any]
_Numbers = npt.NDArray[np.int64]
_Places = dict[str, _Numbers]
"""Position, ordinal, epoch and time of each row."""


def _given(values: list[Any]) -> Column:
    """The values, where 0 and what is empty mean that there is none."""
    return [value or None for value in values] if any(values) else None


def _numbers(rows: _Rows) -> Column:
    """The numbers that producers gave, of those who number."""
    producers = [fact.producer for fact in rows]
    return [fact.number if fact.producer else None for fact in rows] if any(producers) else None


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
    origins = [fact.origin for fact in rows]
    moved = any(origins)
    return {
        "seq": [fact.seq for fact in rows],
        "size": [fact.size for fact in rows],
        "message_id": [fact.message_id for fact in rows],
        "producer": _given([fact.producer for fact in rows]),
        "number": _numbers(rows),
        "txn": _given([fact.txn for fact in rows]),
        "origin_queue": [origin[0] if origin else None for origin in origins] if moved else None,
        "origin_seq": [origin[1] if origin else None for origin in origins] if moved else None,
        "expires_us": _given([fact.expires_us for fact in rows]),
    }


def _created(rows: list[f.QueueCreated]) -> dict[str, Column]:
    return {
        **_same("queue", "name", "no_local", "temporary", "shared")(rows),
        "queue_kind": [fact.kind for fact in rows],
        "topic": _given([fact.topic for fact in rows]),
        "selector": _given([fact.selector for fact in rows]),
        "container": _given([fact.container for fact in rows]),
    }


def _moved(rows: list[f.MessageMoved]) -> dict[str, Column]:
    return {
        **_same("queue", "seq", "cause")(rows),
        "to_queue": _given([fact.to_queue for fact in rows]),
        "to_seq": [fact.to_seq if fact.to_queue else None for fact in rows],
        "expired_us": _given([fact.expired_us for fact in rows]),
    }


def _dead_lettered(rows: list[f.MessageDeadLettered]) -> dict[str, Column]:
    return {
        **_same("queue", "seq", "consumer", "cause", "dead_queue", "dead_seq")(rows),
        "deliveries_max": _given([fact.deliveries_max for fact in rows]),
    }


def _attached(rows: list[f.ConsumerAttached]) -> dict[str, Column]:
    return {
        **_same("consumer", "queue")(rows),
        "name": [fact.container for fact in rows],
        "link": _given([fact.link for fact in rows]),
    }


def _consumed(rows: list[f.MessageConsumed]) -> dict[str, Column]:
    return {
        "queue": [fact.queue for fact in rows],
        "seq": [fact.seq for fact in rows],
        "consumer": [fact.consumer for fact in rows],
        "delivered_us": [fact.delivered_us for fact in rows],
        "attempt": [fact.attempt for fact in rows],
        "txn": _given([fact.txn for fact in rows]),
    }


def _returned(rows: list[f.MessageReturned]) -> dict[str, Column]:
    return {
        **_same("queue", "seq", "flagged", "consumer", "cause")(rows),
        "attempt": [fact.count for fact in rows],
        "txn": _given([fact.txn for fact in rows]),
    }


def _identified(rows: list[f.DuplicateIdKept] | list[f.DuplicateIdDropped]) -> dict[str, Column]:
    return {
        "queue": [fact.queue for fact in rows],
        "message_id": [fact.message_id for fact in rows],
        "producer": _given([fact.producer for fact in rows]),
        "number": _numbers(rows),
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
        "group_id": _given([fact.group for fact in rows]),
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
        "txn": _given([fact.txn for fact in rows]),
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
        "duplicate_id": _given([fact.digest for fact in rows]),
    },
    f.AssignmentFenced: _renamed(queue="queue", number="fence"),
    f.MessageTaken: _renamed(queue="queue", seq="seq", container="container", name="link"),
    f.QueueMarked: _marked,
    f.ActionAudited: lambda rows: {
        column: _given([getattr(fact, field) for fact in rows]) for column, field in _OF_ACTIONS.items()
    },
    f.MessageOfFlow: lambda rows: {
        **_same("queue", "seq", "stage", "number")(rows),
        **{name: _given([getattr(fact, name) for fact in rows]) for name in ("flow_id", "trace_id", "call")},
        "stored": [fact.count for fact in rows],
    },
}


_RUNS = (f.MessagesStored, f.MessagesConsumed)
"""Several facts in one: each message has a row and an ordinal of its own, as if it had a fact of its own."""


def facts_table(records: Iterable[tuple[int, LogRecord]]) -> pa.Table:
    """The facts of `records`, given as `(position, record)`, as a table in `SCHEMA`.

    Built column by column, one kind of fact after the other: rows of a table are grouped by kind.
    """
    found, empty = _by_kind([*records])
    runs = {kind: found.pop(kind) for kind in _RUNS if kind in found}
    pieces = {
        kind: _table(kind.__name__, places | _BUILDERS[kind](facts), len(facts))
        for kind, (facts, places) in found.items()
    }
    tables = [*pieces.values()]
    for kind, further in _FURTHER.items():
        if kind in pieces:
            tables += further(found[kind][0], pieces[kind])
    tables += [_OF_RUNS[kind](*those) for kind, those in runs.items()]
    if count := len(empty["position"]):
        tables.append(_table(None, dict(empty), count))
    return pa.concat_tables(tables).unify_dictionaries() if tables else SCHEMA.empty_table()


def _by_kind(
    records: Sequence[tuple[int, LogRecord]],
) -> tuple[dict[type[f.Fact], tuple[_Rows, _Places]], _Places]:
    """The facts of each kind and where they stand, kinds in the order of their first; and records without facts."""
    facts = [fact for _, record in records for fact in record.facts]
    kinds = [*map(type, facts)]
    numbers: dict[type[f.Fact], int] = {kind: number for number, kind in enumerate(dict.fromkeys(kinds))}
    numbered = np.fromiter(map(numbers.__getitem__, kinds), np.uint8, len(kinds))
    ordinals = np.ones(len(facts), np.int64)
    for run in _RUNS:
        if run in numbers:
            those = numbered == numbers[run]
            ordinals[those] = [fact.count for fact in _only(facts, those)]
    counts = np.array([len(record.facts) for _, record in records], np.int64)
    of_record = np.repeat(np.arange(len(records)), counts)
    # What all facts before have, less what those of former records have.
    before = np.cumsum(ordinals) - ordinals
    first = (np.cumsum(counts) - counts)[of_record]
    place = {
        "position": np.array([position for position, _ in records], np.int64),
        "epoch": np.array([record.epoch for _, record in records], np.int64),
        "time_us": np.array([record.time_us for _, record in records], np.int64),
    }
    of_facts = {name: values[of_record] for name, values in place.items()} | {"ordinal": before - before[first]}
    found: dict[type[f.Fact], tuple[_Rows, _Places]] = {}
    for kind, number in numbers.items():
        those = numbered == number
        found[kind] = (_only(facts, those), {name: values[those] for name, values in of_facts.items()})
    bare = counts == 0
    return found, {name: values[bare] for name, values in place.items()} | {"ordinal": np.zeros(bare.sum(), np.int64)}


def _only(facts: _Rows, those: npt.NDArray[np.bool_]) -> _Rows:
    return [*compress(facts, those.tobytes())]


_COPIED = ("position", "ordinal", "epoch", "time_us", "seq", "size", "origin_queue", "origin_seq", "expires_us")
"""What a copy's row has of its publication's. Texts and the producer are said once: a copy costs a few numbers."""


def _copies(publications: list[f.MessagePublished], rows: pa.Table) -> list[pa.Table]:
    """A row for each copy of these publications, whose own rows are `rows`."""
    subscriptions = pa.array([fact.subscriptions for fact in publications], pa.list_(pa.int32()))
    publication = pc.list_parent_indices(subscriptions)
    said = [name for name in _COPIED if rows.column(name).null_count < len(rows)]
    columns: dict[str, Any] = {name: rows.column(name).take(publication).combine_chunks() for name in said}
    columns["topic"] = rows.column("queue").take(publication).combine_chunks()
    columns["queue"] = subscriptions.flatten()
    return [_table(f.MessageStored.__name__, columns, len(publication))]


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


def _run(facts: list[f.RunStored], rows: pa.Table) -> list[pa.Table]:
    """For each message of a run, a row that it is stored."""
    counts = np.array([fact.count for fact in facts])
    place, steps = _each(rows, counts)
    columns = place | {
        "queue": pa.array(np.repeat([fact.queue for fact in facts], counts), pa.int32()),
        "seq": pa.array(np.repeat([fact.seq for fact in facts], counts) + steps),
    }
    return [_table(f.MessageStored.__name__, columns, len(steps))]


def _acknowledged(facts: list[f.AssignmentAcknowledged], rows: pa.Table) -> list[pa.Table]:
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
    return [_table(f.MessageConsumed.__name__, columns, len(steps))]


_FURTHER: dict[type[f.Fact], Callable[[Any, pa.Table], list[pa.Table]]] = {
    f.MessagePublished: _copies,
    f.MessagesAssigned: _assigned,
    f.RunStored: _run,
    f.AssignmentAcknowledged: _acknowledged,
}
"""Of facts and their own rows: the rows that they have besides, one for each message."""


def _stored_runs(facts: list[f.MessagesStored], places: _Places) -> pa.Table:
    """A row for each message of the runs, as of facts of one message each."""
    counts, steps, columns = _each_of_runs(facts, places)
    ends = np.frombuffer(b"".join([fact.ends for fact in facts]), ">u4").astype(np.int64)
    sizes = np.diff(ends, prepend=0)
    columns["size"] = np.where(steps == 0, ends, sizes)
    columns["message_id"] = _ids(facts, counts)
    if any(fact.producer for fact in facts):
        numbered = np.repeat([fact.producer > 0 for fact in facts], counts)
        producers = np.repeat([fact.producer for fact in facts], counts)
        numbers = np.repeat([fact.number for fact in facts], counts) + steps
        columns["producer"] = pa.array(producers, pa.int32(), mask=~numbered)
        columns["number"] = pa.array(numbers, pa.int64(), mask=~numbered)
    return _table(f.MessageStored.__name__, columns, len(steps))


def _ids(facts: list[f.MessagesStored], counts: _Numbers) -> pa.Array:
    """The message ids of runs, of equal length within each, as texts."""
    ends = np.zeros(int(counts.sum()) + 1, np.int64)
    np.cumsum(np.repeat([len(fact.ids) // fact.count for fact in facts], counts), out=ends[1:])
    content = pa.py_buffer(b"".join([fact.ids for fact in facts]))
    return pa.Array.from_buffers(pa.large_string(), len(ends) - 1, [None, pa.py_buffer(ends), content]).cast(
        pa.string()
    )


def _consumed_runs(facts: list[f.MessagesConsumed], places: _Places) -> pa.Table:
    """A row for each message of the runs, as of facts of one message each."""
    counts, steps, columns = _each_of_runs(facts, places)
    columns["consumer"] = np.repeat([fact.consumer for fact in facts], counts)
    columns["delivered_us"] = np.repeat([fact.delivered_us for fact in facts], counts)
    columns["attempt"] = pa.repeat(pa.scalar(1, pa.int32()), len(steps))
    return _table(f.MessageConsumed.__name__, columns, len(steps))


_OF_RUNS: dict[type[f.Fact], Callable[[Any, _Places], pa.Table]] = {
    f.MessagesStored: _stored_runs,
    f.MessagesConsumed: _consumed_runs,
}


def _each_of_runs(
    facts: Sequence[f.MessagesStored | f.MessagesConsumed], places: _Places
) -> tuple[_Numbers, _Numbers, dict[str, Any]]:
    """How many messages each run has; of each message its number within its run, from 0; and where its row stands."""
    counts = np.array([fact.count for fact in facts])
    begins = np.cumsum(counts) - counts
    steps = np.arange(int(counts.sum())) - np.repeat(begins, counts)
    columns: dict[str, Any] = {name: np.repeat(values, counts) for name, values in places.items()}
    columns["ordinal"] += steps
    columns["queue"] = np.repeat([fact.queue for fact in facts], counts)
    columns["seq"] = np.repeat(np.array([fact.seq for fact in facts], np.int64), counts) + steps
    return counts, steps, columns


def _each(rows: pa.Table, counts: npt.NDArray[np.int64]) -> tuple[dict[str, Any], npt.NDArray[np.int64]]:
    """Where the rows of each fact stand, and their numbers within it, from 0."""
    fact = pa.array(np.repeat(np.arange(len(counts)), counts))
    place = {
        name: rows.column(name).take(fact).combine_chunks() for name in ("position", "ordinal", "epoch", "time_us")
    }
    begins = np.cumsum(counts) - counts
    return place, np.arange(int(counts.sum())) - np.repeat(begins, counts)


_TYPES = [*dict.fromkeys(COLUMNS.values())]
_TYPE_OF = {name: _TYPES.index(dtype) for name, dtype in COLUMNS.items()}
_DICTIONARY_OF_KINDS = COLUMNS["kind"]


def _table(kind: str | None, columns: dict[str, Any], length: int) -> pa.Table:
    """Rows of one kind of fact: in columns that it does not have, or of which None is given, they have nulls."""
    # Nulls without memory of their own. Offsets of texts are one more than there are, and no value is wider.
    zeroes = pa.py_buffer(bytes(8 * (length + 1)))
    nulls = [
        pa.Array.from_buffers(dtype, length, [zeroes] * dtype.num_buffers, null_count=length)
        if dtype is not _DICTIONARY_OF_KINDS
        else pa.nulls(length, dtype)
        for dtype in _TYPES
    ]
    said = dict(columns)
    if kind is not None:
        indices = pa.repeat(pa.scalar(0, pa.int8()), length)
        said["kind"] = pa.DictionaryArray.from_arrays(indices, pa.array([kind]))
        said["tag"] = pa.repeat(pa.scalar(TAGS[kind], pa.int8()), length)
    arrays = []
    for name, number in _TYPE_OF.items():
        column = said.get(name)
        if column is None:
            column = nulls[number]
        elif not isinstance(column, pa.Array):
            column = pa.array(column, _TYPES[number])
        arrays.append(column)
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


_FURTHER_ROWS: dict[type[f.Fact], Callable[[Any], int]] = {
    f.MessagePublished: lambda fact: len(fact.subscriptions),
    f.MessagesAssigned: lambda fact: 2 * fact.count,
    f.AssignmentAcknowledged: lambda fact: fact.count,
    f.RunStored: lambda fact: fact.count,
    f.MessagesStored: lambda fact: fact.count - 1,
    f.MessagesConsumed: lambda fact: fact.count - 1,
}
"""How many rows a fact has besides the first."""


def row_count(record: LogRecord) -> int:
    """How many rows the facts of a record become."""
    further = sum([_FURTHER_ROWS[type(fact)](fact) for fact in record.facts if type(fact) in _FURTHER_ROWS])
    return max(len(record.facts), 1) + further

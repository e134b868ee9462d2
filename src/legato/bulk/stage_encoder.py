"""Arrow rows to stage records: runs for queues, single messages for topics, delays and duplicate ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from legato import limits
from legato.amqp.codec.stubs import STUB_MARK
from legato.bulk.buffer_slices import is_uniform
from legato.bulk.encoding import encode
from legato.bulk.packing import pack
from legato.bulk.requests import StageOptions
from legato.bulk.stage_files import BlockRun, MessageRecord, Record, RunRecord, StageTicket

_PRIORITY_DEFAULT = 4
_PRIORITY_MAX = 9


def records_of(
    batch: pa.RecordBatch, options: StageOptions, ticket: StageTicket, first_row: int, now_us: int
) -> Iterator[Record]:
    """The records of a batch of rows, in the order of the rows within each destination and priority.

    Args:
        first_row: how many rows of the stage came before.

    Raises:
        ValueError: a row names no destination, and the sink names none; it ends as no message may, or its duplicate id
            is too long.
    """
    columns = {name: batch.column(name) for name in batch.schema.names}
    for group, (destination, priority, rows) in enumerate(_groups(columns, batch.num_rows, options)):
        part = (
            columns
            if len(rows) == batch.num_rows
            else {name: column.take(pa.array(rows)) for name, column in columns.items()}
        )
        # Rows are counted anew in each group. No two stages have one name, so their ids never meet.
        prefix = f"ID:{ticket.transactional_id}:{ticket.batch}:{ticket.stage}:{first_row}:{group}:"
        messages = encode(part, destination, id_prefix=prefix, now_ms=now_us // 1000, topic=options.topic)
        if pc.any(pc.ends_with(messages, STUB_MARK)).as_py():
            raise ValueError("A row ends as no message may.")
        expires_us = _times_us(part, "time_to_live_ms", now_us)
        single = np.full(len(rows), options.topic) | _positive(part, "delivery_delay_ms") | _given(part, "duplicate_id")
        if single.any():
            yield from _messages(part, messages, destination, priority, options, prefix, expires_us, now_us)
            continue
        blocks = pack(messages, now_us, expires_us)
        size = sum(len(content) for _, content in blocks)
        lengths = [len(head) + len(content) for head, content in blocks]
        record = RunRecord(destination, priority, len(rows), size, bool(_given(part, "group_id").any()), lengths)
        yield BlockRun(record, [piece for block in blocks for piece in block])


def _groups(
    columns: Mapping[str, pa.Array], count: int, options: StageOptions
) -> Iterator[tuple[str, int, npt.NDArray[np.int64]]]:
    """Rows of one destination and priority, the ways of both in the order of their first rows."""
    if not count:
        return
    priority = np.full(count, _PRIORITY_DEFAULT)
    if "priority" in columns:
        priority = np.asarray(pc.fill_null(columns["priority"].cast(pa.int64()), _PRIORITY_DEFAULT))
        priority = priority.clip(0, _PRIORITY_MAX)
    names, places = [options.destination], np.zeros(count, np.int64)
    if "destination" in columns:
        encoded = pc.fill_null(columns["destination"], options.destination).dictionary_encode()
        names, places = encoded.dictionary.to_pylist(), np.asarray(encoded.indices).astype(np.int64)
    if "" in names:
        raise ValueError("A row names no destination: give the option queue or topic, or the column destination.")
    keys = places * (_PRIORITY_MAX + 1) + priority
    wanted, first = (keys[:1], np.zeros(1)) if is_uniform(keys) else np.unique(keys, return_index=True)
    for key in wanted[np.argsort(first)]:
        place, level = divmod(int(key), _PRIORITY_MAX + 1)
        yield names[place], level, np.flatnonzero(keys == key)


def _messages(
    columns: Mapping[str, pa.Array],
    messages: pa.BinaryArray,
    destination: str,
    priority: int,
    options: StageOptions,
    id_prefix: str,
    expires_us: npt.NDArray[np.int64],
    now_us: int,
) -> Iterator[MessageRecord]:
    delivers_us = _times_us(columns, "delivery_delay_ms", now_us)
    duplicate_ids = [each.encode() for each in _texts(columns, "duplicate_id", len(messages))]
    if max(map(len, duplicate_ids), default=0) > limits.LARGE_MESSAGE_BYTES:
        raise ValueError(f"A duplicate id has more than {limits.LARGE_MESSAGE_BYTES} bytes.")
    groups = _texts(columns, "group_id", len(messages))
    for row, body in enumerate(messages.to_pylist()):
        yield MessageRecord(
            destination,
            options.topic,
            priority,
            int(delivers_us[row]),
            int(expires_us[row]),
            duplicate_ids[row],
            groups[row],
            f"{id_prefix}{row}",
            body,
        )


def _times_us(columns: Mapping[str, pa.Array], name: str, now_us: int) -> npt.NDArray[np.int64]:
    """When what the rows say in milliseconds is over, 0 for never; no sum leaves the numbers that a store has."""
    given_ms = _numbers(columns, name)
    if not len(given_ms):
        return np.zeros(len(next(iter(columns.values()))), np.int64)
    times_us = now_us + np.minimum(given_ms, limits.TIME_MS_MAX) * 1000
    return np.where(given_ms > 0, np.minimum(times_us, limits.TIME_MS_MAX * 1000), 0)


def _numbers(columns: Mapping[str, pa.Array], name: str) -> npt.NDArray[np.int64]:
    values = columns.get(name)
    if values is None:
        return np.zeros(0, np.int64)
    return np.asarray(pc.fill_null(values.cast(pa.int64()), 0)).astype(np.int64)


def _positive(columns: Mapping[str, pa.Array], name: str) -> Any:
    numbers = _numbers(columns, name)
    return numbers > 0 if len(numbers) else False


def _given(columns: Mapping[str, pa.Array], name: str) -> npt.NDArray[np.bool_]:
    values = columns.get(name)
    if values is None:
        return np.zeros(1, bool)
    return np.asarray(pc.fill_null(pc.greater(pc.binary_length(values), 0), False))


def _texts(columns: Mapping[str, pa.Array], name: str, rows: int) -> list[str]:
    values = columns.get(name)
    return [""] * rows if values is None else [value or "" for value in values.to_pylist()]

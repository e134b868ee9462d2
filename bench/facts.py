"""A synthetic ledger of any size, written column by column, as correct brokers would have written it."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from legato.spark.ledger.fact_schema import COLUMNS, SCHEMA, TAGS
from legato.spark.ledger.segments import write_rows
from legato.store.segment_names import SegmentSpan

BLOCK = 500
"""Messages in a commit."""
TICKS = 100
"""Commits that store, and as many that consume, in a segment."""
TICK_US = 10_000
QUEUES = 8
DEAD = QUEUES + 1
BEGAN_US = 1_700_000_000_000_000
EPOCH_SEGMENTS = 7
"""Segments in an epoch."""
RETURNED_EVERY, DEAD_EVERY, TXN_EVERY = 50, 200, 5

FACTS_IN_A_SEGMENT = TICKS * BLOCK * 2

Columns = dict[str, Any]


def write_facts(ledger: Path, facts: int) -> int:
    """Write a ledger of about so many facts, whole segments of it; returns how many facts it has."""
    ledger.mkdir(parents=True, exist_ok=True)
    segments = max(1, round(facts / FACTS_IN_A_SEGMENT))
    rows, position, dead = 0, 1, 0
    for number in range(segments):
        pieces, last, dead = _segment(number, position, dead)
        table = pa.concat_tables(_table(kind, columns) for kind, columns in pieces).unify_dictionaries()
        write_rows(table, ledger / SegmentSpan(position, last).file_name)
        rows, position = rows + len(table), last + 1
    return rows


def _segment(number: int, first: int, dead: int) -> tuple[list[tuple[str, Columns]], int, int]:
    """The pieces of a segment by kind, its last position, and how many dead letters there are by then."""
    epoch = 1 + number // EPOCH_SEGMENTS
    began_us = BEGAN_US + number * TICKS * TICK_US + (epoch - 1) * 250_000
    pieces: list[tuple[str, Columns]] = []

    def placed(position: Any, ordinal: Any, time_us: Any) -> Columns:
        length = len(ordinal)
        return {
            "position": np.broadcast_to(position, length),
            "ordinal": ordinal,
            "epoch": np.full(length, epoch),
            "time_us": np.broadcast_to(time_us, length),
        }

    if number % EPOCH_SEGMENTS == 0:
        one = placed(first, np.zeros(1, np.int32), began_us)
        pieces.append(("EpochBegan", one | {"name": [f"broker-{epoch % 2}:5672"]}))
        first += 1
    if number == 0:
        names = [f"orders.{queue}" for queue in range(1, DEAD)] + ["DLQ"]
        many = placed(first, np.arange(DEAD), began_us)
        pieces.append(
            ("QueueCreated", many | {"queue": np.arange(1, DEAD + 1), "name": names, "queue_kind": [0] * DEAD})
        )
        first += 1

    tick = np.repeat(np.arange(TICKS), BLOCK)
    index = np.tile(np.arange(BLOCK), TICKS)
    whole_tick = number * TICKS + tick
    queue = 1 + whole_tick % QUEUES
    seq = 1 + whole_tick // QUEUES * BLOCK + index
    stored_us = began_us + tick * TICK_US
    settled_us = stored_us + 7_500 + whole_tick * 7919 % 2_000
    serial = pc.cast(pa.array(whole_tick * BLOCK + index), pa.string())
    ids = pc.binary_join_element_wise("ID:6ba7b810-9dad-11d1-80b4-00c04f:", serial, "")
    stored = placed(first + 2 * tick, index, stored_us) | {"queue": queue, "seq": seq, "message_id": ids}
    stored |= {"size": np.full(len(seq), 256), "producer": queue, "number": seq}
    pieces.append(("MessageStored", stored))

    # The consuming commit of a tick: first what comes back, then what leaves for good or for the dead letters.
    consuming, consumed_us = first + 2 * tick + 1, stored_us + 4000 + (index * 7919) % 3000
    is_dead, is_returned = index % DEAD_EVERY == 7, index % RETURNED_EVERY == 3
    returned, dying = np.flatnonzero(is_returned), np.flatnonzero(is_dead)
    leaving = np.flatnonzero(~is_dead)
    in_txn = tick % TXN_EVERY == 0
    per_tick_returned, per_tick_dead = BLOCK // RETURNED_EVERY, -(-(BLOCK - 7) // DEAD_EVERY)
    per_tick_leaving = BLOCK - per_tick_dead
    txn = pc.if_else(pa.array(in_txn), pc.cast(pc.cast(pa.array(whole_tick), pa.string()), pa.binary()), None)

    def consuming_place(rows: Any, offset: int, per_tick: int, step: int = 1) -> Columns:
        ordinal = offset + step * (np.arange(len(rows)) % per_tick)
        return placed(consuming[rows], ordinal, settled_us[rows]) | {"queue": queue[rows], "seq": seq[rows]}

    back = consuming_place(returned, 0, per_tick_returned)
    back |= {"attempt": np.ones(len(returned)), "consumer": queue[returned]}
    back |= {"cause": ["rollback"] * len(returned), "flagged": np.zeros(len(returned), bool)}
    pieces.append(("MessageReturned", back))
    gone = consuming_place(leaving, per_tick_returned, per_tick_leaving)
    gone |= {"consumer": queue[leaving], "delivered_us": consumed_us[leaving], "txn": txn.take(pa.array(leaving))}
    gone |= {"attempt": 1 + is_returned[leaving]}
    pieces.append(("MessageConsumed", gone))
    offset = per_tick_returned + per_tick_leaving
    dead_seq = dead + 1 + np.arange(len(dying))
    died = consuming_place(dying, offset, per_tick_dead, step=2)
    died |= {
        "consumer": queue[dying],
        "cause": pc.if_else(pa.array(dying // DEAD_EVERY % 2 == 0), "rejected", "too many deliveries"),
    }
    pieces.append(("MessageDeadLettered", died | {"dead_queue": np.full(len(dying), DEAD), "dead_seq": dead_seq}))
    letters = placed(died["position"], died["ordinal"] + 1, died["time_us"])
    letters |= {"queue": np.full(len(dying), DEAD), "seq": dead_seq, "size": np.full(len(dying), 256)}
    letters |= {"origin_queue": queue[dying], "origin_seq": seq[dying], "message_id": ids.take(pa.array(dying))}
    pieces.append(("MessageStored", letters))
    commits = np.arange(0, TICKS, TXN_EVERY)
    ended = placed(
        first + 2 * commits + 1,
        np.full(len(commits), offset + 2 * per_tick_dead),
        settled_us[commits * BLOCK],
    )
    ended |= {"txn": txn.take(pa.array(commits * BLOCK)), "stored": np.zeros(len(commits))}
    pieces.append(("TransactionCommitted", ended | {"consumed": np.full(len(commits), per_tick_leaving)}))

    dead += len(dying)
    last = first + 2 * TICKS
    ticks_so_far = (number + 1) * TICKS
    totals = [BLOCK * len(range(each, ticks_so_far, QUEUES)) for each in range(QUEUES)]
    marks = placed(last, np.arange(DEAD), began_us + (TICKS - 1) * TICK_US + 9000) | {"queue": np.arange(1, DEAD + 1)}
    marks |= {"seq": [*totals, dead], "stored": [*totals, dead], "consumed": [*totals, 0]}
    pieces.append(("QueueMarked", marks))
    return pieces, last, dead


def _table(kind: str, columns: Columns) -> pa.Table:
    length = len(columns["position"])
    arrays = []
    for name, dtype in COLUMNS.items():
        if name == "kind":
            arrays.append(pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int8()), length), pa.array([kind])))
        elif name == "tag":
            arrays.append(pa.repeat(pa.scalar(TAGS[kind], dtype), length))
        elif name in columns:
            values = columns[name]
            array = values if isinstance(values, pa.Array | pa.ChunkedArray) else pa.array(values)
            arrays.append(pc.cast(array, dtype))
        else:
            arrays.append(pa.nulls(length, dtype))
    return pa.Table.from_arrays(arrays, schema=SCHEMA)

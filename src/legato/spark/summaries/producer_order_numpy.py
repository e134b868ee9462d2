"""The order of producers' numbers, checked in NumPy; `producer_order_sql.py` is the model.

1. A producer numbers what it sends. In a lane of an address its numbers ascend with the places: what was refused may
   come again only while nothing later is stored (docs/decisions/0042). Equal numbers in one commit are a sink's batch.
2. Nearly all producers are in order and send to one address. Those that are not are few rows, and only these are asked.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from legato.core.lanes import LANE_SHIFT
from legato.spark.ledger.fact_filter import NUMBERED, REGISTERED
from legato.spark.summaries.message_summary_numpy import Ints, Mask, numbers_in

GROUP = ("producer", "queue", "lane")

_RUNS = pa.schema(
    [
        *((name, pa.int64()) for name in GROUP),
        *((name, pa.int64()) for name in ("messages", "repeats", "low", "high")),
        *((name, pa.int64()) for name in ("first_number", "last_number", "first_seq", "last_seq")),
        ("ascending", pa.bool_()),
    ]
)
"""What some facts say of the numbers of a producer in a lane of an address, in the order of the log."""

ODD = pa.schema(
    [
        *((name, pa.int64()) for name in (*GROUP, "messages", "low", "high")),
        ("disordered", pa.bool_()),
        ("doubtful", pa.bool_()),
    ]
)
"""The rows of `producer_order_sql.odd_numbers`: lanes not in order, or in which a number may have been stored twice."""


def runs_of(facts: pa.Table) -> pa.Table:
    """The numbers in some facts, a row for each producer, address and lane."""
    facts = facts.filter(NUMBERED.mask(facts))
    if not len(facts):
        return _RUNS.empty_table()
    producer, queue, seq, number = (numbers_in(facts, name, 0) for name in ("producer", "queue", "seq", "number"))
    lane = seq >> LANE_SHIFT
    order = _grouped(producer, queue, lane)
    producer, queue, lane, seq, number = (column[order] for column in (producer, queue, lane, seq, number))
    same = _same(producer, queue, lane)
    step = number[1:] - number[:-1]
    repeated = same & (step == 0)
    falling = same & ((step < 0) | (seq[1:] <= seq[:-1]))
    first = np.flatnonzero(np.concatenate(([True], ~same)))
    last = np.concatenate((first[1:], [len(number)])) - 1
    return pa.table(
        {
            "producer": producer[first],
            "queue": queue[first],
            "lane": lane[first],
            "messages": last - first + 1,
            "repeats": _summed(repeated, first),
            "low": np.minimum.reduceat(number, first),
            "high": np.maximum.reduceat(number, first),
            "first_number": number[first],
            "last_number": number[last],
            "first_seq": seq[first],
            "last_seq": seq[last],
            "ascending": _summed(falling, first) == 0,
        },
        _RUNS,
    )


def _grouped(producer: Ints, queue: Ints, lane: Ints) -> Ints:
    """The order by producer, queue and lane; within them as it was."""
    bits = [int(column.max()).bit_length() for column in (producer, queue, lane)]
    if sum(bits) < 64 and min(producer.min(), queue.min(), lane.min()) >= 0:
        # One number is sorted several times as fast as three, and mostly is in order already.
        return np.argsort((producer << bits[1] | queue) << bits[2] | lane, kind="stable")
    return np.lexsort((lane, queue, producer))


def _same(*columns: Ints) -> Mask:
    """Which rows are of the same group as the row before them, from the second on."""
    same: Mask = np.logical_and.reduce([column[1:] == column[:-1] for column in columns])
    return same


def _summed(steps: Mask, first: Ints) -> Ints:
    """For each group, how many of its steps are true: a step leads to the row after its own number."""
    return np.add.reduceat(np.concatenate(([0], steps.astype(np.int64))), first)


def odd_numbers_of(runs: pa.Table, schedules: Sequence[int]) -> pa.Table:
    """See `producer_order_sql.odd_numbers`: of runs in the order of the log.

    Args:
        schedules: the queues whose places are due times.
    """
    if not len(runs):
        return ODD.empty_table()
    producer, queue, lane = (numbers_in(runs, name, 0) for name in GROUP)
    order = np.lexsort((lane, queue, producer))
    columns = {name: np.asarray(runs.column(name))[order] for name in runs.column_names}
    same = _same(*(columns[name] for name in GROUP))
    rising = (columns["first_number"][1:] >= columns["last_number"][:-1]) & (
        columns["first_seq"][1:] > columns["last_seq"][:-1]
    )
    repeated = same & (columns["first_number"][1:] == columns["last_number"][:-1])
    first = np.flatnonzero(np.concatenate(([True], ~same)))
    ascending = (_summed(same & ~rising, first) == 0) & np.logical_and.reduceat(columns["ascending"], first)
    found = {name: columns[name][first] for name in GROUP}
    found["messages"] = np.add.reduceat(columns["messages"], first)
    found["low"] = np.minimum.reduceat(columns["low"], first)
    found["high"] = np.maximum.reduceat(columns["high"], first)
    repeats = np.add.reduceat(columns["repeats"], first) + _summed(repeated, first)
    disordered = ~ascending & ~np.isin(found["queue"], schedules)
    doubtful = ~ascending | (repeats > 0) | _shared(found["producer"], found["low"], found["high"])
    table = pa.table(found | {"disordered": disordered, "doubtful": doubtful}, ODD)
    return table.filter(pa.array(disordered | doubtful))


def _shared(producer: Ints, low: Ints, high: Ints) -> Mask:
    """Which ranges have numbers in common with other ranges of their producer."""
    order = np.lexsort((low, producer))
    shared = np.zeros(len(order), bool)
    begins = np.flatnonzero(np.concatenate(([True], producer[order][1:] != producer[order][:-1])))
    for begin, end in zip(begins.tolist(), [*begins[1:].tolist(), len(order)], strict=True):
        if end - begin > 1:
            rows = order[begin:end]
            before = np.maximum.accumulate(high[rows])[:-1]
            meets = low[rows][1:] <= before
            shared[rows[1:]] |= meets
            # Whom the first one meets has numbers in common with it too.
            after = np.minimum.accumulate(low[rows][::-1])[::-1][1:]
            shared[rows[:-1]] |= after <= high[rows][:-1]
    return shared


def registrations_of(facts: pa.Table) -> pa.Table:
    """The names of producers in some facts, and the numbers that they were given."""
    return (
        facts.filter(REGISTERED.mask(facts)).select(["producer", "name"]).group_by(["producer", "name"]).aggregate([])
    )


def registered_anew_of(registrations: pa.Table) -> pa.Table:
    """See `producer_order_sql.registered_anew`."""
    registrations = registrations.group_by(["producer", "name"]).aggregate([])
    times = registrations.group_by("name").aggregate([("producer", "count")])
    several = times.filter(pc.greater(times.column("producer_count"), 1)).column("name")
    return registrations.filter(pc.is_in(registrations.column("name"), several.combine_chunks()))

"""Intervals of DuckDB in an answer, as durations: what is between two times, in microseconds.

DuckDB's type is months, days and nanoseconds side by side. Python has no value of that kind, nor have Parquet and
pandas.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

DURATION = pa.duration("us")
_INTERVAL = pa.month_day_nano_interval()
_PARTS = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_DAYS_OF_A_MONTH = 30
"""As DuckDB has it, when it compares intervals."""
_DAY_US = 86_400_000_000


def schema_with_durations(schema: pa.Schema) -> pa.Schema:
    """The columns, of which those with intervals are to have durations."""
    return pa.schema([field.with_type(DURATION) if field.type == _INTERVAL else field for field in schema])


def with_durations(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with durations instead of intervals."""
    columns = [_durations(column) if column.type == _INTERVAL else column for column in batch.columns]
    return pa.RecordBatch.from_arrays(columns, schema=schema_with_durations(batch.schema))


def _durations(intervals: pa.Array) -> pa.Array:
    if not len(intervals):
        return pa.array([], DURATION)
    parts = np.frombuffer(intervals.buffers()[1], _PARTS)[intervals.offset : intervals.offset + len(intervals)]
    days = parts["months"].astype(np.int64) * _DAYS_OF_A_MONTH + parts["days"]
    lengths_us = days * _DAY_US + parts["nanoseconds"] // 1000
    is_missing = np.array(intervals.is_null(), bool)
    return pa.array(lengths_us, DURATION, mask=is_missing)

"""Rows for the sink: what a column may say, and what a row that cannot be a message is told."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StringType, StructField, StructType

from legato.errors import ConfigError, MessageFormatError
from legato.spark.connector.options import SinkOptions
from legato.spark.connector.shaping import check_columns, shaped_rows

TO_ORDERS = SinkOptions(url="amqp://127.0.0.1", queue="orders")
EMPTY = pa.RecordBatch.from_pydict({"body": pa.array([], pa.string()), "time_to_live_ms": pa.array([], pa.int32())})


def shaped(**columns: pa.Array) -> list[pa.RecordBatch]:
    """Rows of the task 3, behind two batches: one with two rows, one without any."""
    rows = pa.RecordBatch.from_pydict({"body": pa.array(["x"] * len(next(iter(columns.values())))), **columns})
    return list(shaped_rows([pa.RecordBatch.from_pydict({"body": ["1", "2"]}), EMPTY, rows], TO_ORDERS, 3))


@pytest.mark.parametrize("name", ["time_to_live_ms", "delivery_delay_ms"])
@pytest.mark.parametrize("wrong", [-1, 2**63 - 1, 10**14 + 1])
def test_a_time_that_is_none_is_told_with_its_row(name: str, wrong: int) -> None:
    """A negative time to live was for ever, and Java's largest number had expired when the message was stored."""
    with pytest.raises(MessageFormatError, match=rf"^Row 5 of partition 3 .* its column {name}: {wrong} is no time"):
        shaped(**{name: pa.array([0, None, wrong, -2], pa.int64())})


@pytest.mark.parametrize(("kind", "longest"), [(pa.int8(), 127), (pa.int32(), 2**31 - 1), (pa.int64(), 10**14)])
def test_times_of_each_width_are_sent_on(kind: pa.DataType, longest: int) -> None:
    times = pa.array([0, None, longest], kind)
    assert shaped(time_to_live_ms=times, delivery_delay_ms=times)[-1].column("time_to_live_ms").equals(times)


@pytest.mark.parametrize("wrong", ["FOO", "persistent", "2", ""])
def test_another_delivery_mode_is_told_with_its_row(wrong: str) -> None:
    """It was taken for PERSISTENT."""
    with pytest.raises(MessageFormatError, match=rf"^Row 5 .* delivery_mode: '{wrong}' is neither PERSISTENT nor NON_"):
        shaped(delivery_mode=pa.array(["NON_PERSISTENT", None, wrong]))


def test_a_column_of_another_type_or_case_is_told_in_words_of_sql() -> None:
    fields = [StructField("body", StringType()), StructField("priority", StringType())]
    with pytest.raises(ConfigError, match=r"priority is string; it is to be a whole number \(int, bigint\)"):
        check_columns(StructType(fields), TO_ORDERS)
    with pytest.raises(ConfigError, match="no column body: a string, or binary; rename Body"):
        check_columns(StructType([StructField("Body", LongType())]), TO_ORDERS)

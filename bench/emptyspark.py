"""A Spark source whose rows cost nothing, and a sink that drops them: the limit that Spark itself sets."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from legato.spark.connector.options import SourceOptions
from legato.spark.connector.rows import ddl, fields
from legato.spark.connector.stream import ROWS_OF_A_PARTITION

_OPTIONS = SourceOptions(url="", include_properties=False)
PARTITIONS = 8


def rows(count: int, size: int) -> pa.RecordBatch:
    """Rows of the columns that the source of Legato has, with bodies of so many bytes."""
    columns = []
    for name, kind in fields(_OPTIONS).items():
        if name == "body":
            values = pa.array([b"x" * size] * count, kind)
        elif name in ("message_id", "destination", "delivery_mode"):
            values = pa.array([name * 3] * count, kind)
        elif name in ("seq", "timestamp"):
            values = pa.array(range(count), pa.int64()).cast(kind)
        else:
            values = pa.nulls(count, kind)
        columns.append(values)
    return pa.RecordBatch.from_arrays(columns, names=list(fields(_OPTIONS)))


class Empty(DataSource):
    """Options: `count` rows of `size` bytes, `rows` in a batch; of a stream also `limit` for a micro-batch."""

    @classmethod
    def name(cls) -> str:
        return "empty"

    def schema(self) -> str:
        return ddl(_OPTIONS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return EmptyReader(int(self.options["count"]), int(self.options["size"]), int(self.options["rows"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        numbers = (int(self.options[name]) for name in ("count", "size", "rows", "limit"))
        return EmptyStream(*numbers)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return EmptyWriter()


def batches(count: int, size: int, in_a_batch: int) -> Iterator[pa.RecordBatch]:
    """Some rows again and again, `count` in all."""
    batch = rows(min(in_a_batch, count), size) if count else None
    while batch is not None and count > 0:
        yield batch.slice(0, min(count, batch.num_rows))
        count -= batch.num_rows


class EmptyReader(DataSourceReader):
    """Partitions that are alike."""

    def __init__(self, count: int, size: int, in_a_batch: int) -> None:
        self._shape = (count, size, in_a_batch)

    def partitions(self) -> list[InputPartition]:
        share, rest = divmod(self._shape[0], PARTITIONS)
        return [InputPartition(share + (number < rest)) for number in range(PARTITIONS)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition.value, *self._shape[1:])


class EmptyStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """So many rows a micro-batch until the count is reached."""

    def __init__(self, count: int, size: int, in_a_batch: int, limit: int) -> None:
        self._shape = (count, size, in_a_batch)
        self._limit = limit

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._limit)

    def initialOffset(self) -> dict[str, int]:
        return {"rows": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        return {"rows": min(start["rows"] + self._limit, self._shape[0])}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        count = end["rows"] - start["rows"]
        parts = max(-(-count // ROWS_OF_A_PARTITION), 1)
        return [InputPartition(count // parts + (number < count % parts)) for number in range(parts)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return batches(partition.value, *self._shape[1:])

    def commit(self, end: dict[str, int]) -> None:
        pass


class EmptyWriter(DataSourceArrowWriter):
    """Takes everything, keeps nothing."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

"""Parquet files as a table of DuckDB, read by Arrow: DuckDB's own reader looks at no checksums of pages.

What a disk has changed then ends a query instead of changing its answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection


_UNIT = "us"
"""Of Spark's times, which Arrow would read as nanoseconds, and DuckDB take for a type of its own."""

_FORMAT = ds.ParquetFileFormat(
    read_options=ds.ParquetReadOptions(coerce_int96_timestamp_unit=_UNIT),
    default_fragment_scan_options=ds.ParquetFragmentScanOptions(page_checksum_verification=True),
)


class FilesRead:
    """Tables of one database that are read from files.

    Args:
        database: DuckDB's.
    """

    def __init__(self, database: DuckDBPyConnection) -> None:
        self._database = database
        self._count = 0

    def add(
        self,
        files: Sequence[Path],
        schema: pa.Schema | None = None,
        *,
        parts: pa.Schema | None = None,
        within: Path | None = None,
        held: bool = False,
    ) -> str:
        """The name, in quotes, of a table with the rows of some files.

        Args:
            files: at least one.
            schema: the columns; a file that lacks one has nulls in it. None: those of all files.
            parts: further columns, whose values are in the names of the directories, as Hive writes them.
            within: the directory that has those directories: what its own path says is no column.
            held: others may replace or remove the files meanwhile: they are opened now, and not again. By its name
                Arrow would open another file, and read it by the footer of the one before. No further columns then.

        Raises:
            pa.ArrowException, OSError: a file is none of Parquet's, or the columns of two do not agree.
        """
        if held:
            opened = [pa.OSFile(str(file)) for file in files]
            schemas = [schema] if schema else [_schema_of(file) for file in opened]
            columns = _plain(pa.unify_schemas(schemas, promote_options="permissive"))
            dataset = ds.FileSystemDataset([_FORMAT.make_fragment(file) for file in opened], columns, _FORMAT)
        else:
            schemas = [schema] if schema else [_schema_of(file) for file in files]
            columns = _plain(pa.unify_schemas(schemas, promote_options="permissive"))
            dataset = ds.dataset(
                [str(file) for file in files],
                schema=pa.schema([*columns, *(parts or ())]),
                format=_FORMAT,
                partitioning=None if parts is None else ds.partitioning(parts, flavor="hive"),
                partition_base_dir=None if within is None else str(within),
            )
        self._count += 1
        name = f"files {self._count}"
        self._database.register(name, dataset)
        return f'"{name}"'


def _schema_of(file: Path | pa.OSFile) -> pa.Schema:
    with pq.ParquetFile(file, coerce_int96_timestamp_unit=_UNIT) as opened:
        return opened.schema_arrow


def _plain(schema: pa.Schema) -> pa.Schema:
    """Without dictionaries, of which DuckDB would make types of their own."""
    return pa.schema(
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema
    )

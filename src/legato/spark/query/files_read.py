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
    ) -> str:
        """The name, in quotes, of a table with the rows of some files.

        Args:
            files: at least one.
            schema: the columns; a file that lacks one has nulls in it. None: those of all files.
            parts: further columns, whose values are in the names of the directories, as Hive writes them.
            within: the directory that has those directories: what its own path says is no column.

        Raises:
            pa.ArrowException, OSError: a file is none of Parquet's, or the columns of two do not agree.
        """
        options = ds.ParquetFragmentScanOptions(page_checksum_verification=True)
        columns = schema or pa.unify_schemas([pq.read_schema(file) for file in files], promote_options="permissive")
        dataset = ds.dataset(
            [str(file) for file in files],
            schema=pa.schema([*_plain(columns), *(parts or ())]),
            format=ds.ParquetFileFormat(default_fragment_scan_options=options),
            partitioning=None if parts is None else ds.partitioning(parts, flavor="hive"),
            partition_base_dir=None if within is None else str(within),
        )
        self._count += 1
        name = f"files {self._count}"
        self._database.register(name, dataset)
        return f'"{name}"'


def _plain(schema: pa.Schema) -> pa.Schema:
    """Without dictionaries, of which DuckDB would make types of their own."""
    return pa.schema(
        field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field for field in schema
    )

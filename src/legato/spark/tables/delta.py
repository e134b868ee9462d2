"""Delta format of silver and gold: Spark writes files, and one transaction adds them to the table's log.

`deltalake` needs no Java and sees no row of silver: what is committed are names of files. The transaction carries the
number of the portion (Delta's own `txn` action), so that a portion that is done again is not committed again.
"""

import importlib.util
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from legato.errors import ConfigError

if TYPE_CHECKING:
    from deltalake import DeltaTable

APPLICATION = "legato-ledger"
"""Whose transactions these are, in a table's log."""


def require_delta() -> None:
    """Make sure that Delta tables can be written.

    Raises:
        ConfigError: `deltalake` is not installed.
    """
    if importlib.util.find_spec("deltalake") is None:
        raise ConfigError("Delta tables need deltalake (pip install 'legato[delta]')")


def is_delta(table: Path) -> bool:
    """Whether the directory is that of a Delta table."""
    return (table / "_delta_log").is_dir()


def committed(table: Path) -> int:
    """The number of the last portion that the table's log has, -1 if none."""
    from deltalake import DeltaTable

    version = DeltaTable(table).transaction_version(APPLICATION) if is_delta(table) else None
    return -1 if version is None else version


def commit_files(table: Path, batch: int, files: Iterable[Path], partitions: Mapping[str, pa.DataType]) -> None:
    """Let a table hold exactly these Parquet files, as of a portion; nothing happens if that is committed already.

    Args:
        table: its directory.
        batch: the portion's number.
        files: below `table`, in directories `NAME=VALUE` of the partitions.
        partitions: the columns that are in the names of directories, and their types.
    """
    from deltalake import CommitProperties, Transaction
    from deltalake.transaction import AddAction, RemoveAction

    wanted = {str(file.relative_to(table)): file for file in files}
    if committed(table) >= batch or not wanted:
        return
    delta = _opened(table, next(iter(wanted.values())), partitions)
    root = f"{Path(delta.table_uri.removeprefix('file://'))}/"
    present = {uri.removeprefix("file://").removeprefix(root) for uri in delta.file_uris()}
    now_ms = time.time_ns() // 1_000_000
    added = [
        AddAction(name, wanted[name].stat().st_size, _values(name, partitions), now_ms, True, _rows(wanted[name]))
        for name in sorted(wanted.keys() - present)
    ]
    removed = [RemoveAction(name, True, now_ms) for name in sorted(present - wanted.keys())]
    delta.create_write_transaction(
        [*added, *removed],
        "append",
        delta.schema(),
        list(partitions),
        commit_properties=CommitProperties(app_transactions=[Transaction(APPLICATION, batch)]),
    )


def replace(table: Path, batch: int, rows: pa.Table) -> None:
    """Let a table hold these rows, as of a portion."""
    from deltalake import CommitProperties, Transaction, write_deltalake

    properties = CommitProperties(app_transactions=[Transaction(APPLICATION, batch)])
    write_deltalake(table, rows, mode="overwrite", schema_mode="overwrite", commit_properties=properties)


def read(table: Path) -> pa.Table:
    """The rows of a small table."""
    from deltalake import DeltaTable

    return DeltaTable(table).to_pyarrow_table()


def _opened(table: Path, file: Path, partitions: Mapping[str, pa.DataType]) -> "DeltaTable":
    from deltalake import DeltaTable

    if is_delta(table):
        return DeltaTable(table)
    columns = [pa.field(field.name, field.type) for field in pq.read_schema(file)]
    columns += [pa.field(name, kind) for name, kind in partitions.items()]
    return DeltaTable.create(table, pa.schema(columns), partition_by=list(partitions))


def _values(name: str, partitions: Mapping[str, pa.DataType]) -> dict[str, str | None]:
    said = dict(part.split("=", 1) for part in Path(name).parts if "=" in part)
    return {column: said[column] for column in partitions}


def _rows(file: Path) -> str:
    """What is said of a file besides its name: how many rows it holds."""
    return f'{{"numRecords": {pq.read_metadata(file).num_rows}}}'

"""Gold tables on disk: written anew for each portion, read by name, as Parquet or Delta."""

import os
import shutil
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from legato.errors import ConfigError
from legato.spark.tables import delta, flow_tables
from legato.spark.tables.gold import VIEWS
from legato.spark.tables.united import groups_in, united

_NEW = "_gold"
"""Directory of tables that are being written, beside `gold`."""
_FILE, _DONE = "part-00000.parquet", "_SUCCESS"
"""The only file of a table, and Spark's sign that it is whole."""


def write_gold(table: DataFrame, path: Path, batch: int, *, as_delta: bool) -> None:
    """Write a table of gold in place of what it was.

    Args:
        batch: the number of the last portion that is in it.
        as_delta: as a Delta table, in one commit; else as Parquet.
    """
    if as_delta:
        delta.replace(path, batch, table.toArrow())
    else:
        # Spark would remove the table first, and who asks for it meanwhile, or after a crash, would find none.
        new = path.parent.parent / _NEW / path.name
        table.coalesce(1).write.mode("overwrite").parquet(str(new))
        _put_in_place(new, path)


def _put_in_place(new: Path, path: Path) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for former in {*path.iterdir()} - {path / _FILE, path / _DONE}:
        # Of former versions, which left the names to Spark.
        if former.is_dir():
            shutil.rmtree(former)
        else:
            former.unlink()
    for written in new.glob("*.parquet"):
        os.replace(written, path / _FILE)
    (path / _DONE).touch()
    shutil.rmtree(new)


def read_table(spark: SparkSession, tables: Path, name: str) -> DataFrame:
    """A table of gold as of the last portion, in whatever format it is: see `legato ledger sql` for its columns.

    Tables of several groups are read as one, with the column `broker_group`.

    Args:
        spark: a session.
        tables: directory of the tables, as `legato ledger run` and `LedgerTables` write it.
        name: `audit`, `latencies`, `failovers`, `causes`, `queue_names`, `actions`, `duplicates`,
            `transactions` or `flows`.

    Raises:
        ConfigError: there is none of that name, or no tables.
    """
    names = [*(step.name for step in VIEWS), flow_tables.NAME]
    if name not in names:
        raise ConfigError(f"no table {name}: there are {', '.join(names)}")
    if groups := groups_in(tables):
        made = {group: path for group, path in groups.items() if (path / "gold" / name).is_dir()}
        return united({group: read_table(spark, path, name) for group, path in made.items()})
    path = tables / "gold" / name
    if not path.is_dir():
        raise ConfigError(f"no tables in {tables}: `legato ledger run` makes them")
    if delta.is_delta(path):
        delta.require_delta()
        return spark.createDataFrame(delta.read(path))
    return spark.read.parquet(str(path))

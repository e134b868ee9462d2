"""Views over the tables that `legato ledger run` keeps, as DuckDB's SQL: silver with names and types, and gold.

On disk silver has numbers only, and whether a message is open is in the name of a directory. The table that people ask
has the names of queues, times as timestamps, a boolean, and only the rows that are current.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from legato.errors import ConfigError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LAST_PART = "settled"
"""The step that is written last of a portion: one without it was cut short, and is made again."""

SILVER, BRONZE, GOLD = "silver", "bronze", "gold"
_SILVER_SENTENCE = "each message, once for each queue and subscription, by the names of its queue; open: it waits"


class MadeTable(NamedTuple):
    """A table that can be asked, and a sentence on what it holds."""

    name: str
    sentence: str


def is_made(place: Path) -> bool:
    """Whether a directory has tables, and not segments of a ledger."""
    return (place / SILVER).is_dir() and (place / GOLD).is_dir()


def bronze_of(tables: Path) -> list[Path]:
    """The files with the facts, if they were kept."""
    return sorted((tables / BRONZE).glob("**/*.parquet"))


def add_made_tables(database: DuckDBPyConnection, tables: Path) -> list[MadeTable]:
    """Make the views; returns what there is.

    Raises:
        ConfigError: no portion is whole yet, or the tables are in a format that DuckDB cannot read.
    """
    for each in (tables / SILVER, *(tables / GOLD).glob("*")):
        if (each / "_delta_log").is_dir():
            raise ConfigError(
                f"{each} is a Delta table: read it with DuckDB's delta_scan, or with Spark; or ask the ledger itself."
            )
    last = _last_batch(tables)
    database.execute(f"create schema if not exists {GOLD}")
    found = [MadeTable(SILVER, _SILVER_SENTENCE)]
    for path in sorted((tables / GOLD).iterdir()):
        if any(path.glob("*.parquet")):
            name = path.name.replace('"', '""')
            database.execute(f'create view {GOLD}."{name}" as from read_parquet({_literal(path / "*.parquet")})')
            found.append(MadeTable(f"{GOLD}.{path.name}", "as `legato ledger sql` explains it"))
    database.execute(f"create view {SILVER} as {_silver(tables, last)}")
    return found


def _last_batch(tables: Path) -> int:
    done = (tables / "parts" / LAST_PART).glob("batch=*/_SUCCESS")
    last = max((int(path.parent.name.removeprefix("batch=")) for path in done), default=None)
    if last is None:
        raise ConfigError(f"The tables in {tables} are not made yet: let legato ledger run finish a portion.")
    return last


def _silver(tables: Path, last: int) -> str:
    files = _literal(tables / SILVER / "*" / "*" / "*.parquet")
    read = (
        f"read_parquet({files}, union_by_name = true, hive_partitioning = true, "
        "hive_types = {'batch': integer, 'open': boolean})"
    )
    return f"""
        select n.destination, n.kind, coalesce(n.temporary, false) as temporary, s.* exclude (open, batch), s.open,
               make_timestamp(s.stored_us) as stored_at, make_timestamp(s.delivered_us) as delivered_at,
               make_timestamp(s.left_us) as left_at, s.batch
        from {read} s left join {GOLD}.queue_names n using (queue)
        where s.batch <= {last} and (not s.open or s.batch = {last})"""


def _literal(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"


def described(
    database: DuckDBPyConnection, tables: list[MadeTable]
) -> Iterator[tuple[MadeTable, list[tuple[str, str]]]]:
    """Each table with its columns and their types."""
    for table in tables:
        schema, _, name = table.name.rpartition(".")
        quoted = f'{schema or "main"}."{name}"'
        rows = database.execute(f"describe {quoted}").fetchall()
        yield table, [(str(row[0]), str(row[1]).lower()) for row in rows]

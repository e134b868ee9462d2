"""Views over the tables that `legato ledger run` keeps, as DuckDB's SQL: silver with names and types, and gold.

On disk silver has numbers only, and whether a message is open is in the name of a directory. The table that people ask
has the names of queues, times as timestamps, a boolean, and only the rows that are current.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from legato.errors import ConfigError, StoreCorruptError
from legato.spark.ledger.ledger_groups import GROUP_COLUMN
from legato.spark.query.files_read import FilesRead
from legato.spark.summaries.message_summary import MESSAGE_TYPES

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LAST_PART = "settled"
"""The step that is written last of a portion: one without it was cut short, and is made again."""

SILVER, BRONZE, GOLD = "silver", "bronze", "gold"
NAMES = "queue_names"
"""The table of gold that silver needs: it is among what is written last of a first portion."""
_SILVER_SENTENCE = "each message, once for each queue and subscription, by the names of its queue; open: it waits"


class MadeTable(NamedTuple):
    """A table that can be asked, and a sentence on what it holds."""

    name: str
    sentence: str


def is_made(place: Path) -> bool:
    """Whether a directory has tables, and not segments of a ledger."""
    return (place / SILVER).is_dir()


class MadeFiles(NamedTuple):
    """The files of tables that are whole, as of their last portion."""

    tables: Path
    last: int
    """The number of the last portion."""
    settled: list[Path]
    """Messages of silver that are settled."""
    waiting: list[Path]
    """Those that waited after the last portion. What comes removes these files."""
    gold: dict[str, list[Path]]
    """By table. What comes replaces these files."""
    bronze: list[Path]
    """The facts; none if they were not kept."""

    def lasting(self) -> list[Path]:
        """Those that stay as they are, whatever comes."""
        return [*self.settled, *self.bronze]

    def passing(self) -> list[Path]:
        """Those that are replaced or removed in the course of time."""
        return [*self.waiting, *(file for files in self.gold.values() for file in files)]


def made_files(tables: Path) -> MadeFiles:
    """What there is to read, while `legato ledger run` may write the next portion.

    Raises:
        ConfigError: no portion is whole yet, or the tables are in a format that DuckDB cannot read.
        StoreCorruptError: a portion is missing.
    """
    for each in (tables / SILVER, *(tables / GOLD).glob("*")):
        if (each / "_delta_log").is_dir():
            raise ConfigError(
                f"{each} is a Delta table: read it with DuckDB's delta_scan, or with Spark; or ask the ledger itself."
            )
    whole = _whole(tables)
    last = max(whole, default=-1)
    gone = [number for number in whole if not (tables / SILVER / f"batch={number}").is_dir()]
    if gone:
        raise StoreCorruptError(f"{tables / SILVER / f'batch={gone[0]}'} is missing. Bring it back from a copy.")
    portions = [tables / SILVER / f"batch={number}" for number in _portions(tables / SILVER, last)]
    settled = [file for portion in portions for file in _files(portion / "open=false")]
    waiting = _files(tables / SILVER / f"batch={last}" / "open=true")
    bronze = [
        file for number in _portions(tables / BRONZE, last) for file in _files(tables / BRONZE / f"batch={number}")
    ]
    gold = {path.name: files for path in sorted((tables / GOLD).glob("*")) if (files := _files(path))}
    if last < 0 or NAMES not in gold:
        raise ConfigError(f"The tables in {tables} are not made yet: let legato ledger run finish a portion.")
    return MadeFiles(tables, last, settled, waiting, gold, bronze)


def facts_not_kept(tables: Path) -> str:
    """What to say of tables with some of the facts: a later run kept them, an earlier one did not; else nothing."""
    whole = _whole(tables)
    kept = {*_portions(tables / BRONZE)} & {*whole}
    if not kept or len(kept) == len(whole):
        return ""
    return (
        f"{len(whole) - len(kept)} of the {len(whole)} portions in {tables} have no facts, since legato ledger run was "
        "without --bronze: messages, facts and the like are without them. silver and gold have all."
    )


def _whole(tables: Path) -> list[int]:
    done = tables / "parts" / LAST_PART
    return [number for number in _portions(done) if (done / f"batch={number}" / "_SUCCESS").exists()]


def _portions(table: Path, last: int | None = None) -> list[int]:
    """The numbers of those that a table has, up to the last one that is whole."""
    numbers = (path.name.removeprefix("batch=") for path in table.glob("batch=*"))
    return sorted(int(number) for number in numbers if number.isdigit() and (last is None or int(number) <= last))


def _files(directory: Path) -> list[Path]:
    """What Spark would read there: a file that is being written has another name."""
    return sorted(path for path in directory.glob("*.parquet") if not path.name.startswith((".", "_")))


def add_made_tables(database: DuckDBPyConnection, read: FilesRead, made: Mapping[str, MadeFiles]) -> list[MadeTable]:
    """Make views over the tables of one ledger, whose name is empty, or of several groups; returns what there is.

    Raises:
        pa.ArrowException, OSError, duckdb.Error: a file cannot be read.
    """
    import pyarrow.parquet as pq

    for file in (file for files in made.values() for file in files.bronze):
        pq.read_metadata(file)  # their columns are known: nothing else would look at them before a question
    database.execute(f"create schema if not exists {GOLD}")
    found = [MadeTable(SILVER, _SILVER_SENTENCE)]
    _add_view(database, SILVER, {group: _silver(read, files) for group, files in made.items()})
    for name in sorted({name for files in made.values() for name in files.gold}):
        parts = {
            group: f"from {read.add(files.gold[name], held=True)}"
            for group, files in made.items()
            if name in files.gold
        }
        doubled = name.replace('"', '""')
        _add_view(database, f'{GOLD}."{doubled}"', parts)
        found.append(MadeTable(f"{GOLD}.{name}", "as `legato ledger sql` explains it"))
    return found


def _add_view(database: DuckDBPyConnection, name: str, parts: Mapping[str, str]) -> None:
    named = (
        f"select {_literal(group)} as {GROUP_COLUMN}, * from ({sql})" if group else sql for group, sql in parts.items()
    )
    database.execute(f"create view {name} as {' union all by name '.join(named)}")


def _silver(read: FilesRead, made: MadeFiles) -> str:
    import pyarrow as pa

    columns = ", ".join(f"null::{kind} as {name}" for name, kind in MESSAGE_TYPES.items())
    parts = [f"select {columns}, null::integer as batch, null::boolean as open where false"]
    if made.settled:
        batch = pa.schema({"batch": pa.int32(), "open": pa.string()})
        place = read.add(made.settled, parts=batch, within=made.tables / SILVER)
        parts.append(f"select * replace (open::boolean as open) from {place}")
    if made.waiting:
        parts.append(f"select *, {made.last}::integer as batch, true as open from {read.add(made.waiting, held=True)}")
    rows = " union all by name ".join(parts)
    return f"""
        select n.destination, n.kind, coalesce(n.temporary, false) as temporary, s.* exclude (open, batch), s.open,
               make_timestamp(s.stored_us) as stored_at, make_timestamp(s.delivered_us) as delivered_at,
               make_timestamp(s.left_us) as left_at, s.batch
        from ({rows}) s left join {read.add(made.gold[NAMES], held=True)} n using (queue)"""


def _literal(text: object) -> str:
    return "'" + str(text).replace("'", "''") + "'"


def described(
    database: DuckDBPyConnection, tables: list[MadeTable]
) -> Iterator[tuple[MadeTable, list[tuple[str, str]]]]:
    """Each table with its columns and their types."""
    for table in tables:
        schema, _, name = table.name.rpartition(".")
        quoted = f'{schema or "main"}."{name}"'
        rows = database.execute(f"describe {quoted}").fetchall()
        yield table, [(str(row[0]), str(row[1]).lower()) for row in rows]

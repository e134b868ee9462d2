"""A ledger opened for questions in SQL: DuckDB over the segments that are there now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from legato.errors import ConfigError, StoreCorruptError
from legato.spark.ledger.fact_schema import SCHEMA
from legato.spark.ledger.ledger_groups import GROUP_COLUMN
from legato.spark.ledger.segments import TABLES_ANEW, being_read_if_any, refuse_damaged, segments_of
from legato.spark.query.files_read import FilesRead
from legato.spark.query.made_tables import MadeTable, add_made_tables, described, is_made, made_files
from legato.spark.query.views import FACTS, FACTS_SENTENCE, VIEWS

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection

_MISTAKES_IN_SQL = ("ParserException", "BinderException", "CatalogException", "ConversionException")
"""Errors of DuckDB's that no file can be the cause of."""


class TableDescription(NamedTuple):
    """A table that can be asked: its name, a sentence on what it holds, and its columns with their types."""

    name: str
    sentence: str
    columns: list[tuple[str, str]]


class LedgerQuery:
    """A ledger as tables of DuckDB, as of the moment of opening: segments that come later are not in it.

    Args:
        ledger: directory of the segments; or several, by the names of their groups: all tables then have a first column
            `broker_group`, and a group's own tables are in the schema `group_NAME`. Or a directory of tables that
            `legato ledger run` keeps: `silver`, and gold in the schema `gold`; with its facts, if they were kept, the
            tables of a ledger too. Several of these, by group, have the column `broker_group` likewise.

    Raises:
        ConfigError: there is no ledger in the directory, or DuckDB is not installed, or the tables are Delta tables.
        StoreCorruptError: a file is not whole.
    """

    def __init__(self, ledger: Path | str | Mapping[str, Path]) -> None:
        given = ledger if isinstance(ledger, Mapping) else {"": Path(ledger)}
        # Arrow takes a relative path for a URL if its first directory is called like one: `file:x`, `s3:y`.
        places = {name: place.absolute() for name, place in given.items()}
        _check_groups(places)
        self._made: list[MadeTable] = []
        self._has_facts = True
        self._of_tables = False
        self._passing: list[Path] = []
        """Files that are held, since others are in their place sooner or later, or none."""
        with ExitStack() as stack:
            scratch = stack.enter_context(TemporaryDirectory(prefix="legato-query-"))
            made = {name: made_files(place) for name, place in places.items() if is_made(place)}
            if made and len(made) < len(places):
                other = next(place for name, place in places.items() if name not in made)
                raise ConfigError(f"{next(iter(made.values())).tables} has tables, {other} is a ledger: ask one kind.")
            if made:
                self._of_tables = True
                self._files = [file for each in made.values() for file in each.lasting()]
                self._passing = [file for each in made.values() for file in each.passing()]
                segments = {name: each.bronze for name, each in made.items()}
                self._has_facts = all(segments.values())
            else:
                for each in places.values():
                    stack.enter_context(being_read_if_any(each))
                segments = {name: segments_of(each) for name, each in places.items()}
                self._files = [file for each in segments.values() for file in each]
            self._database: DuckDBPyConnection = _opened(scratch)
            stack.callback(self._database.close)
            with self._damage_named():
                read = FilesRead(self._database)
                self._made = add_made_tables(self._database, read, made) if made else []
                if self._has_facts and isinstance(ledger, Mapping):
                    _add_groups(self._database, read, segments)
                elif self._has_facts:
                    _add_tables(self._database, read, segments[""])
            self._held = stack.pop_all()

    def __enter__(self) -> LedgerQuery:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the files."""
        self._held.close()

    def batches(self, sql: str, rows: int = 10_000) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
        """Ask a question: the columns of its answer, and its rows as they are computed, so many at once.

        Intervals of SQL, such as what is between two times, are durations in microseconds. Of columns with one name the
        second is `NAME_1`, as it would be in a query within another.

        Args:
            sql: one statement, or several, of which the last one is answered.

        Raises:
            ConfigError: the SQL is wrong. The sentence is DuckDB's.
            StoreCorruptError: what cannot be read was changed since it was written.
        """
        import duckdb
        import pyarrow as pa

        from legato.spark.query.durations import schema_with_durations

        try:
            answer: Any = self._database.sql(sql) if sql.strip() else None
            if answer is None:
                return pa.schema([]), iter(())
            reader = answer.to_arrow_reader(rows)
        except duckdb.Error as error:
            self._refuse_damaged(error)
            raise ConfigError(_sentence(error)) from None
        names = _distinct(reader.schema.names)
        kinds = schema_with_durations(reader.schema)
        schema = pa.schema([field.with_name(name) for field, name in zip(kinds, names, strict=True)])
        return schema, self._rows_of(reader, names)

    def _rows_of(self, reader: pa.RecordBatchReader, names: list[str]) -> Iterator[pa.RecordBatch]:
        import duckdb
        import pyarrow as pa

        from legato.spark.query.durations import with_durations

        try:
            yield from (with_durations(batch).rename_columns(names) for batch in reader)
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            self._refuse_damaged(error)
            raise ConfigError(_sentence(error)) from None

    @contextmanager
    def _damage_named(self) -> Iterator[None]:
        import duckdb
        import pyarrow as pa

        try:
            yield
        except (duckdb.Error, pa.ArrowException, OSError, UnicodeDecodeError) as error:
            self._refuse_damaged(error)
            raise StoreCorruptError(f"What is to be asked cannot be read. {' '.join(str(error).split())}") from None

    def _refuse_damaged(self, error: Exception) -> None:
        """If something cannot be answered, see whether that is the question's fault: what DuckDB says names no file.

        Raises:
            StoreCorruptError: a file is not as it was written.
        """
        import duckdb

        if isinstance(error, tuple(getattr(duckdb, name) for name in _MISTAKES_IN_SQL)):
            return
        for file in [*self._files, *(file for file in self._passing if file.exists())]:
            try:
                refuse_damaged([file])
            except StoreCorruptError:
                if not self._of_tables:
                    raise
                raise StoreCorruptError(f"{file} is not as it was written. {TABLES_ANEW}") from None

    def table(self, sql: str) -> pa.Table:
        """The whole answer to a question.

        Raises:
            ConfigError: the SQL is wrong.
        """
        import pyarrow as pa

        schema, batches = self.batches(sql)
        return pa.Table.from_batches(batches, schema)

    def tables(self) -> list[TableDescription]:
        """What there is to ask."""
        said = [MadeTable(FACTS, FACTS_SENTENCE), *(MadeTable(view.name, view.sentence) for view in VIEWS)]
        wanted = [*self._made, *(said if self._has_facts else ())]
        return [
            TableDescription(table.name, table.sentence, columns)
            for table, columns in described(self._database, wanted)
        ]


def _opened(scratch: str) -> DuckDBPyConnection:
    try:
        import duckdb
    except ModuleNotFoundError:
        raise ConfigError("Queries need DuckDB: pip install 'legato[query]'.") from None

    database = duckdb.connect(":memory:")
    database.execute(f"set temp_directory = '{_quoted(scratch)}'")
    database.execute("set timezone = 'UTC'")
    with suppress(duckdb.InvalidInputException):
        # In a notebook without ipywidgets there is none to be switched off.
        database.execute("set enable_progress_bar = false")
    return database


def _add_tables(database: DuckDBPyConnection, read: FilesRead, segments: list[Path]) -> None:
    # Segments of former versions lack columns, and so may all of a ledger.
    rows = read.add(segments, SCHEMA)
    database.execute(f"create view {FACTS} as select *, make_timestamp(time_us) as happened_at from {rows}")
    for view in VIEWS:
        database.execute(f"create view {view.name} as {view.sql}")


def _add_groups(database: DuckDBPyConnection, read: FilesRead, segments: Mapping[str, list[Path]]) -> None:
    """The tables of each group in a schema of its own, and of all of them together."""
    for name, files in segments.items():
        database.execute(f"create schema if not exists {_of_schema(name)}")
        database.execute(f"use {_of_schema(name)}")
        _add_tables(database, read, files)
    database.execute("use main")
    for table in (FACTS, *(view.name for view in VIEWS)):
        parts = (f"select '{_quoted(name)}' as {GROUP_COLUMN}, * from {_of_schema(name)}.{table}" for name in segments)
        database.execute(f"create view {table} as {' union all '.join(parts)}")


def _distinct(names: list[str]) -> list[str]:
    """Names of columns of which no two are the same: in an object, a file or pandas one would hide the other."""
    found: list[str] = []
    for name in names:
        others = (f"{name}_{number}" for number in count(1))
        found.append(next(each for each in others if each not in {*found, *names}) if name in found else name)
    return found


def _check_groups(places: Mapping[str, Path]) -> None:
    if not places:
        raise ConfigError("There is no ledger to ask.")
    names: dict[str, str] = {}
    for name in places:
        if (other := names.setdefault(name.casefold(), name)) != name:
            raise ConfigError(
                f"The groups {other!r} and {name!r} differ in capital letters only, which SQL does not tell apart: "
                "call one of them otherwise, NAME=DIRECTORY."
            )


def _of_schema(name: str) -> str:
    doubled = name.replace('"', '""')
    return f'"group_{doubled}"'


def _quoted(path: object) -> str:
    return str(path).replace("'", "''")


def _sentence(error: Exception) -> str:
    """What DuckDB says, on one line; where it is in the query follows it there in a drawing."""
    told, line, drawn = str(error).partition("\n\nLINE ")
    sentence = " ".join(told.split())
    if line:
        sentence += f" (at line {' '.join(drawn.split(chr(10))[0].split())})"
    return f"The query cannot be answered. {sentence} Tables and columns: legato ledger query --tables."

"""Answers of `legato ledger query`: as a table, JSON lines, CSV or Parquet, to a terminal or into a file."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import chain, islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from legato.cli.output import beside, naming, replaceable, say, say_json
from legato.errors import ConfigError
from legato.quoting import one_line
from legato.terminal import Terminal, add_row

if TYPE_CHECKING:
    import pyarrow as pa

    from legato.spark.query.ledger_query import TableDescription

_FORMATS = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".csv": "csv", ".parquet": "parquet", ".txt": "table"}
"""What the name of an output file says."""
_WIDE = 10_000
"""Columns of a file or pipe, where no line is folded."""


def write_answer(
    schema: pa.Schema, batches: Iterator[pa.RecordBatch], wanted: str | None, output: Path | None, rows_max: int
) -> None:
    """Write an answer.

    Args:
        wanted: the format; None for what the name of the file says.
        output: where to; None for standard output.
        rows_max: of a table; 0 for all.

    Raises:
        ConfigError: Parquet has no file, or the file cannot be written.
    """
    form = wanted or (_format_of(output) if output is not None else "table")
    if form == "parquet":
        if output is None:
            raise ConfigError("Parquet needs a file: add --output FILE.parquet.")
        _write_parquet(schema, batches, output)
    elif output is None:
        _print(form, schema, batches, rows_max)
    else:
        with _replacing(output) as temporary, temporary.open("x", newline="", encoding="utf-8") as file:
            if form == "table":
                _table(schema, batches, 0, Terminal(file=file, width=_WIDE))
            else:
                _write_lines(form, schema, batches, file)
    if output is not None:
        say(f"wrote {output}", err=True)


def _format_of(output: Path) -> str:
    """What the name of a file says.

    Raises:
        ConfigError: it says nothing that can be written.
    """
    form = _FORMATS.get(output.suffix.lower())
    if form is None:
        raise ConfigError(
            f"{output.name} does not say its format: name it .parquet, .csv, .json or .txt, or add --format."
        )
    return form


def say_tables(tables: Iterable[TableDescription], *, as_json: bool) -> None:
    """Print what there is to ask: each table with a sentence, and its columns."""
    if as_json:
        say_json([{"name": name, "sentence": sentence, "columns": dict(columns)} for name, sentence, columns in tables])
        return
    console = Terminal()
    for name, sentence, columns in tables:
        console.print(Text.assemble((name, "bold"), f": {sentence}"))
        console.print(Text(", ".join(f"{column} {kind}" for column, kind in columns), style="dim"))
        console.print()


def _print(form: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch], rows_max: int) -> None:
    if form == "table":
        console = Terminal() if sys.stdout.isatty() else Terminal(width=_WIDE)
        _table(schema, batches, rows_max, console)
    elif form == "csv" and sys.stdout.isatty():
        for line in _csv_lines(schema, batches):
            say(line.removesuffix("\n"))
    else:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="strict")  # What another program reads is exact.
        try:
            _write_lines(form, schema, batches, sys.stdout)
        except UnicodeEncodeError as error:
            raise ConfigError(
                f"There is no {error.object[error.start]!a} in {error.encoding}: set PYTHONIOENCODING=utf-8, or write "
                "a file with --output, which is in UTF-8."
            ) from None


def _write_lines(form: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch], file: IO[str]) -> None:
    if form == "csv":
        file.writelines(_csv_lines(schema, batches))
        return
    for row in _rows(batches):
        names = dict(zip(schema.names, row, strict=True))
        file.write(_json_line(names) + "\n")


def _json_line(row: dict[str, Any]) -> str:
    try:
        return json.dumps(row, default=_plain, allow_nan=False)
    except ValueError:
        # JSON has no number for what is none, such as the mean of nothing or a division by 0.
        return json.dumps(_finite(row), default=_plain)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    return value


def _csv_lines(schema: pa.Schema, batches: Iterator[pa.RecordBatch]) -> Iterator[str]:
    """Lines as RFC 4180 has them, but for their ends: `\\n`."""
    line = io.StringIO(newline="")
    writer = csv.writer(line, lineterminator="\n")
    for cells in chain([schema.names] if schema.names else [], _rows(batches)):
        writer.writerow(["" if cell is None else _shown(cell) for cell in cells])
        yield line.getvalue()
        line.seek(0)
        line.truncate()


def _table(schema: pa.Schema, batches: Iterator[pa.RecordBatch], rows_max: int, console: Terminal) -> None:
    if not schema.names:
        return
    import pyarrow as pa

    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
    for field in schema:
        is_number = (
            pa.types.is_integer(field.type) or pa.types.is_floating(field.type) or pa.types.is_decimal(field.type)
        )
        table.add_column(Text(one_line(field.name)), justify="right" if is_number else "left", overflow="fold")
    rows = _rows(batches)
    shown = list(islice(rows, rows_max)) if rows_max else list(rows)
    for row in shown:
        add_row(table, *("" if cell is None else one_line(_shown(cell)) for cell in row))
    console.print(table)
    if rows_max and next(rows, None) is not None:
        say(f"There are more rows: --rows 0 shows all, {len(shown):,} are shown.", err=True)


def _rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[Any, ...]]:
    for batch in batches:
        columns = [column.to_pylist() for column in batch.columns]
        yield from zip(*columns, strict=True)


def _shown(value: Any) -> str:
    """A value as text."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:.10g}"
    return value if isinstance(value, str) else str(_plain(value))


def _plain(value: Any) -> Any:
    """What JSON has no form for: times in ISO 8601, bytes in hexadecimal digits."""
    if isinstance(value, datetime):
        at = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        return at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(name): _plain(item) for name, item in value.items()}
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def _write_parquet(schema: pa.Schema, batches: Iterator[pa.RecordBatch], output: Path) -> None:
    import pyarrow.parquet as pq

    with _replacing(output) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as writer:
        for batch in batches:
            writer.write_batch(batch)


@contextmanager
def _replacing(output: Path) -> Iterator[Path]:
    """The name of a file to write, which gets its own name when all of it is written.

    Raises:
        ConfigError: no file can be written there.
    """
    output = replaceable(output)
    if not output.parent.is_dir():
        raise ConfigError(f"There is no directory {output.parent} to write {output.name} into.")
    temporary = beside(output)
    try:
        with naming(output, temporary):
            yield temporary
            os.replace(temporary, output)
    finally:
        temporary.unlink(missing_ok=True)

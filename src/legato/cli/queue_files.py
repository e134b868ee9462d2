"""Files of exported messages: Arrow IPC, or JSON lines.

A large body of bytes is divided: its message says how many `parts` follow it, and each is a row or line of its own. So
neither side holds it in memory.
"""

from __future__ import annotations

import base64
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, Any, BinaryIO, Protocol

from legato.cli.output import beside, naming, replaceable
from legato.client import BytesMessage, Message
from legato.client.messages.portable import as_plain, from_plain
from legato.errors import ConfigError, MessageFormatError

PART_BYTES = 1 << 20
"""Of a part; a body of no more than that is whole."""

FORMATS = {
    ".arrow": "arrow",
    ".ipc": "arrow",
    ".feather": "arrow",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
}
"""What the name of a file says."""

_BATCH_ROWS, _BATCH_BYTES = 1_000, 8 << 20


class Writer(Protocol):
    """Where exported messages go."""

    def write(self, message: Message) -> None:
        """Write a message."""


def format_of(path: Path, wanted: str | None) -> str:
    """The format of a file.

    Raises:
        ConfigError: neither its name nor the command says it.
    """
    found = wanted or FORMATS.get(path.suffix.lower())
    if found is None:
        raise ConfigError(f"{path.name} does not say its format: name it .arrow or .jsonl, or add --format.")
    return found


@contextmanager
def writing(path: Path, form: str) -> Iterator[Writer]:
    """Write a file, which gets its name when all of it is written and on disk."""
    target = replaceable(path)
    if not target.parent.is_dir():
        raise ConfigError(f"There is no directory {path.parent} to write {path.name} into.")
    temporary = beside(target)
    try:
        opened = temporary.open("xb")
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}.") from None
    try:
        with naming(path, temporary), opened as file:
            writer = _ArrowWriter(file) if form == "arrow" else _JsonWriter(file)
            yield writer
            writer.finish()
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


def reading(path: Path, form: str) -> Iterator[ReadMessage]:
    """The messages of a file, in order.

    Raises:
        ConfigError: it is not such a file, or says something that no message has. The sentence says where.
    """
    try:
        yield from _assembled(_arrow_rows(path) if form == "arrow" else _json_rows(path))
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"{path} is not text: {error.reason}. Is it an Arrow file? Then add --format arrow."
        ) from None


class ReadMessage:
    """A message of a file: `message`, the file of its body if it is large, and how many bytes it takes."""

    def __init__(self, message: Message, size: int, body: BinaryIO | None = None) -> None:
        self.message = message
        self.size = size
        self._body = body

    def close(self) -> None:
        """Give up the file of the body, once it is sent."""
        if self._body is not None:
            self._body.close()


class _JsonWriter:
    def __init__(self, file: IO[bytes]) -> None:
        self._file = file

    def write(self, message: Message) -> None:
        parts = _parts(message)
        plain = as_plain(message, body=not parts)
        self._line(plain | {"parts": parts} if parts else plain)
        for part in _read_parts(message, parts):
            self._line({"part": base64.b64encode(part).decode()})

    def _line(self, value: dict[str, Any]) -> None:
        self._file.write(json.dumps(value).encode() + b"\n")

    def finish(self) -> None:
        """Nothing is left to be written."""


class _ArrowWriter:
    def __init__(self, file: IO[bytes]) -> None:
        import pyarrow as pa

        self._schema = _schema()
        self._writer = pa.ipc.new_file(file, self._schema)
        self._rows: list[dict[str, Any]] = []
        self._bytes = 0

    def write(self, message: Message) -> None:
        parts = _parts(message)
        plain = as_plain(message, body=not parts)
        body, correlation_id = plain.pop("body", None), plain.pop("correlation_id", None)
        row: dict[str, Any] = plain | {"parts": parts or None}
        if isinstance(correlation_id, dict):
            row["correlation_bytes"] = message.correlation_id
        else:
            row["correlation_id"] = correlation_id
        if properties := plain.get("properties"):
            row["properties"] = json.dumps(properties)
        if plain["kind"] == "text":
            row["text"] = body
        elif plain["kind"] == "bytes":
            row["body"] = None if parts else message.body
        else:
            row["value"] = json.dumps(body)
        self._add(row)
        for part in _read_parts(message, parts):
            self._add({"kind": "part", "body": part})

    def _add(self, row: dict[str, Any]) -> None:
        self._rows.append(row)
        self._bytes += sum(len(row.get(name) or b"") for name in ("text", "body", "value", "properties"))
        if len(self._rows) >= _BATCH_ROWS or self._bytes >= _BATCH_BYTES:
            self._flush()

    def _flush(self) -> None:
        import pyarrow as pa

        if self._rows:
            self._writer.write_batch(pa.RecordBatch.from_pylist(self._rows, self._schema))
        self._rows, self._bytes = [], 0

    def finish(self) -> None:
        self._flush()
        self._writer.close()


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        {
            "kind": pa.string(),
            "message_id": pa.string(),
            "timestamp": pa.timestamp("ms", "UTC"),
            "correlation_id": pa.string(),
            "correlation_bytes": pa.binary(),
            "type": pa.string(),
            "reply_to": pa.string(),
            "content_type": pa.string(),
            "content_encoding": pa.string(),
            "expiration": pa.timestamp("ms", "UTC"),
            "priority": pa.int8(),
            "persistent": pa.bool_(),
            "properties": pa.string(),
            "text": pa.large_string(),
            "body": pa.large_binary(),
            "value": pa.large_string(),
            "parts": pa.int32(),
        }
    )


def _parts(message: Message) -> int:
    """How many parts the body is divided into; 0 if it is whole."""
    if not isinstance(message, BytesMessage) or message.body_length <= PART_BYTES:
        return 0
    return -(-message.body_length // PART_BYTES)


def _read_parts(message: Message, parts: int) -> Iterator[bytes]:
    if not parts:
        return
    assert isinstance(message, BytesMessage)
    with message.open() as body:
        for _ in range(parts):
            yield body.read(PART_BYTES)


_Row = tuple[str, dict[str, Any], Callable[[], bytes]]
"""Where it is, the object of `as_plain`, and the bytes of a part."""


def _json_rows(path: Path) -> Iterator[_Row]:
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            where = f"line {number} of {path}"
            if not line.strip():
                continue
            try:
                plain = json.loads(line.decode())
            except json.JSONDecodeError as error:
                raise ConfigError(f"{where} is not JSON: {error.msg}, at character {error.pos + 1}.") from None
            if not isinstance(plain, dict):
                raise ConfigError(f'{where} is no object, such as {{"body": "hello"}}.')
            yield where, plain, partial(base64.b64decode, plain.get("part", ""), validate=True)


def _arrow_rows(path: Path) -> Iterator[_Row]:
    import pyarrow as pa

    number = 0
    try:
        with pa.OSFile(str(path)) as source, pa.ipc.open_file(source) as file:
            for index in range(file.num_record_batches):
                for row in file.get_batch(index).to_pylist():
                    number += 1
                    yield f"row {number} of {path}", _plain_row(row), partial(row.get, "body")
    except pa.ArrowException as error:
        raise ConfigError(f"{path} cannot be read as an Arrow file: {' '.join(str(error).split())}") from None


def _plain_row(row: dict[str, Any]) -> dict[str, Any]:
    plain = {name: value for name, value in row.items() if value is not None}
    if plain.get("kind") == "part":
        return {"part": ""}
    for name in ("timestamp", "expiration"):
        if name in plain:
            plain[name] = round(plain[name].timestamp() * 1000)
    if "properties" in plain:
        plain["properties"] = json.loads(plain["properties"])
    if "correlation_bytes" in plain:
        plain["correlation_id"] = {"bytes": base64.b64encode(plain.pop("correlation_bytes")).decode()}
    if "text" in plain:
        plain["body"] = plain.pop("text")
    elif "value" in plain:
        plain["body"] = json.loads(plain.pop("value"))
    elif "body" in plain:
        plain["body"] = base64.b64encode(plain["body"]).decode()
    return plain


def _assembled(rows: Iterator[_Row]) -> Iterator[ReadMessage]:
    for where, plain, _ in rows:
        if "part" in plain:
            raise ConfigError(f"{where} is a part of a body, and no message before it is divided.")
        parts = plain.pop("parts", 0)
        body = _body_of_parts(where, parts, rows) if parts else None
        try:
            given = None if body is None else BytesMessage(stream=body)
            if given is not None and plain.get("kind") != "bytes":
                raise MessageFormatError("Only messages of kind 'bytes' have parts.")
            message = from_plain(plain, given)
        except MessageFormatError as error:
            raise ConfigError(f"{where} is no message: {error}") from None
        yield ReadMessage(message, parts * PART_BYTES if parts else len(str(plain.get("body", ""))), body)


def _body_of_parts(where: str, parts: Any, rows: Iterator[_Row]) -> BinaryIO:
    if not isinstance(parts, int) or parts < 0:
        raise ConfigError(f"{where} has {parts!r} parts; that must be a whole number.")
    body: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - whoever sends it closes it
    for number in range(parts):
        found = next(rows, None)
        if found is None or "part" not in found[1]:
            body.close()
            raise ConfigError(f"{where} has {parts} parts, of which only {number} follow: the file is not whole.")
        try:
            body.write(found[2]())
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{found[0]} is no part of a body: {error}.") from None
    body.seek(0)
    return body

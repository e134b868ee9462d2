"""Rows of the source: their schema, and their conversion from frames of the broker."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from legato.bulk.arrays import number_array, repeated_text, text_array, truth_array
from legato.bulk.columns import Decoder
from legato.bulk.layout import rows_of
from legato.bulk.schema import COLUMNS, TIMESTAMP
from legato.bulk.tickets import BODY_BYTES_MAX
from legato.errors import JMSError
from legato.quoting import quoted
from legato.spark.connector.options import SourceOptions
from legato.spark.connector.reading import OMITTED_BODY_BYTES
from legato.spark.connector.variant import VARIANT, variants_of

log = logging.getLogger("legato.spark")

_DDL = {
    pa.string(): "string",
    pa.binary(): "binary",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.bool_(): "boolean",
    TIMESTAMP: "timestamp",
    COLUMNS["properties"]: "map<string,string>",
    VARIANT: "variant",
}


_ZERO, _ONE = number_array(np.array([0, 1], np.int32))
_FALSE, _TRUE = truth_array(np.array([False, True]))


def fields(options: SourceOptions) -> dict[str, pa.DataType]:
    """The columns and their types, in order."""
    body = pa.string() if options.payload == "text" else pa.binary()
    columns: dict[str, Any] = {
        "message_id": pa.string(),
        "destination": pa.string(),
        "seq": pa.int64(),
        "timestamp": TIMESTAMP,
        "expiration": TIMESTAMP,
        "priority": pa.int32(),
        "delivery_mode": pa.string(),
        "redelivered": pa.bool_(),
        "delivery_count": pa.int32(),
        "correlation_id": pa.string(),
        "reply_to": pa.string(),
        "type": pa.string(),
        "group_id": pa.string(),
    }
    if options.include_properties:
        columns["properties"] = VARIANT if options.properties == "variant" else COLUMNS["properties"]
    if options.include_body:
        columns["body"] = body
        columns[OMITTED_BODY_BYTES] = pa.int64()
    return {name: columns[name] for name in options.columns} if options.columns else columns


def spark_types(options: SourceOptions) -> dict[str, str]:
    """The columns and the names of their types in Spark, in order."""
    return {name: _DDL[kind] for name, kind in fields(options).items()}


def ddl(options: SourceOptions) -> str:
    """The schema as Spark's DDL."""
    return ", ".join(f"{name} {kind}" for name, kind in spark_types(options).items())


class Frames:
    """Makes rows of the frames of one address.

    Args:
        destination: what the column of that name says.
    """

    def __init__(self, options: SourceOptions, destination: str) -> None:
        self._options = options
        self._destination = destination
        self._fields = fields(options)
        self._schema = pa.schema(list(self._fields.items()))
        self._decoder = Decoder(properties="properties" in self._fields)
        self.is_bare = options.is_bare
        has_body = not self._fields.keys().isdisjoint(("body", OMITTED_BODY_BYTES))
        self.body_bytes_max = options.max_body_bytes if has_body else 0
        """Larger bodies than that need not come."""
        self._bounds_bodies = has_body and options.max_body_bytes < BODY_BYTES_MAX

    def rows(self, frame: pa.RecordBatch, *, unexpired_at: datetime | None = None) -> pa.RecordBatch:
        """The rows of a frame.

        Args:
            unexpired_at: without those whose time is over by then: who browses does not see what nobody would get.
        """
        columns = {} if self.is_bare else self._decoded(frame)
        failed = frame.column("failed_deliveries")
        columns |= {
            "destination": repeated_text(self._destination, frame.num_rows),
            "seq": frame.column("seq"),
            "redelivered": pc.or_(frame.column("flagged"), pc.greater(failed, _ZERO)),
            "delivery_count": pc.add(failed, _ONE),
        }
        if self.body_bytes_max:
            columns[OMITTED_BODY_BYTES] = self._omitted(frame, columns)
        rows = pa.RecordBatch.from_arrays([columns[name] for name in self._fields], schema=self._schema)
        shown = None
        if unexpired_at is not None:
            shown = _unexpired(frame.column("expires") if self.is_bare else columns["expiration"], unexpired_at)
            rows = rows if shown is None else rows.filter(shown)
        if self.body_bytes_max and (omitted := columns[OMITTED_BODY_BYTES]).null_count < frame.num_rows:
            seqs = frame.column("seq")
            if shown is not None:
                seqs, omitted = seqs.filter(shown), omitted.filter(shown)
            rows = self._told_of(rows, seqs, omitted)
        return rows

    def _omitted(self, frame: pa.RecordBatch, columns: dict[str, pa.Array]) -> pa.Array:
        """The sizes of bodies that are too large, and null of all others; those bodies are null."""
        omitted = pa.nulls(frame.num_rows, pa.int64())
        if OMITTED_BODY_BYTES in frame.schema.names:
            omitted = frame.column(OMITTED_BODY_BYTES)
        if self._bounds_bodies:
            sizes = pc.binary_length(columns["body"]).cast(pa.int64())
            is_large = pc.fill_null(pc.greater(sizes, _scalar(self.body_bytes_max)), _FALSE)
            omitted = pc.if_else(is_large, sizes, omitted)
            columns["body"] = pc.if_else(is_large, pa.nulls(1, columns["body"].type)[0], columns["body"])
        return omitted

    def _told_of(self, rows: pa.RecordBatch, seqs: pa.Array, omitted: pa.Array) -> pa.RecordBatch:
        """The rows, of which some bodies are too large, as the option `oversizedBodies` says.

        Raises:
            JMSError: it says that this is an error.
        """
        handling = self._options.oversized_bodies
        found = omitted.is_valid()
        many = pc.sum(found).as_py()
        if many:
            seq, size = seqs.filter(found)[0], omitted.filter(found)[0]
            of = quoted(self._destination)
            told = f"Message {seq} of {of} has a body of {size} bytes, more than {self.body_bytes_max}"
            if handling == "fail":
                raise JMSError(f"{told}. Set the option oversizedBodies to null or skip to read on without it.")
            others = f" ({many - 1} others near it too)" if many > 1 else ""
            log.warning("! %s%s: its %s", told, others, "row is left out" if handling == "skip" else "body is null")
        return rows.filter(omitted.is_null()) if handling == "skip" else rows

    def _decoded(self, frame: pa.RecordBatch) -> dict[str, pa.Array]:
        columns = self._decoder.decode(rows_of(frame.column("message")))
        if self._fields.get("properties") == VARIANT:
            columns["properties"] = variants_of(frame.column("message"), columns["properties"])
        if self._options.payload == "text":
            columns["body"] = _text(columns["body"])
        return columns


def _matcher(selector: str) -> Callable[[bytes], bool]:
    # Imported by who needs it: a grammar and its parser, in a process that may be there for one batch.
    from legato.amqp.codec.selection import matcher

    return matcher(selector)


class Wanted:
    """Which messages of a frame a batch shows: by selector, and by when they were stored."""

    def __init__(self, options: SourceOptions, address: str) -> None:
        self._matches = _matcher(options.selector) if options.selector else None
        self._from_us = options.starting_ms(address) * 1000
        self._before_us = options.ending_ms(address) * 1000

    def of(self, frame: pa.RecordBatch) -> pa.RecordBatch:
        """The frame without the others."""
        if self._from_us:
            frame = frame.filter(pc.greater_equal(frame.column("stored_us"), _scalar(self._from_us)))
        if self._before_us:
            frame = frame.filter(pc.less(frame.column("stored_us"), _scalar(self._before_us)))
        if self._matches is not None:
            matches = [self._matches(body) for body in frame.column("message").to_pylist()]
            frame = frame.filter(truth_array(np.array(matches, bool)))
        return frame


def _scalar(number: int) -> pa.Scalar:
    return number_array(np.array([number], np.int64))[0]


def _unexpired(expiration: pa.Array, now: datetime) -> pa.Array | None:
    """Which rows have time left; None for all."""
    if expiration.null_count == len(expiration):
        return None
    now_us = _scalar(round(now.timestamp() * 1_000_000)).cast(TIMESTAMP)
    return pc.fill_null(pc.greater(expiration, now_us), _TRUE)


def _text(body: pa.Array) -> pa.Array:
    try:
        return body.cast(pa.string())
    except pa.ArrowInvalid:
        return text_array(None if b is None else b.decode("utf-8", "replace") for b in body.to_pylist())

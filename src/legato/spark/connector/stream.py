"""The streaming source: a stream takes messages by assignment, and acknowledges what Spark has committed.

What `latestOffset` is told as `start` is in Spark's log of commits already, so that is where messages are acknowledged;
`commit` comes a batch later, or never. Numbers of an assignment mean the same messages for ever, so a batch can be read
again by whoever needs it, after a crash of Spark, of the broker, or of both.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import msgspec
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from legato.errors import ConfigError, JMSError
from legato.spark.connector.offsets import Offset, Range, cut, ordered, shares
from legato.spark.connector.options import LATEST, SourceOptions
from legato.spark.connector.reading import read_frames
from legato.spark.connector.requests import Requests, shared_requests
from legato.spark.connector.rows import Frames

_NO_LIMIT = 1 << 62
_PATTERN_PAGE = 1000


class RangePartition(InputPartition):
    """A range that one task reads."""

    def __init__(self, each: Range) -> None:
        super().__init__(msgspec.structs.astuple(each))

    @property
    def range(self) -> Range:
        return Range(*self.value)


class _Place(msgspec.Struct):
    """How the stream's assignment to one address stands."""

    name: str
    fence: int
    acknowledged: int
    last: int
    waiting: int


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See `DataSourceStreamReader`. It is made in more processes than one: it connects when it is asked something."""

    def __init__(self, options: SourceOptions) -> None:
        if options.read_mode == "browse":
            raise ConfigError("A stream consumes: the option readMode = browse is for batches.")
        if not options.subscription:
            raise ConfigError("A stream needs the option subscription: under that name the broker keeps its place.")
        if not isinstance(options.starting_offsets, str):
            raise ConfigError("A stream starts where its subscription is; startingOffsets is earliest or latest.")
        self._options = options
        self._places: dict[str, _Place] = {}
        self._requests: Requests | None = None
        self._targets: dict[str, int] | None = None
        """With `Trigger.AvailableNow`, the last number of each address that belongs to this run."""
        self._idle_until = 0.0

    # -- what Spark asks ------------------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def initialOffset(self) -> Offset:
        self._open_all()
        return ordered({address: place.acknowledged for address, place in self._places.items()})

    def prepareForTriggerAvailableNow(self) -> None:
        self._open_all()
        self._targets = {address: place.last + place.waiting for address, place in self._places.items()}

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        self._open_all()
        self._acknowledge(start)
        if time.monotonic() < self._idle_until:
            return ordered(start)
        planned = {address: start.get(address, place.acknowledged) for address, place in self._places.items()}
        ends = self._plan(planned, limit)
        if ends == planned:
            self._idle_until = time.monotonic() + self._options.poll_interval_ms / 1000
        return ordered(ends)

    def reportLatestOffset(self) -> Offset:
        return ordered({address: place.last + place.waiting for address, place in self._places.items()})

    def partitions(self, start: Offset, end: Offset) -> list[RangePartition]:
        self._open_all()
        ranges = [
            Range(address, self._place(address).name, start.get(address, 0), through)
            for address, through in end.items()
            if through > start.get(address, 0)
        ]
        cuts = cut(
            ranges,
            at_least=self._options.min_partitions or len(ranges),
            at_most_rows=self._options.max_records_per_partition,
        )
        return [RangePartition(each) for each in cuts]

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        each = partition.range
        frames = Frames(self._options, each.address)
        rows = 0
        for frame in read_frames(shared_requests(self._options.url), each):
            rows += frame.num_rows
            yield frames.rows(frame)
        if rows != each.through - each.after and self._options.fail_on_data_loss:
            raise JMSError(
                f"{each.through - each.after - rows} messages of {each.address} between {each.after} and "
                f"{each.through} are gone: somebody moved or deleted them, or the checkpoint is older than what was "
                "acknowledged. Set the option failOnDataLoss to false to go on without them."
            )

    def commit(self, end: Offset) -> None:
        self._open_all()
        self._acknowledge(end)

    def stop(self) -> None:
        if self._requests is not None:
            self._requests.close()

    # -- what the broker is asked ---------------------------------------------------------------------------------

    def _ask(self, operation: str, name: str = "", **arguments: str | int | bool) -> Any:
        if self._requests is None:
            self._requests = Requests(self._options.url)
        return self._requests.ask(operation, "assignment", name, **arguments)

    def _open_all(self) -> None:
        """Open what is not yet; each opening ends what an earlier run of this stream may still do."""
        for address in self._addresses():
            if address not in self._places:
                told = self._ask(
                    "open",
                    subscription=self._options.subscription,
                    address=address,
                    topic=self._options.is_topic,
                    latest=self._options.starting_offsets == LATEST,
                    selector=self._options.selector,
                )
                told.pop("source")
                self._places[address] = msgspec.convert(told, _Place)

    def _addresses(self) -> tuple[str, ...]:
        """The addresses of the stream, those of a pattern as they are now."""
        pattern = self._options.queue_pattern
        if not pattern or (self._places and time.monotonic() < self._idle_until):
            return self._options.addresses
        assert self._requests is not None or not self._places
        if self._requests is None:
            self._requests = Requests(self._options.url)
        found = self._requests.ask("query", "queue", match=pattern, count=_PATTERN_PAGE)
        return tuple(row["name"] for row in found["results"])

    def _place(self, address: str) -> _Place:
        place = self._places.get(address)
        if place is None:
            raise JMSError(f"The checkpoint is of a stream that read {address} too; name it, or begin with a new one.")
        return place

    def _note(self, address: str, told: dict[str, Any]) -> None:
        place = self._places[address]
        place.acknowledged, place.last, place.waiting = told["acknowledged"], told["last"], told["waiting"]

    def _acknowledge(self, through: Offset) -> None:
        for address, number in through.items():
            place = self._place(address)
            if number > place.acknowledged:
                self._note(address, self._ask("acknowledge", place.name, fence=place.fence, through=number))

    def _plan(self, planned: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """Up to where the next batch goes: what was assigned before it was planned comes first."""
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else _NO_LIMIT
        limit_bytes = limit.max_bytes if isinstance(limit, ReadMaxBytes) else 0
        for address, place in self._places.items():
            # Nothing to take, but how much there is.
            self._note(address, self._ask("assign", place.name, fence=place.fence, limit=0))
        available = {address: max(self._target(address) - planned[address], 0) for address in self._places}
        ends = dict(planned)
        for address, share in shares(available, rows).items():
            ends[address] = self._assign(address, planned[address], planned[address] + share, limit_bytes)
        return ends

    def _target(self, address: str) -> int:
        place = self._places[address]
        there = place.last + place.waiting
        return there if self._targets is None else min(there, self._targets.get(address, 0))

    def _assign(self, address: str, after: int, through: int, limit_bytes: int) -> int:
        """Have what is missing up to `through` assigned; returns how far that went."""
        place = self._places[address]
        while place.last < through:
            before = place.last
            arguments: dict[str, int] = {"limit": through - place.last}
            if limit_bytes:
                arguments["limit_bytes"] = limit_bytes
            self._note(address, self._ask("assign", place.name, fence=place.fence, **arguments))
            if place.last == before or limit_bytes:
                break
        return max(min(place.last, through), after)

"""The streaming source: a stream takes messages by assignment, and acknowledges what Spark has committed.

What `latestOffset` is told as `start` is in Spark's log of commits already, so that is where messages are acknowledged;
`commit` comes a batch later, or never. Numbers of an assignment mean the same messages for ever, so a batch can be read
again by whoever needs it, after a crash of Spark, of the broker, or of both.

While Spark works on a batch, the next one is assigned already, if batches have a limit: that is a commit of all of its
messages, and takes about as long as reading them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, wait
from typing import NamedTuple, NoReturn

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

from legato.client.management import url_of_group
from legato.errors import ConfigError, JMSError
from legato.spark.connector.assignments import Limits, Places
from legato.spark.connector.mistakes import told_at_once
from legato.spark.connector.modes import why_no_stream
from legato.spark.connector.offsets import Offset, Range, cut, ordered, told
from legato.spark.connector.options import SourceOptions
from legato.spark.connector.reading import read_frames
from legato.spark.connector.requests import shared_requests
from legato.spark.connector.rows import Frames

ROWS_OF_A_PARTITION = 25_000
"""About so many rows a task reads, if nothing is said of partitions: a task costs as much as some thousand rows."""


class RangePartition(InputPartition):
    """Ranges that one task reads, one after the other."""

    def __init__(self, ranges: Iterable[Range]) -> None:
        super().__init__(tuple(map(msgspec.structs.astuple, ranges)))

    @property
    def ranges(self) -> list[Range]:
        return [Range(*each) for each in self.value]


class _Ahead(NamedTuple):
    """The planning of a batch while Spark works on the one before it."""

    start: Offset
    limits: Limits
    ends: Future[Offset]


class MisconfiguredStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream with wrong options: raises its error as soon as Spark asks something.

    Raised when a reader is made, an error comes to the user as `UnboundLocalError`: PySpark stops the reader that it
    does not have, and tells of that.
    """

    def __init__(self, error: ConfigError) -> None:
        self._error = error

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._refuse()

    def prepareForTriggerAvailableNow(self) -> None:
        self._refuse()

    def initialOffset(self) -> Offset:
        return self._refuse()

    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        return self._refuse()

    def partitions(self, start: Offset, end: Offset) -> list[RangePartition]:
        return self._refuse()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._refuse()

    @told_at_once
    def _refuse(self) -> NoReturn:
        raise self._error


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """See `DataSourceStreamReader`. It is made in more processes than one: it connects when it is asked something.

    Args:
        refuses_skips: whether a batch that was not read and is done nevertheless ends the stream, instead of being
            acknowledged.
    """

    def __init__(self, options: SourceOptions, *, refuses_skips: bool = False) -> None:
        if why := why_no_stream(options):
            raise ConfigError(why)
        self._options = options
        self._refuses_skips = refuses_skips and options.fail_on_data_loss
        self._known: Places | None = None
        self._ends_now = False
        """Whether this run ends where it began: `Trigger.AvailableNow`."""
        self._targets: dict[str, int] | None = None
        """If so, the last number of each address that belongs to this run."""
        self._idle_until = 0.0
        self._waiting_since: float | None = None
        """Since when there are fewer rows than a batch is to have."""
        self._ahead: _Ahead | None = None
        self._unread: Offset | None = None
        """The end of the latest batch, until Spark asks what is in it."""
        self._is_first = True
        """Whether nothing is known yet of what Spark did before this run."""

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets_per_trigger:
            return ReadMaxRows(self._options.max_offsets_per_trigger)
        if self._options.max_bytes_per_trigger:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    @told_at_once
    def initialOffset(self) -> Offset:
        self._open(begins=True)
        return ordered({address: place.acknowledged for address, place in self._places.by_address.items()})

    def prepareForTriggerAvailableNow(self) -> None:
        # Only what Spark asks next says whether the stream begins, which is to be known when its places are opened.
        self._ends_now = True

    @told_at_once
    def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:
        start = told(start)
        self._require_read(start)
        ends = self._latest(start, limit)
        self._unread = ends if ends != ordered(start) else None
        return ends

    def _latest(self, start: Offset, limit: ReadLimit) -> Offset:
        limits = _limits_of(limit)
        ends = self._planned_ahead(start, limits)
        if ends is None or ends == ordered(start):
            # For no batch nothing is asked again: what is done is acknowledged now, or never by a run that ends here.
            if time.monotonic() < self._idle_until:
                return ordered(start)
            ends = self._plan(start, start, self._patient(limits))
        if ends == ordered(start):
            self._idle_until = time.monotonic() + self._options.poll_interval_ms / 1000
            return ends
        self._waiting_since = None
        if not limits.is_none:
            self._plan_ahead(start, ends, limits)
        return ends

    @told_at_once
    def reportLatestOffset(self) -> Offset:
        return ordered({address: place.end for address, place in self._places.by_address.items()})

    @told_at_once
    def partitions(self, start: Offset, end: Offset) -> list[RangePartition]:
        start, end = told(start), told(end)
        self._unread = None
        if not self._places.by_address.keys() >= end.keys():
            self._open(end)
        ranges = []
        for address, through in end.items():
            place = self._places.of(address)
            # An address that has joined the stream begins where it was, as it was planned.
            after = start.get(address, place.acknowledged)
            if through > after:
                ranges.append(Range(address, place.name, after, through, self._places.group_of(address)))
        for each in ranges:
            if not each.name and self._options.fail_on_data_loss:
                raise JMSError(_gone(each, 0))
        ranges = [each for each in ranges if each.name]
        self._places.begin_reading(end)
        total = sum(each.through - each.after for each in ranges)
        cuts = cut(
            ranges,
            at_least=self._options.min_partitions or -(-total // ROWS_OF_A_PARTITION),
            at_most_rows=self._options.max_records_per_partition,
        )
        return [RangePartition(part) for part in cuts]

    @told_at_once
    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        for each in partition.ranges:
            yield from self._rows(each)

    def _rows(self, each: Range) -> Iterator[pa.RecordBatch]:
        frames = Frames(self._options, each.address)
        rows = 0
        requests = shared_requests(url_of_group(self._options.url, each.group), self._options.patience, is_known=True)
        for frame in read_frames(requests, each, bare=frames.is_bare, body_bytes_max=frames.body_bytes_max):
            rows += frame.num_rows
            yield frames.rows(frame)
        if rows != each.through - each.after and self._options.fail_on_data_loss:
            raise JMSError(_gone(each, rows))

    @told_at_once
    def commit(self, end: Offset) -> None:
        end = told(end)
        self._require_read(end)
        # Otherwise it was told as the start of the next batch, and who plans ahead acknowledges it.
        if self._ahead is None:
            self._open(end)
            self._places.acknowledge(end)

    def stop(self) -> None:
        if self._known is not None:
            self._known.close()

    def _require_read(self, done: Offset) -> None:
        """See that a batch that Spark has done was read.

        A table of files skips batches of numbers that its directory has, as after its checkpoint was deleted. Their
        messages go back to their queues, as the next start would acknowledge them.

        Raises:
            JMSError: it was not.
        """
        is_first, self._is_first = self._is_first, False
        if not self._refuses_skips:
            return
        if is_first:
            self._require_begun(done)
        # Spark commits a batch after it has asked where the next one ends, and before it asks what is in that.
        if self._unread != ordered(done):
            return
        self._unread = None
        if self._ahead is not None:
            wait([self._ahead.ends])
        self._places.release(done)
        raise JMSError(_SKIPPED)

    def _require_begun(self, done: Offset) -> None:
        """Likewise of a batch of the run before this one, which ended before it was asked for another.

        Raises:
            JMSError: it was not read.
        """
        self._open(done)
        begun = self._places.begun_of(done)
        if begun is not None:
            self._places.acknowledge(begun)
            self._places.release(done)
            raise JMSError(_SKIPPED)

    def _open(self, known: Iterable[str] = (), *, begins: bool = False) -> None:
        """Open the places, as `Places.open` does; a run that ends where it began notes where that is."""
        self._places.open(known, begins=begins)
        if self._ends_now and self._targets is None:
            self._targets = {address: place.end for address, place in self._places.by_address.items()}

    @property
    def _places(self) -> Places:
        """Made when Spark first asks something: before that, the reader goes from process to process."""
        if self._known is None:
            self._known = Places(self._options)
        return self._known

    def _patient(self, limits: Limits) -> Limits:
        """The limits, with how many rows have to be there: none after a while, or if nothing else will come."""
        at_least = self._options.min_offsets_per_trigger
        now = time.monotonic()
        if not at_least or self._ends_now:
            return limits
        if self._waiting_since is None:
            self._waiting_since = now
        elif now > self._waiting_since + self._options.max_trigger_delay_ms / 1000:
            return limits
        return msgspec.structs.replace(limits, at_least=at_least)

    def _plan(self, done: Offset, planned: Offset, limits: Limits) -> Offset:
        """Up to where the batch behind `planned` goes; what is `done` is acknowledged."""
        self._open({**done, **planned})
        self._places.acknowledge(done)
        return ordered(self._places.plan(planned, limits, self._targets))

    def _plan_ahead(self, start: Offset, ends: Offset, limits: Limits) -> None:
        planned: Future[Offset] = Future()

        def plan() -> None:
            try:
                planned.set_result(self._plan(start, ends, limits))
            except BaseException as error:
                planned.set_exception(error)

        # Not a pool's thread: the interpreter waits for those when it ends, and this one may wait for a broker.
        threading.Thread(target=plan, name="legato-plan", daemon=True).start()
        self._ahead = _Ahead(ends, limits, planned)

    def _planned_ahead(self, start: Offset, limits: Limits) -> Offset | None:
        """What was planned ahead; None if that was not, or not for this, or if there may be more by now."""
        ahead, self._ahead = self._ahead, None
        if ahead is None:
            return None
        ends = ahead.ends.result()
        is_full = any(place.end > ends.get(address, 0) for address, place in self._places.by_address.items())
        return ends if is_full and (ahead.start, ahead.limits) == (ordered(start), limits) else None


_SKIPPED = (
    "Spark skipped a batch and read none of its messages; they are back in their queues. The sink has a batch of that "
    "number already: the checkpoint of a table of files was deleted, and the table was not. Write to an empty "
    "directory with a new checkpointLocation. If foreachBatch is not to read its rows, set the option failOnDataLoss "
    "to false: then they are acknowledged."
)


def _gone(each: Range, rows: int) -> str:
    return (
        f"{each.through - each.after - rows} messages of {each.address} between {each.after} and "
        f"{each.through} are gone: somebody moved or deleted them, or the checkpoint is older than what was "
        "acknowledged. Set the option failOnDataLoss to false to go on without them."
    )


def _limits_of(limit: ReadLimit) -> Limits:
    if isinstance(limit, ReadMaxRows):
        return Limits(rows=limit.max_rows)
    if isinstance(limit, ReadMaxBytes):
        return Limits(size=limit.max_bytes)
    return Limits()

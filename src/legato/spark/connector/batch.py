"""The batch source: reads what waits, and leaves it in the queue."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.flight as flight
from pyspark.sql.datasource import DataSourceReader, InputPartition

from legato.bulk.requests import PLAN, PlannedPart, PlanRequest
from legato.client.management import url_of_group
from legato.errors import ConfigError
from legato.quoting import quoted
from legato.spark.connector.broker_groups import BrokerGroups
from legato.spark.connector.mistakes import told_at_once
from legato.spark.connector.modes import why_no_batch
from legato.spark.connector.offsets import Range, together
from legato.spark.connector.option_parsing import EARLIEST, EARLIEST_NUMBER, ERROR, LATEST_NUMBER
from legato.spark.connector.options import SourceOptions
from legato.spark.connector.reading import bulk_client, read_frames, retried
from legato.spark.connector.requests import Missing, Requests, shared_requests
from legato.spark.connector.rows import Frames, Wanted
from legato.spark.connector.stream import RangePartition

_PARTITIONS = 8
_ROWS_OF_A_PARTITION_MIN = 2000
"""Fewer rows are not worth a task of their own, if nothing is said of partitions."""
_ADDRESSED = "subscription://"
LAST = 1 << 62
"""Beyond all sequences, whose lanes end at 11 << 56; the broker takes no larger number."""


class BatchReader(DataSourceReader):
    """See `DataSourceReader`: a browser of queues, or of the subscription of topics."""

    def __init__(self, options: SourceOptions) -> None:
        if why := why_no_batch(options):
            raise ConfigError(why)
        self._options = options

    @told_at_once
    def partitions(self) -> list[RangePartition]:
        options = self._options
        groups = BrokerGroups(options.url, lambda url: shared_requests(url, options.patience))
        pieces: list[tuple[Range, int]] = []
        names = self._names(groups)
        count = self._options.min_partitions or _PARTITIONS
        for address, name in names.items():
            try:
                planned = self._planned(groups, address, name, max(-(-count // len(names)), 1))
            except Missing:
                if self._options.pattern and not self._options.is_topic:
                    # It was deleted since.
                    continue
                what = "subscription" if self._options.is_topic else "queue"
                named = self._options.subscription_of(address) if self._options.is_topic else address
                raise ConfigError(
                    f"There is no {what} {quoted(named)}. A batch creates none; `legato {what}s` lists those there are."
                ) from None
            if self._options.starting_times_strategy == ERROR:
                self._require_newer(groups.of(address), address, [each for each, _ in planned])
            pieces += planned
        share = -(-sum(rows for _, rows in pieces) // count)
        if not self._options.min_partitions:
            share = max(share, _ROWS_OF_A_PARTITION_MIN)
        return [RangePartition(part) for part in together(pieces, share)]

    @told_at_once
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, RangePartition):
            # Where nothing waits there are no partitions, and Spark makes up one of its own.
            return
        for each in partition.ranges:
            yield from self._rows(each)

    def _rows(self, each: Range) -> Iterator[pa.RecordBatch]:
        frames = Frames(self._options, each.address)
        wanted = Wanted(self._options, each.address)
        requests = shared_requests(url_of_group(self._options.url, each.group), self._options.patience)
        for frame in read_frames(requests, each, bare=frames.is_bare, body_bytes_max=frames.body_bytes_max):
            if (shown := wanted.of(frame)).num_rows:
                yield frames.rows(shown, unexpired_at=datetime.now(UTC))

    def _names(self, groups: BrokerGroups) -> dict[str, str]:
        """What is read, and under which name the broker has it."""
        options = self._options
        addresses = options.addresses
        if options.pattern:
            addresses = groups.matching(options.pattern, topics=options.is_topic)
        groups.locate(addresses)
        if not options.is_topic:
            return {queue: queue for queue in addresses}
        return {topic: _address_of(options.subscription_of(topic)) for topic in addresses}

    def _planned(self, groups: BrokerGroups, address: str, name: str, wanted: int) -> list[tuple[Range, int]]:
        """What is there at an address, in about as many pieces as are wanted, and how many rows each has."""
        requests, group = groups.of(address), groups.group_of(address)
        after, through = bounds_of(self._options, address)
        arguments = {"after": after} if through == LAST else {"after": after, "through": through}

        def plan() -> list[PlannedPart]:
            told = requests.ask_ticket("assignment", name, **arguments)
            with bulk_client(requests.uri, requests.host, told) as client:
                ticket = bytes.fromhex(told["ticket"])
                request = msgspec.msgpack.encode(PlanRequest(ticket, wanted))
                [result] = client.do_action(flight.Action(PLAN, request), requests.show(ticket))
            return msgspec.msgpack.decode(result.body.to_pybytes(), type=list[PlannedPart])

        planned = retried(plan, f"What {address} has cannot be divided into ranges", requests.patience)
        return [(Range(address, name, part.after, part.through, group), part.rows) for part in planned]

    def _require_newer(self, requests: Requests, address: str, ranges: list[Range]) -> None:
        """Refuse a starting time after all that there is."""
        from_ms = self._options.starting_ms(address)
        # First where that is which was stored last, but for priorities.
        ranges = sorted(ranges, key=lambda each: each.through, reverse=True)
        frames = (frame for each in ranges for frame in read_frames(requests, each, bare=True))
        if from_ms and not any(pc.max(frame.column("stored_us")).as_py() >= from_ms * 1000 for frame in frames):
            raise ConfigError(
                f"Nothing was stored in {address} at the starting timestamp {from_ms} or later. Set the option "
                "startingOffsetsByTimestampStrategy to latest to read nothing then."
            )


def _address_of(subscription: str) -> str:
    """The address of a subscription without a client id, which is named; that of others is given as it is listed."""
    return subscription if subscription.startswith(_ADDRESSED) else f"{_ADDRESSED}/{quote(subscription, safe='')}"


def bounds_of(options: SourceOptions, address: str) -> tuple[int, int]:
    """What is read at an address: sequences above the first number up to the second, which may be `LAST`."""
    starting, ending = options.starting_offsets, options.ending_offsets
    after = _number(starting, address, EARLIEST_NUMBER if isinstance(starting, dict) else LATEST_NUMBER)
    return after, _number(ending, address, LATEST_NUMBER)


def _number(offsets: str | dict[str, int], address: str, otherwise: int) -> int:
    """What is said of an address, where what lies before and behind everything has a number of its own."""
    if isinstance(offsets, dict):
        number = offsets.get(address, otherwise)
    else:
        number = EARLIEST_NUMBER if offsets == EARLIEST else otherwise
    return {EARLIEST_NUMBER: 0, LATEST_NUMBER: LAST}.get(number, number)

"""The batch source: what waits is read, and stays."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import msgspec
import pyarrow as pa
import pyarrow.flight as flight
from pyspark.sql.datasource import DataSourceReader

from legato.bulk.requests import PLAN, PlannedPart, PlanRequest
from legato.errors import ConfigError
from legato.spark.connector.offsets import Range
from legato.spark.connector.options import EARLIEST, SourceOptions
from legato.spark.connector.places import matching
from legato.spark.connector.reading import bulk_client, read_frames
from legato.spark.connector.requests import Requests, shared_requests
from legato.spark.connector.rows import Frames, Wanted
from legato.spark.connector.stream import RangePartition

_PARTITIONS = 8
_LAST = (1 << 63) - 1


class BatchReader(DataSourceReader):
    """See `DataSourceReader`: a browser of queues, or of the subscription of topics."""

    def __init__(self, options: SourceOptions) -> None:
        if options.read_mode == "consume":
            raise ConfigError("A batch browses; to consume, use a stream with the trigger availableNow.")
        if options.is_topic and not options.subscription:
            raise ConfigError("Topics keep nothing by themselves: name the durable subscription to be browsed.")
        self._options = options

    def partitions(self) -> list[RangePartition]:
        requests = shared_requests(self._options.url)
        parts: list[RangePartition] = []
        names = self._names(requests)
        for address, name in names.items():
            wanted = max(-(-(self._options.min_partitions or _PARTITIONS) // len(names)), 1)
            parts += [RangePartition(each) for each in self._parts(requests, address, name, wanted)]
        return parts

    def read(self, partition: RangePartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        frames = Frames(self._options, partition.range.address)
        wanted = Wanted(self._options)
        for frame in read_frames(shared_requests(self._options.url), partition.range):
            if (shown := wanted.of(frame)).num_rows:
                yield wanted.unexpired(frames.rows(shown))

    def _names(self, requests: Requests) -> dict[str, str]:
        """What is read, and under which name the broker has it."""
        options = self._options
        addresses = options.addresses
        if options.pattern:
            addresses = matching(requests, options.pattern, topics=options.is_topic)
        if not options.is_topic:
            return {queue: queue for queue in addresses}
        return {topic: f"subscription:///{quote(options.subscription_of(topic), safe='')}" for topic in addresses}

    def _parts(self, requests: Requests, address: str, name: str, wanted: int) -> list[Range]:
        after, through = self._bounds(address)
        arguments = {"after": after} if through == _LAST else {"after": after, "through": through}
        told = requests.ask("ticket", "assignment", name, **arguments)
        with bulk_client(requests.uri, requests.host, told) as client:
            request = msgspec.msgpack.encode(PlanRequest(bytes.fromhex(told["ticket"]), wanted))
            [result] = client.do_action(flight.Action(PLAN, request))
        planned = msgspec.msgpack.decode(result.body.to_pybytes(), type=list[PlannedPart])
        return [Range(address, name, part.after, part.through) for part in planned]

    def _bounds(self, address: str) -> tuple[int, int]:
        starting, ending = self._options.starting_offsets, self._options.ending_offsets
        after = starting.get(address, 0) if isinstance(starting, dict) else 0 if starting == EARLIEST else _LAST
        return after, ending.get(address, _LAST) if isinstance(ending, dict) else _LAST

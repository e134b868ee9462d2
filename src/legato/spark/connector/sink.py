"""The sink: tasks stage rows, the driver has a batch published in one commit of the broker, once.

Whatever is repeated - a task, a commit, a whole batch after a crash - is staged anew, and the number of the batch says
whether it was published. `abort` may come after a `commit` that raised: a published batch is not touched by it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as flight
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from legato.bulk.requests import PutRequest, StageOptions
from legato.client.failover.uri import parse_uri
from legato.client.management import url_of_group
from legato.errors import JMSError
from legato.failpoints import DrillOrders, SinkPoint
from legato.spark.connector.broker_groups import BrokerGroups
from legato.spark.connector.mistakes import told_at_once
from legato.spark.connector.options import SinkOptions
from legato.spark.connector.reading import bulk_client, retried
from legato.spark.connector.requests import Requests, shared_requests
from legato.spark.connector.shaping import check_columns, shaped_rows

_QUERY_ID = "sql.streaming.queryId"
_BATCH_ID = "streaming.sql.batchId"
_UNKNOWN = "of stages there are"
"""In what a broker of a former version says, which does not tell what is published."""


class Staged(WriterCommitMessage):
    """What a task has staged."""

    def __init__(self, transactional_id: str, stage: str, partition: int, url: str) -> None:
        self.transactional_id = transactional_id
        self.stage = stage
        self.partition = partition
        self.url = url
        """Of the group of brokers that has it."""


class _Sink:
    """Base of stream and batch sinks."""

    _repeats = True
    """Whether a batch may come again, in another run."""
    _publishing: Mapping[str, bool] = {}
    """What else is said when a batch is published."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options
        self._url_of_all = options.url
        if not options.destination and len(parse_uri(options.url).hosts) > 1:
            # Tasks and commits are of other processes, which the URL may lead to another group of brokers each.
            groups = BrokerGroups(options.url, shared_requests)
            self._url_of_all = url_of_group(options.url, groups.home)

    def _stage(self, batches: Iterator[pa.RecordBatch], transactional_id: str, batch: int) -> Staged:
        """Stage the rows of a task; nobody sees them yet."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        stage = f"{partition}-{secrets.token_hex(8)}"
        rows, url = list(shaped_rows(batches, self._options, partition)), ""
        if rows:
            requests = shared_requests(url := self._url(transactional_id, batch))
            retried(
                lambda: _put(requests, self._options, transactional_id, batch, stage, rows),
                "The rows of a task cannot be staged",
                requests.patience,
            )
        return Staged(transactional_id, stage if rows else "", partition, url)

    def _url(self, transactional_id: str, batch: int) -> str:
        """Of the group of brokers that has the destination; rows that name theirs need one group that has all.

        A batch that another group has published, before the destination moved, goes there once more: that group knows
        its rows.
        """
        options = self._options
        groups = BrokerGroups(self._url_of_all, shared_requests)
        if options.destination:
            groups.locate([options.destination])
        own = groups.of(options.destination)
        others = groups.others(options.destination) if self._repeats else []
        if others and not (batch and _is_published(own, transactional_id, batch - 1)):
            for other in others:
                if _is_published(other, transactional_id, batch):
                    return other.url
        return own.url

    def _publish(self, messages: Sequence[Staged | None], batch: int) -> None:
        staged = sorted((each for each in messages if each is not None), key=lambda each: each.partition)
        if staged:
            stages = ",".join(each.stage for each in staged if each.stage)
            said = {} if self._options.verify_repeated_batches else {"unverified": True}
            self._ask("publish", staged, batch, stages=stages, **said, **self._publishing)

    def _discard(self, messages: Sequence[Staged | None], batch: int) -> None:
        staged = [each for each in messages if each is not None and each.stage]
        if staged:
            stages = ",".join(each.stage for each in staged)
            self._ask("discard", staged, batch, stages=stages)

    def _ask(self, operation: str, staged: Sequence[Staged], batch: int, **arguments: str | bool) -> Any:
        name = staged[0].transactional_id
        # Those without rows have not asked where that is.
        url = next((each.url for each in staged if each.stage), None) or self._url(name, batch)
        # Tasks have staged there.
        requests = shared_requests(url, is_known=True)
        return requests.ask(operation, "stage", name, batch=batch, **arguments)


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """See `DataSourceStreamArrowWriter`."""

    @told_at_once
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        if context is None:
            raise RuntimeError("A sink writes in a task of Spark.")
        transactional_id = self._options.transactional_id or str(context.getLocalProperty(_QUERY_ID))
        return self._stage(iterator, transactional_id, int(str(context.getLocalProperty(_BATCH_ID))))

    @told_at_once
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        drill_orders = DrillOrders.of_environment()
        if drill_orders is not None:
            drill_orders.hit(SinkPoint.BETWEEN_STAGE_AND_PUBLISH)
        self._publish(messages, batchId)  # type: ignore[arg-type]
        if drill_orders is not None:
            drill_orders.hit(SinkPoint.BETWEEN_PUBLISH_AND_COMMIT)

    @told_at_once
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._discard(messages, batchId)  # type: ignore[arg-type]


class BatchSink(_Sink, DataSourceArrowWriter):
    """See `DataSourceArrowWriter`: each write is a batch of its own, published once."""

    _repeats = False
    _publishing = {"once": True}  # noqa: RUF012 - read only

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._transactional_id = f"{options.transactional_id or 'batch'}-{secrets.token_hex(8)}"

    @told_at_once
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return self._stage(iterator, self._transactional_id, 0)

    @told_at_once
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._publish(messages, 0)  # type: ignore[arg-type]

    @told_at_once
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._discard(messages, 0)  # type: ignore[arg-type]


def _is_published(requests: Requests, transactional_id: str, batch: int) -> bool:
    """Whether a group of brokers has published a batch."""
    try:
        told = requests.ask("published", "stage", transactional_id, batch=batch)
    except JMSError as error:
        if _UNKNOWN in str(error):
            return False
        raise
    return bool(told["published"])


def _put(
    requests: Requests,
    options: SinkOptions,
    transactional_id: str,
    batch: int,
    stage: str,
    rows: Sequence[pa.RecordBatch],
) -> None:
    told = requests.ask_ticket("stage", transactional_id, batch=batch, stage=stage)
    stage_options = StageOptions(options.destination, bool(options.topic))
    ticket = bytes.fromhex(told["ticket"])
    request = PutRequest(ticket, stage_options)
    with bulk_client(requests.uri, requests.host, told) as client:
        descriptor = flight.FlightDescriptor.for_command(msgspec.msgpack.encode(request))
        writer, _ = client.do_put(descriptor, rows[0].schema, requests.show(ticket))
        with writer:
            for each in rows:
                writer.write_batch(each)

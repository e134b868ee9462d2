"""Spark's source and sink, called as Spark calls them, over addresses of two groups of brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import StringType, StructField, StructType

from legato.client import Queue, TextMessage
from legato.errors import JMSError
from legato.spark.connector.batch import BatchReader
from legato.spark.connector.options import sink_options, source_options
from legato.spark.connector.reading import close_clients
from legato.spark.connector.requests import close_shared
from legato.spark.connector.sink import BatchSink, StreamSink
from legato.spark.connector.stream import StreamReader
from tests.integration.groups.conftest import Connect, Groups
from tests.integration.groups.test_links import taken
from tests.integration.groups.test_moving_addresses import called, move, reload

ALL = 1 << 60


@pytest.fixture(autouse=True)
def _no_connection_is_left() -> Iterator[None]:
    yield
    close_clients()
    close_shared()


def fill(groups: Groups, connect: Connect, *addresses: str) -> None:
    with connect(groups.url("orders")).create_session() as session:
        for address in addresses:
            session.create_producer(Queue(address)).send(TextMessage(f"of {address}"))


def bodies(reader: BatchReader | StreamReader, partitions: list[object]) -> list[str]:
    batches = [batch for part in partitions for batch in reader.read(part)]  # type: ignore[arg-type]
    return sorted(row["body"] for batch in batches for row in batch.to_pylist())


def browsed(groups: Groups, **options: str) -> list[str]:
    reader = BatchReader(source_options({"url": groups.url("orders"), "payload": "text"} | options))
    return bodies(reader, [*reader.partitions()])


def test_a_batch_reads_addresses_of_both_groups(calm_groups: Groups, connect: Connect) -> None:
    fill(calm_groups, connect, "orders.batch.a", "rest.batch.a", "rest.batch.b", "rest.batch.b")
    both = ["of orders.batch.a", "of rest.batch.a"]
    assert browsed(calm_groups, queues="orders.batch.a,rest.batch.a") == both
    assert browsed(calm_groups, queue="rest.batch.b") == ["of rest.batch.b"] * 2
    assert browsed(calm_groups, queuePattern="*.batch.a") == both
    # Who names a group has that one alone.
    assert browsed(calm_groups, url=calm_groups.url("orders", "?vhost=rest"), queuePattern="*.batch.a") == both[1:]


def test_a_stream_takes_from_both_groups_and_acknowledges_to_both(calm_groups: Groups, connect: Connect) -> None:
    fill(calm_groups, connect, "orders.stream", "rest.stream")
    options = {"queues": "orders.stream,rest.stream", "subscription": "spark", "payload": "text", "pollIntervalMs": "0"}
    given = source_options({"url": calm_groups.url("rest")} | options)
    reader = StreamReader(given)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert end == {"orders.stream": 1, "rest.stream": 1}
    assert bodies(reader, [*reader.partitions(start, end)]) == ["of orders.stream", "of rest.stream"]
    reader.commit(end)
    reader.stop()
    # Another driver goes on behind what was acknowledged, at both.
    again = StreamReader(given)
    assert again.initialOffset() == end
    fill(calm_groups, connect, "rest.stream")
    later = again.latestOffset(end, again.getDefaultReadLimit())
    assert later == {"orders.stream": 1, "rest.stream": 2}
    assert bodies(again, [*again.partitions(end, later)]) == ["of rest.stream"]
    again.stop()


def test_a_sink_publishes_at_the_group_of_its_destination(calm_groups: Groups, connect: Connect) -> None:
    schema = StructType([StructField("body", StringType())])
    sink = BatchSink(sink_options({"url": calm_groups.url("orders"), "queue": "rest.sink"}), schema)
    rows = pa.RecordBatch.from_pydict({"body": ["one", "two"]})
    sink.commit([sink.write(iter([rows])), sink.write(iter([]))])
    session = connect(calm_groups.url("rest")).create_session()
    consumer = session.create_consumer(Queue("rest.sink"))
    assert [consumer.receive_body(str, timeout_s=60) for _ in range(2)] == ["one", "two"]


def test_a_batch_with_destinations_of_another_group_is_refused_as_a_whole(
    calm_groups: Groups, connect: Connect
) -> None:
    """It is published in one commit, which one group makes."""
    schema = StructType([StructField("body", StringType()), StructField("destination", StringType())])
    sink = BatchSink(sink_options({"url": calm_groups.url("orders")}), schema)
    rows = pa.RecordBatch.from_pydict({"body": ["one", "two"], "destination": ["orders.mixed", "rest.mixed"]})
    with pytest.raises(JMSError, match=r"'rest\.mixed' is an address of the group 'rest'"):
        sink.commit([sink.write(iter([rows]))])
    assert browsed(calm_groups, queuePattern="*.mixed") == []


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> TaskContext:
    """What Spark tells a task."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    context = TaskContext()
    context._partitionId = 0
    return context


def publish(groups: Groups, context: TaskContext, batch: int, *texts: str, **options: str) -> None:
    """A batch of a query that writes to the queue `moved`, in a run of its own."""
    context._localProperties = {"sql.streaming.queryId": "query", "streaming.sql.batchId": str(batch)}
    given = {"url": groups.url("orders"), "queue": "moved"} | options
    sink = StreamSink(sink_options(given), StructType([StructField("body", StringType())]))
    rows = [pa.RecordBatch.from_pydict({"body": list(texts)})] if texts else []
    sink.commit([sink.write(iter(rows))], batch)
    close_shared()


def test_a_batch_that_was_published_before_its_destination_moved_is_not_published_again(
    groups: Groups, connect: Connect, task: TaskContext
) -> None:
    """The query ended before Spark wrote down that it was published, and the new group knew nothing of it."""
    publish(groups, task, 0, "zero")
    publish(groups, task, 1, "one")
    move(groups, "moved")
    reload(groups, "rest")
    publish(groups, task, 1, "one")
    there = connect(groups.url("rest"))
    assert taken(there, "moved") == []
    # And what is not the same is refused there, as ever.
    with pytest.raises(JMSError, match=r"Batch 1 of the sink query is published, with other rows"):
        publish(groups, task, 1, "another")
    publish(groups, task, 2)
    publish(groups, task, 3, "three")
    publish(groups, task, 3, "three")
    publish(groups, task, 4, "four")
    assert taken(there, "moved") == ["three", "four"]
    # Who names a group has that one alone.
    publish(groups, task, 1, "one", transactionalId="other", url=groups.url("orders", "?vhost=rest"))
    assert taken(there, "moved") == ["three", "four", "one"]


def test_a_task_reads_at_the_group_of_its_driver_whichever_lets_it_in(groups: Groups, connect: Connect) -> None:
    """A new worker that came during a takeover was let in by the other group of the URL, and found no assignment."""
    url = f"{groups.url('orders')},127.0.0.1:{groups.ports['rest']}"
    fill(groups, connect, "orders.stream")
    options = {"url": url, "queue": "orders.stream", "subscription": "spark", "payload": "text", "pollIntervalMs": "0"}
    reader = StreamReader(source_options(options))
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    partitions = [*reader.partitions(start, end)]
    reader.stop()
    groups.brokers["orders"].kill()
    reading, came = called(lambda: bodies(reader, [*partitions]))
    reading.join(3.0)
    assert reading.is_alive(), came
    groups.brokers["orders"].start()
    reading.join(60.0)
    assert came == [["of orders.stream"]]


@pytest.mark.parametrize("options", [{}, {"queue": "orders.sink"}])
def test_tasks_and_commits_of_a_sink_go_to_one_group_whichever_lets_them_in(
    groups: Groups, connect: Connect, task: TaskContext, options: dict[str, str]
) -> None:
    """The driver published at another group than tasks had staged at."""
    url = f"{groups.url('orders')},127.0.0.1:{groups.ports['rest']}"
    fields = [StructField("body", StringType())] + [StructField("destination", StringType())] * (not options)
    sink = StreamSink(sink_options({"url": url} | options), StructType(fields))
    task._localProperties = {"sql.streaming.queryId": "query", "streaming.sql.batchId": "0"}
    rows = {"body": ["one"]} | ({} if options else {"destination": ["orders.sink"]})
    staged = sink.write(iter([pa.RecordBatch.from_pydict(rows)]))
    close_shared()
    groups.brokers["orders"].kill()
    committing, came = called(lambda: sink.commit([staged], 0))
    committing.join(3.0)
    assert committing.is_alive(), came
    groups.brokers["orders"].start()
    committing.join(60.0)
    assert came == [None]
    assert taken(connect(groups.url("orders")), "orders.sink") == ["one"]

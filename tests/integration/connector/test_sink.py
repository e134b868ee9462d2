"""The sink, called as Spark calls it, against a real broker: whatever Spark repeats, each row becomes one message."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import IntegerType, StringType, StructType

from legato.client import ConnectionFactory, Message, TextMessage
from legato.errors import ConfigError, JMSError
from legato.spark.connector.options import sink_options
from legato.spark.connector.sink import BatchSink, Staged, StreamSink
from tests.support.server import Server, server

BODY = StructType().add("body", StringType())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("sink") / "store") as running:
        yield running


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> TaskContext:
    """What Spark tells a task of the first batch of a query."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    context = TaskContext()
    context._partitionId = 0
    in_batch(context, 0)
    return context


def in_batch(context: TaskContext, number: int) -> None:
    context._localProperties = {"sql.streaming.queryId": "query", "streaming.sql.batchId": str(number)}


def url(broker: Server) -> str:
    return f"amqp://127.0.0.1:{broker.port}"


def sink(broker: Server, queue: str, schema: StructType = BODY, **options: str) -> StreamSink:
    return StreamSink(sink_options({"url": url(broker), "queue": queue, "transactionalId": queue} | options), schema)


def write(writer: StreamSink, *texts: str) -> Staged:
    """What a task hands to the driver."""
    staged = writer.write(iter([pa.RecordBatch.from_pydict({"body": list(texts)})]))
    copied: Staged = pickle.loads(pickle.dumps(staged))
    return copied


def received(broker: Server, queue: str) -> list[Message]:
    with ConnectionFactory(url(broker)).create_connection() as connection, connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue(queue))
        connection.start()
        messages: list[Message] = []
        while (message := consumer.receive(timeout_s=1 if not messages else 0.2)) is not None:
            messages.append(message)
        return messages


def texts(broker: Server, queue: str) -> list[str | None]:
    return [message.body for message in received(broker, queue) if isinstance(message, TextMessage)]


def stages(broker: Server, transactional_id: str) -> list[Path]:
    return list((broker.store / "stages" / transactional_id).glob("*"))


def test_nothing_is_seen_before_the_commit(broker: Server, task: TaskContext) -> None:
    writer = sink(broker, "unseen")
    staged = write(writer, "1", "2")
    assert texts(broker, "unseen") == []
    writer.commit([staged], 0)
    assert texts(broker, "unseen") == ["1", "2"]


def test_a_repeated_commit_and_an_abort_behind_it_change_nothing(broker: Server, task: TaskContext) -> None:
    writer = sink(broker, "repeated")
    staged = write(writer, "1", "2")
    writer.commit([staged], 0)
    writer.commit([staged], 0)
    sink(broker, "repeated").commit([write(sink(broker, "repeated"), "1", "2")], 0)
    writer.abort([staged], 0)
    assert texts(broker, "repeated") == ["1", "2"]


def test_of_a_task_that_ran_twice_one_counts(broker: Server, task: TaskContext) -> None:
    """Retries and speculation: the loser's rows are never seen, and its stage goes with the batch."""
    writer = sink(broker, "twice")
    loser, winner = write(writer, "1"), write(writer, "1")
    assert loser.stage != winner.stage
    task._partitionId = 1
    other = write(writer, "2")
    writer.commit([other, winner], 0)
    assert texts(broker, "twice") == ["1", "2"]
    while stages(broker, "twice"):
        pass  # They are removed beside the broker's loop.


def test_an_aborted_batch_leaves_nothing_and_can_be_done_again(broker: Server, task: TaskContext) -> None:
    writer = sink(broker, "aborted")
    writer.abort([write(writer, "1"), None], 0)
    assert stages(broker, "aborted") == []
    writer.commit([write(writer, "2")], 0)
    assert texts(broker, "aborted") == ["2"]


def test_a_batch_is_published_once_over_a_killed_broker(broker: Server, task: TaskContext) -> None:
    writer = sink(broker, "killed")
    staged = write(writer, "1", "2")
    broker.kill()
    broker.start()
    writer.commit([staged], 0)
    broker.kill()
    broker.start()
    writer.commit([staged], 0)
    assert texts(broker, "killed") == ["1", "2"]


def test_rows_say_what_their_messages_are(broker: Server) -> None:
    columns = {
        "body": ["low", "high"],
        "destination": ["said", "said"],
        "priority": [1, 9],
        "time_to_live_ms": [60_000, 60_000],
        "delivery_mode": ["NON_PERSISTENT", None],
        "correlation_id": ["c", None],
        "group_id": [None, "g"],
        "type": ["t", None],
    }
    properties = pa.array([[("colour", "red")], None], pa.map_(pa.string(), pa.string()))
    rows = pa.RecordBatch.from_pydict(columns | {"properties": properties})
    schema = BODY.add("destination", StringType())
    writer = BatchSink(sink_options({"url": url(broker), "ignoreUnknownColumns": "true"}), schema)
    writer.commit([writer.write(iter([rows]))])
    high, low = received(broker, "said")
    assert (high.priority, high.properties["JMSXGroupID"]) == (9, "g")
    assert (low.priority, low.correlation_id, low.type, low.properties["colour"]) == (1, "c", "t", "red")
    assert low.expiration is not None
    assert high.delivery_mode != low.delivery_mode


def test_a_duplicate_id_is_stored_once_over_all_batches(broker: Server, task: TaskContext) -> None:
    schema = StructType().add("body", StringType()).add("duplicate_id", StringType())
    for number in range(2):
        in_batch(task, number)
        writer = sink(broker, "ids", schema)
        rows = pa.RecordBatch.from_pydict({"body": [f"batch {number}"], "duplicate_id": ["same"]})
        writer.commit([writer.write(iter([rows]))], number)
    assert texts(broker, "ids") == ["batch 0"]


def test_rows_without_a_destination_are_told_of(broker: Server) -> None:
    schema = StructType().add("body", StringType()).add("destination", StringType())
    writer = BatchSink(sink_options({"url": url(broker)}), schema)
    rows = pa.RecordBatch.from_pydict({"body": ["x"], "destination": pa.array([None], pa.string())})
    with pytest.raises(Exception, match="names no destination"):
        writer.write(iter([rows]))


def test_a_commit_of_rows_that_are_gone_is_refused(broker: Server, task: TaskContext) -> None:
    writer = sink(broker, "gone")
    staged = write(writer, "1")
    writer.abort([staged], 0)
    with pytest.raises(JMSError, match="cannot be read"):
        writer.commit([staged], 0)


def test_columns_are_checked_before_anything_runs(broker: Server) -> None:
    with pytest.raises(ConfigError, match="no column body"):
        sink(broker, "q", StructType().add("text", StringType()))
    with pytest.raises(ConfigError, match="column priority is string; it is to be integral"):
        sink(broker, "q", StructType().add("body", StringType()).add("priority", StringType()))
    with pytest.raises(ConfigError, match="column size is unknown"):
        sink(broker, "q", StructType().add("body", StringType()).add("size", IntegerType()))

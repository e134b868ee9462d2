"""The sink, called as Spark calls it, against a real broker: whatever Spark repeats, each row becomes one message."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import (
    BinaryType,
    DateType,
    DecimalType,
    IntegerType,
    MapType,
    StringType,
    StructType,
    VariantType,
)

from legato.amqp.codec.types import Float, Int, Short
from legato.client import ConnectionFactory, Message, TextMessage
from legato.client.messages import PropertyValue
from legato.errors import ConfigError, JMSError, MessageFormatError
from legato.spark.connector.batch import BatchReader
from legato.spark.connector.options import sink_options, source_options
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
        while (message := consumer.receive_no_wait()) is not None:
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


def test_a_batch_with_other_rows_under_its_number_fails_the_query_and_can_be_told_not_to(
    broker: Server, task: TaskContext
) -> None:
    """Two queries from copies of one checkpoint: "published" is said of rows only that are in the queue."""
    first, second = sink(broker, "copies"), sink(broker, "copies")
    first.commit([write(first, "1", "2")], 0)
    staged = write(second, "3", "4")
    with pytest.raises(
        JMSError, match=r"Batch 0 of the sink copies is published, with other rows.*verifyRepeatedBatches"
    ):
        second.commit([staged], 0)
    second.abort([staged], 0)
    careless = sink(broker, "copies", verifyRepeatedBatches="false")
    careless.commit([write(careless, "5", "6")], 0)
    assert texts(broker, "copies") == ["1", "2"]


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


def test_what_passes_through_spark_keeps_its_types(broker: Server) -> None:
    """Numbers became text on the way, so that no selector such as `weight > 3` matched behind it."""
    typed = TextMessage("heavy")
    properties: dict[str, PropertyValue] = {
        "weight": 3.5,
        "count": 7,
        "large": 1 << 40,
        "fragile": True,
        "name": "vase",
        "nothing": None,
    }
    for name, value in properties.items():
        typed.set_property(name, value)
    typed.set_short_property("short", 3)
    typed.set_float_property("float", 0.1)
    with ConnectionFactory(url(broker)).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue("typed.in"))
        for message in (typed, TextMessage("plain")):
            producer.send(message)
    given = {"url": url(broker), "queue": "typed.in", "payload": "text"}
    reader = BatchReader(source_options(given | {"properties": "variant", "columns": "body,properties"}))
    rows = [batch for part in reader.partitions() for batch in reader.read(part)]
    schema = StructType().add("body", StringType()).add("properties", VariantType())
    writer = BatchSink(sink_options({"url": url(broker), "queue": "typed.out"}), schema)
    writer.commit([writer.write(iter(rows))])
    with ConnectionFactory(url(broker)).create_connection() as connection, connection.create_session() as session:
        selector = "weight > 3 AND fragile = TRUE AND count = 7 AND nothing IS NULL AND large > 1000000000000"
        consumer = session.create_consumer(session.create_queue("typed.out"), selector=selector)
        connection.start()
        found = consumer.receive(timeout_s=60)
        assert found is not None
        assert consumer.receive_no_wait() is None
    sent = {name: value for name, value in found.properties.items() if not name.startswith("JMSX")}
    assert sent == {**properties, "short": 3, "float": sent["float"]}
    assert (type(sent["short"]), type(sent["float"]), type(sent["count"])) == (Short, Float, Int)
    [plain] = received(broker, "typed.out")
    assert not [name for name in plain.properties if not name.startswith("JMSX")]


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (pa.int32(), 3, "3"),
        (pa.int64(), 3, "3"),
        (pa.float64(), 3.5, "3.5"),
        (pa.decimal128(5, 2), Decimal("3.50"), "3.5"),
        (pa.bool_(), True, "true"),
        (pa.string(), "3", "3"),
        (pa.binary(), b"3", "33"),
    ],
)
def test_maps_of_any_type_that_properties_have_are_written(
    broker: Server, kind: pa.DataType, value: object, text: str
) -> None:
    queue = f"maps.{type(kind).__name__}.{kind.bit_width if pa.types.is_primitive(kind) else 0}"
    properties = pa.array([[("a", value), ("b", None)], None], pa.map_(pa.string(), kind))
    rows = pa.RecordBatch.from_pydict({"body": pa.array([b"x", None], pa.binary()), "properties": properties})
    sparks = from_arrow_type(kind)
    schema = StructType().add("body", BinaryType()).add("properties", MapType(StringType(), sparks))
    writer = BatchSink(sink_options({"url": url(broker), "queue": queue}), schema)
    writer.commit([writer.write(iter([rows]))])
    reader = BatchReader(source_options({"url": url(broker), "queue": queue, "columns": "properties,body"}))
    back = [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]
    assert back == [{"properties": [("a", text), ("b", None)], "body": b"x"}, {"properties": None, "body": None}]
    first, _ = received(broker, queue)
    assert first.properties["a"] == value


@pytest.mark.parametrize("name", ["JMSXfoo", "JMSXGroupID", "JMSPriority", "JMS_LEGATO_x", "a b", "1a", "", "NULL"])
def test_names_that_no_property_may_have_are_told_with_row_and_column(broker: Server, name: str) -> None:
    """`JMSXfoo` vanished, others were stored."""
    schema = StructType().add("body", StringType()).add("properties", MapType(StringType(), StringType()))
    kind = pa.map_(pa.string(), pa.string())
    batches = [
        pa.RecordBatch.from_pydict({"body": ["1", "2"], "properties": pa.array([None, [("a", "x")]], kind)}),
        pa.RecordBatch.from_pydict({"body": ["3"], "properties": pa.array([[("a", "x"), (name, "y")]], kind)}),
    ]
    writer = BatchSink(sink_options({"url": url(broker), "queue": "named"}), schema)
    with pytest.raises(MessageFormatError, match=f"Row 3 of partition 0 .* column properties: .*{name}"):
        writer.write(iter(batches))


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
    with pytest.raises(JMSError) as told:
        writer.write(iter([rows]))
    assert str(told.value) == (
        "The rows of a task cannot be staged: A row names no destination: give the option queue or topic, or the "
        "column destination."
    ), "what gRPC adds helps nobody"


def test_a_commit_of_rows_that_are_gone_is_refused(broker: Server, task: TaskContext) -> None:
    writer = sink(broker, "gone")
    staged = write(writer, "1")
    writer.abort([staged], 0)
    with pytest.raises(JMSError, match="cannot be read"):
        writer.commit([staged], 0)


def test_columns_are_checked_before_anything_runs(broker: Server) -> None:
    with pytest.raises(ConfigError, match="no column body"):
        sink(broker, "q", StructType().add("text", StringType()))
    with pytest.raises(ConfigError, match="column priority is string; it is to be a whole number"):
        sink(broker, "q", StructType().add("body", StringType()).add("priority", StringType()))
    with pytest.raises(ConfigError, match="column size is unknown"):
        sink(broker, "q", StructType().add("body", StringType()).add("size", IntegerType()))
    with pytest.raises(ConfigError, match=r"no column body.*; rename value"):
        sink(broker, "q", StructType().add("value", StringType()))
    with pytest.raises(ConfigError, match="What is key elsewhere is correlation_id here"):
        sink(broker, "q", StructType().add("body", StringType()).add("key", StringType()))
    for value, said in ((DateType(), "map<string,date>; it is to be a map"), (DecimalType(38, 9), "no decimals")):
        with pytest.raises(ConfigError, match=said):
            sink(broker, "q", StructType().add("body", StringType()).add("properties", MapType(StringType(), value)))

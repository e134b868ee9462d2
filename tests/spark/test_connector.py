"""`format("legato")` in a real Spark: tables, streams, SQL, and rows that become messages exactly once."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from legato.client import BytesMessage, ConnectionFactory, TextMessage
from legato.spark.lag import LagListener
from tests.support.server import Server, server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("connector") / "store") as running:
        yield running


@pytest.fixture
def url(broker: Server) -> str:
    return f"amqp://127.0.0.1:{broker.port}"


def fill(url: str, address: str, *texts: str) -> None:
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue(address))
        for text in texts:
            producer.send(TextMessage(text))


def drain(url: str, address: str, count: int) -> list[str]:
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue(address))
        connection.start()
        found = []
        for _ in range(count):
            message = consumer.receive(timeout_s=60)
            assert isinstance(message, TextMessage | BytesMessage)
            found.append(message.body if isinstance(message.body, str) else bytes(message.body or b"").decode())
        assert consumer.receive_no_wait() is None
        return found


def read(spark: SparkSession, url: str, queue: str, **options: str) -> DataFrame:
    return spark.read.format("legato").options(url=url, queue=queue, payload="text", **options).load()


def pass_on(spark: SparkSession, url: str, source: str, sink: str, checkpoint: Path, limit: int = 0) -> StreamingQuery:
    rows = (
        spark.readStream.format("legato")
        .option("url", url)
        .option("queue", source)
        .option("subscription", "spark")
        .option("payload", "text")
        .option("maxOffsetsPerTrigger", limit)
        .load()
        .select(F.upper("body").alias("body"), "priority")
    )
    query = (
        rows.writeStream.format("legato")
        .option("url", url)
        .option("queue", sink)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return query


def test_a_queue_is_a_table_that_stays(spark: SparkSession, url: str) -> None:
    fill(url, "table", *map(str, range(100)))
    table = read(spark, url, "table")
    assert sorted(int(row.body) for row in table.select("body").collect()) == list(range(100))
    assert table.where("seq > 90").count() == 10
    assert read(spark, url, "table").count() == 100


def test_an_empty_queue_is_a_table_without_rows(spark: SparkSession, url: str) -> None:
    """`AttributeError: 'InputPartition' object has no attribute 'range'`, whenever nothing waited."""
    fill(url, "emptied", "1")
    assert drain(url, "emptied", 1) == ["1"]
    assert read(spark, url, "emptied").count() == 0
    assert read(spark, url, "emptied", columns="seq", startingOffsets="latest").limit(5).collect() == []
    fill(url, "old", "1")
    assert read(spark, url, "old", startingTimestamp="9999999999999").select("body").collect() == []


def test_properties_keep_their_types_in_a_variant(spark: SparkSession, url: str) -> None:
    typed = TextMessage("typed")
    typed.set_property("weight", 2.5)
    typed.set_property("count", 3)
    typed.set_property("fragile", True)
    typed.set_property("name", "vase")
    with ConnectionFactory(url).create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(session.create_queue("variant"))
        for message in (typed, typed, TextMessage("plain")):
            producer.send(message)
    rows = read(spark, url, "variant", properties="variant").selectExpr(
        "body",
        "properties:weight::double as weight",
        "properties:count::int as count",
        "properties:fragile::boolean as fragile",
        "schema_of_variant(properties) as types",
    )
    types = "OBJECT<count: BIGINT, fragile: BOOLEAN, name: STRING, weight: DOUBLE>"
    known = ("typed", 2.5, 3, True, types)
    assert sorted(map(tuple, rows.collect())) == [("plain", None, None, None, None), known, known]
    sent_on = read(spark, url, "variant", properties="variant").select("body", "properties")
    made = spark.sql(
        "select 'map' as body, to_variant_object(map('weight', 2.5D)) as properties "
        "union all select 'json', parse_json('{\"weight\": 2.5, \"count\": 3}')"
    )
    sent_on.union(made).write.format("legato").option("url", url).option("queue", "sent on").mode("append").save()
    rows = spark.sql("select 'numbers' as body, map('weight', 3, 'count', null) as properties")
    rows.write.format("legato").option("url", url).option("queue", "sent on").mode("append").save()
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue("sent on"), selector="weight > 2 AND weight < 4")
        connection.start()
        messages = [consumer.receive(timeout_s=60) for _ in range(5)]
    bodies = sorted(message.body for message in messages if isinstance(message, TextMessage) and message.body)
    assert bodies == ["json", "map", "numbers", "typed", "typed"]
    assert drain(url, "sent on", 1) == ["plain"]
    bad = spark.sql("select 'x' as body, map('a b', 'c') as properties")
    with pytest.raises(
        Exception, match=r"Row 1 of partition 0 .* column properties: 'a b' cannot name a property"
    ) as told:
        bad.write.format("legato").option("url", url).option("queue", "sent on").mode("append").save()
    assert "Traceback" not in str(told.value), "calls of the sink are no news to who wrote the row"


def test_a_stream_goes_on_behind_a_body_that_is_too_large_for_a_row(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    """It ended the stream for good."""
    fill(url, "oversized", "1", "x" * (2 << 20), "2")
    few = spark.read.format("legato").options(url=url, queue="oversized", payload="text", maxBodyBytes="1000")
    rows = few.schema("seq bigint, omitted_body_bytes bigint, body string").load().orderBy("seq").collect()
    assert list(map(tuple, rows)) == [(1, None, "1"), (2, 2 << 20, None), (3, None, "2")]
    stream = spark.readStream.format("legato").options(
        url=url, queue="oversized", subscription="s", maxBodyBytes="1000"
    )
    parquet = (
        stream.option("payload", "text").load().writeStream.format("parquet").option("path", str(tmp_path / "out"))
    )
    parquet.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start().awaitTermination()
    written = spark.read.parquet(str(tmp_path / "out")).orderBy("seq").collect()
    assert [(row.body, row.omitted_body_bytes) for row in written] == [("1", None), (None, 2 << 20), ("2", None)]


def test_a_queue_is_a_table_in_sql(spark: SparkSession, url: str) -> None:
    fill(url, "sql", "1", "2", "3")
    spark.sql(f"CREATE TABLE waiting USING legato OPTIONS (url '{url}', queue 'sql', payload 'text')")
    spark.sql("CREATE TABLE summed (body STRING) USING legato")
    spark.sql(f"INSERT INTO summed WITH (url = '{url}', queue = 'sums') SELECT sum(cast(body AS int)) FROM waiting")
    assert drain(url, "sums", 1) == ["6"]
    assert spark.sql("SELECT body FROM waiting WHERE seq = 2").collect()[0].body == "2"
    spark.sql("DROP TABLE waiting")
    spark.sql("DROP TABLE summed")


def test_a_stream_passes_on_what_comes_exactly_once_over_restarts(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    fill(url, "in", *(f"a{n}" for n in range(50)))
    told: SimpleQueue[dict[str, int]] = SimpleQueue()
    listener = LagListener(lambda _, waiting: told.put(waiting))
    spark.streams.addListener(listener)
    first = pass_on(spark, url, "in", "out", tmp_path, limit=20)
    assert [progress["numInputRows"] for progress in first.recentProgress if progress["numInputRows"]] == [20, 20, 10]
    assert [told.get(timeout=60) for _ in range(3)] == [{"in": 30}, {"in": 10}, {"in": 0}]
    spark.streams.removeListener(listener)
    fill(url, "in", *(f"b{n}" for n in range(30)))
    last = pass_on(spark, url, "in", "out", tmp_path)
    assert '"in": 80' in last.recentProgress[-1]["sources"][0]["latestOffset"]
    expected = [f"A{n}" for n in range(50)] + [f"B{n}" for n in range(30)]
    assert sorted(drain(url, "out", 80)) == sorted(expected)


def test_a_batch_whose_commit_spark_forgot_is_not_published_twice(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    fill(url, "forgotten", "1", "2", "3")
    pass_on(spark, url, "forgotten", "once", tmp_path)
    for commit in (tmp_path / "commits").glob("*0*"):
        commit.unlink()
    pass_on(spark, url, "forgotten", "once", tmp_path)
    assert sorted(drain(url, "once", 3)) == ["1", "2", "3"]


@pytest.mark.slow
def test_queries_from_copies_of_one_checkpoint_lose_no_rows_that_were_said_to_be_published(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    """The second one fails at its first batch under a number of the first one."""
    original, copy, rows = tmp_path / "original", tmp_path / "copy", tmp_path / "rows"

    def run(checkpoint: Path) -> None:
        lines = spark.readStream.text(str(rows)).selectExpr("value as body")
        query = lines.writeStream.format("legato").option("url", url).option("queue", "copied")
        query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start().awaitTermination()

    rows.mkdir()
    (rows / "1.txt").write_text("a\nb\n")
    run(original)
    shutil.copytree(original, copy)
    (rows / "2.txt").write_text("c\nd\n")
    run(original)
    (rows / "3.txt").write_text("e\nf\n")
    with pytest.raises(StreamingQueryException, match=r"Batch 1 of the sink \S+ is published, with other rows"):
        run(copy)
    run(original)
    assert sorted(drain(url, "copied", 6)) == ["a", "b", "c", "d", "e", "f"]


def test_a_table_becomes_messages(spark: SparkSession, url: str) -> None:
    rows = spark.createDataFrame([("a", 9, "x"), ("b", 1, "y")], "body string, priority int, correlation_id string")
    rows.coalesce(1).write.format("legato").option("url", url).option("queue", "written").mode("append").save()
    assert drain(url, "written", 2) == ["a", "b"]


def test_mistakes_are_told_by_the_options_name(spark: SparkSession, url: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match="maxOffsetsPerTrigger wants a whole number"):
        spark.read.format("legato").option("url", url).option("queue", "q").option("maxOffsetsPerTrigger", "x").load()
    rows = spark.createDataFrame([("a",)], "text string")
    with pytest.raises(Exception, match="no column body"):
        rows.write.format("legato").option("url", url).option("queue", "q").mode("append").save()
    with pytest.raises(Exception, match="'subscribe' is unknown: use queue or topic"):
        spark.readStream.format("legato").option("url", url).option("subscribe", "q").load()
    stream = spark.readStream.format("legato").option("url", url).option("queue", "q").load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(StreamingQueryException) as failed:
        query.awaitTermination()
    said, first, *rest = str(failed.value).splitlines()
    assert [said] == failed.value.__notes__, "what a user reads comes first, and last"
    assert first.endswith(
        "legato.errors.ConfigError: A stream needs the option subscription: under that name the broker keeps its place."
    ), "Spark's own words come before it; nothing of Python's does"
    assert not any("Traceback" in line or "UnboundLocalError" in line for line in rest)
    assert failed.value.__notes__ == [
        "Legato: A stream needs the option subscription: under that name the broker keeps its place."
    ], "what Python prints last, behind Spark's offsets and plans"


@pytest.mark.slow
def test_a_table_of_files_without_its_checkpoint_loses_no_message(
    spark: SparkSession, url: str, tmp_path: Path
) -> None:
    """Spark skips batches of numbers that the table has; the stream acknowledged their messages unread."""

    def run() -> None:
        stream = spark.readStream.format("legato").options(url=url, queue="skipped", subscription="skipped").load()
        files = stream.select("body").writeStream.format("parquet").option("path", str(tmp_path / "table"))
        query = files.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()
        query.awaitTermination()

    for text in ("first", "second"):
        fill(url, "skipped", text)
        run()
    shutil.rmtree(tmp_path / "checkpoint")
    fill(url, "skipped", "third")
    for _ in "01":  # Once for each batch that the table has.
        with pytest.raises(StreamingQueryException, match="Spark skipped a batch and read none of its messages"):
            run()
        assert read(spark, url, "skipped").count() == 1
    run()
    assert spark.read.parquet(str(tmp_path / "table")).count() == 3


def test_a_batch_that_comes_again_is_in_the_database_once(spark: SparkSession, url: str, tmp_path: Path) -> None:
    """The function of docs/howto/pipeline.md, and a driver that ends between its transaction and Spark's commit."""
    page = (Path(__file__).parents[2] / "docs" / "howto" / "pipeline.md").read_text()
    function = page.partition("def store(")[2].partition("\n\n\n")[0]
    names = {"sqlite3": sqlite3, "database": str(tmp_path / "orders.db"), "DataFrame": DataFrame}
    exec("def store(" + function, names)
    fill(url, "database", "one", "two")
    stream = spark.readStream.format("legato").option("url", url).option("queue", "database")
    messages = stream.option("subscription", "database").option("payload", "text").load()
    called: list[int] = []

    def store(batch: DataFrame, number: int) -> None:
        names["store"](batch, number)  # type: ignore[operator]
        called.append(number)
        if len(called) == 1:
            raise RuntimeError("the driver ends here")

    def run() -> None:
        writer = messages.writeStream.foreachBatch(store).option("checkpointLocation", str(tmp_path / "checkpoint"))
        writer.trigger(availableNow=True).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="the driver ends here"):
        run()
    fill(url, "database", "three")
    run()
    assert called == [0, 0, 1]
    with sqlite3.connect(tmp_path / "orders.db") as database:
        assert [body for (body,) in database.execute("select body from orders order by rowid")] == [
            "one",
            "two",
            "three",
        ]

"""The batch source, called as Spark calls it, against a real broker: what waits is shown, and stays."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from pyspark.sql.datasource import InputPartition

from legato.client import ConnectionFactory, TextMessage
from legato.errors import ConfigError, JMSError
from legato.spark.connector.batch import BatchReader
from legato.spark.connector.options import source_options
from legato.spark.connector.reading import close_clients
from legato.spark.connector.requests import close_shared
from tests.support.server import Server, server


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("batch") / "store") as running:
        yield running


def batches(broker: Server, *, url: str = "", **options: str) -> list[pa.RecordBatch]:
    given = {"url": url or f"amqp://127.0.0.1:{broker.port}", "payload": "text"}
    reader = BatchReader(source_options(given | options))
    parts: list[InputPartition] = [*reader.partitions()]
    # As PySpark does: where there are no partitions, it makes up one.
    return [batch for part in parts or [InputPartition(None)] for batch in reader.read(part)]


def browsed(broker: Server, *, url: str = "", **options: str) -> list[str]:
    return sorted(row["body"] for batch in batches(broker, url=url, **options) for row in batch.to_pylist())


def test_what_a_batch_does_not_find_is_said_in_a_sentence(broker: Server) -> None:
    """It was `There is no queue, subscription or assignment`, below the stack trace of a request."""
    for places, said in (
        ({"queue": "mistyped"}, "There is no queue mistyped. A batch creates none; `legato queues` lists"),
        ({"topic": "clicks", "subscription": "mistyped"}, "There is no subscription mistyped. .*`legato subscr"),
    ):
        with pytest.raises(ConfigError, match=said) as told:
            batches(broker, **places)
        assert [entry.name for entry in told.traceback][1:] == ["batches", "call"]


def test_where_nothing_waits_there_are_no_rows(broker: Server) -> None:
    """`AttributeError: 'InputPartition' object has no attribute 'range'` ended every job over what waits."""
    with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection:
        session = connection.create_session()
        for name in ("empty.a", "empty.b", "emptied"):
            session.create_producer(session.create_queue(name))
        session.create_shared_durable_consumer(session.create_topic("empty.topic"), "nobody").close()
        session.create_producer(session.create_queue("emptied")).send(TextMessage("taken"))
        connection.start()
        assert session.create_consumer(session.create_queue("emptied")).receive(timeout_s=60) is not None
    for places in (
        {"queue": "empty.a"},
        {"queue": "emptied"},
        {"queues": "empty.a,empty.b"},
        {"queuePattern": "empty.*"},
        {"queuePattern": "nothing.is.called.so"},
        {"topic": "empty.topic", "subscription": "nobody"},
    ):
        for more in (
            {},
            {"columns": "seq"},
            {"startingOffsets": "latest"},
            {"startingTimestamp": "9999999999999"},
            {"selector": "a = 1", "properties": "variant"},
        ):
            assert batches(broker, **places, **more) == []


def test_a_batch_shows_a_subscription_of_a_client_id_by_its_address(broker: Server) -> None:
    with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}?client_id=me").create_connection() as connection:
        session = connection.create_session()
        topic = session.create_topic("owned.news")
        session.create_durable_consumer(topic, "analysts").close()
        session.create_producer(topic).send(TextMessage("told"))
    assert browsed(broker, topic="owned.news", subscription="subscription://me/analysts") == ["told"]
    with pytest.raises(ConfigError, match="There is no subscription analysts"):
        batches(broker, topic="owned.news", subscription="analysts")


def test_a_selector_shows_what_a_browser_with_it_would(broker: Server) -> None:
    """Of a queue, nothing is taken."""
    with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(session.create_queue("selected"))
        for number in range(10):
            message = TextMessage(str(number))
            message.set_property("number", number)
            producer.send(message)
    assert browsed(broker, queue="selected", selector="number > 6") == ["7", "8", "9"]
    assert len(browsed(broker, queue="selected")) == 10


def test_times_of_storing_bound_a_batch(broker: Server) -> None:
    with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(session.create_queue("timed"))
        producer.send(TextMessage("before"))
        between_ms = time.time_ns() // 1_000_000 + 1
        while time.time_ns() // 1_000_000 <= between_ms:
            pass
        producer.send(TextMessage("after"))
    assert browsed(broker, queue="timed", startingTimestamp=str(between_ms)) == ["after"]
    assert browsed(broker, queue="timed", startingOffsetsByTimestamp=f'{{"timed": {between_ms}}}') == ["after"]
    assert browsed(broker, queue="timed", endingTimestamp=str(between_ms)) == ["before"]
    strictly = {"queue": "timed", "startingOffsetsByTimestampStrategy": "error"}
    assert sorted(browsed(broker, **strictly)) == ["after", "before"]
    assert browsed(broker, startingTimestamp=str(between_ms), **strictly) == ["after"]
    later = str(between_ms + 60_000)
    assert browsed(broker, queue="timed", startingTimestamp=later) == []
    with pytest.raises(ConfigError, match=f"Nothing was stored in timed at the starting timestamp {later}"):
        browsed(broker, startingTimestamp=later, **strictly)


def test_what_has_expired_is_not_shown(broker: Server) -> None:
    with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(session.create_queue("expiring"))
        producer.send(TextMessage("lasting"))
        producer.time_to_live_ms = 1
        producer.send(TextMessage("short"))
    assert browsed(broker, queue="expiring") == ["lasting"]
    assert sum(batch.num_rows for batch in batches(broker, queue="expiring", columns="seq")) == 1


def test_a_body_that_is_too_large_is_null_with_its_size_beside_it(
    broker: Server, caplog: pytest.LogCaptureFixture
) -> None:
    """One such message made every read of its queue fail, and what lay behind it was not reached."""
    sizes = [10, 3 << 20, 2000, 20, 5 << 20]
    with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(session.create_queue("oversized"))
        for size in sizes:
            message = TextMessage("x" * size)
            message.set_property("size", size)
            producer.send(message)

    def shown(**options: str) -> list[dict[str, object]]:
        found = batches(broker, queue="oversized", **options)
        return sorted((row for batch in found for row in batch.to_pylist()), key=lambda row: str(row.get("seq")))

    for more in ({}, {"payload": "binary"}):
        rows = shown(maxBodyBytes="1000", columns="seq,properties,body,omitted_body_bytes", **more)
        assert [row["properties"] for row in rows] == [[("size", str(size))] for size in sizes]
        assert [row["omitted_body_bytes"] for row in rows] == [None, 3 << 20, 2000, None, 5 << 20]
        assert [row["body"] is None for row in rows] == [False, True, True, False, True]
    assert "Message 2 of oversized has a body of 3145728 bytes, more than 1000" in caplog.text
    assert [len(str(row["body"])) for row in shown(maxBodyBytes="1000", oversizedBodies="skip")] == [10, 20]
    with pytest.raises(JMSError, match=r"Message 2 of oversized has a body of 3145728 bytes.*oversizedBodies"):
        shown(maxBodyBytes="1000", oversizedBodies="fail")
    without = shown(maxBodyBytes="1", oversizedBodies="fail", includeBody="false")
    assert [row["properties"] for row in without] == [[("size", str(size))] for size in sizes]
    assert [len(str(row["body"])) for row in shown(oversizedBodies="fail")] == sizes


def test_few_rows_of_many_queues_are_one_task(broker: Server) -> None:
    with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection:
        session = connection.create_session(transacted=True)
        for number in range(40):
            session.create_producer(session.create_queue(f"many.{number}")).send(TextMessage(str(number)))
        session.commit()
    options = source_options({"url": f"amqp://127.0.0.1:{broker.port}", "queuePattern": "many.*"})
    assert len(BatchReader(options).partitions()) == 1
    assert len(BatchReader(msgspec.structs.replace(options, min_partitions=4)).partitions()) == 4
    assert browsed(broker, queuePattern="many.*") == sorted(map(str, range(40)))


def test_ranges_cross_tls(tmp_path: Path) -> None:
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *subject]
    subprocess.run([*made, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    secure = {"LEGATO_TLS_CERTIFICATE": str(certificate), "LEGATO_TLS_KEY": str(key)}
    with server(tmp_path / "store", environment=secure) as broker:
        url = f"amqps://127.0.0.1:{broker.port}?tls_ca_file={certificate}"
        with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
            session.create_producer(session.create_queue("secret")).send(TextMessage("hidden"))
        assert browsed(broker, url=url, queue="secret") == ["hidden"]
        close_clients()
        close_shared()

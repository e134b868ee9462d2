"""Spark's connector with a broker that has TLS, users and roles: each reads and writes what its roles say."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from legato.client import ConnectionFactory, TextMessage
from tests.integration.server.test_logins import add
from tests.support.server import Server, server

SETTINGS = """
[tls]
certificate = "{0}/server.pem"
key = "{0}/server.pem"
[[role]]
name = "analysts"
members = ["ann"]
allow = [
  {{ on = "invoices", may = ["bulk", "browse"] }},
  {{ on = "summaries", may = ["bulk", "send"] }},
]
[[role]]
name = "all"
members = ["root"]
allow = [{{ on = "#", may = ["send", "receive", "browse", "create", "bulk"] }}]
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    directory = tmp_path_factory.mktemp("secured")
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(directory / "ca.pem"))
    (directory / "server.pem").touch(mode=0o600)
    issued = authority.issue_cert("localhost")
    issued.private_key_and_cert_chain_pem.write_to_path(str(directory / "server.pem"))
    store = directory / "store"
    store.mkdir(mode=0o700)
    for name in ("ann", "root"):
        add(store / "users", name, "pass word")
    (directory / "legato.toml").write_text(SETTINGS.format(directory))
    with server(store, "--config", str(directory / "legato.toml")) as running:
        url = f"amqps://root:pass%20word@localhost:{running.port}?tls_ca_file={directory}/ca.pem"
        with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
            for queue in ("invoices", "salaries", "summaries"):
                session.create_producer(session.create_queue(queue)).send(TextMessage(f"in {queue}"))
        yield running


def options_of(broker: Server, user: str = "ann", password: str = "pass word") -> dict[str, str]:
    return {
        "url": f"amqps://localhost:{broker.port}",
        "user": user,
        "password": password,
        "tls.ca_file": str(broker.store.parent / "ca.pem"),
        "payload": "text",
        "fetchOffset.numRetries": "2",
    }


def read(spark: SparkSession, broker: Server, queue: str) -> DataFrame:
    return spark.read.format("legato").options(queue=queue, **options_of(broker)).load()


def test_a_user_reads_what_its_role_allows_and_nothing_else(spark: SparkSession, broker: Server) -> None:
    assert [row.body for row in read(spark, broker, "invoices").collect()] == ["in invoices"]
    with pytest.raises(PySparkException, match=r"'ann', with the roles analysts, lacks .* bulk on 'salaries'"):
        read(spark, broker, "salaries").collect()


def test_a_user_writes_where_its_role_allows_and_nowhere_else(spark: SparkSession, broker: Server) -> None:
    frame = spark.createDataFrame([("a",), ("b",)], "body string")
    options = options_of(broker)
    del options["payload"], options["fetchOffset.numRetries"]
    frame.write.format("legato").mode("append").options(queue="summaries", **options).save()
    with pytest.raises(PySparkException, match="send on 'invoices'"):
        frame.write.format("legato").mode("append").options(queue="invoices", **options).save()


def test_a_stream_of_a_user_without_the_permission_ends_with_the_sentence(
    spark: SparkSession, broker: Server, tmp_path: Path
) -> None:
    options = options_of(broker) | {"subscription": "spark"}
    for queue, ends in (("invoices", False), ("salaries", True)):
        rows = spark.readStream.format("legato").options(queue=queue, **options).load()
        query = (
            rows.writeStream.format("memory")
            .queryName(f"of_{queue}")
            .option("checkpointLocation", str(tmp_path / queue))
            .trigger(availableNow=True)
            .start()
        )
        try:
            if ends:
                with pytest.raises(PySparkException, match="bulk on 'salaries'") as told:
                    query.awaitTermination(60)
                assert "Traceback" not in str(told.value)
            else:
                assert query.awaitTermination(60)
                assert spark.table("of_invoices").count() == 1
        finally:
            query.stop()


def test_a_wrong_password_is_told_at_once(spark: SparkSession, broker: Server) -> None:
    options = options_of(broker, password="wrong")
    with pytest.raises(PySparkException, match="password"):
        spark.read.format("legato").options(queue="invoices", **options).load().collect()

"""A stream that ends where it began has acknowledged all that it did; one that begins where no stream was says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from legato.client import ConnectionFactory, TextMessage
from legato.errors import ConfigError
from legato.spark.connector.options import source_options
from legato.spark.connector.requests import shared_requests
from legato.spark.connector.stream import StreamReader
from tests.support.server import Server, server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "store") as running:
        yield running


def fill(url: str, *texts: str) -> None:
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue("orders"))
        for text in texts:
            producer.send(TextMessage(text))


@pytest.mark.parametrize("limit", [2, 3])
def test_what_comes_while_its_last_batch_is_done_does_not_leave_that_unacknowledged(broker: Server, limit: int) -> None:
    """What was planned ahead was for no batch, and nothing was asked of the broker any more."""
    url = f"amqp://127.0.0.1:{broker.port}"
    fill(url, "1", "2", "3")
    reader = StreamReader(source_options({"url": url, "queue": "orders", "subscription": "spark"}))
    reader.prepareForTriggerAvailableNow()
    begun = reader.initialOffset()
    fill(url, "4")
    ends = begun
    while (after := reader.latestOffset(ends, ReadMaxRows(limit))) != ends:
        assert reader.partitions(ends, after)
        ends = after
    reader.stop()
    assert ends == {"orders": 3}
    told = shared_requests(url).ask("open", "assignment", subscription="spark", address="orders", topic=False)
    assert told["acknowledged"] == 3


@pytest.mark.parametrize("offset", [{"orders": {"0": 12}}, {"orders": "1"}, {"orders": -1}, 12, None], ids=repr)
def test_a_checkpoint_of_another_format_is_told(broker: Server, offset: Any) -> None:
    """Kafka's, for one, of who changed the format alone: it was a bare `TypeError`."""
    url = f"amqp://127.0.0.1:{broker.port}"
    fill(url, "1", "2")
    asks: list[Callable[[StreamReader], object]] = [
        lambda reader: reader.latestOffset(offset, ReadMaxRows(1)),
        lambda reader: reader.partitions(offset, {"orders": 1}),
        lambda reader: reader.partitions({"orders": 0}, offset),
        lambda reader: reader.commit(offset),
    ]
    for ask in asks:
        reader = StreamReader(source_options({"url": url, "queue": "orders", "subscription": "spark"}))
        with pytest.raises(ConfigError, match="begun with another format"):
            ask(reader)
        reader.stop()

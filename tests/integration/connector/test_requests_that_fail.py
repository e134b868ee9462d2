"""A request that cannot be sent leaves no connection behind."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.errors import JMSError
from legato.spark.connector.requests import Requests
from tests.support.server import Server, server


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "store") as running:
        yield running


def test_a_request_that_cannot_be_spelled_leaves_no_connection_open(broker: Server) -> None:
    """Each query of a notebook with such a name had one more, until its driver ended."""
    requests = Requests(f"amqp://127.0.0.1:{broker.port}")
    for _ in range(3):
        requests.ask("query", "queue", count=1)
        with pytest.raises(JMSError):
            requests.ask("read", "queue", "half a character: \ud800")
    told = requests.ask("query", "connection")
    requests.close()
    assert len(told["results"]) == 1

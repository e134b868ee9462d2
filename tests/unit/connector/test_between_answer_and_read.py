"""A broker, or its process for bulk, that goes between the answer with a ticket and what the ticket is for."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from legato.bulk.requests import PlannedPart
from legato.errors import JMSError
from legato.spark.connector import batch, reading
from legato.spark.connector.batch import BatchReader
from legato.spark.connector.offsets import Range
from legato.spark.connector.options import source_options
from legato.spark.connector.requests import Patience, Requests

EACH = Range("q", "assignment://s/q", 0, 2)
FRAME = pa.RecordBatch.from_pydict({"seq": pa.array([1, 2], pa.int64())})
PATIENCE = Patience(retries=3, pause_s=0.0)


class Bulk:
    """A client of the process for bulk, which is another one at first."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def do_get(self, *_: Any) -> list[Any]:
        self._fail()
        return [SimpleNamespace(data=FRAME, app_metadata=None)]

    def do_action(self, *_: Any) -> list[Any]:
        self._fail()
        return [SimpleNamespace(body=pa.py_buffer(msgspec.msgpack.encode([PlannedPart(0, 2, 2, b"")])))]

    def close(self) -> None:
        """Nothing is kept."""

    def _fail(self) -> None:
        if self.failures:
            self.failures -= 1
            raise flight.FlightUnavailableError("failed to connect")


def requests_of(hosts: list[str | None]) -> Requests:
    """Requests to a broker whose connection is, or is not, there whenever it is looked at."""
    requests = Requests("amqp://one", PATIENCE)

    class Connection:
        """Of the requests."""

        @property
        def host(self) -> str | None:
            return hosts.pop(0)

    requests._connection = cast(Any, Connection())
    told = {"port": 1, "tls": False, "ticket": "00"}
    cast(Any, requests).ask = lambda *_args, **_arguments: told
    return requests


@pytest.fixture
def connect_to(monkeypatch: pytest.MonkeyPatch) -> Callable[[Bulk], None]:
    """Has every connection to a process for bulk be one to that."""

    def connect_to(bulk: Bulk) -> None:
        monkeypatch.setattr(reading, "connect", lambda *_args, **_options: bulk)
        monkeypatch.setattr(reading, "_clients", {})

    return connect_to


def test_a_range_is_read_though_the_broker_goes_right_behind_its_answer(connect_to: Callable[[Bulk], None]) -> None:
    """`No broker of one:5672 serves now`: at a failover, the task failed, and with it the query."""
    connect_to(Bulk(0))
    assert list(reading.read_frames(requests_of([None, None, "one:5672"]), EACH)) == [FRAME]


def test_rows_are_staged_though_the_broker_goes_right_behind_its_answer() -> None:
    requests = requests_of([None, "one:5672"])
    hosts: list[str] = []
    reading.retried(lambda: hosts.append(requests.host), "They cannot be staged", PATIENCE)
    assert hosts == ["one:5672"]


def test_a_broker_that_does_not_come_back_is_told() -> None:
    with pytest.raises(JMSError, match=r"cannot be read: No broker of .* serves now"):
        list(reading.read_frames(requests_of([None] * 9), EACH))


@pytest.mark.parametrize("hosts", [["one:5672"] * 3, [None, "one:5672", "one:5672", "one:5672"]])
def test_a_batch_is_planned_though_the_process_for_bulk_is_another_one(
    connect_to: Callable[[Bulk], None], monkeypatch: pytest.MonkeyPatch, hosts: list[str | None]
) -> None:
    """`FlightUnavailableError`, at once: ranges are read over a failover, and were not planned over one."""
    connect_to(Bulk(2))
    requests = requests_of(list(hosts))
    monkeypatch.setattr(requests, "_connection", requests._connection)
    monkeypatch.setattr(Requests, "group", property(lambda _requests: ""))
    monkeypatch.setattr(batch, "shared_requests", lambda *_args, **_options: requests)
    reader = BatchReader(source_options({"url": "amqp://one", "queue": "q"}))
    assert [part.ranges for part in reader.partitions()] == [[Range("q", "q", 0, 2)]]

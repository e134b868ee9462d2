"""Three servers for the tests of a module, and a log of its own for each test."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from legato.processes.log_servers import LogServers
from legato.replication.log import ReplicatedLog
from legato.replication.nats import NatsSettings, open_log
from legato.testing.log_servers import log_servers


@pytest.fixture(scope="module")
def servers() -> Iterator[LogServers]:
    """Three servers, all healthy when they are got; a test that breaks one mends it."""
    with log_servers() as running:
        yield running


@pytest.fixture
def new_log(servers: LogServers) -> Iterator[Callable[[], ReplicatedLog]]:
    """One more broker's object for the same new log."""
    settings = NatsSettings(servers.url, f"g{uuid4().hex[:12]}")
    logs: list[ReplicatedLog] = []

    def new() -> ReplicatedLog:
        logs.append(open_log(settings))
        return logs[-1]

    yield new
    for log in logs:
        log.close()

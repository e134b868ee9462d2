"""Three servers for the tests of a module, and a log of its own for each test."""

from collections.abc import Callable, Iterator
from uuid import uuid4

import pytest

from legato.processes.log_servers import LogServers
from legato.replication.log import ReplicatedLog
from legato.replication.nats import NatsSettings, open_log
from tests.support.replicated import group, servers

__all__ = ["group", "new_log", "servers"]


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

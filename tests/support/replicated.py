"""Brokers of one group, each with a store of its own, over a log on real servers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from legato.client import ConnectionFactory, TextMessage
from legato.processes.log_servers import LogServer, LogServers
from legato.replication.nats import NatsSettings, open_log
from legato.store.lmdb import LmdbStore
from legato.testing.log_servers import log_servers
from tests.support.server import Server

WAIT_S = 60.0
_groups = itertools.count(1)


class Group:
    """Brokers of one group, by name."""

    def __init__(self, servers: LogServers, directory: Path) -> None:
        self.servers = servers
        self.name = f"group-{next(_groups)}"
        self._directory = directory
        self.brokers: dict[str, Server] = {}

    def add(self, name: str, *flags: str, config: Path | None = None, **environment: str) -> Server:
        """A broker that has not started."""
        flags = flags if config is None else (*flags, "--config", str(config))
        (directory := self._directory / name).mkdir()
        replicate = ("--replicate", self.servers.url, "--group", self.name)
        self.brokers[name] = broker = Server(directory / "store", *replicate, *flags, environment=environment)
        return broker

    def log_server(self, *, leads: bool) -> LogServer:
        """One that leads the group's log, or does not."""
        log = open_log(NatsSettings(self.servers.url, self.name))
        leader = log.health().leader
        log.close()
        return next(server for server in self.servers.servers if (server.name == leader) is leads)

    def start(self, name: str, role: str, config: Path | None = None, **environment: str) -> Server:
        """A broker that has taken a role."""
        broker = self.add(name, config=config, **environment).start()
        broker.wait_for_role(role)
        return broker

    @property
    def url(self) -> str:
        return "amqp://" + ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers.values())

    def stop_all(self) -> None:
        """All of them end cleanly, the primary last, so that the others have all that there is."""
        for broker in sorted(self.brokers.values(), key=lambda broker: broker.role.startswith("active")):
            if broker._process is not None and broker._process.poll() is None:
                broker.stop()

    def kill_all(self) -> None:
        for broker in self.brokers.values():
            if broker._process is not None and broker._process.poll() is None:
                broker.kill()


@pytest.fixture(scope="module")
def servers() -> Iterator[LogServers]:
    """Three servers of a log, all healthy when they are got; a test that breaks one mends it."""
    with log_servers() as running:
        yield running


@pytest.fixture
def group(servers: LogServers, tmp_path: Path) -> Iterator[Group]:
    """A group without brokers; those that a test adds end with it."""
    group = Group(servers, tmp_path)
    yield group
    group.kill_all()


def received(url: str) -> list[str | None]:
    """All that waits in the queue, as the broker says when it is asked for more than that."""
    texts: list[str | None] = []
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue("q"))
        connection.start()
        while (message := consumer.receive_no_wait()) is not None:
            assert isinstance(message, TextMessage)
            texts.append(message.text)
    return texts


def eventually(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def commits_of(broker: Server) -> int:
    store = LmdbStore(broker.store, read_only=True)
    try:
        return store.log_range()[1]
    finally:
        store.close()

"""Two groups of one broker each, which go by one map."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from legato.client import Connection, ConnectionFactory
from legato.groups.group_map import Directory, from_tables
from tests.support.server import Server, free_port, server

Connect = Callable[..., Connection]


class Groups:
    """The brokers `orders` and `rest`, and their map, in which `orders.#` is pinned to the first."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.map_file = directory / "groups.toml"
        self.ports = {name: free_port() for name in ("orders", "rest")}
        self.revision = 0
        self.brokers: dict[str, Server] = {}
        self.write_map({"orders.#": "orders", "rest.#": "rest"})

    def write_map(self, pins: dict[str, str], revision: int | None = None) -> None:
        """Write the next revision of the map."""
        self.revision = self.revision + 1 if revision is None else revision
        lines = [f"revision = {self.revision}"]
        for name, port in self.ports.items():
            lines += ["[[group]]", f'name = "{name}"', f'brokers = ["127.0.0.1:{port}"]']
        for match, group in pins.items():
            lines += ["[[pin]]", f'match = "{match}"', f'group = "{group}"']
        self.map_file.write_text("\n".join(lines) + "\n")

    def configuration(self, name: str, more: str = "") -> Path:
        """The configuration of a group's broker."""
        file = self.directory / f"{name}.toml"
        file.write_text(f'[groups]\nname = "{name}"\nmap = "{self.map_file}"\n{more}')
        return file

    def start(self, stack: ExitStack) -> Groups:
        """Start both."""
        for name, port in self.ports.items():
            flags = ("--config", str(self.configuration(name)))
            self.brokers[name] = stack.enter_context(server(self.directory / name, *flags, port=port))
        return self

    def url(self, name: str, options: str = "") -> str:
        """The URL of a group's broker."""
        return f"amqp://127.0.0.1:{self.ports[name]}{options}"

    def group_of(self, address: str) -> str:
        """The group that serves an address."""
        directory = Directory(from_tables(tomllib.loads(self.map_file.read_text())))
        return directory.group_of(address).name

    def unpinned(self, group: str) -> str:
        """An address that the hash gives to a group."""
        names = (f"queue.{number}" for number in range(1000))
        return next(name for name in names if self.group_of(name) == group)


@pytest.fixture
def groups(tmp_path: Path) -> Iterator[Groups]:
    """Two groups for one test."""
    with ExitStack() as stack:
        yield Groups(tmp_path).start(stack)


@pytest.fixture(scope="module")
def calm_groups(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Groups]:
    """Two groups for all tests of a module that leave them as they are."""
    with ExitStack() as stack:
        yield Groups(tmp_path_factory.mktemp("groups")).start(stack)


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes connections, which end with the test."""
    made: list[Connection] = []

    def connect(url: str) -> Connection:
        connection = ConnectionFactory(url).create_connection()
        made.append(connection)
        connection.start()
        return connection

    yield connect
    for connection in made:
        connection.close()

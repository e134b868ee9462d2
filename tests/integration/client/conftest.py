"""Brokers for the client's tests: one pair for tests that leave it alone, a fresh pair for those that kill."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from legato.client import Connection, ConnectionFactory
from tests.support.broker import BrokerPair, broker_pair
from tests.support.twins import BlockingFactory, Loop

_names = itertools.count(1)


@pytest.fixture(scope="session")
def calm_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    """A pair that nobody kills."""
    with broker_pair(tmp_path_factory.mktemp("calm")) as pair:
        yield pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[BrokerPair]:
    """A pair to be killed."""
    with broker_pair(tmp_path) as pair:
        yield pair


@pytest.fixture
def queue_name() -> str:
    """A queue of the test's own."""
    return f"q{next(_names)}"


@pytest.fixture(params=["threads", "asyncio"])
def factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., ConnectionFactory]]:
    """Makes the factories of either twin: every story that is told with it is told of both."""
    if request.param == "threads":
        yield ConnectionFactory
        return
    loop = Loop()
    yield lambda *arguments, **options: cast(ConnectionFactory, BlockingFactory(loop, *arguments, **options))
    loop.close()


@pytest.fixture
def connect(
    request: pytest.FixtureRequest, factory: Callable[..., ConnectionFactory]
) -> Iterator[Callable[..., Connection]]:
    """Makes started connections to `pair` if the test uses it, else to `calm_pair`; closes them at the end."""
    brokers: BrokerPair = request.getfixturevalue("pair" if "pair" in request.fixturenames else "calm_pair")
    made: list[Connection] = []

    def make(**options: Any) -> Connection:
        connection = factory(brokers.url, **options).create_connection()
        made.append(connection)
        connection.start()
        return connection

    yield make
    for connection in made:
        connection.close()

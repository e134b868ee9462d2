"""Fixtures for stories that run with both clients, blocking and asyncio, against real brokers."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from legato import testing
from legato.client import Connection, ConnectionFactory, JMSContext
from tests.support.broker import BrokerPair, broker_pair, log_servers_of_run
from tests.support.twins import BlockingFactory, Loop

_names = itertools.count(1)

TWINS = ("threads", "asyncio")
"""The clients that tell a story (`factory`); in `make test` one of them tells those that kill brokers."""


@pytest.fixture(scope="session")
def calm_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    """A pair that nobody kills."""
    with broker_pair(tmp_path_factory.mktemp("calm")) as pair:
        yield pair


@pytest.fixture(scope="session")
def forgetful_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    """A pair that nobody kills and that waits for no client that is lost."""
    directory = tmp_path_factory.mktemp("forgetful")
    config = directory / "legato.toml"
    config.write_text("[server]\nreconnect_timeout_s = 0\n")
    with broker_pair(directory, "--config", str(config)) as pair:
        yield pair


@pytest.fixture(scope="session")
def shared_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testing.BrokerPair]:
    """A pair for all tests of a worker that leave it a pair again; each has queues of its own."""
    directory = tmp_path_factory.mktemp("shared")
    settings = directory / "legato.toml"
    settings.write_text('[[address]]\nmatch = "exclusive.#"\nexclusive = true\n')
    options = ("--no-ledger", "--config", str(settings))
    with testing.broker_pair(directory, options=options, log_url=log_servers_of_run()) as pair:
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


@pytest.fixture
def topic_name() -> str:
    """A topic of the test's own."""
    return f"t{next(_names)}"


@pytest.fixture
def client_id() -> str:
    """A client id of the test's own."""
    return f"client{next(_names)}"


@pytest.fixture(params=TWINS)
def factory(request: pytest.FixtureRequest) -> Iterator[Callable[..., ConnectionFactory]]:
    """Makes the factories of either twin: every story that is told with it is told of both."""
    if request.param == TWINS[0]:
        yield ConnectionFactory
        return
    loop = Loop()
    yield lambda *arguments, **options: cast(ConnectionFactory, BlockingFactory(loop, *arguments, **options))
    loop.close()


@pytest.fixture
def brokers(request: pytest.FixtureRequest) -> BrokerPair:
    """`pair` or `forgetful_pair` if the test uses it, else `calm_pair`."""
    asked_for = [name for name in ("pair", "forgetful_pair") if name in request.fixturenames]
    found: BrokerPair = request.getfixturevalue(asked_for[0] if asked_for else "calm_pair")
    return found


@pytest.fixture
def connect(brokers: BrokerPair, factory: Callable[..., ConnectionFactory]) -> Iterator[Callable[..., Connection]]:
    """Makes connections and closes them at the end; they are started unless `started=False` is given."""
    made: list[Connection] = []

    def make(*, started: bool = True, **options: Any) -> Connection:
        connection = factory(brokers.url, **options).create_connection()
        made.append(connection)
        if started:
            connection.start()
        return connection

    yield make
    for connection in made:
        connection.close()


@pytest.fixture
def context(brokers: BrokerPair, factory: Callable[..., ConnectionFactory]) -> Iterator[Callable[..., JMSContext]]:
    """Makes contexts of the simplified API and closes them at the end."""
    made: list[JMSContext] = []

    def make(*arguments: Any, session_mode: Any = None, **options: Any) -> JMSContext:
        mode = {} if session_mode is None else {"session_mode": session_mode}
        context = factory(brokers.url, **options).create_context(*arguments, **mode)
        made.append(context)
        return context

    yield make
    for context in made:
        context.close()

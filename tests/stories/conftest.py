"""Brokers to be killed, and connections of both clients, for what the documents tell."""

from collections.abc import Iterator

import pytest

from legato.testing import BrokerPair, broker_pair
from tests.support.born import quick_starts
from tests.support.clients import brokers, connect, factory, queue_name

__all__ = ["brokers", "connect", "factory", "pair", "queue_name"]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    """One for each file: after a failover it is a pair again."""
    directory = tmp_path_factory.mktemp("pair")
    settings = directory / "legato.toml"
    settings.write_text('[[address]]\nmatch = "exclusive.#"\nexclusive = true\n')
    with quick_starts(), broker_pair(directory, options=("--no-ledger", "--config", str(settings))) as running:
        yield running

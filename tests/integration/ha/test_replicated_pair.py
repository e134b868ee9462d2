"""The pair of brokers for users' tests, over a log on real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from legato.client import ConnectionFactory, TextMessage
from legato.processes.log_servers import LogServers
from legato.testing import BrokerPair, broker_pair
from tests.support.replicated import received


@pytest.fixture(scope="module")
def replicated_pair(servers: LogServers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerPair]:
    with broker_pair(tmp_path_factory.mktemp("pair"), log_url=servers.url) as pair:
        yield pair


@pytest.mark.parametrize("point", ["before-commit", "between-commit-and-confirm"])
def test_a_pair_over_a_replicated_log_fails_over_at_a_point_to_another_store(
    replicated_pair: BrokerPair, point: str
) -> None:
    pair = replicated_pair
    store = pair.store
    with ConnectionFactory(pair.url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue("q"))
        with pair.failing_over_at(point):
            producer.send(TextMessage("1"))
    assert pair.store != store
    assert received(pair.url) == ["1"]

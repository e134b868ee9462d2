"""Servers that take smaller messages than others, or too small ones."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import pytest

from legato.errors import LogUnavailableError
from legato.processes.log_servers import LogServers
from legato.replication.nats import NatsSettings, Opening, open_log
from legato.testing.log_servers import log_servers
from tests.conformance.replicated_log.log import claim, data_of, read_all
from tests.integration.replication.test_nats_safety import WAIT_S
from tests.support.monitored import until


@contextmanager
def servers_that_take(sizes: Mapping[str, int]) -> Iterator[LogServers]:
    """Three, some of which take no larger messages than is said."""
    with log_servers(start=False) as servers:
        for name, size in sizes.items():
            server = servers[name]
            server.configure(f"max_payload: {size}\n{(server.directory / 'nats-server.conf').read_text()}")
        servers.start()
        yield servers


def test_an_append_goes_on_where_another_server_takes_smaller_messages() -> None:
    """It was asked for again and again, as long as that server was there."""
    with servers_that_take({"log-1": 1 << 16, "log-2": 1 << 16}) as servers:
        log = open_log(NatsSettings(servers.url, "orders"))
        connection = log._engine._connection  # type: ignore[attr-defined]
        until(lambda: is_connected_to(connection, 1 << 20))
        record = bytes(900_000)
        writer = claim(log)
        servers["log-3"].freeze()
        appended = writer.submit(record)
        until(lambda: is_connected_to(connection, 1 << 16))
        servers["log-3"].thaw()
        assert appended.result(2 * WAIT_S).position.sequence == 2
        assert data_of(read_all(log)) == [b"epoch", record]
        log.close()


def is_connected_to(connection: object, size: int) -> bool:
    """Whether a connection is to a server that takes messages of a size; any other one is left."""
    client = connection._client  # type: ignore[attr-defined]
    if client is None or client.max_payload == size:
        return client is not None
    connection.call(client.close, WAIT_S)  # type: ignore[attr-defined]
    return False


def test_servers_that_take_no_record_are_told_of() -> None:
    """Below the size of an envelope the end of each record was left out."""
    with servers_that_take({f"log-{number}": 1_000 for number in (1, 2, 3)}) as servers:
        opening = Opening(NatsSettings(servers.url, "orders"))
        with pytest.raises(LogUnavailableError, match="takes messages of at most 1000 bytes: set max_payload"):
            opening.connection.wait_for_first(WAIT_S, patient=False)
        opening.close()

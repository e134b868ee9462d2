"""How brokers connect to the servers of a log of which some are gone."""

import asyncio
import socket
from contextlib import ExitStack, suppress

from legato.processes.log_servers import LogServers
from legato.replication.nats import NatsSettings
from legato.replication.nats.connection import Connection
from tests.integration.replication.test_nats_safety import WAIT_S


class InOrder:
    """Chance that changes nothing."""

    def shuffle(self, addresses: list[str]) -> None:
        """Leave them in their order."""

    def uniform(self, low: float, _high: float) -> float:
        """The least."""
        return low


def dials(listener: socket.socket, stack: ExitStack) -> int:
    """How often it was called since this was asked last; it answers nothing."""
    count = 0
    with suppress(BlockingIOError):
        while True:
            stack.enter_context(listener.accept()[0])
            count += 1
    return count


def test_machines_that_are_gone_hold_up_nobody(servers: LogServers) -> None:
    """They refuse nothing, so that each was waited for, four seconds, before the next one was tried."""
    with ExitStack() as stack:
        gone = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(2)]
        silent = ",".join(f"nats://127.0.0.1:{each.getsockname()[1]}" for each in gone)
        connection = Connection(NatsSettings(f"{silent},{servers.url}", "orders"))
        stack.callback(connection.close)
        connection.wait_for_first(WAIT_S)
        connection._random = InOrder()  # type: ignore[assignment]
        for each in gone:
            each.setblocking(False)
            dials(each, stack)

        async def leave() -> None:
            client = await connection.client()
            connection._leave(client)
            await connection.lost(client)
            await connection.client()

        connection.call(leave, WAIT_S)
        # Nobody waited until one of them had to be tried a second time.
        assert [dials(each, stack) for each in gone] == [1, 1]


def test_a_question_that_nobody_serves_leaves_nothing_behind(servers: LogServers) -> None:
    """Each left a subscription, at the client and at its server."""
    connection = Connection(NatsSettings(servers.url, "orders"))
    connection.wait_for_first(WAIT_S)

    async def ask() -> int:
        client = await connection.client()
        await connection.gather("nobody.serves.this", 3, 5.0, 0.1)
        before = len(client._subs)
        for _ in range(3):
            assert await connection.gather("nobody.serves.this", 3, 5.0, 0.1) is None
        await asyncio.sleep(0)
        return len(client._subs) - before

    assert connection.call(ask, WAIT_S) == 0
    connection.close()

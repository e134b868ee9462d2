"""The brokers' own network: connected from outside, cut, and healed; nothing of it is left behind."""

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.drill.namespaces import Namespaces
from legato.drill.relay import Network
from tests.integration.client.calling import until

ANSWER = """
import socket
server = socket.create_server(("", 7777))
print("up", flush=True)
while True:
    server.accept()[0].sendall(b"tea")
"""
NOTHING_COMES_S = 0.5
WAIT_S = 60.0


@pytest.fixture
def island(tmp_path: Path) -> Iterator[Namespaces]:
    island = Namespaces.create(tmp_path, 2)
    if island is None:
        pytest.skip("network namespaces are not permitted here")
    yield island
    island.close()


async def ask(island: Namespaces) -> bytes:
    reader, writer = await island.dial(island.host(0), 7777)
    try:
        return await reader.read(3)
    finally:
        writer.close()


def test_a_link_that_is_cut_drops_everything_until_it_is_healed(island: Namespaces) -> None:
    program = [*island.program(0)[:-1], "-c", ANSWER]
    with subprocess.Popen(program, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()

        async def act() -> None:
            assert await ask(island) == b"tea"
            island.cut_off(0)
            waiting = asyncio.create_task(ask(island))
            assert not (await asyncio.wait([waiting], timeout=NOTHING_COMES_S))[0]
            island.heal(0)
            assert await waiting == b"tea"
            with pytest.raises(ConnectionRefusedError):
                await island.dial(island.host(1), 7777)

        asyncio.run(act())
        broker.kill()


def test_who_is_in_the_island_goes_through_the_relays_too(island: Namespaces) -> None:
    """As the Spark job of a drill does, which reads and writes in bulk at ports of the brokers' own."""
    ask = "import socket, sys; print(socket.create_connection((sys.argv[1], int(sys.argv[2]))).recv(3).decode())"
    with subprocess.Popen([*island.program(0)[:-1], "-c", ANSWER], stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        door = island.listen(0)
        host, port = door.getsockname()
        assert host == island.host(0)
        with Network([(host, 7777)], island.dial, [door]) as network:
            asking = [*island.visitor()[:-1], "-c", ask, host, str(port)]
            told = subprocess.run(asking, capture_output=True, text=True, check=True, timeout=WAIT_S)
            assert told.stdout == "tea\n"
            until(lambda: network.relayed_bytes == 3)  # It counts what it has sent, which may have come already.
            network.cut()
            refused = subprocess.run(asking, capture_output=True, text=True, check=False, timeout=WAIT_S)
            assert "Connection reset" in refused.stderr or refused.stdout == "\n"
        broker.kill()

"""A broker for the tests of one module, and peers that are gone after the test."""

from collections.abc import Callable, Iterator

import pytest

from tests.support.amqp_peer import AmqpPeer
from tests.support.server import Server, server

Connect = Callable[..., AmqpPeer]


@pytest.fixture(scope="module")
def broker(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """With the settings in the module's `CONFIGURATION`, if it has one."""
    directory = tmp_path_factory.mktemp("broker")
    flags: tuple[str, ...] = ()
    configuration = getattr(request.module, "CONFIGURATION", "")
    if configuration:
        (directory / "legato.toml").write_text(configuration)
        flags = ("--config", str(directory / "legato.toml"))
    with server(directory / "store", *flags) as running:
        yield running


@pytest.fixture
def connect(broker: Server) -> Iterator[Connect]:
    """Connects peers, each with a container of its own unless it names one."""
    peers: list[AmqpPeer] = []

    def connect(container: str = "", **options: object) -> AmqpPeer:
        peer = AmqpPeer(broker.port, container=container or f"peer-{len(peers)}", **options)  # type: ignore[arg-type]
        peers.append(peer)
        return peer

    yield connect
    for peer in peers:
        peer.drop()


@pytest.fixture
def peer(connect: Connect) -> AmqpPeer:
    """One connected peer."""
    return connect("test")

"""The network of a drill relays, breaks, holds back, and heals."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from legato.drill.relay import Network

WAIT_S = 60.0
SILENCE_S = 0.2


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """A server that says what it hears."""
    listener = socket.create_server(("127.0.0.1", 0))

    def answer(sock: socket.socket) -> None:
        with sock, contextlib.suppress(OSError):
            while data := sock.recv(1000):
                sock.sendall(data)

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=answer, args=(sock,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname()
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def connect(network: Network) -> socket.socket:
    return socket.create_connection(("127.0.0.1", network.ports[0]), timeout=WAIT_S)


def test_bytes_go_through_both_ways(echo: tuple[str, int]) -> None:
    with Network([echo]) as network, connect(network) as sock:
        sock.sendall(b"tea")
        assert sock.recv(10) == b"tea"


def test_a_cut_breaks_connections_and_refuses_new_ones_until_it_is_healed(echo: tuple[str, int]) -> None:
    with Network([echo]) as network:
        with connect(network) as sock:
            sock.sendall(b"tea")
            sock.recv(10)
            network.cut()
            with pytest.raises(ConnectionError):
                _recv_all(sock)
        with pytest.raises(ConnectionError), connect(network) as sock:
            _recv_all(sock)
        network.heal()
        with connect(network) as sock:
            sock.sendall(b"tea")
            assert sock.recv(10) == b"tea"


def test_a_frozen_network_delivers_when_it_is_healed(echo: tuple[str, int]) -> None:
    with Network([echo]) as network, connect(network) as sock:
        network.freeze()
        sock.sendall(b"tea")
        sock.settimeout(SILENCE_S)
        with pytest.raises(TimeoutError):
            sock.recv(10)
        network.heal()
        sock.settimeout(WAIT_S)
        assert sock.recv(10) == b"tea"


@pytest.fixture
def ear() -> Iterator[tuple[tuple[str, int], list[bytes], threading.Event]]:
    """A server that says nothing; what it hears on each connection, in the order in which they end."""
    listener = socket.create_server(("127.0.0.1", 0))
    heard: list[bytes] = []
    ended = threading.Event()

    def listen(sock: socket.socket) -> None:
        said = b""
        with sock, contextlib.suppress(OSError):
            while data := sock.recv(1000):
                said += data
        heard.append(said)
        ended.set()

    def serve() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=listen, args=(sock,), daemon=True).start()

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname(), heard, ended
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()


def test_what_is_held_back_arrives_after_its_client_came_back_on_another_connection(
    ear: tuple[tuple[str, int], list[bytes], threading.Event],
) -> None:
    """Bytes that come late instead of never: the broker hears of the first connection after the second."""
    address, heard, ended = ear
    with Network([address]) as network:
        with connect(network) as first:
            first.sendall(b"before ")
            while network.relayed_bytes < len(b"before "):
                pass
            network.hold()
            first.sendall(b"late")
            while network.held_bytes < len(b"late"):
                pass
        with connect(network) as second:
            second.sendall(b"elsewhere")
        assert ended.wait(WAIT_S)
        assert heard == [b"elsewhere"]
        ended.clear()
        network.deliver()
        assert ended.wait(WAIT_S)
        assert heard == [b"elsewhere", b"before late"]


def test_of_a_half_closed_connection_the_other_direction_goes_on(echo: tuple[str, int]) -> None:
    with Network([echo]) as network:
        with connect(network) as sock:
            sock.sendall(b"tea")
            assert sock.recv(10) == b"tea"
            network.half_close(towards_brokers=False)
            assert sock.recv(10) == b""
            sock.sendall(b"nobody answers")
        with connect(network) as sock:
            sock.sendall(b"tea")
            assert sock.recv(10) == b"tea"
            network.half_close(towards_brokers=True)
            assert sock.recv(10) == b"", "the broker hears of the end, and closes"


def test_a_broker_that_is_not_there_cannot_be_reached(echo: tuple[str, int]) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        with Network([unused.getsockname()]) as network, pytest.raises(ConnectionError), connect(network) as sock:
            _recv_all(sock)


def _recv_all(sock: socket.socket) -> None:
    while sock.recv(1000):
        pass

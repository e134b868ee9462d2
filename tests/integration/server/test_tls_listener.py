"""A listener that speaks TLS: who connects to it counts before it has said anything (SECURITY 21)."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
import trustme

from legato.amqp.engine.outcomes import ACCEPTED
from tests.support.amqp_peer import WAIT_S, AmqpPeer, text
from tests.support.server import Server, server

SETTINGS = """
[tls]
certificate = "{directory}/server.pem"
key = "{directory}/server.pem"
[server]
handshake_timeout_s = {timeout_s}
[limits.origin]
half_open = {bound}
"""
HELLO = bytes.fromhex("1603010200010001fc0303")
"""The beginning of a ClientHello of 512 bytes."""
SILENT, HALF_A_HELLO, NO_TLS = b"", HELLO + bytes(100), b"AMQP\x03\x01\x00\x00"
ATTACKER = "127.0.0.7"


class Listener:
    """A broker that speaks TLS, and peers of it."""

    def __init__(self, directory: Path, stack: ExitStack, *, bound: int, timeout_s: float) -> None:
        self._stack = stack
        authority = trustme.CA()
        file = directory / "server.pem"
        file.touch(mode=0o600)
        authority.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))
        settings = directory / "legato.toml"
        settings.write_text(SETTINGS.format(directory=directory, bound=bound, timeout_s=timeout_s))
        self.trust = ssl.create_default_context()
        authority.configure_trust(self.trust)
        self.running: Server = stack.enter_context(server(directory / "store", "--config", str(settings)))
        self._peers = 0

    def attack(self, said: bytes = SILENT) -> socket.socket:
        """A peer from another address that says only that."""
        peer = socket.create_connection(("127.0.0.1", self.running.port), WAIT_S, (ATTACKER, 0))
        self._stack.callback(peer.close)
        peer.sendall(said)
        return peer

    def good(self) -> AmqpPeer:
        """A client that comes, sends and goes."""
        self._peers += 1
        peer = AmqpPeer(self.running.port, tls=self.trust, container=f"good {self._peers}")
        assert peer.send(peer.sender("orders"), text(b"x")) == ACCEPTED
        return peer


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def is_cut_off(peer: socket.socket) -> bool:
    try:
        return peer.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("said", [SILENT, HALF_A_HELLO], ids=["silent", "half a hello"])
def test_a_peer_that_does_not_finish_its_handshake_is_half_open(tmp_path: Path, stack: ExitStack, said: bytes) -> None:
    """It was counted once TLS was agreed on, so any number could hold descriptors."""
    listener = Listener(tmp_path, stack, bound=20, timeout_s=60)
    held = [listener.attack(said) for _ in range(20)]
    assert all(is_cut_off(listener.attack(said)) for _ in range(200))
    listener.running.wait_for_log(f"The address {ATTACKER} may have 20 half-open connections")
    listener.good().close()
    for peer in held:
        peer.setblocking(False)
        with pytest.raises(BlockingIOError):
            peer.recv(1)
    # Who leaves makes room; the broker notices as it reads.
    held.pop().close()
    assert any(not is_cut_off_at_once(listener) for _ in range(1000))


def is_cut_off_at_once(listener: Listener) -> bool:
    peer = listener.attack()
    peer.settimeout(0.3)
    try:
        return peer.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


@pytest.mark.parametrize("said", [SILENT, HALF_A_HELLO, NO_TLS], ids=["silent", "half a hello", "no TLS"])
def test_a_handshake_is_bounded_in_time_and_then_counts_no_more(tmp_path: Path, stack: ExitStack, said: bytes) -> None:
    listener = Listener(tmp_path, stack, bound=30, timeout_s=2)
    for _ in range(2):
        held = [listener.attack(said) for _ in range(30)]
        listener.good().close()
        for peer in held:
            # Alerts; and a reset, if something that it said was not read.
            with suppress(ConnectionResetError):
                while peer.recv(100):
                    pass


def test_who_comes_in_by_tls_counts_once_and_only_until_it_has_opened(tmp_path: Path, stack: ExitStack) -> None:
    listener = Listener(tmp_path, stack, bound=2, timeout_s=60)
    peers = [listener.good() for _ in range(10)]
    for peer in peers:
        peer.drop()
    for _ in range(10):
        listener.good().close()

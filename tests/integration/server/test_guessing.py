"""Guesses of passwords that come at the same time count as those that come one after the other."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from legato.amqp.codec.types import Symbol
from legato.amqp.engine.sasl import SASL_HEADER
from tests.integration.server.test_logins import outcome, plain_login, running, users  # noqa: F401
from tests.support.server import Server
from tests.unit.amqp.test_sasl import frame

OK, WRONG, NOT_NOW = 0, 1, 4


class ScramLogin:
    """A login by SCRAM that stops before its proof."""

    def __init__(self, port: int, user: str, password: str) -> None:
        import scramp

        self.client = scramp.ScramClient(["SCRAM-SHA-256"], user, password)
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        first = self.client.get_client_first().encode()
        self.socket.sendall(SASL_HEADER + frame(0x41, [Symbol("SCRAM-SHA-256"), first]))
        data = b""
        while b"r=" not in data or b",i=" not in data:
            data += self.socket.recv(4096)
        self.client.set_server_first(data[data.index(b"r=") :].decode())

    def prove(self) -> int | None:
        """The outcome."""
        self.socket.sendall(frame(0x43, [self.client.get_client_final().encode()]))
        data = b""
        with self.socket:
            while (at := data.find(b"\x00\x53\x44")) < 0 or b"\x50" not in data[at:-1]:
                more = self.socket.recv(4096)
                if not more:
                    return None
                data += more
        return data[data.index(b"\x50", at) + 1]


def codes_of(port: int, logins: list[bytes]) -> list[int | None]:
    """The outcomes of logins of which each is sent before any is answered."""
    sockets = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in logins]
    for sock, login in zip(sockets, logins, strict=True):
        sock.sendall(login)
    codes = [outcome(sock) for sock in sockets]
    for sock in sockets:
        sock.close()
    return codes


def test_passwords_that_wait_to_be_looked_at_are_guesses_too(running: Server) -> None:  # noqa: F811
    """Whoever sends all guesses at once had all of them looked at: three may be wrong."""
    guesses = [plain_login("ann", f"wrong {number}") for number in range(5)]
    codes = codes_of(running.port, [*guesses, plain_login("ann", "secret")])
    assert codes == [WRONG] * 3 + [NOT_NOW] * 3
    assert codes_of(running.port, [plain_login("bob", "hidden")]) == [OK]


def test_challenges_that_were_given_out_before_are_no_way_round(running: Server) -> None:  # noqa: F811
    logins = [ScramLogin(running.port, "ann", f"wrong {number}") for number in range(5)]
    right, bob = ScramLogin(running.port, "ann", "secret"), ScramLogin(running.port, "bob", "hidden")
    assert [login.prove() for login in logins] == [WRONG] * 3 + [NOT_NOW] * 2
    assert right.prove() == NOT_NOW
    assert bob.prove() == OK


@pytest.mark.parametrize("name", ["ann", "nobody"])
def test_whether_there_is_a_user_is_not_told(running: Server, name: str, users: Path) -> None:  # noqa: F811
    """Users and others get the same answers in the same order."""
    first = [ScramLogin(running.port, name, "wrong") for _ in range(2)]
    assert first[0].client.salt == first[1].client.salt
    assert int(first[0].client.iterations) == 4096
    assert [login.prove() for login in first] == [WRONG] * 2
    assert codes_of(running.port, [plain_login(name, "wrong")] * 3) == [WRONG, NOT_NOW, NOT_NOW]

"""How a client logs in: what it tells whom."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from legato.amqp.codec.types import Array, Symbol
from legato.amqp.engine.connection import Connection as Engine
from legato.amqp.engine.mechanisms import Plain
from legato.amqp.engine.sasl import SASL_HEADER, SaslServer
from legato.amqp.engine.settings import Settings
from legato.client import ConnectionFactory, JMSSecurityError
from legato.client.failover.discovery import REDIRECT
from tests.integration.client.calling import drop, until
from tests.integration.client.helpers import drain, send
from tests.integration.server.test_logins import add
from tests.support.server import server
from tests.unit.amqp.test_sasl import frame

PASSWORD = "topsecret"


@contextmanager
def listening(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A broker of our own that takes connections one after the other; gives its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def run() -> None:
            while True:
                try:
                    accepted, _ = listener.accept()
                except OSError:
                    return
                with accepted:
                    accepted.settimeout(60)
                    try:
                        serve(accepted)
                    except OSError:
                        continue

        serving = threading.Thread(target=run, daemon=True)
        serving.start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)
        serving.join()


def eavesdropper(heard: list[bytes]) -> Callable[[socket.socket], None]:
    """Offers PLAIN only, and notes what it is told."""

    def serve(sock: socket.socket) -> None:
        sock.sendall(SASL_HEADER + frame(0x40, [Array([Symbol("PLAIN")])]))
        while data := sock.recv(4096):
            heard.append(data)

    return serve


def rogue(port: int) -> Callable[[socket.socket], None]:
    """Lets everybody in, and sends them to another port."""

    def serve(sock: socket.socket) -> None:
        sasl = SaslServer(anonymous=False, mechanisms={"PLAIN": lambda: Plain(lambda user, password: True)})
        while not sasl.done:
            sasl.receive_data(sock.recv(4096))
            sock.sendall(sasl.data_to_send())
        engine = Engine(server=True, settings=Settings(container_id="rogue"))
        events = engine.receive_data(sasl.leftover) if sasl.leftover else []
        while not events:
            sock.sendall(engine.data_to_send())
            events = engine.receive_data(sock.recv(4096))
        engine.open()
        engine.close(REDIRECT, "elsewhere", {"network-host": "127.0.0.1", "port": port})
        sock.sendall(engine.data_to_send())
        sock.recv(4096)
        engine.free()

    return serve


def test_a_password_never_goes_in_the_clear_to_a_host_that_a_broker_named() -> None:
    heard: list[bytes] = []
    with listening(eavesdropper(heard)) as elsewhere, listening(rogue(elsewhere)) as port:
        uri = f"amqp://ann:{PASSWORD}@127.0.0.1:{port}?connect_attempts=2"
        with pytest.raises(JMSSecurityError, match="named by another broker"):
            ConnectionFactory(uri).create_connection()
    assert heard == [SASL_HEADER]


def test_a_host_of_the_uri_on_this_machine_may_be_told_a_password() -> None:
    heard: list[bytes] = []
    with listening(eavesdropper(heard)) as port:
        for timeout_s in (1, 10, 50):  # on a busy machine it is over before anything is said
            uri = f"amqp://ann:{PASSWORD}@127.0.0.1:{port}?connect_attempts=1&connect_timeout_s={timeout_s}"
            with pytest.raises(Exception, match=r"refused|lost|closed|reached"):
                ConnectionFactory(uri).create_connection()
            if PASSWORD.encode() in b"".join(heard):
                break
    assert PASSWORD.encode() in b"".join(heard)


def test_a_client_logs_in_with_scram_and_says_so_if_the_password_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    add(tmp_path / "store" / "users", "ann", PASSWORD)
    environment = {"LEGATO_AUTH_MECHANISMS": "SCRAM-SHA-256"}
    with server(tmp_path / "store", environment=environment) as running:
        with ConnectionFactory(f"amqp://ann:{PASSWORD}@127.0.0.1:{running.port}").create_connection() as connection:
            connection.start()
            send(connection, "q", "x")
            assert drain(connection, "q") == ["x"]
        with pytest.raises(JMSSecurityError, match="user name and password"):
            ConnectionFactory(f"amqp://ann:wrong@127.0.0.1:{running.port}").create_connection()


def test_users_fail_over_with_their_sessions(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    add(tmp_path / "store" / "users", "ann", PASSWORD)
    with server(tmp_path / "store") as primary, server(tmp_path / "store") as backup:
        uri = f"amqp://ann:{PASSWORD}@127.0.0.1:{primary.port},127.0.0.1:{backup.port}"
        with ConnectionFactory(uri).create_connection() as connection:
            connection.start()
            send(connection, "q", "before")
            primary.kill()
            send(connection, "q", "after")
            assert drain(connection, "q") == ["before", "after"]


def test_a_password_that_cannot_be_had_for_a_moment_ends_no_connection(tmp_path: Path) -> None:
    """A file that is being replaced was the end, whatever `reconnect_attempts` says; no broker had refused anything."""
    (tmp_path / "store").mkdir(mode=0o700)
    add(tmp_path / "store" / "users", "ann", PASSWORD)
    file = tmp_path / "password"
    with server(tmp_path / "store") as running:
        factory = ConnectionFactory(f"amqp://ann@127.0.0.1:{running.port}", password_file=str(file))
        for content, told in ((None, "No such file"), ("", "is empty")):
            if content is not None:
                file.write_text(content)
            with pytest.raises(JMSSecurityError, match=told):
                factory.create_connection()
        file.write_text(PASSWORD)
        with factory.create_connection() as connection:
            connection.start()
            connecting = connection._transport.connecting
            file.unlink()
            drop(connection)
            until(lambda: "No such file" in connecting.problems)
            file.touch()
            until(lambda: "is empty" in connecting.problems)
            file.write_text(PASSWORD)
            send(connection, "q", "x")
            assert drain(connection, "q") == ["x"]
            assert len(connection.failovers) == 1


def test_a_user_at_a_broker_without_users_is_told_what_to_do(tmp_path: Path) -> None:
    """It was told to check a password that nobody had asked for."""
    with server(tmp_path / "store") as broker, pytest.raises(JMSSecurityError, match="leave user and password out"):
        ConnectionFactory(f"amqp://ann:{PASSWORD}@127.0.0.1:{broker.port}").create_connection().close()

"""TLS between client and broker."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.cli.whereabouts import UNREACHABLE, with_whereabouts
from legato.client import ConnectionFactory, JMSError, JMSSecurityError
from tests.integration.client.helpers import drain, send
from tests.support.broker import BrokerProcess
from tests.support.server import free_port


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for localhost that signs itself, and its key."""
    directory = tmp_path_factory.mktemp("tls")
    certificate, key = directory / "certificate.pem", directory / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    files = ["-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *names, *files], check=True, capture_output=True)
    return certificate, key


@pytest.fixture(scope="module")
def secure(certificate: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, Path]]:
    """Where a broker listens that speaks TLS, and its store."""
    directory = tmp_path_factory.mktemp("secure")
    settings = directory / "legato.toml"
    settings.write_text(f'[tls]\ncertificate = "{certificate[0]}"\nkey = "{certificate[1]}"\n')
    broker = BrokerProcess(directory / "store", free_port(), directory / "log", ("--config", str(settings)))
    try:
        broker.wait_for("active")
        yield broker.port, directory / "store"
    finally:
        broker.close()


@pytest.fixture
def secure_port(secure: tuple[int, Path]) -> int:
    """Where it listens."""
    return secure[0]


def test_messages_of_any_size_cross_tls(secure_port: int, certificate: tuple[Path, Path]) -> None:
    uri = f"amqps://127.0.0.1:{secure_port}?tls_ca_file={certificate[0]}"
    with ConnectionFactory(uri).create_connection() as connection:
        connection.start()
        texts = ["small", "large" * 200_000, "last"]
        send(connection, "q", *texts)
        assert drain(connection, "q") == texts


def test_a_certificate_that_nobody_vouches_for_is_refused(secure_port: int) -> None:
    with pytest.raises(JMSSecurityError, match="tls_ca_file"):
        ConnectionFactory(f"amqps://127.0.0.1:{secure_port}").create_connection()


def test_verification_can_be_switched_off(secure_port: int) -> None:
    with ConnectionFactory(f"amqps://127.0.0.1:{secure_port}", tls_verify=False).create_connection() as connection:
        send(connection, "q", "x")


def test_a_command_that_finds_no_broker_is_told_to_use_tls_if_the_primary_does(secure: tuple[int, Path]) -> None:
    """It was told `amqp://`, with which it would have failed again."""
    port, store = secure
    lost = JMSError(UNREACHABLE)
    told = with_whereabouts(lost, {"url": "amqp://nowhere", "store": str(store)}, url_given_by="")
    assert str(told).endswith(f": add --url amqps://127.0.0.1:{port}")

"""A peer that lets no connection come about: the error says what it is, and what to write instead."""

from __future__ import annotations

import contextlib
import ipaddress
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from legato.client import ConnectionFactory, JMSError, JMSSecurityError
from legato.client.failover.certificate_facts import CertificateFacts, read_certificate
from legato.client.failover.peer_problems import problem
from legato.client.failover.uri import Host

Serve = Callable[[socket.socket], None]
SASL = b"AMQP\x03\x01\x00\x00"


@contextlib.contextmanager
def listening(serve: Serve) -> Iterator[int]:
    """A port of which each connection is served so, and then closed."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = listener.accept()
                with taken, contextlib.suppress(OSError):
                    serve(taken)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(60)


def certificate(directory: Path, days: int, address: str) -> tuple[Path, Path]:
    """A certificate that signs itself, began long ago and ends in so many days, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tea Ltd"),
            x509.NameAttribute(NameOID.COMMON_NAME, "tea.example"),
        ]
    )
    names = [x509.DNSName("tea.example"), x509.IPAddress(ipaddress.ip_address(address))]
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=100))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    files = directory / "certificate.pem", directory / "key.pem"
    files[0].write_bytes(made.public_bytes(encoding))
    files[1].write_bytes(key.private_bytes(encoding, *plain))
    return files


@pytest.fixture(scope="module")
def expired(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """It was valid until three days ago."""
    return certificate(tmp_path_factory.mktemp("expired"), -3, "127.0.0.1")


@pytest.fixture(scope="module")
def valid(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return certificate(tmp_path_factory.mktemp("valid"), 2, "10.0.0.1")


def secured(files: tuple[Path, Path], *, silent: bool = False) -> Serve:
    """Serves TLS; `silent`: closes what is no TLS without an alert, as some do."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*files)

    def serve(plain: socket.socket) -> None:
        if silent and plain.recv(1, socket.MSG_PEEK) != b"\x16":
            return
        with context.wrap_socket(plain, server_side=True) as tls:
            tls.recv(100)

    return serve


def connect(scheme: str, port: int, **options: Any) -> None:
    ConnectionFactory(f"{scheme}://127.0.0.1:{port}", **options).create_connection().close()


@pytest.mark.parametrize("silent", [False, True], ids=["with an alert", "without a word"])
def test_a_peer_that_speaks_tls_unasked_is_recognized_at_once(valid: tuple[Path, Path], silent: bool) -> None:
    """It was a login that was refused, or a minute of `the broker closed the connection`."""
    with (
        listening(secured(valid, silent=silent)) as port,
        pytest.raises(JMSError, match=rf"127.0.0.1:{port}: the peer speaks TLS: use amqps:// in place of amqp://"),
    ):
        connect("amqp", port)


@pytest.mark.parametrize("greets", [True, False], ids=["with its greeting", "without a word"])
def test_a_peer_that_speaks_no_tls_is_recognized_at_once(greets: bool) -> None:
    def serve(plain: socket.socket) -> None:
        if plain.recv(8) == SASL or greets:
            plain.sendall(SASL)

    with listening(serve) as port, pytest.raises(JMSError, match="speaks no TLS at this port: write amqp:// in place"):
        connect("amqps", port)


@pytest.mark.parametrize(
    ("first", "told"),
    [
        (b"AMQP\x00\x00\x09\x01", "it speaks AMQP 0-9-1"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it speaks HTTP"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", r"it does not speak AMQP 1.0, its first bytes are b'SSH-2.0-OpenSSH"),
    ],
)
def test_a_peer_of_another_protocol_is_recognized_at_once(first: bytes, told: str) -> None:
    """It was "refused the login: the peer does not speak AMQP 1.0 with SASL. Give a user and password"."""

    def serve(plain: socket.socket) -> None:
        plain.recv(8)
        plain.sendall(first)

    with listening(serve) as port, pytest.raises(JMSError, match=told):
        connect("amqp", port)


def test_a_certificate_that_expired_says_whose_it_is_and_since_when(expired: tuple[Path, Path]) -> None:
    """It said "certificate has expired ... name its authority"."""
    ends = read_certificate(ssl.PEM_cert_to_DER_cert(expired[0].read_text())).ends
    told = rf"'CN=tea.example, O=Tea Ltd', issued by .* expired on {ends:%Y-%m-%d %H:%M} UTC\. Have it renewed"
    with listening(secured(expired)) as port, pytest.raises(JMSSecurityError, match=told):
        connect("amqps", port, tls_ca_file=str(expired[0]))


def test_a_certificate_for_another_name_says_for_which(valid: tuple[Path, Path]) -> None:
    """It said to name its authority."""
    with (
        listening(secured(valid)) as port,
        pytest.raises(JMSSecurityError, match=r"is for tea\.example, 10\.0\.0\.1, not for 127\.0\.0\.1: connect by a"),
    ):
        connect("amqps", port, tls_ca_file=str(valid[0]))


def test_a_certificate_that_is_not_valid_yet_says_from_when() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)
    facts = CertificateFacts("CN=a", "CN=b", now + timedelta(days=1), now + timedelta(days=2), ())
    told = problem(Host("tea", 5671), 9, facts, now)
    assert told is not None
    assert "(CN=a, issued by CN=b) is valid only from 2026-01-02 00:00 UTC on." in told
    assert "clock, which says 2026-01-01 00:00 UTC" in told


@pytest.mark.parametrize(
    ("scheme", "said", "told"),
    [
        ("amqp", b"", r"did not answer AMQP's greeting within {timeout_s:g} s \(connect_timeout_s\): .* wants TLS"),
        ("amqp", SASL, r"did not finish the login \(SASL\) within {timeout_s:g} s"),
        ("amqps", b"", r"did not finish the TLS handshake within {timeout_s:g} s .* speaks no TLS"),
    ],
)
def test_a_time_out_says_at_which_step_what_was_waited_for_and_what_is_likely_wrong(
    scheme: str, said: bytes, told: str
) -> None:
    """It was "timed out"."""
    done = threading.Event()

    def serve(plain: socket.socket) -> None:
        plain.recv(8)
        plain.sendall(said)
        done.wait(60)

    with listening(serve) as port:
        try:
            for timeout_s in (0.2, 2.0, 20.0):  # a short one may be over before the peer has said anything
                with pytest.raises(JMSError) as timed_out:
                    connect(scheme, port, connect_timeout_s=timeout_s, connect_attempts=1)
                if re.search(told.format(timeout_s=timeout_s), str(timed_out.value)):
                    return
            raise AssertionError(str(timed_out.value))
        finally:
            done.set()


def test_what_is_no_certificate_is_an_error_that_is_caught() -> None:
    for data in (b"", b"\x30", b"\x30\x03\x02\x01\x01", b"\x30\x80"):
        with pytest.raises(ValueError, match=r"."):
            read_certificate(data)

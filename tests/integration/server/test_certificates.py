"""Logins with certificates, and certificates that change while a broker runs."""

from __future__ import annotations

import datetime
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization

from legato.amqp.engine.outcomes import ACCEPTED
from legato.client import ConnectionFactory, JMSSecurityError
from tests.integration.client.helpers import drain, send
from tests.integration.server.test_logins import add, offered
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer, Refused, text
from tests.support.server import Server, server

SETTINGS = """
[tls]
certificate = "{0}/server.pem"
key = "{0}/server.pem"
client_ca = "{0}/clients.pem"
client_crl = "{1}"
client_certificates = "{2}"
[auth]
external_user = [{{ take = "san:email", match = "(.+)@example\\\\.org", user = "{{1}}" }}, {{ take = "subject:CN" }}]
[[role]]
name = "senders"
members = ["ann"]
allow = [{{ on = "q", may = ["send", "receive", "create"] }}]
[[role]]
name = "root"
members = ["bob"]
allow = [{{ on = "#", may = ["send", "create"] }}]
management = "administer"
"""


class Certificates:
    """Authorities of the server and of clients, and the files of a broker that trusts them."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.servers, self.clients = trustme.CA(), trustme.CA()
        self.clients.cert_pem.write_to_path(str(directory / "clients.pem"))
        self.servers.cert_pem.write_to_path(str(directory / "servers.pem"))
        self.renew_server()
        self.write_settings()

    def renew_server(self) -> None:
        file = self.directory / "server.pem"
        file.unlink(missing_ok=True)
        file.touch(mode=0o600)
        self.servers.issue_cert("localhost", "127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(file))

    def write_settings(self, crl: str = "", client_certificates: str = "optional") -> Path:
        file = self.directory / "legato.toml"
        file.write_text(SETTINGS.format(self.directory, crl, client_certificates))
        return file

    def issue(self, name: str, email: str | None = None, by: trustme.CA | None = None, days: int = 1) -> Path:
        """A certificate of a client, as a file with its key."""
        expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
        names = (email,) if email else ()
        issued = (by or self.clients).issue_cert(
            *(names or ("client.example.org",)), common_name=name, not_after=expires
        )
        file = self.directory / f"{name}.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(str(file))
        return file

    def revoke(self, file: Path) -> Path:
        """A list of revoked certificates with this one."""
        certificate = x509.load_pem_x509_certificates(file.read_bytes())[0]
        now = datetime.datetime.now(datetime.UTC)
        revoked = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number).revocation_date(now).build()
        key = serialization.load_pem_private_key(self.clients.private_key_pem.bytes(), None)
        authority = x509.load_pem_x509_certificate(self.clients.cert_pem.bytes())
        builder = x509.CertificateRevocationListBuilder().issuer_name(authority.subject).last_update(now)
        builder = builder.next_update(now + datetime.timedelta(days=1)).add_revoked_certificate(revoked)
        crl = self.directory / "crl.pem"
        crl.write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))  # type: ignore[arg-type]
        return crl

    def context(self, file: Path | None = None) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.directory / "servers.pem"))
        if file is not None:
            context.load_cert_chain(str(file))
        return context


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    add(store / "users", "carl", "x")
    return Certificates(tmp_path)


@pytest.fixture
def running(certificates: Certificates, tmp_path: Path) -> Iterator[Server]:
    with server(tmp_path / "store", "--config", str(tmp_path / "legato.toml")) as process:
        yield process


def log_in(running: Server, context: ssl.SSLContext) -> AmqpPeer:
    return AmqpPeer(running.port, tls=context, certificate=True)


def test_a_certificate_stands_for_the_user_that_a_rule_finds(running: Server, certificates: Certificates) -> None:
    by_email = log_in(running, certificates.context(certificates.issue("someone", "ann@example.org")))
    assert by_email.send(by_email.sender("q"), text(b"x")) == ACCEPTED
    with pytest.raises(Refused, match="'ann', with the roles senders"):
        by_email.sender("other")
    by_subject = log_in(running, certificates.context(certificates.issue("bob")))
    assert by_subject.send(by_subject.sender("other"), text(b"x")) == ACCEPTED


def test_external_is_offered_to_who_shows_a_certificate(running: Server, certificates: Certificates) -> None:
    passwords = {"SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"}
    assert offered(running.port, tls=certificates.context()) == passwords
    assert offered(running.port, tls=certificates.context(certificates.issue("bob"))) == {"EXTERNAL", *passwords}


@pytest.mark.parametrize("name", ["$backup", "anonymous", "group:x", "*", "a\x1bb"])
def test_no_certificate_stands_for_a_name_of_the_brokers_own(
    running: Server, certificates: Certificates, name: str
) -> None:
    file = certificates.issue(name).rename(certificates.directory / "odd.pem")
    with pytest.raises(Refused):
        log_in(running, certificates.context(file))


def test_a_foreign_or_expired_certificate_is_refused(running: Server, certificates: Certificates) -> None:
    for file in (certificates.issue("bob", by=trustme.CA()), certificates.issue("bob", days=-1)):
        with pytest.raises((ssl.SSLError, ConnectionError, Refused)):
            log_in(running, certificates.context(file))


def test_where_certificates_are_required_a_password_is_not_enough(certificates: Certificates, tmp_path: Path) -> None:
    settings = certificates.write_settings(client_certificates="required")
    with server(tmp_path / "store", "--config", str(settings)) as running:
        with pytest.raises(Refused):
            AmqpPeer(running.port, tls=certificates.context(), user="carl", password="x")
        log_in(running, certificates.context(certificates.issue("bob"))).drop()
        with server(tmp_path / "store", "--config", str(settings)) as backup:
            backup.wait_for_log("heartbeats of epoch")


def test_who_is_revoked_is_cut_off_by_a_reload_and_not_let_in(running: Server, certificates: Certificates) -> None:
    ann, bob = certificates.issue("ann"), certificates.issue("bob")
    with log_in(running, certificates.context(ann)).socket as revoked:
        certificates.write_settings(crl=str(certificates.revoke(ann)))
        running.signal(signal.SIGHUP)
        while revoked.recv(4096):
            pass
    running.wait_for_log("certificates anew")
    log_in(running, certificates.context(bob)).drop()
    with pytest.raises((ssl.SSLError, ConnectionError, Refused)):
        log_in(running, certificates.context(ann))


def test_a_renewed_certificate_is_used_after_a_reload_and_no_connection_is_lost(
    running: Server, certificates: Certificates
) -> None:
    bob = log_in(running, certificates.context(certificates.issue("bob")))
    before = bob.socket.getpeercert(True)  # type: ignore[attr-defined]
    certificates.renew_server()
    running.signal(signal.SIGHUP)
    running.wait_for_log("certificates anew")
    again = log_in(running, certificates.context(certificates.issue("bob")))
    assert again.socket.getpeercert(True) != before  # type: ignore[attr-defined]
    assert bob.send(bob.sender("other"), text(b"x")) == ACCEPTED


def test_the_bulk_endpoint_has_the_renewed_certificate_too_where_there_are_no_users(
    certificates: Certificates, tmp_path: Path
) -> None:
    """It had the former one until somebody started the broker again, or it had expired."""
    settings, file = tmp_path / "open.toml", certificates.directory / "server.pem"
    settings.write_text(f'[tls]\ncertificate = "{file}"\nkey = "{file}"\n')
    with server(tmp_path / "open", "--config", str(settings)) as running:
        manager = Manager(AmqpPeer(running.port, tls=certificates.context()))

        def certificate() -> str:
            status, told = manager.ask("ticket", "sink", "stage", batch=0, stage="a")
            assert status == 200, told
            return ssl.get_server_certificate(("127.0.0.1", told["port"]))

        before = certificate()
        certificates.renew_server()
        assert manager.ask("reload", type="broker")[0] == 200
        assert certificate() != before


def test_a_certificate_that_cannot_be_read_changes_nothing(running: Server, certificates: Certificates) -> None:
    (certificates.directory / "server.pem").write_text("nothing of the kind")
    running.signal(signal.SIGHUP)
    running.wait_for_log("was not read again")
    log_in(running, certificates.context(certificates.issue("bob"))).drop()


@pytest.mark.parametrize("file", ["server.pem", "clients.pem", "crl.pem"])
def test_a_backup_takes_over_though_a_file_of_certificates_is_gone(
    certificates: Certificates, tmp_path: Path, file: str
) -> None:
    """Without its authorities, or the list of what they revoked, it ended: nobody served."""
    settings = certificates.write_settings(crl=str(certificates.revoke(revoked := certificates.issue("ann"))))
    bob = certificates.context(certificates.issue("bob"))
    store, flags = tmp_path / "store", ("--config", str(settings))
    with server(store, *flags) as primary, server(store, *flags) as backup:
        backup.wait_for_log("heartbeats of epoch")
        (certificates.directory / file).unlink()
        primary.kill()
        backup.wait_for_role("active")
        backup.wait_for_log("the certificate was not read again")
        log_in(backup, bob).drop()
        with pytest.raises((ssl.SSLError, ConnectionError, Refused)):
            log_in(backup, certificates.context(revoked))


def test_the_client_logs_in_with_its_certificate(running: Server, certificates: Certificates) -> None:
    directory = certificates.directory
    uri = f"amqps://localhost:{running.port}?tls_ca_file={directory / 'servers.pem'}"
    with ConnectionFactory(uri, tls_cert_file=str(certificates.issue("ann"))).create_connection() as connection:
        connection.start()
        send(connection, "q", "x")
        assert drain(connection, "q") == ["x"]
    with pytest.raises(JMSSecurityError):
        ConnectionFactory(uri).create_connection()

"""TLS, a user and roles for the broker of a suite, and what Qpid JMS is told to log in there."""

from __future__ import annotations

import subprocess
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from legato.server.identity.users_file import User, changing, make_keys

STORE_PASSWORD = "changeit"
SETTINGS = """
[tls]
certificate = "{directory}/server.pem"
key = "{directory}/server.pem"
[auth]
users_file = "{directory}/users"
failed_logins = {{ delay_s = 0.1, most = 1000 }}
[audit]
file = "{directory}/audit.jsonl"
[[role]]
name = "testers"
members = ["{user}"]
allow = [
  {{ on = "#", may = ["send", "receive", "browse", "create"] }},
]
"""
"""Suites manage nothing: what they use they may use, and no more."""


class Security:
    """Settings with TLS, one user and roles, in a directory of their own.

    Args:
        mechanism: the SASL mechanism that Qpid JMS takes; the best one if empty.
    """

    def __init__(self, directory: Path, user: str, password: str, mechanism: str = "") -> None:
        write_stores(directory)
        with changing(directory / "users") as content:
            content.users[user] = User(user, (), make_keys(password))
        self.config = directory / "legato.toml"
        self.config.write_text(SETTINGS.format(directory=directory, user=user))
        self.options = "&".join(
            (
                f"jms.username={user}",
                f"jms.password={password}",
                *((f"amqp.saslMechanisms={mechanism}",) if mechanism else ()),
                f"transport.trustStoreLocation={directory}/trust.p12",
                f"transport.trustStorePassword={STORE_PASSWORD}",
                "transport.storeType=PKCS12",
            )
        )
        """Of a URI of Qpid JMS."""


def write_stores(directory: Path) -> None:
    """What broker and client need of certificates, as PEM for the one and PKCS #12 for the other."""
    servers, clients = trustme.CA(), trustme.CA()
    (directory / "server.pem").touch(mode=0o600)
    issued = servers.issue_cert("localhost", "127.0.0.1")
    issued.private_key_and_cert_chain_pem.write_to_path(str(directory / "server.pem"))
    clients.cert_pem.write_to_path(str(directory / "clients.pem"))
    servers.cert_pem.write_to_path(str(directory / "servers.pem"))
    issued = clients.issue_cert("cert.example.org", common_name="cert")
    (directory / "client.pem").touch(mode=0o600)
    issued.private_key_and_cert_chain_pem.write_to_path(str(directory / "client.pem"))
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
    encryption = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
    (directory / "client.p12").write_bytes(
        pkcs12.serialize_key_and_certificates(b"client", key, certificate, None, encryption)  # type: ignore[arg-type]
    )
    command = ["keytool", "-importcert", "-noprompt", "-alias", "servers", "-file", str(directory / "servers.pem")]
    command += ["-keystore", str(directory / "trust.p12"), "-storetype", "PKCS12", "-storepass", STORE_PASSWORD]
    subprocess.run(command, check=True, capture_output=True)

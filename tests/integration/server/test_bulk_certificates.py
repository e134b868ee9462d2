"""The bulk endpoint where certificates of clients are required: who shows none, a foreign one or one that is over gets
nothing, with a good ticket too."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest
import trustme

from legato.bulk.tickets import digest_of_holder
from tests.integration.server.test_bulk_endpoint import SECRET, rows, said, shown, stage
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer, text
from tests.support.server import Server, free_port, server

SETTINGS = """
[tls]
certificate = "{directory}/server.pem"
key = "{directory}/server.pem"
client_ca = "{directory}/clients.pem"
client_certificates = "{certificates}"
[auth]
external_user = "subject:CN"
[bulk]
listen = "localhost:{bulk_port}"
[[role]]
name = "readers"
members = ["ann", "bob"]
allow = [{{ on = "#", may = ["bulk", "browse", "send", "create"] }}]
"""


class Authorities:
    """Those of the server and of its clients, and a foreign one; and a broker that knows the first two."""

    def __init__(self, directory: Path, certificates: str) -> None:
        self.directory = directory
        self.servers, self.clients, self.foreign = trustme.CA(), trustme.CA(), trustme.CA()
        self.clients.cert_pem.write_to_path(str(directory / "clients.pem"))
        file = directory / "server.pem"
        file.touch(mode=0o600)
        issued = self.servers.issue_cert("localhost", "127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(str(file))
        self.bulk_port = free_port()
        self.settings = directory / "legato.toml"
        self.settings.write_text(
            SETTINGS.format(directory=directory, bulk_port=self.bulk_port, certificates=certificates)
        )

    def issue(self, name: str = "ann", *, by: trustme.CA | None = None, days: int = 1) -> trustme.LeafCert:
        """A certificate of a client."""
        expires = datetime.datetime.now(datetime.UTC) + datetime.timedelta(days=days)
        return (by or self.clients).issue_cert("client.example.org", common_name=name, not_after=expires)

    def login(self, port: int, name: str = "ann") -> AmqpPeer:
        """A peer that shows a good certificate to the broker itself."""
        context = ssl.create_default_context()
        self.servers.configure_trust(context)
        self.issue(name).configure_cert(context)
        return AmqpPeer(port, tls=context, certificate=True, container=f"{name} bulk")

    def connect(self, shown: trustme.LeafCert | None) -> flight.FlightClient:
        """A client of the bulk endpoint that shows a certificate."""
        options: dict[str, Any] = {"tls_root_certs": self.servers.cert_pem.bytes()}
        if shown is not None:
            options["cert_chain"] = b"".join(pem.bytes() for pem in shown.cert_chain_pems)
            options["private_key"] = shown.private_key_pem.bytes()
        return flight.connect(f"grpc+tls://localhost:{self.bulk_port}", **options)


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Authorities:
    return Authorities(tmp_path_factory.mktemp("required"), "required")


@pytest.fixture(scope="module")
def running(authorities: Authorities) -> Iterator[Server]:
    store = authorities.directory / "store"
    store.mkdir(mode=0o700)
    with server(store, "--config", str(authorities.settings)) as process:
        peer = authorities.login(process.port)
        sender = peer.sender("invoices")
        for number in range(5):
            peer.send(sender, text(b"%d" % number))
        peer.close()
        yield process


@pytest.fixture
def manager(running: Server, authorities: Authorities) -> Iterator[Manager]:
    peer = authorities.login(running.port)
    yield Manager(peer)
    peer.drop()


def read_ticket(manager: Manager) -> bytes:
    return asked(manager, "invoices", "assignment")


def asked(manager: Manager, name: str, kind: str, **arguments: Any) -> bytes:
    status, told = manager.ask("ticket", name, kind, holder=digest_of_holder(SECRET).hex(), **arguments)
    assert status == 200, told
    return bytes.fromhex(told["ticket"])


def test_a_certificate_of_the_clients_authority_lets_in_who_has_a_ticket(
    authorities: Authorities, manager: Manager
) -> None:
    sealed = read_ticket(manager)
    with authorities.connect(authorities.issue()) as client:
        assert rows(client, sealed, shown(sealed)) == 5
        staged = asked(manager, "sink", "stage", batch=0, stage="a")
        stage(client, staged, shown(staged))
    assert manager.ask("publish", "sink", "stage", batch=0, stages="a")[0] == 200


def test_a_certificate_takes_the_place_of_no_ticket(authorities: Authorities, manager: Manager) -> None:
    sealed = read_ticket(manager)
    with authorities.connect(authorities.issue()) as client:
        for options in (flight.FlightCallOptions(timeout=60), shown(sealed, b"b" * 32), shown(b"x" * 100)):
            with pytest.raises(flight.FlightUnauthenticatedError) as refused:
                rows(client, sealed, options)
            said(refused)


@pytest.mark.parametrize("which", ["none", "foreign", "expired", "of the servers' authority", "self-made name"])
def test_who_shows_no_good_certificate_gets_nothing_with_a_good_ticket(
    which: str, authorities: Authorities, manager: Manager
) -> None:
    authority = {
        "foreign": authorities.foreign,
        "of the servers' authority": authorities.servers,
        "self-made name": trustme.CA(organization_name="clients"),
    }.get(which)
    certificate = authorities.issue(by=authority, days=-1 if which == "expired" else 1) if which != "none" else None
    sealed = read_ticket(manager)
    staged = asked(manager, "sink", "stage", batch=1, stage="b")
    with authorities.connect(certificate) as client:
        with pytest.raises((flight.FlightUnavailableError, flight.FlightInternalError)) as refused:
            rows(client, sealed, shown(sealed))
        said(refused)
        with pytest.raises((flight.FlightUnavailableError, flight.FlightInternalError)):
            stage(client, staged, shown(staged))
    # And it goes on: the ticket was not used up either.
    with authorities.connect(authorities.issue()) as client:
        stage(client, staged, shown(staged))
        assert rows(client, sealed, shown(sealed)) == 5


def test_without_tls_nobody_gets_in(authorities: Authorities, manager: Manager) -> None:
    sealed = read_ticket(manager)
    with (
        flight.connect(f"grpc://localhost:{authorities.bulk_port}") as client,
        pytest.raises(flight.FlightUnavailableError),
    ):
        rows(client, sealed, shown(sealed))


def test_a_ticket_is_of_no_use_to_another_user_with_a_certificate(
    running: Server, authorities: Authorities, manager: Manager
) -> None:
    sealed = read_ticket(manager)
    with (
        authorities.connect(authorities.issue("bob")) as client,
        pytest.raises(flight.FlightUnauthenticatedError),
    ):
        rows(client, sealed, shown(sealed, b"b" * 32))

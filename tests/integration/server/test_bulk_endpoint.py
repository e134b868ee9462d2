"""The bulk endpoint of a broker with users: whose a ticket is, and what becomes of whoever has none (SECURITY 24)."""

from __future__ import annotations

import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from legato.bulk.requests import HOLDER_HEADER, PLAN, TICKET_HEADER, PutRequest, StageOptions
from legato.bulk.tickets import digest_of_holder
from tests.integration.server.test_logins import add
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer, text
from tests.support.server import Server, free_port

SETTINGS = """
[bulk]
listen = "127.0.0.1:{port}"
stage_bytes_max = 1000000
[[role]]
name = "readers"
members = ["ann", "bob"]
allow = [{{ on = "invoices", may = ["{may}", "browse"] }}, {{ on = "orders", may = ["send"] }}]
[[role]]
name = "all"
members = ["root"]
allow = [{{ on = "#", may = ["send", "create"] }}]
management = "administer"
"""
SECRET, ANOTHER = b"a" * 32, b"b" * 32
Login = Callable[[str], Manager]


class Endpoint(Server):
    """A broker whose bulk endpoint has a fixed port."""

    bulk_port: int
    settings: Path

    def allow(self, may: str) -> None:
        self.settings.write_text(SETTINGS.format(port=self.bulk_port, may=may))


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    tmp_path = tmp_path_factory.mktemp("bulk")
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    for name in ("ann", "bob", "root"):
        add(store / "users", name, "x")
    process = Endpoint(store, "--config", str(tmp_path / "legato.toml"))
    process.bulk_port, process.settings = free_port(), tmp_path / "legato.toml"
    process.allow("bulk")
    process.start()
    try:
        peer = AmqpPeer(process.port, user="root", password="x", container="setup")
        peer.sender("orders")
        sender = peer.sender("invoices")
        for number in range(5):
            peer.send(sender, text(b"%d" % number))
        peer.close()
        yield process
    finally:
        process.stop()


@pytest.fixture
def login(running: Endpoint) -> Iterator[Login]:
    peers: list[AmqpPeer] = []

    def connect(user: str) -> Manager:
        peers.append(AmqpPeer(running.port, user=user, password="x", container=f"{user}-{uuid.uuid4()}"))
        return Manager(peers[-1])

    yield connect
    for peer in peers:
        peer.drop()


def ticket(manager: Manager, secret: bytes = SECRET, **arguments: Any) -> tuple[flight.FlightClient, bytes]:
    """A client of the endpoint, and a ticket for `invoices`."""
    status, told = manager.ask("ticket", "invoices", "assignment", holder=digest_of_holder(secret).hex(), **arguments)
    assert status == 200, told
    return flight.connect(f"grpc://127.0.0.1:{told['port']}"), bytes.fromhex(told["ticket"])


def shown(sealed: bytes, secret: bytes = SECRET) -> flight.FlightCallOptions:
    return flight.FlightCallOptions(headers=[(TICKET_HEADER, sealed), (HOLDER_HEADER, secret)], timeout=60)


def rows(client: flight.FlightClient, sealed: bytes, options: flight.FlightCallOptions | None = None) -> int:
    count: int = client.do_get(flight.Ticket(sealed), options or flight.FlightCallOptions()).read_all().num_rows
    return count


def stage(
    client: flight.FlightClient,
    sealed: bytes,
    options: flight.FlightCallOptions,
    body: bytes = b"x",
    command: bytes = b"",
) -> None:
    request = command or msgspec.msgpack.encode(PutRequest(sealed, StageOptions(destination="orders")))
    table = pa.table({"body": [body]})
    writer, _ = client.do_put(flight.FlightDescriptor.for_command(request), table.schema, options)
    with writer:
        writer.write_table(table)


def stage_ticket(manager: Manager, name: str) -> tuple[flight.FlightClient, bytes]:
    status, told = manager.ask("ticket", "sink", "stage", batch=0, stage=name, holder=digest_of_holder(SECRET).hex())
    assert status == 200, told
    return flight.connect(f"grpc://127.0.0.1:{told['port']}"), bytes.fromhex(told["ticket"])


def said(error: pytest.ExceptionInfo[Exception]) -> str:
    """What an error says, which must hold nothing of the broker's insides."""
    words = str(error.value)
    for secret in ("Traceback", ".py", "site-packages", "/store", "/home", "/tmp"):
        assert secret not in words, words
    return words


def test_a_ticket_is_of_use_to_its_holder_only(running: Endpoint, login: Login) -> None:
    client, sealed = ticket(login("ann"))
    assert rows(client, sealed, shown(sealed)) == 5
    for options in (
        flight.FlightCallOptions(),
        shown(sealed, ANOTHER),
        shown(sealed, b""),
        shown(b"", SECRET),
        flight.FlightCallOptions(headers=[(TICKET_HEADER, sealed)]),
    ):
        with pytest.raises(flight.FlightUnauthenticatedError) as refused:
            rows(client, sealed, options)
        assert "ask the broker for one" in said(refused)
    _, others = ticket(login("bob"), ANOTHER)
    with pytest.raises(flight.FlightUnauthenticatedError, match="another ticket"):
        rows(client, sealed, shown(others, ANOTHER))


def test_where_there_are_users_a_ticket_has_a_holder(login: Login) -> None:
    ann = login("ann")
    for holder in ("", "xyz", "ab" * 31, digest_of_holder(SECRET).hex() + "00"):
        status, why = ann.ask("ticket", "invoices", "assignment", holder=holder)
        assert status == 400
        assert "needs holder" in why
    assert ann.ask("ticket", "sink", "stage", batch=0, stage="a")[0] == 400


def test_the_endpoint_has_the_port_that_was_set(running: Endpoint, login: Login) -> None:
    manager = login("ann")
    _, told = manager.ask("ticket", "invoices", "assignment", holder=digest_of_holder(SECRET).hex())
    assert told["port"] == running.bulk_port


def test_a_ticket_to_stage_rows_is_used_once(login: Login) -> None:
    ann = login("ann")
    client, sealed = stage_ticket(ann, "a")
    stage(client, sealed, shown(sealed))
    with pytest.raises(flight.FlightUnauthenticatedError, match="used already") as refused:
        stage(client, sealed, shown(sealed))
    said(refused)
    assert ann.ask("publish", "sink", "stage", batch=0, stages="a") == (200, {"name": "ann/sink", "published": 1})


def test_rows_without_a_ticket_are_refused_before_they_are_read(running: Endpoint, login: Login) -> None:
    client, sealed = stage_ticket(login("ann"), "a")
    pid = endpoint_pid(running.bulk_port)
    before = resident_bytes(pid)
    for options in (flight.FlightCallOptions(), shown(b"x" * 100)):
        with pytest.raises(flight.FlightUnauthenticatedError) as refused:
            stage(client, sealed, options, bytes(200 << 20))
        said(refused)
    assert resident_bytes(pid) - before < 40 << 20


def endpoint_pid(port: int) -> int:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            words = path.read_bytes().split(b"\0")
            if b"legato.bulk.serve" in words and str(port).encode() in words:
                return int(path.parent.name)
    raise AssertionError("the endpoint does not run")


def resident_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_more_rows_than_may_be_staged_leave_nothing_behind(running: Endpoint, login: Login) -> None:
    client, sealed = stage_ticket(login("ann"), "large")
    with pytest.raises(flight.FlightServerError, match="stage_bytes_max") as refused:
        stage(client, sealed, shown(sealed), bytes(2_000_000))
    said(refused)
    assert not list((running.store / "stages").rglob("*-large.*"))


def test_errors_say_nothing_of_the_brokers_insides(login: Login) -> None:
    ann = login("ann")
    client, sealed = stage_ticket(ann, "a")
    with pytest.raises(flight.FlightServerError, match="cannot be read") as refused:
        stage(client, sealed, shown(sealed), command=b"\xc1")
    said(refused)
    _, mine = ticket(ann)
    for action in (flight.Action("steal", b""), flight.Action(PLAN, b"\xc1"), flight.Action(PLAN, b"")):
        with pytest.raises(flight.FlightServerError) as refused:
            list(client.do_action(action, shown(mine)))
        said(refused)
    with pytest.raises(flight.FlightUnauthenticatedError) as denied:
        list(client.list_flights(options=shown(mine)))
    said(denied)


def test_a_reload_makes_tickets_useless_and_the_next_one_takes_a_permission(running: Endpoint, login: Login) -> None:
    ann = login("ann")
    client, sealed = ticket(ann)
    assert rows(client, sealed, shown(sealed)) == 5
    running.allow("receive")
    running.signal(signal.SIGHUP)
    running.wait_for_log("users were read again")
    status, why = ann.ask("ticket", "invoices", "assignment", holder=digest_of_holder(SECRET).hex())
    assert status == 403
    assert "bulk on 'invoices'" in why
    with pytest.raises((flight.FlightUnavailableError, flight.FlightUnauthenticatedError, flight.FlightInternalError)):
        rows(client, sealed, shown(sealed))
    running.allow("bulk")
    assert login("root").ask("reload", type="broker")[0] == 200
    again, renewed = ticket(ann)
    assert rows(again, renewed, shown(renewed)) == 5
    with pytest.raises(flight.FlightUnauthenticatedError):
        rows(again, sealed, shown(sealed))


def test_the_next_primary_listens_at_the_same_port(running: Endpoint, login: Login) -> None:
    client, sealed = ticket(login("ann"))
    assert rows(client, sealed, shown(sealed)) == 5
    running.kill()
    running.start()
    again, renewed = ticket(login("ann"))
    assert rows(again, renewed, shown(renewed)) == 5

"""Who has a ticket reads a range, or has it cut into parts, over Arrow Flight; who has none does not."""

import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow.flight as flight
import pytest

from legato.bulk.requests import PLAN, PlannedPart, PlanRequest
from legato.bulk.serve import BulkServer
from legato.bulk.tickets import Ticket, TicketRefused, seal, unseal
from legato.core.facts import QueueCreated
from legato.store.lmdb import LmdbStore
from tests.conformance.store import NOW_US, batch_of, body_of, stored

SECRET = bytes(range(32))


@pytest.fixture
def client(tmp_path: Path) -> Iterator[flight.FlightClient]:
    store = LmdbStore(tmp_path / "store", sync=False)
    epoch = store.begin_epoch("broker", NOW_US).epoch
    store.commit(batch_of(epoch, QueueCreated(1, "q"), *[stored(seq) for seq in range(1, 501)]))
    with (
        BulkServer(store, SECRET, "grpc://localhost:0", None) as server,
        flight.connect(f"grpc://localhost:{server.port}") as client,
    ):
        yield client
    store.close()


def ticket(after: int = 0, through: int = 500, secret: bytes = SECRET, seconds: float = 60) -> bytes:
    return seal(secret, Ticket(1, after, through, time.time() + seconds))


def test_a_ticket_gives_its_range(client: flight.FlightClient) -> None:
    table = client.do_get(flight.Ticket(ticket(100, 350))).read_all()
    assert table.column("seq").to_pylist() == list(range(101, 351))
    assert table.column("message").to_pylist() == [body_of(seq) for seq in range(101, 351)]


def test_the_parts_of_a_range_give_all_of_it(client: flight.FlightClient) -> None:
    action = flight.Action(PLAN, msgspec.msgpack.encode(PlanRequest(ticket(), 3)))
    [result] = client.do_action(action)
    parts = msgspec.msgpack.decode(result.body.to_pybytes(), type=list[PlannedPart])
    assert [part.rows for part in parts] == [167, 167, 166]
    seqs = [seq for part in parts for seq in client.do_get(flight.Ticket(part.ticket)).read_all()["seq"].to_pylist()]
    assert seqs == list(range(1, 501))


@pytest.mark.parametrize(
    "bad",
    [b"", b"nonsense", ticket(secret=bytes(32)), ticket(seconds=-1), ticket()[:-1] + b"x"],
    ids=["empty", "nonsense", "another secret", "over", "changed"],
)
def test_a_ticket_that_is_not_the_brokers_gives_nothing(client: flight.FlightClient, bad: bytes) -> None:
    with pytest.raises(flight.FlightUnauthenticatedError, match="ask"):
        client.do_get(flight.Ticket(bad)).read_all()


def test_a_ticket_is_good_until_its_time() -> None:
    sealed = seal(SECRET, Ticket(7, 1, 2, 100.0))
    assert unseal(SECRET, sealed, 100.0, Ticket) == Ticket(7, 1, 2, 100.0)
    with pytest.raises(TicketRefused, match="over"):
        unseal(SECRET, sealed, 100.1, Ticket)


def test_who_asks_hears_nothing_of_the_stores_insides(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """An error of the store names its directory, and was passed on word for word (SECURITY 24)."""
    store = LmdbStore(tmp_path / "store", sync=False)
    epoch = store.begin_epoch("broker", NOW_US).epoch
    store.commit(batch_of(epoch, QueueCreated(1, "q"), *[stored(seq) for seq in range(1, 11)]))
    with (
        BulkServer(store, SECRET, "grpc://localhost:0", None) as server,
        flight.connect(f"grpc://localhost:{server.port}") as client,
    ):
        store.close()
        action = flight.Action(PLAN, msgspec.msgpack.encode(PlanRequest(ticket(), 3)))
        for ask in (
            lambda: client.do_get(flight.Ticket(ticket())).read_all(),
            lambda: list(client.do_action(action)),
        ):
            with pytest.raises(flight.FlightServerError, match="the broker's log says why") as refused:
                ask()
            for secret in (str(tmp_path), "LMDB", "mdb", ".py"):
                assert secret not in str(refused.value)
    assert str(tmp_path) in caplog.text

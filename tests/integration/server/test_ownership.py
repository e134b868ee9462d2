"""What belongs to a user: nobody else takes it over, and nobody else spoils it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.amqp.engine.events import Closed
from legato.amqp.engine.outcomes import ACCEPTED, Rejected, Transactional
from legato.amqp.engine.terminus import Terminus
from legato.client import ConnectionFactory, Topic
from tests.integration.server.test_logins import add
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer, Refused, text
from tests.support.server import Server, server


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Server]:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    for name in ("ann", "bob"):
        add(store / "users", name, "x")
    with server(store) as process:
        yield process


@pytest.fixture
def login(running: Server) -> Iterator[Callable[..., AmqpPeer]]:
    peers: list[AmqpPeer] = []

    def connect(user: str, container: str = "shop") -> AmqpPeer:
        peers.append(AmqpPeer(running.port, user=user, password="x", container=container))
        return peers[-1]

    yield connect
    for peer in peers:
        peer.drop()


def test_nobody_cuts_off_another_users_container(running: Server) -> None:
    factory = ConnectionFactory(f"amqp://127.0.0.1:{running.port}", client_id="shop")
    with factory.create_connection("ann", "x") as ann, factory.create_connection("bob", "x"):
        session = ann.create_session()
        session.create_producer(Topic("news")).send(session.create_text_message("still here"))
        assert ann.failovers == []


def test_nobody_takes_another_users_durable_subscription(running: Server) -> None:
    factory = ConnectionFactory(f"amqp://127.0.0.1:{running.port}", client_id="shop")
    with factory.create_connection("ann", "x") as ann:
        ann.create_session().create_durable_consumer(Topic("news"), "mine").close()
    with factory.create_connection("bob", "x") as bob:
        bob.start()
        session = bob.create_session()
        session.create_producer(Topic("news")).send(session.create_text_message("for ann"))
        with session.create_durable_consumer(Topic("news"), "mine") as others:
            assert others.receive(0.3) is None
        session.unsubscribe("mine")
    with factory.create_connection("ann", "x") as ann:
        ann.start()
        with ann.create_session().create_durable_consumer(Topic("news"), "mine") as mine:
            message = mine.receive(60)
            assert message is not None


def test_numbers_of_another_users_producer_do_not_count(login: Callable[..., AmqpPeer], running: Server) -> None:
    """SECURITY: bob sent number 2^62 as ann's producer, and her messages were accepted and dropped."""
    ann, bob = login("ann"), login("bob")
    hers = ann.sender("q", properties={names.PRODUCER_ID: "nightly"})
    assert ann.send(hers, text(b"1"), tag=(1).to_bytes(8, "big")) == ACCEPTED
    his = bob.sender("q", properties={names.PRODUCER_ID: "nightly"})
    assert bob.send(his, text(b"poison"), tag=(1 << 61).to_bytes(8, "big")) == ACCEPTED
    for number in (2, 3):
        assert ann.send(hers, text(b"%d" % number), tag=number.to_bytes(8, "big")) == ACCEPTED
    assert Manager(ann).ask("READ", "q")[1]["depth"] == 4


def test_batches_that_another_user_publishes_for_a_sink_do_not_count(login: Callable[..., AmqpPeer]) -> None:
    ann, bob = Manager(login("ann")), Manager(login("bob"))
    assert bob.ask("PUBLISH", "nightly-etl", type="stage", batch=10**9, stages="")[0] == 200
    assert ann.ask("PUBLISH", "nightly-etl", type="stage", batch=0, stages="")[0] == 200
    sinks = {sink["name"] for sink in ann.ask("QUERY", type="stage")[1]["results"]}
    assert sinks == {"ann/nightly-etl", "bob/nightly-etl"}


def test_nobody_receives_from_another_users_temporary_queue(login: Callable[..., AmqpPeer]) -> None:
    ann = login("ann")
    link = ann.session.receiver("t", source=Terminus(kind="source", dynamic=True))
    ann._attached(link)
    address = link.remote_source.address
    assert address
    bob = login("bob")
    with pytest.raises(Refused, match="another connection's"):
        bob.receiver(address, 1)
    again = bob.session.receiver(
        "t", source=Terminus(kind="source", dynamic=True), properties={names.TEMPORARY_NAME: address}
    )
    with pytest.raises(Refused, match="another client"):
        bob._attached(again)


def signed(user: str | None) -> bytes:
    properties = Properties(message_id="m", user_id=user.encode() if user else None)
    return encode_message(header=Header(durable=True), properties=properties, body=DataBody(b"x"))


def test_a_message_says_its_own_user_or_none(login: Callable[..., AmqpPeer]) -> None:
    ann = login("ann")
    link = ann.sender("q")
    for _ in range(3):
        assert ann.send(link, signed("ann")) == ACCEPTED
        assert ann.send(link, signed(None)) == ACCEPTED
        refused = ann.send(link, signed("bob"))
        assert isinstance(refused, Rejected)
        assert refused.condition == "amqp:unauthorized-access"


def test_the_same_user_may_take_its_own_container_over(login: Callable[..., AmqpPeer]) -> None:
    first = login("ann")
    factory = ConnectionFactory(f"amqp://ann:x@127.0.0.1:{first.socket.getpeername()[1]}", client_id="other")
    with factory.create_connection():
        assert not any(isinstance(event, Closed) for event in first.events)


def test_nobody_ends_another_users_transaction(login: Callable[..., AmqpPeer]) -> None:
    """Ids tell the epoch and the time: they can be guessed. A guess rolled back what another user had under way."""
    ann, bob = login("ann"), login("bob")
    coordinator = ann.coordinator()
    txn_id = ann.declare(coordinator)
    outcome = ann.send(ann.sender("ours"), text(b"x"), txn_id=txn_id)
    assert isinstance(outcome, Transactional)
    answer = bob.discharge(bob.coordinator(), txn_id)
    assert isinstance(answer, Rejected)
    assert answer.condition == "amqp:transaction:unknown-id"
    assert ann.discharge(coordinator, txn_id) == ACCEPTED
    # Another connection of the same user may: its client asks what became of a commit that was cut off.
    txn_id = ann.declare(coordinator)
    other = login("ann", "another")
    answer = other.discharge(other.coordinator(), txn_id)
    assert isinstance(answer, Rejected)
    assert answer.condition == "amqp:transaction:rollback"

"""Outcomes of transactions: each group knows its own, and says nothing of the others'."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.client import AcknowledgeMode, ConnectionFactory, Queue, aio
from legato.errors import IllegalStateError
from legato.ids import group_digest, make_txn_id, txn_counter, txn_epoch
from tests.integration.groups.conftest import Connect, Groups
from tests.support.amqp_peer import AmqpPeer, text
from tests.support.server import free_port, server

Begin = Callable[[str], tuple[AmqpPeer, bytes]]


@pytest.fixture
def begin(calm_groups: Groups) -> Iterator[Begin]:
    """Begins a transaction at a group, which sends a message; returns its connection and its id."""
    peers: list[AmqpPeer] = []

    def begin(name: str) -> tuple[AmqpPeer, bytes]:
        peer = AmqpPeer(calm_groups.ports[name])
        peers.append(peer)
        txn_id = peer.declare(peer.coordinator())
        peer.send(peer.sender(f"{name}.outcomes"), text(b"x"), txn_id=txn_id)
        return peer, txn_id

    yield begin
    for peer in peers:
        peer.drop()


@pytest.fixture
def committed(begin: Begin) -> Callable[[str], bytes]:
    """Commits a transaction at a group; returns its id."""

    def commit(name: str) -> bytes:
        peer, txn_id = begin(name)
        assert peer.discharge(peer.coordinator(), txn_id) == ACCEPTED
        return txn_id

    return commit


def test_a_group_does_not_say_that_anothers_transaction_was_rolled_back(
    calm_groups: Groups, connect: Connect, committed: Callable[[str], bytes]
) -> None:
    txn_id = committed("rest")
    alone = connect(calm_groups.url("orders", "?discover=false")).create_session(transacted=True)
    assert alone.commit_outcome(txn_id) is None
    peer = AmqpPeer(calm_groups.ports["orders"])
    answer = peer.discharge(peer.coordinator(), txn_id)
    assert isinstance(answer, Rejected)
    assert answer.condition == "amqp:transaction:unknown-id"
    assert dict(answer.info)["hostname"] == "rest"
    peer.drop()


def test_transactions_of_two_groups_from_the_same_microsecond_are_two(begin: Begin) -> None:
    peer, txn_id = begin("rest")
    for group in (b"", group_digest("orders"), group_digest("gone")):
        others = make_txn_id(txn_epoch(txn_id) or 0, txn_counter(txn_id), group)
        answer = peer.discharge(peer.coordinator(), others)
        assert isinstance(answer, Rejected)
        assert answer.condition == "amqp:transaction:unknown-id"
    assert peer.discharge(peer.coordinator(), txn_id) == ACCEPTED
    answer = peer.discharge(peer.coordinator(), make_txn_id(1, txn_counter(txn_id) + 1, group_digest("rest")))
    assert isinstance(answer, Rejected)
    assert answer.condition == "amqp:transaction:rollback"


def test_any_session_has_the_outcome_from_the_group_whose_transaction_it_is(
    calm_groups: Groups, connect: Connect, committed: Callable[[str], bytes], begin: Begin
) -> None:
    connection = connect(calm_groups.url("orders", "?client_id=asks"))
    session = connection.create_session(transacted=True)
    assert session.commit_outcome(committed("rest")) is True
    # One that is open ends thereby, as at its own group.
    assert session.commit_outcome(begin("rest")[1]) is False
    # It asked, which binds its transactions to nobody.
    session.create_producer(Queue("orders.outcomes")).send("x")
    assert session.commit_outcome(committed("orders")) is True
    assert session.commit_outcome(committed("rest")) is True
    session.rollback()
    bound = connection.create_session(transacted=True)
    bound.create_producer(Queue("rest.outcomes")).send("x")
    assert bound.commit_outcome(committed("orders")) is True
    assert bound.commit_outcome(committed("rest")) is True
    # It has forgotten so old a one, and nobody else is asked.
    forgotten = make_txn_id(1, 1, group_digest("orders"))
    assert bound.commit_outcome(forgotten) is None
    assert session.commit_outcome(forgotten) is None
    bound.commit()


def test_a_context_and_asyncio_have_it_too(calm_groups: Groups, committed: Callable[[str], bytes]) -> None:
    factory = ConnectionFactory(calm_groups.url("orders"))
    with factory.create_context(session_mode=AcknowledgeMode.SESSION_TRANSACTED) as context:
        assert context.commit_outcome(committed("rest")) is True

    async def ask(txn_id: bytes) -> bool | None:
        async with await aio.ConnectionFactory(calm_groups.url("orders")).create_connection() as connection:
            session = connection.create_session(transacted=True)
            return await session.commit_outcome(txn_id)

    assert asyncio.run(ask(committed("rest"))) is True


def test_one_that_is_open_in_the_connection_below_is_told_of(calm_groups: Groups, connect: Connect) -> None:
    connection = connect(calm_groups.url("orders"))
    working, asking = connection.create_session(transacted=True), connection.create_session(transacted=True)
    producer = working.create_producer(Queue("rest.still-open"))
    producer.send("1")
    working.commit()
    producer.send("2")
    bound = working._transactions.bound
    assert bound is not None
    assert bound.current is not None
    assert bound.current.name is not None
    with pytest.raises(IllegalStateError, match="still open"):
        asking.commit_outcome(bound.current.name)
    working.commit()
    with connection.create_session() as session, session.create_browser(Queue("rest.still-open")) as browser:
        assert [message.body for message in browser] == ["1", "2"]


def test_what_a_store_did_before_it_was_a_groups_is_known_if_it_was_committed(tmp_path: Path, connect: Connect) -> None:
    port = free_port()
    ids = []
    with server(tmp_path / "store", port=port):
        for fail in (False, True):
            peer = AmqpPeer(port)
            ids.append(peer.declare(coordinator := peer.coordinator()))
            peer.send(peer.sender("orders.before"), text(b"x"), txn_id=ids[-1])
            assert peer.discharge(coordinator, ids[-1], fail=fail) == ACCEPTED
            peer.close()
    done, undone = ids
    groups = Groups(tmp_path)
    groups.ports["orders"] = port
    groups.write_map({"orders.#": "orders", "rest.#": "rest"})
    with (
        server(tmp_path / "store", "--config", str(groups.configuration("orders")), port=port),
        server(tmp_path / "rest", "--config", str(groups.configuration("rest")), port=groups.ports["rest"]),
    ):
        session = connect(groups.url("orders")).create_session(transacted=True)
        assert session.commit_outcome(done) is True
        assert session.commit_outcome(undone) is None  # It may be of any store.
        # Nobody can tell whose it is: who is connected to the group asks it.
        elsewhere = connect(groups.url("rest"))
        asking = elsewhere.create_session(transacted=True)
        assert asking.commit_outcome(done) is None
        elsewhere.create_session().create_producer(Queue("orders.after")).send("x")
        assert asking.commit_outcome(done) is True
        groups.write_map({})
    # The same store under another group's name.
    with server(tmp_path / "store", "--config", str(groups.configuration("rest")), port=port):
        session = connect(groups.url("orders", "?discover=false")).create_session(transacted=True)
        assert session.commit_outcome(done) is True
        assert session.commit_outcome(undone) is None

"""Brokers on stores that former versions of Legato wrote: clients are served all that is in them."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lmdb
import pytest

from legato.client import BytesMessage, ConnectionFactory, Session, TextMessage
from tests.support.broker import BrokerProcess
from tests.support.server import Server, free_port, server
from tests.support.small_disk import small_disk
from tests.support.stores import DUPLICATE_ID, LARGE_BYTES, NAMES, format_of, unpack

WAIT_S = 60


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """The name of a store."""
    return str(request.param)


@pytest.fixture
def session(name: str, tmp_path: Path) -> Iterator[Session]:
    """A session of the client `keeper`, at a broker that serves the store."""
    broker = BrokerProcess(unpack(name, tmp_path / "store"), free_port(), tmp_path / "broker.log")
    try:
        broker.wait_for("active")
        assert broker.epoch == 3
        factory = ConnectionFactory(f"amqp://127.0.0.1:{broker.port}", client_id="keeper")
        with factory.create_connection() as connection:
            connection.start()
            yield connection.create_session()
    finally:
        broker.close()


def texts(session: Session, queue: str, count: int) -> list[tuple[str, bool]]:
    """So many messages of a queue, and whether they are flagged as redelivered; no more are there."""
    consumer = session.create_consumer(session.create_queue(queue))
    found = []
    for _ in range(count):
        message = consumer.receive(timeout_s=WAIT_S)
        assert isinstance(message, TextMessage)
        found.append((message.text or "", message.redelivered))
    assert consumer.receive_no_wait() is None
    consumer.close()
    return found


def test_a_broker_serves_all_that_is_in_a_store_of_a_former_version(name: str, session: Session) -> None:
    """What was confirmed is delivered, in order, flagged if somebody had it; what was consumed is not."""
    has_lanes, has_ids = format_of(name) > 1, format_of(name) > 2
    has_topics = has_lanes and name != "2-first"
    if has_ids:
        again = session.create_producer(session.create_queue("orders"))
        again.send(TextMessage("again"), duplicate_id=DUPLICATE_ID)
    # Format 1 knew neither priorities nor dead letters: the first message was given back three times.
    orders = [0, 1, 2, 3, 5] if has_lanes else [0, 1, 2, 3, 4, 5]
    expected = [*(f"order {number}" for number in orders), "until 2286", *(["named"] if has_ids else [])]
    found = texts(session, "orders", len(expected))
    assert [text for text, _ in found] == expected
    assert found[0][1], "it was rolled back"
    if has_lanes:
        assert [text for text, _ in texts(session, "DLQ.orders", 1)] == ["order 4"]
    numbers = texts(session, "numbers", 12)
    assert [text for text, _ in numbers] == [str(number) for number in range(8, 20)]
    assert [flagged for _, flagged in numbers[:3]] == [True] * 3, "an application had them when its broker was killed"
    assert [text for text, _ in texts(session, "committed", 2)] == ["in a transaction", "the last one"]
    by_hand = texts(session, "by hand", 27)
    assert [flagged for _, flagged in by_hand[:4]] == [True] * 4
    if has_topics:
        assert_subscriptions_have_what_they_want(session)
        message = session.create_consumer(session.create_queue("large")).receive(timeout_s=WAIT_S)
        assert isinstance(message, BytesMessage)
        assert message.body_length == LARGE_BYTES
        assert message.read_bytes(LARGE_BYTES) == bytes(LARGE_BYTES)


def assert_subscriptions_have_what_they_want(session: Session) -> None:
    notices = session.create_topic("notices")
    audit = session.create_durable_consumer(notices, "audit", selector="weight > 3")
    shared = session.create_shared_durable_consumer(notices, "shared")
    first, *others = [audit.receive(timeout_s=WAIT_S), *(shared.receive(timeout_s=WAIT_S) for _ in range(2))]
    assert isinstance(first, TextMessage)
    assert first.text == "weighs 7"
    assert [other.text for other in others if isinstance(other, TextMessage)] == ["weighs 1", "weighs 7"]
    assert audit.receive_no_wait() is None


def test_a_broker_without_room_to_migrate_says_how_much_it_needs_and_serves_when_there_is(tmp_path: Path) -> None:
    """And it ends when it is told to meanwhile: its loop is not held up."""
    with small_disk(tmp_path / "disk" / "store", 24 << 20) as disk, ThreadPoolExecutor() as pool:
        store = unpack("1", disk.path)
        disk.occupy(12 << 20)
        told_to_stop, waiting = Server(store), Server(store)
        for broker in (told_to_stop, waiting):
            broker.log.touch()
        starting = pool.submit(told_to_stop.start)
        told_to_stop.wait_for_log(f"the store in {store} has format 1 and is to be migrated")
        assert told_to_stop.stop() == 0
        starting.result(WAIT_S)
        assert not list(store.glob("before*"))
        starting = pool.submit(waiting.start)
        waiting.wait_for_log("must be free on its disk")
        disk.empty()
        starting.result(WAIT_S)
        assert waiting.role.startswith("active")
        assert waiting.stop() == 0


def test_a_broker_does_not_serve_a_newer_store_and_says_who_does(tmp_path: Path) -> None:
    with server(tmp_path / "store") as first:
        assert first.stop() == 0
    with lmdb.open(str(tmp_path / "store"), max_dbs=64) as environment:
        meta = environment.open_db(b"meta", create=False)
        with environment.begin(write=True) as txn:
            txn.put(b"format", b"99", db=meta)
            txn.put(b"written by", b"9.9.9", db=meta)
    with server(tmp_path / "store") as refused:
        assert refused.role == "ended"
        assert refused.wait() == 1
        logged = refused.log.read_text()
    assert "has format 99, written by Legato 9.9.9" in logged
    assert "Traceback" not in logged

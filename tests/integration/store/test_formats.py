"""Stores that earlier versions of Legato wrote (`tools/write_store.py`): this version serves all that is in them."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools.write_store import LARGE_BYTES

from legato.client import BytesMessage, ConnectionFactory, Session, TextMessage
from legato.store.base import FORMAT_VERSION
from tests.support.broker import BrokerProcess
from tests.support.server import free_port

FORMATS = sorted(Path(__file__).with_name("formats").glob("*.gz"))
WAIT_S = 10


@pytest.fixture(params=FORMATS, ids=lambda file: f"format {file.stem}")
def session(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Session]:
    """A session of the client `keeper`, at a broker that serves an old store."""
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    (store / "data.mdb").touch(mode=0o600)
    (store / "data.mdb").write_bytes(gzip.decompress(request.param.read_bytes()))
    broker = BrokerProcess(store, free_port(), tmp_path / "broker.log")
    try:
        broker.wait_for("active")
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


def test_there_is_a_store_of_the_present_format() -> None:
    assert str(FORMAT_VERSION) in [file.stem for file in FORMATS], "python -m tools.write_store"


def test_every_message_of_an_old_store_is_delivered_in_order_and_flagged_if_it_was_delivered(session: Session) -> None:
    orders = texts(session, "orders", 6)
    assert [text for text, _ in orders] == ["order 4", "order 0", "order 1", "order 2", "order 3", "named"]
    assert orders[0][1], "it was rolled back once, and received once more"
    assert [text for text, _ in texts(session, "committed", 1)] == ["in a transaction"]


def test_subscriptions_of_an_old_store_have_what_they_want(session: Session) -> None:
    notices = session.create_topic("notices")
    audit = session.create_durable_consumer(notices, "audit", selector="weight > 3")
    shared = session.create_shared_durable_consumer(notices, "shared")
    first, *others = [audit.receive(timeout_s=WAIT_S), *(shared.receive(timeout_s=WAIT_S) for _ in range(2))]
    assert isinstance(first, TextMessage)
    assert first.text == "weighs 7"
    assert [other.text for other in others if isinstance(other, TextMessage)] == ["weighs 1", "weighs 7"]
    assert audit.receive_no_wait() is None


def test_a_large_message_of_an_old_store_is_whole(session: Session) -> None:
    message = session.create_consumer(session.create_queue("large")).receive(timeout_s=WAIT_S)
    assert isinstance(message, BytesMessage)
    assert message.body_length == LARGE_BYTES


def test_an_old_store_remembers_duplicate_ids(session: Session) -> None:
    session.create_producer(session.create_queue("orders")).send(TextMessage("again"), duplicate_id="order-7")
    assert "again" not in [text for text, _ in texts(session, "orders", 6)]

"""A store that has given all numbers of queues, or of producers: nothing new, and all else goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from legato import limits
from legato.client import ConnectionFactory, Session, TextMessage
from legato.core.facts import AnyFact, ProducerRegistered, QueueCreated
from legato.errors import ResourceAllocationError
from legato.store.lmdb import LmdbStore
from tests.conformance.store import NOW_US, batch_of
from tests.support.server import Server, server

LAST = limits.NODE_NUMBER_MAX - limits.NODE_NUMBERS_RESERVED


def made(path: Path, *facts: AnyFact) -> Path:
    store = LmdbStore(path)
    epoch = store.begin_epoch("broker", NOW_US).epoch
    store.commit(batch_of(epoch, *facts))
    store.close()
    return path


def url_of(process: Server) -> str:
    return f"amqp://127.0.0.1:{process.port}"


@pytest.mark.parametrize(
    "create",
    [
        lambda session: session.create_producer(session.create_queue("another")),
        lambda session: session.create_producer(session.create_topic("another")),
        lambda session: session.create_temporary_queue(),
        lambda session: session.create_temporary_topic(),
        lambda session: session.create_consumer(session.create_topic("t")),
    ],
    ids=["queue", "topic", "temporary-queue", "temporary-topic", "subscription"],
)
def test_nothing_new_is_made_without_a_number_and_the_broker_serves_on(
    tmp_path: Path, create: Callable[[Session], object]
) -> None:
    """Every broker of the group ended, one after the other, at the first thing that was created."""
    store = made(tmp_path / "store", QueueCreated(1, "topic://t", 1), QueueCreated(LAST - 1, "q"))
    with server(store) as process, ConnectionFactory(url_of(process)).create_connection() as connection:
        connection.start()
        with connection.create_session() as session:
            producer = session.create_producer(session.create_queue("the last"))
            with pytest.raises(ResourceAllocationError, match="no more for new ones"):
                create(session)
            producer.send(TextMessage("now"))
            assert session.create_consumer(session.create_queue("the last")).receive_body(str, 10) == "now"
            later = session.create_producer(session.create_queue("q"))
            later.delivery_delay_ms = 1
            later.send(TextMessage("the schedule is needed"))
            consumer = session.create_consumer(session.create_queue("q"))
            assert consumer.receive_body(str, 10) == "the schedule is needed"
        assert process.role == "active epoch=2"


def test_a_producer_without_a_number_is_refused_and_the_broker_serves_on(tmp_path: Path) -> None:
    facts: list[AnyFact] = [QueueCreated(1, "q"), ProducerRegistered(limits.PRODUCER_NUMBER_MAX - 1, "p")]
    with server(made(tmp_path / "store", *facts)) as process:
        factory = ConnectionFactory(url_of(process))
        with factory.create_connection() as connection, connection.create_session() as session:
            last = session.create_producer(session.create_queue("q"))
            with pytest.raises(ResourceAllocationError, match="no more for new ones"):
                session.create_producer(session.create_queue("q"))
            last.send(TextMessage("from the last"))
        with factory.create_context() as context:
            assert context.create_consumer(context.create_queue("q")).receive_body(str, 10) == "from the last"

"""A broker that looks (as `LocalBroker` does) stops when its heap and its store disagree."""

import logging
from pathlib import Path

import pytest

from legato.client import ConnectionFactory, Queue, TextMessage
from legato.server.process.service import Service
from legato.testing import LocalBroker


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_broker_whose_memory_disagrees_with_its_store_stops_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """`[server] check_invariants`: another broker takes over, from the store, which is right."""
    running = LocalBroker(tmp_path)
    running.start()
    with ConnectionFactory(running.url).create_connection() as connection:
        connection.create_session().create_producer(Queue("orders")).send(TextMessage("tea"))

    def corrupt(service: Service) -> None:
        service.broker.directory.queues["orders"].bytes += 1

    running._ask(corrupt)
    assert running._thread is not None
    with caplog.at_level(logging.CRITICAL):
        running._thread.join(60)
    assert not running._thread.is_alive()
    assert "orders: bytes are counted alike" in caplog.text

"""What `legato.testing.broker` offers to tests of others: a real broker in this process, whose time they set."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from legato.client import ConnectionFactory, Queue, Session, TextMessage
from legato.errors import ConfigError
from legato.testing import LocalBroker, broker
from legato.testing.pytest_plugin import legato_broker

__all__ = ["legato_broker"]

ORDERS = Queue("orders")
SLOW = [{"match": "orders", "redelivery_delay_s": 3600, "maximum_deliveries": 2}]


@contextmanager
def transacted(running: LocalBroker) -> Iterator[Session]:
    with ConnectionFactory(running.url).create_connection() as connection:
        connection.start()
        yield connection.create_session(transacted=True)


def test_a_message_that_fails_twice_is_a_dead_letter_hours_later_and_the_test_need_not_wait() -> None:
    with broker(addresses=SLOW) as running, transacted(running) as session:
        session.create_producer(ORDERS).send(TextMessage("tea"))
        session.commit()
        assert (running.waiting("orders"), running.waiting("never used")) == (1, 0)
        consumer = session.create_consumer(ORDERS)
        for attempt in (1, 2):
            message = consumer.receive(timeout_s=60)
            assert message is not None
            assert message.delivery_count == attempt
            running.assert_no_dead_letters()
            session.rollback()
            assert consumer.receive_no_wait() is None
            running.advance(3600)
        [letter] = running.dead_letters()
        assert isinstance(letter, TextMessage)
        assert (letter.text, letter.properties["JMS_LEGATO_CAUSE"]) == ("tea", "maximum deliveries")
        assert running.dead_letters("invoices") == []
        with pytest.raises(AssertionError, match=r"1 dead letters; the first: .*maximum deliveries"):
            running.assert_no_dead_letters()


def test_what_is_delayed_comes_and_what_expires_goes_when_the_test_says_so() -> None:
    with broker() as running, transacted(running) as session:
        producer = session.create_producer(ORDERS)
        producer.send(TextMessage("later"), delivery_delay_ms=86_400_000)
        producer.send(TextMessage("over"), time_to_live_ms=60_000)
        session.commit()
        assert [message.body for message in running.messages("orders")] == ["over"]
        running.advance(61)
        assert running.waiting("orders") == 0
        running.advance(86_400)
        assert [message.body for message in running.messages("orders")] == ["later"]


def test_a_queue_is_waited_for_until_it_is_empty(legato_broker: LocalBroker) -> None:
    running = legato_broker
    with transacted(running) as session:
        session.create_producer(ORDERS).send(TextMessage("tea"))
        session.commit()
        with pytest.raises(AssertionError, match="1 messages are still in orders"):
            running.wait_until_empty("orders", timeout_s=0.01)
        session.create_consumer(ORDERS).receive(timeout_s=60)
        committing = threading.Thread(target=session.commit)
        committing.start()
        running.wait_until_empty("orders")
        committing.join()


def test_brokers_beside_each_other_and_one_after_the_other_on_one_store(tmp_path: Path) -> None:
    with broker(tmp_path) as first, broker() as second:
        with transacted(first) as session:
            session.create_producer(ORDERS).send(TextMessage("tea"))
            session.commit()
        assert (first.waiting("orders"), second.waiting("orders")) == (1, 0)
        with pytest.raises(ConfigError, match="Another broker uses"), broker(tmp_path):
            pass
    before = threading.active_count()
    with broker(tmp_path) as again:
        assert again.waiting("orders") == 1
    assert threading.active_count() == before
    with pytest.raises(ConfigError, match="does not run"):
        again.waiting("orders")


def test_without_the_extra_for_brokers_a_sentence_says_what_is_missing() -> None:
    """It was a bare ModuleNotFoundError."""
    program = "import sys; sys.modules['lmdb'] = None; import legato.testing"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "legato.testing needs a broker, and so lmdb: pip install 'legato[broker]'." in run.stderr

"""A lone broker goes away: the log says what is waited for, and whoever leaves does not wait for it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from legato.client import ConnectionFactory, JMSError, aio
from legato.client.calls import leaving
from tests.integration.client.calling import Calling, until, until_away, until_blocked
from tests.integration.client.helpers import WAIT_S
from tests.support.broker import BrokerProcess
from tests.support.server import free_port

LONG_S = 10 * WAIT_S


class Lone:
    """A broker without a backup."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.port = free_port()
        self.url = f"amqp://127.0.0.1:{self.port}"
        self.process = self.start()

    def start(self) -> BrokerProcess:
        self.process = BrokerProcess(self._directory / "store", self.port, self._directory / "log")
        self.process.wait_for("active")
        return self.process


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Lone]:
    broker = Lone(tmp_path)
    yield broker
    broker.process.close()


@pytest.fixture
def lines(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "legato")
    return caplog


def test_the_loss_of_a_lone_broker_is_told_of_once_and_so_is_its_return(
    lone: Lone, factory: Callable[..., ConnectionFactory], lines: pytest.LogCaptureFixture
) -> None:
    """`send()` waited in silence."""
    with factory(lone.url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue("q"))
        producer.send("1")
        lone.process.kill()
        sending = Calling(lambda: producer.send("2"))
        until(lambda: lines.messages)
        assert [record.levelname for record in lines.records] == ["WARNING"]
        assert lines.messages[0].startswith(f"Lost the connection to {lone.url}: ")
        lone.start()
        sending.outcome()
        assert [record.levelname for record in lines.records] == ["WARNING", "WARNING"]
        assert lines.messages[1].startswith(f"Connected to 127.0.0.1:{lone.port} again after ")


def test_the_error_at_the_end_says_how_long_and_what_was_tried(
    lone: Lone, factory: Callable[..., ConnectionFactory]
) -> None:
    with factory(lone.url, reconnect_attempts=3).create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(session.create_queue("q"))
        lone.process.kill()
        tried = rf"since the connection was lost [\d.]+ s ago, in 3 tries \(127.0.0.1:{lone.port}: Connection refused\)"
        with pytest.raises(JMSError, match=tried):
            producer.send("1")


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("broken")], ids=repr)
@pytest.mark.parametrize("world", ["threads", "asyncio"])
def test_who_leaves_because_of_an_exception_does_not_wait_for_a_broker_that_is_away(
    lone: Lone, monkeypatch: pytest.MonkeyPatch, lines: pytest.LogCaptureFixture, error: BaseException, world: str
) -> None:
    """It took `close_timeout_s`, a minute, and more with a producer's own block."""
    monkeypatch.setattr(leaving, "AWAY_WAIT_S", 0.1)
    vars(error).clear()

    def in_threads() -> None:
        with (
            ConnectionFactory(lone.url, close_timeout_s=LONG_S).create_connection() as connection,
            connection.create_session() as session,
            session.create_producer(session.create_queue("q")) as producer,
        ):
            producer.send("1")
            lone.process.kill()
            until_away(connection)
            producer.send("2", completion_listener=lambda message, failure: None)
            raise error

    async def in_tasks() -> None:
        async with (
            aio.ConnectionFactory(lone.url, close_timeout_s=LONG_S).create_connection() as connection,
            connection.create_session() as session,
            session.create_producer(session.create_queue("q")) as producer,
        ):
            await producer.send("1")
            lone.process.kill()
            until_away(connection)
            await producer.send("2", completion_listener=lambda message, failure: None)
            raise error

    def story() -> None:
        if world == "threads":
            in_threads()
        else:
            asyncio.run(in_tasks())

    raised: list[BaseException] = []

    def run() -> None:
        try:
            story()
        except BaseException as caught:
            raised.append(caught)

    client = threading.Thread(target=run, daemon=True)
    client.start()
    client.join(WAIT_S)
    assert raised == [error]
    closing = [line for line in lines.messages if line.startswith("Closing because of")]
    assert len(closing) == 1
    assert "to which there is no connection. Messages that it has not confirmed, and that may be lost: 1" in closing[0]


def test_a_second_ctrl_c_ends_the_closing_at_once(lone: Lone, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block around it waited again."""
    monkeypatch.setattr(leaving, "AWAY_WAIT_S", LONG_S)
    waited: list[Calling] = []

    def story() -> None:
        with (
            ConnectionFactory(lone.url, close_timeout_s=LONG_S).create_connection() as connection,
            connection.create_session() as session,
            session.create_producer(session.create_queue("q")) as producer,
        ):
            lone.process.kill()
            until_away(connection)

            def interrupt_twice() -> None:
                until_blocked(session)
                os.kill(os.getpid(), signal.SIGINT)
                until(lambda: producer._closed)
                until_blocked(session)
                os.kill(os.getpid(), signal.SIGINT)

            waited.append(Calling(interrupt_twice))
            producer.send("1")

    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            story()
        waited[0].outcome()
    finally:
        signal.signal(signal.SIGINT, previous)

"""Subscribers whose messages are asked for, after their queue was deleted or by two tasks; handlers that do not end."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from legato.client import management
from legato.errors import InvalidDestinationError, InvalidSelectorError, JMSError
from legato.faststream import LegatoBroker
from legato.testing import LocalBroker, broker
from tests.integration.client.calling import until
from tests.integration.faststream.test_broker import Heard, started, told
from tests.integration.server.test_logins import add
from tests.support.server import server

FEW = """
[[role]]
name = "workers"
members = ["ann"]
allow = [{ on = "orders", may = ["send", "receive", "create"] }]
"""


@pytest.fixture(scope="module")
def running() -> Iterator[LocalBroker]:
    with broker() as one:
        yield one


def test_who_asks_for_messages_gets_them_from_a_queue_that_was_deleted_and_made_again(running: LocalBroker) -> None:
    async def story() -> None:
        service = LegatoBroker(running.url)
        subscriber = service.subscriber("remade")
        async with started(service):
            await service.publish("before", "remade")
            message = await subscriber.get_one()
            assert message is not None
            await message.ack()
            await asyncio.to_thread(management.request, running.url, "delete", "queue", "remade")
            with pytest.raises(InvalidDestinationError, match="remade"):
                await subscriber.get_one(timeout=1)
            await service.publish("after", "remade")
            message = await subscriber.get_one()
            assert message is not None
            assert await message.decode() == "after"
            await message.ack()

    told(story)


def test_a_subscriber_receives_from_a_queue_that_was_deleted_and_made_again(running: LocalBroker) -> None:
    """It ended the application; without one, as beside FastAPI, the subscriber alone, for ever."""

    async def story() -> None:
        service, heard = LegatoBroker(running.url), Heard()

        @service.subscriber("deleted", max_workers=2)
        async def handle(body: str) -> None:
            heard.add(body)

        async with started(service):
            for body in ("before", "after"):
                async with LegatoBroker(running.url) as other:
                    await other.publish(body, "deleted")
                assert await heard.next() == body
                await asyncio.to_thread(management.request, running.url, "delete", "queue", "deleted")
                await asyncio.to_thread(until, lambda: _consumers_of(running, "deleted") == 2)

    told(story)


def _consumers_of(running: LocalBroker, queue: str) -> int:
    with suppress(JMSError):
        return int(management.request(running.url, "read", "queue", queue)["consumers"])
    return 0


def test_two_tasks_that_ask_first_share_a_session(running: LocalBroker) -> None:
    async def story() -> None:
        service = LegatoBroker(running.url)
        subscriber = service.subscriber("shared")
        async with started(service):
            connection = service._connection
            assert connection is not None
            before = len(connection._sessions)
            assert await asyncio.gather(*(subscriber.get_one(timeout=0.1) for _ in range(3))) == [None] * 3
            await subscriber.stop()
            assert len(connection._sessions) == before

    told(story)


def test_a_service_stops_though_a_handler_does_not_end(running: LocalBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("legato.faststream.subscriber.CLOSE_S", 0.1)

    async def story() -> None:
        service, heard, over = LegatoBroker(running.url, graceful_timeout=0.1), Heard(), asyncio.Event()

        @service.subscriber("endless")
        async def handle(body: str) -> None:
            heard.add(body)
            while not over.is_set():
                try:
                    await over.wait()
                except asyncio.CancelledError:
                    heard.add("not now")

        await service.start()
        await service.publish("tea", "endless")
        assert await heard.next() == "tea"
        async with asyncio.timeout(20):
            await service.stop()
        over.set()

    told(story)
    assert running.waiting("endless") == 1


def test_a_service_that_is_started_twice_has_its_workers_once(running: LocalBroker) -> None:
    """It had them twice, and `stop()` waited for the first of them as for handlers that do not end."""

    async def story() -> None:
        service = LegatoBroker(running.url, graceful_timeout=1.0)

        @service.subscriber("twice", max_workers=2)
        async def handle(body: str) -> None:
            pass

        async with started(service):
            connection = service._connection
            assert connection is not None
            sessions = len(connection._sessions)
            await asyncio.sleep(0)  # the workers wait for messages
            await service.start()
            assert len(connection._sessions) == sessions

    told(story)


def test_a_consumer_that_is_refused_leaves_no_session(running: LocalBroker) -> None:
    """Who asked again and again had one more each time."""

    async def story() -> None:
        service = LegatoBroker(running.url)
        subscriber = service.subscriber("refused", selector="no selector (")
        async with started(service):
            connection = service._connection
            assert connection is not None
            before = len(connection._sessions)
            with pytest.raises(InvalidSelectorError):
                await subscriber.get_one()
            assert len(connection._sessions) == before

    told(story)


def test_a_broker_that_refuses_temporary_queues_is_there(tmp_path: Path) -> None:
    """`ping()` makes one: for a user with few permissions a probe of the service failed for ever."""
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    add(store / "users", "ann", "x")
    (tmp_path / "legato.toml").write_text(FEW)

    async def story() -> None:
        async with LegatoBroker(f"amqp://ann:x@127.0.0.1:{few.port}") as service:
            assert await service.ping()
            few.kill()
            assert not await service.ping(timeout=0.1)

    with server(store, "--config", str(tmp_path / "legato.toml")) as few:
        told(story)


def test_who_only_publishes_connects_anew_after_the_connection_was_given_up(tmp_path: Path) -> None:
    """Each publication raised the same for ever, with a broker that had been there again for long."""

    async def story() -> None:
        with server(tmp_path / "store") as first:
            port = first.port
            service = LegatoBroker(f"amqp://127.0.0.1:{port}?reconnect_attempts=1")
            await service.connect()
            await service.publish("before", "orders")
            first.kill()
        with pytest.raises(JMSError):
            await service.publish("lost", "orders")
        with pytest.raises(JMSError, match="No broker can be reached"):
            await service.publish("nobody is there", "orders")
        assert not await service.ping()
        with server(tmp_path / "store", port=port):
            assert await service.ping()
            await asyncio.gather(*(service.publish("after", "orders") for _ in range(3)))
            with pytest.raises(TimeoutError, match="No reply"):
                await service.request("who answers?", "nobody", timeout=0.1)
            assert management.request(f"amqp://127.0.0.1:{port}", "read", "queue", "orders")["depth"] == 4
            await service.stop()

    told(story)

"""Completion listeners of a session that sends to two groups: one at a time, as with one group."""

from __future__ import annotations

import asyncio
import threading

from legato.client import ConnectionFactory, Message, Queue, aio
from legato.errors import JMSError
from tests.integration.groups.conftest import Connect, Groups

WAIT_S = 60.0
NAMES = ("orders.completes", "rest.completes")
COUNT = 10


class _Listener:
    """Counts how many of its calls run at once; another one that may begin has the time to."""

    def __init__(self) -> None:
        self.running = self.most = self.heard = 0
        self.done = threading.Event()
        self._goes_on = threading.Semaphore(0)

    def __call__(self, _message: Message, _error: JMSError | None) -> None:
        self.running += 1
        self.most = max(self.most, self.running)
        self._goes_on.acquire(timeout=0.02)
        self.running -= 1
        self.heard += 1
        if self.heard == COUNT * len(NAMES):
            self.done.set()

    async def of_a_task(self, _message: Message, _error: JMSError | None) -> None:
        """Likewise."""
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.02)
        self.running -= 1
        self.heard += 1


def test_completion_listeners_of_two_groups_do_not_run_at_once(calm_groups: Groups, connect: Connect) -> None:
    producer = connect(calm_groups.url("orders")).create_session().create_producer()
    listener = _Listener()
    for number in range(COUNT):
        for name in NAMES:
            producer.send(str(number), destination=Queue(name), completion_listener=listener)
    producer.flush(WAIT_S)
    assert listener.done.is_set()
    assert listener.most == 1


def test_completion_listeners_in_tasks_do_not_run_at_once(calm_groups: Groups) -> None:
    listener = _Listener()

    async def work() -> None:
        async with aio.ConnectionFactory(calm_groups.url("orders")).create_connection() as connection:
            producer = await connection.create_session().create_producer()
            for number in range(COUNT):
                for name in NAMES:
                    await producer.send(str(number), destination=Queue(name), completion_listener=listener.of_a_task)
            await producer.flush(WAIT_S)
            assert listener.heard == COUNT * len(NAMES)

    asyncio.run(work())
    assert listener.most == 1


def test_all_listeners_of_a_connection_have_one_thread(groups: Groups) -> None:
    """Also those that hear of another group; it ends with the connection."""
    threads: set[threading.Thread] = set()
    heard = threading.Event()
    connection = ConnectionFactory(groups.url("orders", "?reconnect_attempts=0")).create_connection()

    def hear(_error: JMSError) -> None:
        threads.add(threading.current_thread())
        heard.set()

    connection.exception_listener = hear
    producer = connection.create_session().create_producer()
    for name in NAMES:
        producer.send(
            "one",
            destination=Queue(name),
            completion_listener=lambda _message, _error: threads.add(threading.current_thread()),
        )
    producer.flush(WAIT_S)
    groups.brokers["rest"].kill()
    assert heard.wait(WAIT_S)
    assert len(threads) == 1
    connection.close()
    (thread,) = threads
    thread.join(WAIT_S)
    assert not thread.is_alive()

"""Calls that need the same other group at once: they have one connection to it."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from legato.client import Connection, ConnectionFactory, Queue, Session, aio
from legato.errors import JMSError
from tests.integration.groups.conftest import Groups
from tests.integration.groups.test_interrupted_ends import check_ended, io_threads, stopped

WAIT_S = 60.0
COUNT = 4


class _Creates:
    """Creates a consumer of the other group's, in a thread and a session of its own."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.session: Session = connection.create_session()
        self.name = f"rest.at_once.{number}"
        self.made: Any = None
        self.error: JMSError | None = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.made = self.session.create_consumer(Queue(self.name))
        except JMSError as error:
            self.error = error


@pytest.mark.parametrize("client_id", ["", "?client_id=at-once"])
@pytest.mark.parametrize("replaced", [False, True])
def test_sessions_that_need_a_group_at_once_have_one_connection_to_it(
    groups: Groups, client_id: str, replaced: bool
) -> None:
    """The broker refused the client id of all but one; without one, some connections were nobody's."""
    before = io_threads()
    connection = ConnectionFactory(groups.url("orders", client_id)).create_connection()
    connection.start()
    if replaced:
        connection.create_session().create_producer(Queue("rest.at_once"))
        (lost,) = connection._groups
        lost._transport.give_up()
        lost._transport._thread.join(WAIT_S)
    with stopped(groups.brokers["rest"]):
        creating = [_Creates(connection, number) for number in range(COUNT)]
        creating[0].thread.join(1.0)
        assert all(each.thread.is_alive() for each in creating)
    for number, each in enumerate(creating):
        each.thread.join(WAIT_S)
        assert each.error is None
        with connection.create_session() as session:
            session.create_producer(Queue(each.name)).send(str(number))
        assert each.made.receive_body(str, timeout_s=WAIT_S) == str(number)
    connection.close()
    check_ended(io_threads() - before)


def test_whose_session_closes_leaves_the_connecting_to_the_others(groups: Groups) -> None:
    connection = ConnectionFactory(groups.url("orders")).create_connection()
    connection.start()
    with stopped(groups.brokers["rest"]):
        creating = [_Creates(connection, number) for number in range(2)]
        creating[0].thread.join(1.0)
        creating[0].session.close()
        creating[0].thread.join(WAIT_S)
        assert creating[0].error is not None
        assert creating[1].thread.is_alive()
    creating[1].thread.join(WAIT_S)
    assert creating[1].error is None
    connection.close()


def test_tasks_that_need_a_group_at_once_have_one_connection_to_it(groups: Groups) -> None:
    async def work() -> list[str | None]:
        url = groups.url("orders", "?client_id=tasks-at-once")
        async with aio.ConnectionFactory(url).create_connection() as connection:
            connection.start()

            async def one(number: int) -> str | None:
                async with connection.create_session() as session:
                    consumer = await session.create_consumer(Queue(f"rest.at_once.{number}"))
                    producer = await session.create_producer(Queue(f"rest.at_once.{number}"))
                    await producer.send(str(number))
                    return await consumer.receive_body(str, timeout_s=WAIT_S)

            return await asyncio.gather(*(one(number) for number in range(COUNT)))

    assert asyncio.run(work()) == [str(number) for number in range(COUNT)]

"""A connection in a forked child is its parent's: each call says so, none hangs, and closing harms nobody."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest

from legato.client import AcknowledgeMode, ConnectionFactory, IllegalStateError, JMSContext, TextMessage, aio
from tests.integration.client.helpers import WAIT_S, drain, send
from tests.support.broker import BrokerPair


def in_child(told: Callable[[], str]) -> str:
    """What a forked child says, or how it ended."""
    read, write = os.pipe()
    child = os.fork()
    if not child:
        try:
            words = told()
        except BaseException as error:
            words = f"{type(error).__name__}: {error}"
        os.write(write, words.encode())
        os._exit(0)
    os.close(write)
    try:
        if not select.select([read], [], [], WAIT_S)[0]:
            os.kill(child, signal.SIGKILL)
            return "hangs"
        return os.read(read, 1 << 16).decode()
    finally:
        os.waitpid(child, 0)
        os.close(read)


def refusals(calls: dict[str, Callable[[], Any]]) -> str:
    """The calls that do not refuse as they should."""
    wrong = []
    for name, call in calls.items():
        try:
            wrong.append(f"{name}: {call()!r}")
        except IllegalStateError as error:
            if error.code != "FORKED":
                wrong.append(f"{name}: {error}")
    return "; ".join(wrong)


@pytest.mark.parametrize("transacted", [False, True], ids=["client acknowledge", "transacted"])
def test_every_call_in_a_forked_child_says_whose_connection_it_is(
    calm_pair: BrokerPair, queue_name: str, transacted: bool
) -> None:
    """`send()` and `close()` hung for ever."""
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        send(connection, queue_name, "0", "1", "2")
        session = connection.create_session(transacted, AcknowledgeMode.CLIENT)
        queue = session.create_queue(queue_name)
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        browser = session.create_browser(queue)
        replies = session.create_temporary_queue()
        message = consumer.receive(WAIT_S)
        assert message is not None
        ending: dict[str, Callable[[], Any]] = {"commit": session.commit, "rollback": session.rollback}
        acknowledging: dict[str, Callable[[], Any]] = {
            "acknowledge": message.acknowledge,
            "try_acknowledge": message.try_acknowledge,
            "acknowledge_all": session.acknowledge_all,
            "recover": session.recover,
        }

        def told() -> str:
            assert message.body == "0"
            return refusals(
                {
                    "send": lambda: producer.send(TextMessage("x")),
                    "send asynchronously": lambda: producer.send(TextMessage("x"), completion_listener=print),
                    "flush": producer.flush,
                    "receive": lambda: consumer.receive(WAIT_S),
                    "receive for ever": consumer.receive,
                    "receive_no_wait": consumer.receive_no_wait,
                    "iteration": lambda: next(iter(consumer)),
                    "listener": lambda: setattr(consumer, "message_listener", print),
                    "browse": lambda: list(browser),
                    "create_producer": lambda: session.create_producer(queue),
                    "create_consumer": lambda: session.create_consumer(queue),
                    "create_session": connection.create_session,
                    "unsubscribe": lambda: session.unsubscribe("name"),
                    "delete": replies.delete,
                    "stop": connection.stop,
                    "start": connection.start,
                    "context": lambda: JMSContext(connection, AcknowledgeMode.AUTO),
                    **(ending if transacted else acknowledging),
                }
            )

        assert in_child(told) == ""
        if transacted:
            session.commit()
        else:
            message.acknowledge()
        session.close()
        assert drain(connection, queue_name) == ["1", "2"]


def test_closing_in_a_forked_child_leaves_the_parent_its_connection(calm_pair: BrokerPair, queue_name: str) -> None:
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        send(connection, queue_name, "0", "1")
        session = connection.create_session()
        queue = session.create_queue(queue_name)
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        session.create_consumer(queue).message_listener = print

        def told() -> str:
            wire = connection._transport.wire
            for each in (producer, consumer, session, connection, connection):
                each.close()
            gc.collect()
            return "" if wire is None else "it still has its socket"

        assert in_child(told) == ""
        assert not connection._transport.connecting._attempts
        producer.send(TextMessage("2"))
        assert connection.failovers == []


def test_the_end_of_a_forked_child_leaves_the_parent_its_connection(calm_pair: BrokerPair, queue_name: str) -> None:
    """Its garbage, and what runs at its exit."""
    with ConnectionFactory(calm_pair.url).create_connection() as connection:
        connection.start()
        child = os.fork()
        if not child:
            try:
                sys.exit(0)  # unwinds this test's blocks
            finally:
                connection.close()
                os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        send(connection, queue_name, "0")
        assert drain(connection, queue_name) == ["0"]
        assert connection.failovers == []


def test_with_asyncio_too_a_forked_child_is_told(calm_pair: BrokerPair, queue_name: str) -> None:
    async def story() -> None:
        async with aio.ConnectionFactory(calm_pair.url).create_connection() as connection:
            connection.start()
            session = connection.create_session(transacted=True)
            queue = session.create_queue(queue_name)
            producer, consumer = await session.create_producer(queue), await session.create_consumer(queue)

            def told() -> str:
                def run(call: Callable[[], Any]) -> Callable[[], Any]:
                    async def calling() -> None:
                        await call()

                    # The parent's loop is not this process's.
                    asyncio.events._set_running_loop(None)
                    return lambda: asyncio.run(calling())

                wrong = refusals(
                    {
                        "send": run(lambda: producer.send(TextMessage("x"))),
                        "receive": run(lambda: consumer.receive(WAIT_S)),
                        "receive_no_wait": run(consumer.receive_no_wait),
                        "commit": run(session.commit),
                    }
                )
                run(connection.close)()
                return wrong

            assert in_child(told) == ""
            await producer.send(TextMessage("0"))
            await session.commit()

    asyncio.run(story())

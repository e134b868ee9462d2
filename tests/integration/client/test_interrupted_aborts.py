"""A rollback that a failover has caused is told once, wherever an interruption hits the call that is to tell of it."""

from __future__ import annotations

import dis
import itertools
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from legato.client import (
    Connection,
    ConnectionFactory,
    MessageConsumer,
    Session,
    TextMessage,
    TransactionRolledBackError,
)
from tests.integration.client.calling import drop, until
from tests.integration.client.helpers import WAIT_S, drain
from tests.stress.interrupting import TEXTS, Lines, no_hang
from tests.support.broker import BrokerPair

CALLS: dict[str, Callable[[Session, MessageConsumer], Callable[[], object]]] = {
    "receive": lambda session, consumer: lambda: consumer.receive(WAIT_S),
    "receive_no_wait": lambda session, consumer: consumer.receive_no_wait,
    "commit": lambda session, consumer: session.commit,
}


class OurLines(Lines):
    """Those of the calls' steps."""

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if "/legato/client/calls/" not in frame.f_code.co_filename:
            return self._trace if event == "call" else None
        if event == "line" and dis.opname[frame.f_code.co_code[frame.f_lasti]] == "PUSH_EXC_INFO":
            return self._trace  # Python is about to note what was raised, and runs no handler before it has.
        return super()._trace(frame, event, argument)


def told(call: Callable[[], object]) -> Callable[[], TransactionRolledBackError | None]:
    """The call, for what it tells."""

    def run() -> TransactionRolledBackError | None:
        try:
            call()
        except TransactionRolledBackError as error:
            return error
        return None

    return run


@pytest.fixture
def connection(calm_pair: BrokerPair) -> Iterator[Connection]:
    with ConnectionFactory(calm_pair.url, failover_contract="gigaspaces").create_connection() as connection:
        connection.start()
        yield connection


def aborted(connection: Connection, session: Session, queue: str) -> None:
    """Send in a transaction that a failover aborts."""
    producer = session.create_producer(session.create_queue(queue))
    for text in TEXTS:
        producer.send(TextMessage(text))
    drop(connection)
    until(lambda: session.transaction_doomed and session._channel.aborted is not None)


@pytest.mark.parametrize("how", CALLS)
def test_the_rollback_is_told_by_the_next_call_if_an_interruption_hid_it(
    connection: Connection, queue_name: str, how: str
) -> None:
    for raise_at in itertools.count(1):
        queue = f"{queue_name}.{raise_at}"
        with connection.create_session(transacted=True) as session, no_hang():
            call = told(CALLS[how](session, session.create_consumer(session.create_queue(f"{queue}.in"))))
            aborted(connection, session, queue)
            lines = OurLines(raise_at)
            returned, error = lines.run(call)
            if not returned:
                error = call()
            assert error is not None, f"nothing told after an interruption at {lines.where}"
            assert session.replay() == len(TEXTS), f"interrupted at {lines.where}"
            session.commit()
        assert drain(connection, queue) == TEXTS, f"interrupted at {lines.where}"
        if returned:
            break
    assert raise_at > 1


def test_what_was_heard_is_not_told_again_by_who_is_interrupted_while_dealing_with_it(
    connection: Connection, queue_name: str
) -> None:
    """A commit in the handler of the error goes on: the next one must not say that it was rolled back."""
    with connection.create_session(transacted=True) as session:
        aborted(connection, session, queue_name)
        try:
            session.commit()
        except TransactionRolledBackError:
            assert session.replay() == len(TEXTS)
            returned, _ = _interrupted_waiting(session.commit)
        assert not returned
        session.commit()
    assert drain(connection, queue_name) == TEXTS


class WaitingLines(Lines):
    """Raises at the first line in which a call waits for the I/O thread."""

    def _trace(self, frame: FrameType, event: str, argument: Any) -> Any:
        if frame.f_code.co_filename.endswith("/client/gate.py"):
            return super()._trace(frame, event, argument)
        return self._trace if event == "call" else None


def _interrupted_waiting(call: Callable[[], object]) -> tuple[bool, object]:
    return WaitingLines(1).run(call)

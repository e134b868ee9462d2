"""Closing while no broker answers and the client tries for ever: at once, unless something is unconfirmed."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from legato.client import AcknowledgeMode, Connection, ConnectionFactory, DeliveryMode, JMSError, QueueRequestor
from legato.client.calls import leaving
from legato.client.failover.uri import FAILOVER_CONTRACTS
from tests.integration.client.calling import Calling, until, until_away, until_blocked
from tests.integration.client.helpers import WAIT_S, drain, receive, send
from tests.integration.client.test_broker_away import LONG_S, Lone

Factory = Callable[..., ConnectionFactory]
SHORT_S = 0.1
MODES = tuple(AcknowledgeMode)
each_contract = pytest.mark.parametrize(
    ("factory", "contract"),
    [*(("threads", contract) for contract in FAILOVER_CONTRACTS), ("asyncio", FAILOVER_CONTRACTS[0])],
    indirect=["factory"],
)
"""And asyncio, whose steps are the same."""


@pytest.fixture
def lone(tmp_path: Path) -> Iterator[Lone]:
    broker = Lone(tmp_path)
    yield broker
    broker.process.close()


class Scene:
    """Connections to a broker that will be killed, with sessions and what is in them."""

    def __init__(self, lone: Lone, factory: Factory) -> None:
        self._lone = lone
        self._factory = factory
        self._queues = 0
        self._connections: list[Connection] = []

    def connect(self, **options: Any) -> Connection:
        connection = self._factory(self._lone.url, **options).create_connection()
        connection.start()
        self._connections.append(connection)
        return connection

    def session(self, connection: Connection, mode: AcknowledgeMode = AcknowledgeMode.AUTO) -> tuple[Any, Any]:
        """A session, and a queue of its own."""
        self._queues += 1
        transacted = mode is AcknowledgeMode.SESSION_TRANSACTED
        session = connection.create_session(transacted) if transacted else connection.create_session(False, mode)
        return session, session.create_queue(f"q{self._queues}")

    def kill(self) -> None:
        self._lone.process.kill()
        for connection in self._connections:
            until_away(connection)

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


@pytest.fixture
def scene(lone: Lone, factory: Factory) -> Iterator[Scene]:
    scene = Scene(lone, factory)
    yield scene
    scene.close()


def at_once(closings: dict[str, Callable[[], object]]) -> None:
    """Each of them returns; the options allow minutes."""
    calls = {name: Calling(close) for name, close in closings.items()}
    for call in calls.values():
        call.join(WAIT_S)
    assert [name for name, call in calls.items() if call.is_alive() or call.error is not None] == []


class Members(NamedTuple):
    """What is closed; the names say what each one is."""

    closings: dict[str, tuple[Any, Any]]
    """A member and its session."""
    transacted: list[Any]
    """Producers, for sends after the loss."""


def _all_is_settled(incoming: Any) -> bool:
    """Whether nothing is outstanding but what waits here."""
    return len(incoming.outstanding) == len(incoming.inbox)


def members_of(scene: Scene, connection: Connection) -> Members:
    """All kinds of members, none of which has anything that a broker might still confirm."""
    made = Members({}, [])
    session, queue = scene.session(connection)
    producer = session.create_producer(queue)
    producer.send("1")
    made.closings["idle producer"] = producer, session
    for mode in MODES:
        session, queue = scene.session(connection, mode)
        send(connection, queue.name, "1", "2")
        consumer = session.create_consumer(queue)
        receive(consumer, 1)
        if mode is AcknowledgeMode.AUTO:
            until(partial(_all_is_settled, consumer._end.incoming))
        made.closings[f"consumer with a message, {mode.name}"] = consumer, session
    for when in ("before", "after"):
        session, queue = scene.session(connection, AcknowledgeMode.SESSION_TRANSACTED)
        producer = session.create_producer(queue)
        if when == "before":
            producer.send("1")
        made.transacted.append(producer)
        made.closings[f"transaction that sends {when} the loss"] = producer, session
    session, queue = scene.session(connection)
    send(connection, queue.name, "1")
    browser = session.create_browser(queue)
    assert len(list(browser)) == 1
    made.closings["browser"] = browser, session
    return made


@each_contract
def test_what_has_nothing_unconfirmed_closes_at_once_while_no_broker_answers(
    lone: Lone, factory: Factory, scene: Scene, contract: str
) -> None:
    """A producer with sends of a transaction waited for ever, a session for twice `close_timeout_s`."""
    options = {"close_timeout_s": LONG_S, "failover_contract": contract}
    closings: dict[str, Callable[[], object]] = {}
    transacted = []
    for which in ("member", "session", "connection"):
        connection = scene.connect(**options)
        made = members_of(scene, connection)
        transacted += made.transacted
        if which == "connection":
            scene.session(connection)[0].create_temporary_queue()
            closings[which] = connection.close
            continue
        for name, (member, session) in made.closings.items():
            closings[f"{which}: {name}"] = (member if which == "member" else session).close
    context = factory(lone.url, **options).create_context()
    context.create_producer().send(context.create_queue("c"), "1")
    closings["context"] = context.close
    scene.kill()
    for producer in transacted:
        producer.send("2")
    at_once(closings)


def test_a_requestor_closes_at_once_while_no_broker_answers(lone: Lone) -> None:
    """It waited for the next broker, to delete its temporary queue."""
    scene = Scene(lone, ConnectionFactory)
    session, queue = scene.session(scene.connect(close_timeout_s=LONG_S))
    requestor = QueueRequestor(session, queue)
    requestor.request(session.create_text_message("anybody?"), SHORT_S)
    scene.kill()
    at_once({"requestor": requestor.close})
    scene.close()


CALLS: dict[str, Callable[[Any, Any], object]] = {
    "create_producer": lambda session, consumer: session.create_producer(session.create_queue("other")),
    "create_consumer": lambda session, consumer: session.create_consumer(session.create_queue("other")),
    "create_temporary_queue": lambda session, consumer: session.create_temporary_queue(),
    "receive": lambda session, consumer: consumer.receive(),
}


@pytest.mark.parametrize("what", ["session", "connection"])
def test_a_call_that_waits_for_no_broker_ends_when_its_session_closes(scene: Scene, what: str) -> None:
    """`create_producer()` kept a session from closing for two minutes, `create_temporary_queue()` for ever."""
    prepared = []
    for call in CALLS.values():
        connection = scene.connect(close_timeout_s=LONG_S)
        session, queue = scene.session(connection)
        prepared.append((connection, session, session.create_consumer(queue), call))
    scene.kill()
    blocked = []
    for connection, session, consumer, call in prepared:
        blocked.append(Calling(partial(call, session, consumer)))
        until(partial(_is_blocked, session))
        at_once({what: (session if what == "session" else connection).close})
    for one in blocked[:3]:
        with pytest.raises(JMSError, match="The session was closed while there was no connection to a broker"):
            one.outcome()
    assert blocked[3].outcome() is None


def _is_blocked(session: Any) -> bool:
    base = session._connection._bases.get("base")
    return bool(session._channel.gate.is_awaited or (base is not None and base.gate.is_awaited))


@each_contract
def test_messages_that_no_broker_confirms_are_counted_in_the_error_of_the_close(scene: Scene, contract: str) -> None:
    """`producer.close()` waited for ever, and `connection.close()` dropped them without a word."""
    heard: list[str | None] = []
    prepared: list[tuple[str, Any, Any]] = []
    for what in ("producer", "session", "connection"):
        connection = scene.connect(close_timeout_s=SHORT_S, failover_contract=contract)
        session, queue = scene.session(connection)
        producer = session.create_producer(queue)
        producer.send("1")
        prepared.append((what, {"producer": producer, "session": session, "connection": connection}[what], producer))
    scene.kill()
    for what, closed, producer in prepared:
        for _ in range(2):
            producer.send("2", completion_listener=lambda message, error: heard.append(error and error.code))
        producer.send("3", delivery_mode=DeliveryMode.NON_PERSISTENT)
        expected = (
            rf"^The {what} is closed, but the broker has not confirmed 3 sent messages, which may be lost: there was "
            rf"no connection to it within the {SHORT_S:g} s that closing waits \(close_timeout_s\)\.$"
        )
        with pytest.raises(JMSError, match=expected) as raised:
            Calling(closed.close).outcome()
        assert raised.value.code == "TIMEOUT"
        closed.close()
    assert heard == ["TIMEOUT"] * 6


def received_and_unconfirmed(scene: Scene, connection: Connection) -> tuple[Any, Any, Any]:
    """A session that does not hear from the broker that its acknowledgement is stored."""
    session, queue = scene.session(connection)
    send(connection, queue.name, "1")
    consumer = session.create_consumer(queue)
    consumer._end.on_disposition = lambda event: None
    receive(consumer, 1)
    until(lambda: consumer._end._accepting)
    scene.kill()
    del consumer._end.on_disposition
    return session, queue, consumer


def test_acknowledgements_that_no_broker_confirms_are_counted_in_the_error_of_the_close(scene: Scene) -> None:
    session, _, _ = received_and_unconfirmed(scene, scene.connect(close_timeout_s=SHORT_S))
    with pytest.raises(JMSError, match="the acknowledgement of 1 received message, which may be delivered again: "):
        Calling(session.close).outcome()


def test_a_consumer_that_is_closed_while_no_broker_answers_leaves_its_acknowledgements_to_the_session(
    lone: Lone, scene: Scene
) -> None:
    """It waited for ever."""
    connection = scene.connect(close_timeout_s=LONG_S)
    session, queue, consumer = received_and_unconfirmed(scene, connection)
    at_once({"consumer": consumer.close})
    lone.start()
    Calling(session.close).outcome()
    assert drain(connection, queue.name) == []


def test_a_producer_that_is_closed_while_no_broker_answers_leaves_its_messages_to_the_commit(
    lone: Lone, scene: Scene
) -> None:
    """CONTRACT A3: the transaction commits with what it had sent."""
    connection = scene.connect(close_timeout_s=LONG_S)
    session, queue = scene.session(connection, AcknowledgeMode.SESSION_TRANSACTED)
    producer = session.create_producer(queue)
    scene.kill()
    producer.send("1")
    at_once({"producer": producer.close})
    lone.start()
    session.commit()
    assert drain(connection, queue.name) == ["1"]


def test_a_transaction_begun_while_no_broker_answers_rolls_back_at_once(lone: Lone, scene: Scene) -> None:
    """CONTRACT A4: no broker knows of it. `rollback()` waited for the next one."""
    connection = scene.connect()
    session, queue = scene.session(connection, AcknowledgeMode.SESSION_TRANSACTED)
    producer = session.create_producer(queue)
    scene.kill()
    producer.send("1")
    at_once({"rollback": session.rollback})
    producer.send("2")
    lone.start()
    session.commit()
    assert drain(connection, queue.name) == ["2"]


def test_blocks_around_one_that_has_waited_for_the_broker_do_not_wait_again(
    lone: Lone, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(leaving, "AWAY_WAIT_S", LONG_S)
    caplog.set_level(logging.INFO, "legato")

    def story() -> None:
        with (
            ConnectionFactory(lone.url, close_timeout_s=SHORT_S).create_connection() as connection,
            connection.create_session() as session,
            session.create_producer(session.create_queue("q")) as producer,
        ):
            producer.send("1")
            lone.process.kill()
            until_away(connection)
            producer.send("2", completion_listener=lambda message, error: None)

    with pytest.raises(JMSError, match="has not confirmed 1 sent message") as raised:
        Calling(story).outcome()
    assert raised.value.code == "TIMEOUT"


def test_a_connection_closes_at_once_while_a_host_is_tried_that_does_not_answer(lone: Lone, factory: Factory) -> None:
    """It waited for the attempt, `connect_timeout_s` and 2 s more."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(WAIT_S)
        url = f"{lone.url},127.0.0.1:{mute.getsockname()[1]}"
        connection = factory(url, connect_timeout_s=LONG_S, discover=False).create_connection()
        lone.process.kill()
        knocking, _ = mute.accept()
        with knocking:
            at_once({"connection": connection.close})


def test_a_send_that_waits_for_a_broker_may_end_well_while_its_session_closes(lone: Lone, scene: Scene) -> None:
    connection = scene.connect(close_timeout_s=LONG_S)
    session, queue = scene.session(connection)
    producer = session.create_producer(queue)
    scene.kill()
    sending = Calling(lambda: producer.send("1"))
    until_blocked(session)
    closing = Calling(connection.close)
    until(lambda: session._guard.closed)
    lone.start()
    sending.outcome()
    closing.outcome()
    assert drain(scene.connect(), queue.name) == ["1"]

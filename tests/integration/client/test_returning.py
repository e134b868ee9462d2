"""What is kept for a client that was cut off, and what it is told if it comes too late (CONTRACT B21)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from legato.client import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateError,
    JMSError,
    Message,
    MessageProducer,
    Session,
    TransactionRolledBackError,
)
from legato.core.facts import Fact, MessagePresented
from legato.failpoints import Point
from legato.store.lmdb import LmdbStore
from legato.testing import BrokerPair, Network, broker_pair
from tests.integration.client.helpers import NOTHING_COMES_S, WAIT_S, drain, receive, send, texts
from tests.support.broker import log_servers_of_run

Connect = Callable[..., Connection]


@pytest.fixture
def patient(tmp_path: Path) -> Iterator[BrokerPair]:
    """A pair that waits for its clients."""
    with broker_pair(tmp_path, log_url=log_servers_of_run()) as pair:
        yield pair


@pytest.fixture
def hasty(tmp_path: Path) -> Iterator[BrokerPair]:
    """A pair that waits for its clients a second and no longer."""
    environment = {"LEGATO_SERVER_RECONNECT_TIMEOUT_S": "1"}
    with broker_pair(tmp_path, environment=environment, log_url=log_servers_of_run()) as pair:
        yield pair


@pytest.fixture
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    """Between clients and the pair of the test."""
    with Network(request.getfixturevalue("hasty" if "hasty" in request.fixturenames else "patient")) as made:
        yield made


@pytest.fixture
def connect_to(factory: Callable[..., ConnectionFactory]) -> Iterator[Callable[..., Connection]]:
    """Makes started connections, and closes them at the end."""
    made: list[Connection] = []

    def make(url: str, **options: Any) -> Connection:
        connection = factory(url, **options).create_connection()
        made.append(connection)
        connection.start()
        return connection

    yield make
    for connection in made:
        connection.close()


@contextmanager
def cut_off(connection: Connection, network: Network) -> Iterator[None]:
    """The client is cut off and the broker knows it while the block runs; afterwards it comes back."""
    back = threading.Event()
    connection.failover_listener = lambda event: back.set()
    network.cut()
    yield
    network.heal()
    assert back.wait(WAIT_S)


def clients_of(connection: Connection, queue: str) -> tuple[Session, list[Message]]:
    """A CLIENT_ACKNOWLEDGE session that has the first two of three messages, and has told the broker."""
    send(connection, queue, *"123")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    messages = receive(session.create_consumer(session.create_queue(queue)), 2)
    # Asks the broker something, after what it was told so far.
    session.create_producer(session.create_queue(f"{queue}.other")).close()
    return session, messages


def test_what_an_application_has_is_kept_while_it_is_cut_off(
    patient: BrokerPair, network: Network, connect_to: Connect
) -> None:
    """CONTRACT B13, B21: others get what it has not seen, at once; what it has it can acknowledge."""
    mine, other = connect_to(network.url), connect_to(patient.url)
    session, messages = clients_of(mine, "q")
    waiting = other.create_session()
    consumer = waiting.create_consumer(waiting.create_queue("q"))
    with cut_off(mine, network):
        (unseen,) = receive(consumer, 1)
        assert (unseen.body, unseen.redelivered, unseen.delivery_count) == ("3", True, 1)
        assert consumer.receive(NOTHING_COMES_S) is None
    messages[0].acknowledge()
    session.close()
    assert drain(other, "q") == []


def test_what_was_held_through_a_loss_and_given_back_was_delivered_once(network: Network, connect_to: Connect) -> None:
    """Promise 4: the loss of the connection is no delivery of its own; C10: redelivery is visible."""
    mine = connect_to(network.url)
    session, _ = clients_of(mine, "q")
    with cut_off(mine, network):
        pass
    session.close()
    again = mine.create_session()
    messages = receive(again.create_consumer(again.create_queue("q")), 3)
    assert [(m.body, m.delivery_count) for m in messages] == [("1", 2), ("2", 2), ("3", 1)]
    assert [m.redelivered for m in messages[:2]] == [True, True]


def test_who_comes_too_late_is_told_that_others_had_its_messages(
    hasty: BrokerPair, network: Network, connect_to: Connect
) -> None:
    """CONTRACT B12, B15, B16, B21."""
    mine, other = connect_to(network.url), connect_to(hasty.url)
    session, messages = clients_of(mine, "q")
    waiting = other.create_session()
    consumer = waiting.create_consumer(waiting.create_queue("q"))
    with cut_off(mine, network):
        found = {m.body: (m.redelivered, m.delivery_count) for m in receive(consumer, 3)}
        assert found == {"1": (True, 2), "2": (True, 2), "3": (True, 1)}
    with pytest.raises(IllegalStateError, match=str(messages[0].message_id)):
        messages[0].acknowledge()
    session.recover()
    send(other, "q", "4")


@pytest.mark.parametrize("mode", [AcknowledgeMode.CLIENT, AcknowledgeMode.AUTO])
def test_a_connection_that_is_closed_properly_keeps_nothing_from_others(
    patient: BrokerPair, connect_to: Connect, mode: AcknowledgeMode
) -> None:
    mine, other = connect_to(patient.url), connect_to(patient.url)
    send(mine, "q", *"123")
    session = mine.create_session(acknowledge_mode=mode)
    receive(session.create_consumer(session.create_queue("q")), 1)
    mine.close()
    waiting = other.create_session()
    messages = receive(waiting.create_consumer(waiting.create_queue("q")), 3 if mode is AcknowledgeMode.CLIENT else 2)
    assert texts(messages)[-2:] == ["2", "3"]


def test_an_acknowledgement_that_was_cut_off_two_takeovers_ago_tells_the_truth(
    patient: BrokerPair, connect_to: Connect
) -> None:
    """Promise 5; CONTRACT B12: the broker died of it, another receiver had the message in the epoch between."""
    # It knows one broker only, which is the primary in the first and in the third epoch.
    mine = connect_to(f"amqp://127.0.0.1:{patient.primary.port}")
    other = connect_to(patient.url)
    session, messages = clients_of(mine, "q")
    outcome: list[BaseException | None] = []

    def acknowledge() -> None:
        try:
            messages[0].acknowledge()
            outcome.append(None)
        except IllegalStateError as error:
            outcome.append(error)

    acknowledging = threading.Thread(target=acknowledge)
    switched = threading.Event()
    other.failover_listener = lambda event: switched.set()
    with patient.failing_over_at(Point.BETWEEN_ACKNOWLEDGE_AND_COMMIT):
        acknowledging.start()
        assert switched.wait(WAIT_S)
    with other.create_session() as waiting:
        consumer = waiting.create_consumer(waiting.create_queue("q"))
        stolen = receive(consumer, 3)
        assert [(m.body, m.redelivered) for m in stolen] == [("1", True), ("2", True), ("3", True)]
    patient.fail_over()
    acknowledging.join(WAIT_S)
    (error,) = outcome
    assert isinstance(error, IllegalStateError)
    assert str(messages[0].message_id) in str(error)
    session.recover()


@pytest.mark.parametrize("point", [Point.BETWEEN_ACKNOWLEDGE_AND_COMMIT, Point.BETWEEN_ACKNOWLEDGED_AND_CONFIRM])
@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_a_broker_killed_around_the_commit_of_an_acknowledgement(
    patient: BrokerPair, connect_to: Connect, point: Point, kind: str
) -> None:
    """CONTRACT A17, B9, B14: of a queue and of a topic; with one receiver the acknowledgement succeeds, and lasts."""
    mine = connect_to(patient.url)
    session = mine.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    destination = session.create_queue("d") if kind == "queue" else session.create_topic("d")
    consumer = session.create_consumer(destination)
    producer = session.create_producer(destination)
    for text in "12":
        producer.send(session.create_text_message(text))
    messages = receive(consumer, 2)
    with patient.failing_over_at(point):
        messages[0].acknowledge()
    producer.send(session.create_text_message("3"))
    (message,) = receive(consumer, 1)
    assert (message.body, message.delivery_count) == ("3", 1)
    assert consumer.receive(NOTHING_COMES_S) is None


@pytest.mark.parametrize("kind", ["queue", "topic"])
def test_what_was_presented_before_a_kill_is_flagged_and_counted_and_what_was_not_is_not_counted(
    patient: BrokerPair, connect_to: Connect, kind: str
) -> None:
    """CONTRACT A17, B16, B18; promise 4: the count survives a takeover."""
    mine = connect_to(patient.url)
    session = mine.create_session(transacted=True)
    destination = session.create_queue("d") if kind == "queue" else session.create_topic("d")
    consumer = session.create_consumer(destination)
    with mine.create_session() as sending, sending.create_producer(destination) as producer:
        for text in "123":
            producer.send(sending.create_text_message(text))
    (first,) = receive(consumer, 1)
    assert (first.redelivered, first.delivery_count) == (False, 1)
    wait_for_fact(patient, MessagePresented)
    patient.fail_over()
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    messages = receive(consumer, 3)
    assert [(m.body, m.delivery_count) for m in messages] == [("1", 2), ("2", 1), ("3", 1)]
    assert messages[0].redelivered
    session.commit()


def wait_for_fact(pair: BrokerPair, kind: type[Fact]) -> None:
    """Wait until there is such a fact in the log of the store."""
    store = LmdbStore(pair.store, read_only=True)
    try:
        deadline = time.monotonic() + WAIT_S
        while not any(isinstance(fact, kind) for _, record in store.log(0, 10_000) for fact in record.facts):
            assert time.monotonic() < deadline, f"no {kind.__name__} was stored"
            time.sleep(0.01)
    finally:
        store.close()


def test_a_late_acknowledgement_of_an_exclusive_queue_may_fail_when_more_than_one_receiver_was_started(
    tmp_path: Path, connect_to: Connect
) -> None:
    """CONTRACT B14: after a takeover the queue goes to who comes first; B12."""
    config = tmp_path / "legato.toml"
    config.write_text('[[address]]\nmatch = "q"\nexclusive = true\n')
    with broker_pair(tmp_path, options=("--no-ledger", "--config", str(config))) as pair:
        mine, other = connect_to(pair.url), connect_to(pair.url)
        _, messages = clients_of(mine, "q")
        waiting = other.create_session()
        consumer = waiting.create_consumer(waiting.create_queue("q"))
        assert consumer.receive(NOTHING_COMES_S) is None
        go_on, held = threading.Event(), threading.Event()

        def hold() -> None:
            held.set()
            assert go_on.wait(WAIT_S)

        mine._transport.post(hold)
        assert held.wait(WAIT_S)
        pair.fail_over()
        assert [(m.body, m.redelivered) for m in receive(consumer, 3)] == [("1", True), ("2", True), ("3", True)]
        go_on.set()
        with pytest.raises(IllegalStateError, match=str(messages[0].message_id)):
            messages[0].acknowledge()


def send_for_ever(session: Session, producer: MessageProducer) -> None:
    while True:
        producer.send(session.create_text_message("lost"))


def test_a_temporary_queue_is_kept_as_long_as_its_client_may_come_back_and_no_longer(
    hasty: BrokerPair, network: Network, connect_to: Connect
) -> None:
    """CONTRACT E2, B21."""
    mine, other = connect_to(network.url), connect_to(hasty.url)
    session = mine.create_session()
    temporary = session.create_temporary_queue()
    consumer = session.create_consumer(temporary)
    sending = other.create_session()
    producer = sending.create_producer(sending.create_queue(temporary.name))
    with cut_off(mine, network), pytest.raises(JMSError):
        send_for_ever(sending, producer)
    send(other, temporary.name, "after it was made again")
    assert texts(receive(consumer, 1)) == ["after it was made again"]

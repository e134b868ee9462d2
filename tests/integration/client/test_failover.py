"""What applications see when the primary is killed with SIGKILL (CONTRACT A, B, C, E; the `legato` contract)."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable

import pytest

from legato.amqp.engine.events import Disposition
from legato.client import (
    AcknowledgeMode,
    Connection,
    ConnectionFactory,
    IllegalStateError,
    JMSError,
    Message,
    Session,
    TextMessage,
    TransactionRolledBackError,
)
from legato.client.links.transaction_outcome import TransactionEnding
from tests.integration.client.calling import until
from tests.integration.client.helpers import NOTHING_COMES_S, WAIT_S, drain, receive, send, texts
from tests.support.broker import BrokerPair

Connect = Callable[..., Connection]


class Receiving(threading.Thread):
    """Receives in AUTO until it has `count` messages."""

    def __init__(self, session: Session, queue: str, count: int) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.error: Exception | None = None
        self._count = count
        self._consumer = session.create_consumer(session.create_queue(queue))

    def run(self) -> None:
        try:
            self.texts.extend(texts(receive(self._consumer, self._count)))
        except Exception as error:
            self.error = error


def test_producer_and_consumer_go_on_and_every_message_arrives_once_in_order(
    pair: BrokerPair, connect: Connect
) -> None:
    """CONTRACT A1, B4, B7, B8, B9, E3; promise 1: sends in flight are stored once."""
    count = 6_000
    receiving = Receiving(connect().create_session(), "q", count + 2)
    receiving.start()
    connection = connect()
    errors: list[JMSError] = []

    def completed(message: Message, error: JMSError | None) -> None:
        if error is not None:
            errors.append(error)

    def has_gone_on(times: int) -> Callable[[], bool]:
        return lambda: len(connection.failovers) == times

    session = connection.create_session()
    producer = session.create_producer(session.create_queue("q"))
    for number in range(count):
        producer.send(TextMessage(str(number)), completion_listener=completed)
        if number in (2_000, 4_000):
            pair.kill_primary()
            producer.send(TextMessage(f"{number} again"), completion_listener=completed)
            pair.swap()
            # Who has not reached the second epoch when it ends goes from the first to the third.
            until(has_gone_on(number // 2_000))
    producer.flush()
    receiving.join(3 * WAIT_S)
    assert errors == []
    assert receiving.error is None
    expected = [str(number) for number in range(count)]
    expected.insert(2_001, "2000 again")
    expected.insert(4_002, "4000 again")
    assert receiving.texts == expected
    assert len(connection.failovers) == 2
    first, second = connection.failovers
    assert (first.old_epoch, first.new_epoch, second.new_epoch) == (1, 2, 3)
    assert first.old_host == second.new_host
    assert first.gap_ms > 0


def test_a_blocked_receive_goes_on_after_a_failover(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT A1, A20, E11: no error in AUTO, and no hanging."""
    connection = connect()
    receiving = Receiving(connection.create_session(), "q", 1)
    receiving.start()
    pair.fail_over()
    send(connection, "q", "after")
    receiving.join(WAIT_S)
    assert (receiving.texts, receiving.error) == (["after"], None)


def test_a_blocking_send_in_flight_returns_and_is_stored_once(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT E11, promise 1: a send that was cut off is resent, the broker keeps one."""
    connection = connect()
    session = connection.create_session()
    producer = session.create_producer(session.create_queue("q"))
    sent = 0
    stop = threading.Event()

    def send_many() -> None:
        nonlocal sent
        while not stop.is_set():
            producer.send(TextMessage(str(sent)))
            sent += 1

    thread = threading.Thread(target=send_many)
    thread.start()
    for _ in range(3):
        pair.fail_over()
    stop.set()
    thread.join(WAIT_S)
    assert drain(connection, "q") == [str(number) for number in range(sent)]


@pytest.mark.parametrize("seed", [0, *(pytest.param(more, marks=pytest.mark.slow) for more in (1, 2, 3))])
def test_auto_acknowledged_messages_are_never_presented_again(pair: BrokerPair, connect: Connect, seed: int) -> None:
    """CONTRACT B9, C4: also when the confirmation of the acknowledgement was cut off."""
    connection = connect()
    count = 1_500
    session = connection.create_session()
    producer = session.create_producer(session.create_queue("q"))
    for number in range(count):
        producer.send(TextMessage(str(number)), completion_listener=lambda message, error: None)
    producer.flush()
    consumer = session.create_consumer(session.create_queue("q"))
    kill_at = random.Random(seed).sample(range(1, count - 10), 2)
    seen: list[str] = []
    while len(seen) < count:
        seen += texts(receive(consumer, 1))
        if len(seen) in kill_at:
            pair.kill_primary()
            seen += texts(receive(consumer, 1))
            pair.swap()
    assert seen == [str(number) for number in range(count)]


def test_a_client_acknowledge_session_keeps_its_messages_and_can_acknowledge_them(
    pair: BrokerPair, connect: Connect
) -> None:
    """CONTRACT A7 in the `legato` contract: kept, unless another receiver got them; B14: one receiver always can."""
    connection = connect()
    send(connection, "q", *"12345")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue("q"))
    messages = receive(consumer, 3)
    pair.fail_over()
    messages += receive(consumer, 1)
    assert texts(messages) == ["1", "2", "3", "4"]
    messages[0].acknowledge()
    session.close()
    assert drain(connection, "q") == ["5"]


def test_unacknowledged_messages_survive_two_failovers_and_come_again_when_given_up(
    pair: BrokerPair, connect: Connect
) -> None:
    """CONTRACT B7, B16, C10."""
    connection = connect()
    send(connection, "q", *"123")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    receive(session.create_consumer(session.create_queue("q")), 2)
    pair.fail_over()
    pair.fail_over()
    session.close()
    again = connection.create_session()
    messages = receive(again.create_consumer(again.create_queue("q")), 3)
    assert texts(messages) == ["1", "2", "3"]
    assert [message.redelivered for message in messages[:2]] == [True, True]


def test_an_acknowledge_of_what_went_elsewhere_says_so_and_names_it(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT B11, B12, B13, B15."""
    connection = connect()
    send(connection, "q", *"12")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue("q"), prefetch=1)
    messages = receive(consumer, 2)
    with held_back(connection):
        pair.fail_over()
        # While our client is away another one takes the first message.
        thief = connect()
        other = thief.create_session()
        (stolen,) = receive(other.create_consumer(other.create_queue("q"), prefetch=1), 1)
        assert (stolen.body, stolen.redelivered) == ("1", True)
        other.close()
    with pytest.raises(IllegalStateError, match=str(messages[0].message_id)) as caught:
        messages[1].acknowledge()
    assert str(messages[1].message_id) not in str(caught.value)
    session.recover()
    send(thief, "q", "3")
    assert texts(receive(consumer, 1)) == ["3"]


class held_back:
    """Keeps a connection's client from reconnecting while the block runs."""

    def __init__(self, connection: Connection) -> None:
        self._transport = connection._transport
        self._go_on = threading.Event()
        self._held = threading.Event()

    def __enter__(self) -> None:
        def hold() -> None:
            self._held.set()
            assert self._go_on.wait(4 * WAIT_S)

        self._transport.post(hold)
        assert self._held.wait(WAIT_S)

    def __exit__(self, *_: object) -> None:
        self._go_on.set()


def test_sends_in_a_client_acknowledge_session_stay(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT A8: they are outside any transaction."""
    connection = connect()
    send(connection, "in", "1")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    receive(session.create_consumer(session.create_queue("in")), 1)
    session.create_producer(session.create_queue("out")).send(TextMessage("kept"))
    pair.fail_over()
    assert drain(connection, "out") == ["kept"]


def test_a_transaction_with_work_is_rolled_back_once_and_the_session_goes_on(
    pair: BrokerPair, connect: Connect
) -> None:
    """CONTRACT A5, A9, B18, E13."""
    connection = connect()
    send(connection, "in", *"123")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue("in"))
    producer = session.create_producer(session.create_queue("out"))
    for message in receive(consumer, 2):
        producer.send(message)
    pair.fail_over()
    with pytest.raises(TransactionRolledBackError, match="replay"):
        session.commit()
    again = receive(consumer, 3)
    assert [(message.body, message.redelivered) for message in again[:2]] == [("1", True), ("2", True)]
    for message in again:
        producer.send(message)
    session.commit()
    assert drain(connection, "out") == ["1", "2", "3"]
    session.close()
    assert drain(connection, "in") == []
    assert connection.failovers[0].aborted_transactions == (session._channel.name,)


def test_replay_sends_again_what_the_failover_disposed(pair: BrokerPair, connect: Connect) -> None:
    """Promise 3; CONTRACT A16, B18: nobody retypes their sends."""
    connection = connect()
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue("out"))
    for text in ("1", "2"):
        producer.send(TextMessage(text))
    pair.fail_over()
    producer.send(TextMessage("3"))
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    assert drain(connection, "out") == []
    assert session.replay() == 3
    assert session.replay() == 0
    session.commit()
    assert drain(connection, "out") == ["1", "2", "3"]


def test_a_doomed_transaction_absorbs_what_is_received_until_its_end(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT B18: receive() goes on, nothing of it is committed, and one error reports it."""
    connection = connect()
    send(connection, "in", *"1234")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue("in"))
    receive(consumer, 1)
    pair.fail_over()
    assert texts(receive(consumer, 2)) == ["1", "2"]
    with pytest.raises(TransactionRolledBackError):
        session.commit()
    again = receive(consumer, 4)
    assert texts(again) == ["1", "2", "3", "4"]
    assert [message.redelivered for message in again[:2]] == [True, True]
    session.commit()
    session.close()
    assert drain(connection, "in") == []


def test_rollback_of_a_doomed_transaction_is_no_error(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT E13."""
    connection = connect()
    send(connection, "in", *"12")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue("in"))
    receive(consumer, 1)
    pair.fail_over()
    session.rollback()
    assert texts(receive(consumer, 2)) == ["1", "2"]
    session.commit()


def test_a_transaction_without_work_survives(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT B17: active means that something was sent or received in it."""
    connection = connect()
    send(connection, "in", "1")
    session = connection.create_session(transacted=True)
    consumer = session.create_consumer(session.create_queue("in"))
    pair.fail_over()
    session.commit()
    receive(consumer, 1)
    session.commit()
    assert connection.failovers[0].aborted_transactions == ()


def move(session: Session, source: str, target: str, count: int, stop: threading.Event) -> tuple[int, int]:
    """Move messages one by one until told to stop, as an application would that knows one exception.

    Returns how many were moved, and how often the exception was raised.
    """
    consumer = session.create_consumer(session.create_queue(source))
    producer = session.create_producer(session.create_queue(target))
    rolled_back = moved = 0
    while moved < count and not stop.is_set():
        message = consumer.receive(WAIT_S)
        assert message is not None, f"{moved} of {count} moved"
        producer.send(message)
        try:
            session.commit()
            moved += 1
        except TransactionRolledBackError:
            rolled_back += 1
    stop.set()
    return moved, rolled_back


def test_commits_cut_off_at_random_instants_have_one_true_outcome(pair: BrokerPair, connect: Connect) -> None:
    """Promise 2; CONTRACT E14: not one message lost or doubled, whatever the kill hits."""
    count, kills = 1_500, 5
    connection = connect()
    send_all(connection, "in", count)
    stop = threading.Event()
    result: list[tuple[int, int]] = []
    session = connection.create_session(transacted=True)
    thread = threading.Thread(target=lambda: result.append(move(session, "in", "out", count, stop)))
    thread.start()
    chance = random.Random(7)
    done = 0
    while done < kills and not stop.wait(chance.uniform(0.05, 0.3)):
        pair.fail_over()
        done += 1
    stop.set()
    thread.join(2 * WAIT_S)
    assert result, "moving failed"
    moved, rolled_back = result[0]
    assert rolled_back <= done
    assert min(done, moved) > 0
    assert drain(connection, "out") == [str(number) for number in range(moved)]
    session.close()
    assert drain(connection, "in") == [str(number) for number in range(moved, count)]


def send_all(connection: Connection, queue: str, count: int) -> None:
    session = connection.create_session()
    producer = session.create_producer(session.create_queue(queue))
    for number in range(count):
        producer.send(TextMessage(str(number)), completion_listener=lambda message, error: None)
    producer.flush()
    session.close()


def test_a_commit_that_had_committed_returns_normally(pair: BrokerPair, connect: Connect) -> None:
    """Promise 2: the answer was cut off, the transaction was not."""
    connection = connect()
    session = connection.create_session(transacted=True)
    producer = session.create_producer(session.create_queue("out"))
    producer.send(TextMessage("1"))
    coordinator = session._channel.coordinator
    assert coordinator is not None
    unheard = threading.Event()
    answer = coordinator.on_disposition

    def lose_the_answer(event: Disposition) -> None:
        if isinstance(event.context, TransactionEnding):
            # The commit is durable: its answer is here. The client must not have heard it.
            coordinator.on_disposition = answer  # type: ignore[method-assign]
            unheard.set()
        else:
            answer(event)

    committing = threading.Thread(target=session.commit)
    connection._transport.post(lambda: setattr(coordinator, "on_disposition", lose_the_answer))
    committing.start()
    assert unheard.wait(WAIT_S)
    pair.fail_over()
    committing.join(WAIT_S)
    assert not committing.is_alive()
    assert drain(connection, "out") == ["1"]


def test_the_failover_listener_is_told_and_the_exception_listener_is_not(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT B5, A13: notice of a failover is for those who ask for it."""
    connection = connect()
    told = threading.Event()
    errors: list[JMSError] = []
    connection.failover_listener = lambda event: told.set()
    connection.exception_listener = errors.append
    pair.fail_over()
    assert told.wait(WAIT_S)
    assert errors == []


def test_listeners_go_on_after_a_failover(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT A1, A14, E3."""
    connection = connect()
    session = connection.create_session()
    consumer = session.create_consumer(session.create_queue("q"))
    heard: list[str] = []
    enough = threading.Event()

    def listen(message: Message) -> None:
        heard.append(message.body)
        if len(heard) == 2:
            enough.set()

    consumer.message_listener = listen
    send(connection, "q", "before")
    pair.fail_over()
    send(connection, "q", "after")
    assert enough.wait(WAIT_S)
    assert heard == ["before", "after"]


def test_without_reconnect_attempts_there_is_no_failover_and_nothing_hangs(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT E6, E11: blocked calls are released with an error."""
    connection = connect(reconnect_attempts=0)
    told = threading.Event()
    connection.exception_listener = lambda error: told.set()
    session = connection.create_session()
    receiving = Receiving(session, "q", 1)
    receiving.start()
    pair.kill_primary()
    receiving.join(WAIT_S)
    assert isinstance(receiving.error, JMSError)
    assert receiving.error.code == "UNBLOCKED"
    assert told.wait(WAIT_S)
    with pytest.raises(JMSError):
        connection.create_session()
    pair.swap()


def test_clients_follow_a_primary_that_is_shut_down_cleanly(pair: BrokerPair, connect: Connect) -> None:
    """The `legato` contract on a clean shutdown; CONTRACT B3."""
    connection = connect()
    send(connection, "q", "1")
    pair.fail_over(signal.SIGTERM)
    assert drain(connection, "q") == ["1"]


def test_the_first_connection_tries_every_host(pair: BrokerPair) -> None:
    """The `legato` contract: the primary may be the second of the URI."""
    backup_first = f"amqp://127.0.0.1:{pair.backup.port},127.0.0.1:{pair.primary.port}"
    with ConnectionFactory(backup_first).create_connection() as connection:
        send(connection, "q", "1")


def test_closing_while_the_broker_is_away_does_not_hang(pair: BrokerPair, connect: Connect) -> None:
    """CONTRACT E11."""
    connection = connect()
    session = connection.create_session()
    receiving = Receiving(session, "q", 1)
    receiving.start()
    pair.backup.kill()
    pair.primary.kill()
    connection.close()
    receiving.join(WAIT_S)
    assert not receiving.is_alive()


def test_messages_not_yet_seen_are_delivered_to_other_receivers_after_a_failover(
    pair: BrokerPair, connect: Connect
) -> None:
    """CONTRACT B11, B16."""
    connection = connect()
    send(connection, "q", *"123")
    session = connection.create_session(acknowledge_mode=AcknowledgeMode.CLIENT)
    consumer = session.create_consumer(session.create_queue("q"))
    receive(consumer, 1)
    pair.fail_over()
    # Until its client is back, others may get what an application has, too.
    until(lambda: connection.failovers)
    consumer.close()
    other = connect().create_session()
    unseen = other.create_consumer(other.create_queue("q"))
    assert [(message.body, message.redelivered) for message in receive(unseen, 2)] == [("2", True), ("3", True)]
    session.close()
    (given_back,) = receive(unseen, 1)
    assert (given_back.body, given_back.redelivered) == ("1", True)
    assert consumer.receive(NOTHING_COMES_S) is None

"""`reject()` and `give_back()` in INDIVIDUAL mode: one message, at once, whatever else the session holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from legato.client import (
    AcknowledgementOutcome,
    AcknowledgeMode,
    ConnectionFactory,
    MessageConsumer,
    Queue,
    Session,
    TextMessage,
)
from legato.errors import IllegalStateError
from legato.testing import LocalBroker, broker

ORDERS = Queue("orders")
WAIT_S = 60.0


@pytest.fixture
def running() -> Iterator[LocalBroker]:
    with broker() as started:
        yield started


@pytest.fixture
def session(running: LocalBroker) -> Iterator[Session]:
    with ConnectionFactory(running.url).create_connection() as connection:
        connection.start()
        with connection.create_session() as sender:
            for text in ("one", "two", "three"):
                sender.create_producer(ORDERS).send(TextMessage(text))
        yield connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL)


def received(consumer: MessageConsumer) -> TextMessage:
    message = consumer.receive(TextMessage, timeout_s=WAIT_S)
    assert message is not None
    return message


def test_a_rejected_message_is_a_dead_letter_and_the_others_stay(running: LocalBroker, session: Session) -> None:
    consumer = session.create_consumer(ORDERS)
    one, two, three = (received(consumer) for _ in range(3))
    session.reject(two, "sold out", {"clerk": "ann"})
    one.acknowledge()
    three.acknowledge()
    assert running.waiting("orders") == 0
    [letter] = running.dead_letters("orders")
    assert (letter.body, letter.properties["JMS_LEGATO_EXCEPTION"], letter.properties["clerk"]) == (
        "two",
        "sold out",
        "ann",
    )


def test_a_message_given_back_comes_again_and_is_counted_only_if_it_failed(session: Session) -> None:
    consumer = session.create_consumer(ORDERS, prefetch=0)
    held = [received(consumer) for _ in range(3)]
    session.give_back(held[0])
    again = received(consumer)
    assert (again.text, again.delivery_count) == ("one", 1)
    session.give_back(held[1], failed=True, why="no tea")
    again = received(consumer)
    assert (again.text, again.delivery_count, again.redelivered) == ("two", 2, True)
    held[2].acknowledge()


def test_each_message_is_decided_once(session: Session) -> None:
    consumer = session.create_consumer(ORDERS)
    message = received(consumer)
    session.reject(message, "bad")
    with pytest.raises(IllegalStateError, match="already"):
        session.give_back(message)
    message.acknowledge()  # as after acknowledge_all(): there is nothing to acknowledge
    other = received(consumer)
    other.acknowledge()
    with pytest.raises(IllegalStateError, match="already"):
        session.reject(other, "late")


@pytest.mark.parametrize("way", ["recover", "give_back", "close"])
def test_an_acknowledgement_of_what_comes_again_says_so(session: Session, way: str) -> None:
    """Promise 5: it succeeded, and the message stayed."""
    consumer = session.create_consumer(ORDERS)
    message = received(consumer)
    if way == "recover":
        session.recover()
    elif way == "give_back":
        session.give_back(message)
    else:
        consumer.close()
        session.recover()
        consumer = session.create_consumer(ORDERS)
    for _ in range(2):
        with pytest.raises(IllegalStateError, match="to come again"):
            message.acknowledge()
    assert message.try_acknowledge() is AcknowledgementOutcome.WENT_ELSEWHERE
    again = next(each for each in (received(consumer) for _ in range(3)) if each.text == message.text)
    for _ in range(2):
        again.acknowledge()
    assert again.try_acknowledge() is AcknowledgementOutcome.ALREADY_ACKNOWLEDGED


def test_a_session_that_acknowledges_by_itself_has_no_verdicts(running: LocalBroker, session: Session) -> None:
    with ConnectionFactory(running.url).create_connection() as connection:
        connection.start()
        automatic = connection.create_session()
        message = received(automatic.create_consumer(ORDERS))
        with pytest.raises(IllegalStateError, match="INDIVIDUAL"):
            automatic.reject(message, "bad")

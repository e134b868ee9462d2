"""Dead letters that a real broker made are found with the subscription that they died in."""

import json

from legato.client import AcknowledgeMode, ConnectionFactory, Destination, Session, TextMessage
from legato.drill import history, management
from legato.drill.letters import DeadLetter
from legato.drill.messages import text_of
from legato.drill.records import Identity
from legato.testing import broker

PREFIX = "drill.7."
PICKY, TOPIC = f"{PREFIX}picky", f"{PREFIX}topic"
WHY = "rejected, deliveries: 1"


def test_a_letter_says_what_died_and_in_which_subscription() -> None:
    with broker() as running:
        with ConnectionFactory(f"{running.url}?client_id=drill").create_connection() as connection:
            connection.start()
            session = connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
            topic = session.create_topic(TOPIC)
            alone = session.create_durable_consumer(topic, "alone")
            together = session.create_shared_durable_consumer(topic, "together")
            send(session, topic, 39)
            for number in (40, 41, 80):
                send(session, session.create_queue(PICKY), number)
            stage = session.create_queue(f"{PREFIX}flows.stage1")
            envelope = {"number": 2, "data": text_of(Identity("p", 40))}
            session.create_producer(stage).send(TextMessage(json.dumps(envelope, separators=(",", ":"))))
            picky, flows = (session.create_consumer(each) for each in (session.create_queue(PICKY), stage))
            for consumer in (alone, picky, flows):
                message = consumer.receive(timeout_s=60)
                assert message is not None
                session.reject(message, "no")
            kept = together.receive(timeout_s=60)
            assert kept is not None
            kept.acknowledge()
        asked = management.dead_letters(running.url, PREFIX)
        running.stop()
        found = history.dead_letters(running.store)
    assert asked == found
    assert found == {
        DeadLetter(PICKY, PICKY, Identity("p", 80)),  # It has not come to its last delivery.
        DeadLetter(f"{TOPIC}/alone", TOPIC, Identity("p", 39), WHY),
        DeadLetter(PICKY, PICKY, Identity("p", 40), WHY),
        DeadLetter(f"{PREFIX}flows.stage1", f"{PREFIX}flows.stage1", None, WHY),
    }
    assert {letter.subscription for letter in found if letter.is_planned} == {PICKY}


def send(session: Session, destination: Destination, number: int) -> None:
    session.create_producer(destination).send(TextMessage(text_of(Identity("p", number))))

"""A commit, and what its transaction sent and received: over links to a broker that answers when a test wants it to."""

from __future__ import annotations

import pytest

from legato.amqp.codec.coordinator import Discharge, decode_coordinator
from legato.amqp.engine.outcomes import ACCEPTED, Transactional
from tests.unit.client.scripted import CONSUMER, COORDINATOR, PRODUCER, Broker, TransactedClient


def test_a_commit_does_not_leave_behind_what_a_lost_transaction_had_not_sent_yet_is_in_front_of(
    brokers: list[Broker],
) -> None:
    """CONTRACT A3; the second loss of the connection left a send in front of those of the next transaction."""
    first, second, _ = brokers
    client = TransactedClient()
    client.send(b"lost")
    client.connect(first)
    first.attach(COORDINATOR)
    first.declare(b"1")
    client.lose()
    assert client.commit().outcome is False
    kept = client.send(b"kept")
    committing = client.commit()
    client.connect(second)
    second.attach(COORDINATOR)
    second.declare(b"2")
    assert second.taken(COORDINATOR) == [], "it commits what is not sent"
    second.attach(PRODUCER)
    (sent,) = second.taken(PRODUCER)
    assert (sent.data, sent.txn_id) == (b"kept", b"2")
    second.links[PRODUCER].settle(sent.delivery, Transactional(b"2", ACCEPTED))
    discharge, _declare = second.taken(COORDINATOR)
    second.links[COORDINATOR].settle(discharge.delivery, ACCEPTED)
    second.exchange()
    assert committing.outcome is True
    assert kept.done
    assert kept.error is None


@pytest.mark.parametrize("presented", ["before", "after"])
@pytest.mark.parametrize("condition", ["amqp:unauthorized-access", "amqp:resource-deleted"])
def test_a_commit_fails_if_the_broker_ended_the_link_of_what_it_received(
    brokers: list[Broker], presented: str, condition: str
) -> None:
    """CONTRACT A3; what was received came to another one too. Out of a deleted queue nothing comes again."""
    broker = brokers[0]
    client = TransactedClient()
    client.connect(broker)
    broker.attach(COORDINATOR)
    broker.declare(b"1")
    link = broker.giving[CONSUMER]
    link.accept()
    broker.exchange()
    link.send(b"message", b"\x00" * 7 + b"\x01")
    broker.exchange()
    delivery = client.received_by.incoming.inbox.popleft()
    if presented == "before":
        client.present(delivery)
    link.close(condition, "it was taken away")
    broker.exchange()
    if presented == "after":
        client.present(delivery)
    committing = client.commit()
    asked = [decode_coordinator(transfer.data) for transfer in broker.taken(COORDINATOR)]
    if condition == "amqp:resource-deleted":
        assert Discharge(b"1", True) not in asked
        return
    assert asked[0] == Discharge(b"1", True)
    assert committing.failure is not None
    assert "it was taken away" in str(committing.failure)

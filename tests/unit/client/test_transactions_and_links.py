"""A commit, and what its transaction sent and received: over links to a broker that answers when a test wants it to."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from legato.amqp.codec.coordinator import Discharge, decode_coordinator
from legato.amqp.engine.events import Attached, Event, SessionBegan, Transfer
from legato.amqp.engine.link import Receiver, Sender
from legato.amqp.engine.outcomes import ACCEPTED, Declared, Transactional
from legato.client.failover.contract import CONTRACTS
from legato.client.links.channel import Channel
from legato.client.links.link_names import LinkNames
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.links.routing import route
from legato.client.links.sender_end import SenderEnd
from legato.client.links.session_state import AcknowledgeMode, Send, Transaction
from legato.client.mapping.source import Source
from legato.client.messages.destinations import Queue
from legato.errors import JMSError
from tests.unit.amqp.pair import Pair

COORDINATOR = "s:coordinator"
PRODUCER = "s:p"
CONSUMER = "s:c"


class Broker:
    """Hands frames across, and keeps what the client asked for until a test answers."""

    def __init__(self) -> None:
        self.pair = Pair().opened()
        self.links: dict[str, Receiver] = {}
        self.giving: dict[str, Sender] = {}
        self.transfers: list[Transfer] = []

    def exchange(self) -> None:
        """Both sides hear all that the other one has said."""
        while True:
            to_client, to_server = self.pair.exchange()
            if not to_client and not to_server:
                return
            for event in to_server:
                self._heard(event)
            assert not list(route(to_client))

    def _heard(self, event: Event) -> None:
        match event:
            case SessionBegan(session=session):
                session.open()
            case Attached(link=Receiver() as link):
                self.links[link.name] = link
            case Attached(link=Sender() as link):
                self.giving[link.name] = link
            case Transfer():
                self.transfers.append(event)
            case _:
                pass

    def attach(self, name: str) -> None:
        """Answer a link's attach, and give it credit."""
        self.links[name].accept()
        self.links[name].add_credit(10)
        self.exchange()

    def taken(self, name: str) -> list[Transfer]:
        """What came over a link since it was looked at."""
        self.exchange()
        taken = [transfer for transfer in self.transfers if transfer.link is self.links[name]]
        self.transfers = [transfer for transfer in self.transfers if transfer not in taken]
        return taken

    def declare(self, name: bytes) -> None:
        """Answer the declare, the only thing that was asked of the coordinator."""
        (asked,) = self.taken(COORDINATOR)
        self.links[COORDINATOR].settle(asked.delivery, Declared(name))
        self.exchange()


def _transport() -> Any:
    """What links see of a connection whose I/O thread is the test."""
    return SimpleNamespace(
        wire=None,
        started=True,
        link_names=LinkNames(),
        touched={},
        completed=[],
        uploading=set(),
        post=lambda call, *arguments: call(*arguments),
        awaits=lambda end: None,
        restored=lambda end: None,
        report=lambda error, usual=False: None,
        flush=lambda: None,
        encode=lambda: None,
    )


class Client:
    """A transacted session with a producer and a consumer, whose application's thread is the test."""

    def __init__(self) -> None:
        self.transport = _transport()
        self.current = Transaction()
        self.channel = Channel(
            self.transport, "s", AcknowledgeMode.SESSION_TRANSACTED, self.current, CONTRACTS["legato"]
        )
        self.producer = SenderEnd(self.channel, PRODUCER, Queue("q"))
        self.channel.add_sender(self.producer)
        self.consumer = ReceiverEnd(self.channel, CONSUMER, Source(destination=Queue("q")), 1)
        self.channel.add_receiver(self.consumer)

    def connect(self, broker: Broker) -> None:
        self.transport.wire = SimpleNamespace(engine=broker.pair.client)
        self.channel.begin()
        broker.exchange()

    def lose(self) -> None:
        self.transport.wire = None
        self.channel.connection_lost(JMSError("gone"))

    def send(self, body: bytes) -> Send:
        outgoing = self.producer.outgoing
        outgoing.last_number += 1
        send = Send(outgoing.last_number, body, None, self.current)
        self.current.sends.append((self.producer, send))
        outgoing.waiting.append(send)
        self.channel.wake_sender(self.producer)
        return send

    def present(self, delivery: Any) -> None:
        """`receive()` returns a message."""
        self.consumer.presented.append(delivery)
        self.channel.wake_receiver(self.consumer)

    def commit(self) -> Transaction:
        """Begin to; returns the transaction, whose outcome comes."""
        ended, self.current = self.current, Transaction()
        assert self.channel.coordinator is not None
        self.channel.coordinator.end(ended, True, self.current)
        return ended


@pytest.fixture
def brokers() -> Iterator[list[Broker]]:
    """One after the other, as the client finds them."""
    made = [Broker() for _ in range(2)]
    yield made
    for broker in made:
        broker.pair.free()


def test_a_commit_does_not_leave_behind_what_a_lost_transaction_had_not_sent_yet_is_in_front_of(
    brokers: list[Broker],
) -> None:
    """CONTRACT A3; the second loss of the connection left a send in front of those of the next transaction."""
    first, second = brokers
    client = Client()
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
    client = Client()
    client.connect(broker)
    broker.attach(COORDINATOR)
    broker.declare(b"1")
    link = broker.giving[CONSUMER]
    link.accept()
    broker.exchange()
    link.send(b"message", b"\x00" * 7 + b"\x01")
    broker.exchange()
    delivery = client.consumer.incoming.inbox.popleft()
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

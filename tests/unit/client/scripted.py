"""A session's links in memory: a broker that answers when a test says so, and a client whose threads are the test."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from legato.amqp import names
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, encode_message
from legato.amqp.engine.events import Attached, Detached, Disposition, Event, SessionBegan, Transfer
from legato.amqp.engine.link import Receiver, Sender
from legato.amqp.engine.outcomes import ACCEPTED, Declared
from legato.client.failover.contract import CONTRACTS
from legato.client.links.channel import Channel
from legato.client.links.deliveries import Delivery
from legato.client.links.link_names import LinkNames
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.links.routing import route
from legato.client.links.sender_end import SenderEnd
from legato.client.links.session_state import AcknowledgeMode, Send, Transaction
from legato.client.mapping.source import Source
from legato.client.messages.destinations import Queue
from legato.errors import JMSError
from tests.unit.amqp.pair import Pair

BODY = encode_message(header=Header(), body=DataBody(b"x"))
COORDINATOR = "s:coordinator"
PRODUCER = "s:p"
CONSUMER = "s:c"


class Broker:
    """Hands frames across, and keeps what the client asked for until a test answers.

    Attributes:
        links, giving: those that the client sends on, and receives on, by their names.
        events: what else the broker was told.
        unrouted: what the client was told that is no link's.
    """

    def __init__(self) -> None:
        self.pair = Pair().opened()
        self.links: dict[str, Receiver] = {}
        self.giving: dict[str, Sender] = {}
        self.events: list[Event] = []
        self.unrouted: list[Event] = []

    def exchange(self) -> None:
        """Both sides hear all that the other one has said."""
        while True:
            to_client, to_server = self.pair.exchange()
            if not to_client and not to_server:
                return
            for event in to_server:
                self._heard(event)
            self.unrouted += route(to_client)

    def _heard(self, event: Event) -> None:
        match event:
            case SessionBegan(session=session):
                session.open()
            case Attached(link=Receiver() as link):
                self.links[link.name] = link
            case Attached(link=Sender() as link):
                self.giving[link.name] = link
            case _:
                self.events.append(event)

    # -- what the client sends

    def attach(self, name: str) -> None:
        """Answer a sender's attach, and give it credit."""
        self.links[name].accept()
        self.links[name].add_credit(10)
        self.exchange()

    def taken(self, name: str) -> list[Transfer]:
        """What came over a link since it was looked at."""
        self.exchange()
        taken = [each for each in self.events if isinstance(each, Transfer) and each.link is self.links[name]]
        self.events = [event for event in self.events if event not in taken]
        return taken

    def declare(self, name: bytes) -> None:
        """Answer the declare, the only thing that was asked of the coordinator."""
        (asked,) = self.taken(COORDINATOR)
        self.links[COORDINATOR].settle(asked.delivery, Declared(name))
        self.exchange()

    # -- what it receives

    def answer(self, name: str, *, held: int | None = None, elsewhere: list[int] | None = None) -> Sender:
        """Answer a receiver's attach."""
        link = self.giving[name]
        properties = None if held is None else {names.HELD_COUNT: held, names.ELSEWHERE: elsewhere or []}
        link.accept(properties=properties)
        self.exchange()
        return link

    def give(self, name: str, *seqs: int, body: bytes = BODY) -> None:
        """Send messages, for which there must be credit."""
        link = self.giving[name]
        for seq in seqs:
            assert link.credit > 0, f"{seq} cannot come: no credit"
            link.send(body, seq.to_bytes(8, "big"), seq)
        self.exchange()

    def detached(self, name: str) -> bool:
        """Whether the client ended that receiver."""
        return any(isinstance(event, Detached) and event.link is self.giving[name] for event in self.events)

    def outcomes(self, name: str) -> list[tuple[int, Any]]:
        """What the client said of messages, by their numbers."""
        return [
            (event.context, event.outcome)
            for event in self.events
            if isinstance(event, Disposition) and event.link is self.giving[name]
        ]

    def confirm(self, name: str, *seqs: int) -> None:
        """Confirm that messages are acknowledged."""
        link = self.giving[name]
        for event in [each for each in self.events if isinstance(each, Disposition)]:
            if event.link is link and event.context in seqs and event.outcome is ACCEPTED:
                link.confirm(event.delivery, ACCEPTED)
        self.exchange()


class Client:
    """A session whose I/O thread and application's thread are the test."""

    def __init__(self, mode: AcknowledgeMode, contract: str = "legato", first: Transaction | None = None) -> None:
        self.reports: list[JMSError] = []
        self.later: list[Any] = []
        transport: Any = SimpleNamespace(
            wire=None,
            started=True,
            link_names=LinkNames(),
            touched={},
            completed=[],
            uploading=set(),
            error=None,
            awaits_start=False,
            is_current_thread=False,
            disowned=False,
            heard=0,
            outages=SimpleNamespace(touch_all=lambda: None),
            notifier=SimpleNamespace(is_current=False),
            post=lambda call, *arguments: call(*arguments),
            later=self.later.append,
            hurry=lambda: None,
            awaits=lambda end: None,
            restored=lambda end: None,
            forget=lambda channel: None,
            report=lambda error, usual=False: self.reports.append(error),
            flush=lambda: None,
            encode=lambda: None,
        )
        self.transport = transport
        self.channel = Channel(transport, "s", mode, first, CONTRACTS[contract])

    def consumer(self, name: str, prefetch: int = 10) -> ReceiverEnd:
        """A consumer of the queue of that name."""
        end = ReceiverEnd(self.channel, name, Source(destination=Queue(name)), prefetch)
        self.channel.add_receiver(end)
        return end

    def connect(self, broker: Broker) -> None:
        """There is a connection."""
        self.transport.wire = SimpleNamespace(engine=broker.pair.client)
        self.channel.begin()
        broker.exchange()

    def lose(self) -> None:
        """There is none any more."""
        self.transport.wire = None
        self.channel.connection_lost(JMSError("gone"))

    def receive(self, end: ReceiverEnd) -> Delivery:
        """`receive()` returns a message; what the mode wants done is done."""
        delivery = end.incoming.inbox.popleft()
        if self.channel.mode in (AcknowledgeMode.AUTO, AcknowledgeMode.DUPS_OK):
            end.accepted.append(delivery)
        else:
            end.presented.append(delivery)
        self.channel.wake_receiver(end)
        return delivery


class TransactedClient(Client):
    """One with a transacted session, a producer and a consumer."""

    def __init__(self, contract: str = "legato") -> None:
        self.current = Transaction()
        super().__init__(AcknowledgeMode.SESSION_TRANSACTED, contract, self.current)
        self.producer = SenderEnd(self.channel, PRODUCER, Queue("q"))
        self.channel.add_sender(self.producer)
        self.received_by = self.consumer(CONSUMER, 1)

    def send(self, body: bytes) -> Send:
        """`send()`, as far as it goes in a transaction."""
        outgoing = self.producer.outgoing
        outgoing.last_number += 1
        send = Send(outgoing.last_number, body, None, self.current)
        self.current.sends.append((self.producer, send))
        outgoing.waiting.append(send)
        self.channel.wake_sender(self.producer)
        return send

    def present(self, delivery: Delivery) -> None:
        """`receive()` returns a message that it has taken out before."""
        self.received_by.presented.append(delivery)
        self.channel.wake_receiver(self.received_by)

    def commit(self) -> Transaction:
        """Begin to; returns the transaction, whose outcome comes."""
        ended, self.current = self.current, Transaction()
        assert self.channel.coordinator is not None
        self.channel.coordinator.end(ended, True, self.current)
        return ended

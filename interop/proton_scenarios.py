"""Scenarios for python-qpid-proton's client API: one function and one process each.

Usage: `python -m interop.proton_scenarios NAME URL`; a scenario that fails raises.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from proton import Message, symbol
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, Copy, DurableSubscription, LinkOption, Selector
from proton.utils import BlockingConnection

WAIT_S = 20.0
SCENARIOS: dict[str, Callable[[str], None]] = {}


def scenario(function: Callable[[str], None]) -> Callable[[str], None]:
    """Make a function known under its name."""
    SCENARIOS[function.__name__] = function
    return function


class AsTopic(LinkOption):  # type: ignore[misc]
    """The destination is a topic, in the words that Qpid JMS uses."""

    def apply(self, link: Any) -> None:
        terminus = link.source if link.is_receiver else link.target
        terminus.capabilities.put_object(symbol("topic"))


class Collector(MessagingHandler):  # type: ignore[misc]
    """Opens what `start` opens, and closes the connection after a number of messages."""

    def __init__(self, start: Callable[[Any], object], count: int) -> None:
        super().__init__()
        self.bodies: list[Any] = []
        self._start, self._count = start, count

    def on_start(self, event: Any) -> None:
        self._start(event.container)

    def on_message(self, event: Any) -> None:
        self.bodies.append(event.message.body)
        if len(self.bodies) == self._count:
            event.connection.close()


def send(url: str, address: str, *messages: Message, options: LinkOption | None = None) -> None:
    """Send one after the other, each confirmed."""
    connection = BlockingConnection(url, timeout=WAIT_S)
    sender = connection.create_sender(address, options=options)
    for message in messages:
        sender.send(message)
    connection.close()


def receive(url: str, address: str, count: int, *options: LinkOption) -> list[Any]:
    """Bodies of so many messages, accepted."""
    collector = Collector(lambda container: container.create_receiver(f"{url}/{address}", options=list(options)), count)
    Container(collector).run()
    return collector.bodies


@scenario
def hello_world(url: str) -> None:
    """One handler sends and receives."""

    class Hello(Collector):
        def on_sendable(self, event: Any) -> None:
            event.sender.send(Message(body="Hello World!"))
            event.sender.close()

    def start(container: Any) -> None:
        connection = container.connect(url)
        container.create_receiver(connection, "proton.hello")
        container.create_sender(connection, "proton.hello")

    hello = Hello(start, 1)
    Container(hello).run()
    assert hello.bodies == ["Hello World!"]


@scenario
def simple_send_and_receive(url: str) -> None:
    """A hundred maps arrive in order."""

    class Sender(MessagingHandler):  # type: ignore[misc]
        sent = confirmed = 0

        def on_start(self, event: Any) -> None:
            event.container.create_sender(f"{url}/proton.simple")

        def on_sendable(self, event: Any) -> None:
            while event.sender.credit and self.sent < 100:
                self.sent += 1
                event.sender.send(Message(id=self.sent, body={"sequence": self.sent}))

        def on_accepted(self, event: Any) -> None:
            self.confirmed += 1
            if self.confirmed == 100:
                event.connection.close()

    Container(Sender()).run()
    assert receive(url, "proton.simple", 100) == [{"sequence": number} for number in range(1, 101)]


@scenario
def request_and_reply(url: str) -> None:
    """A server without a target of its own answers to the dynamic address of a client."""
    connection = BlockingConnection(url, timeout=WAIT_S)
    requests, replies = connection.create_receiver("proton.requests"), connection.create_sender(None)

    def serve() -> None:
        message = requests.receive(timeout=WAIT_S)
        requests.accept()
        replies.send(Message(address=message.reply_to, body=message.body.upper()))

    class Client(Collector):
        def on_link_opened(self, event: Any) -> None:
            if event.receiver:
                request = Message(reply_to=event.receiver.remote_source.address, body="twas brillig")
                event.container.create_sender(event.connection, "proton.requests").send(request)

    server = threading.Thread(target=serve, daemon=True)
    server.start()
    client = Client(lambda container: container.create_receiver(container.connect(url), None, dynamic=True), 1)
    Container(client).run()
    server.join(WAIT_S)
    connection.close()
    assert client.bodies == ["TWAS BRILLIG"]


@scenario
def topic(url: str) -> None:
    """A subscriber gets what is published while it is there."""
    connection = BlockingConnection(url, timeout=WAIT_S)
    receiver = connection.create_receiver("proton.news", options=AsTopic())
    send(url, "proton.news", Message(body="one"), options=AsTopic())
    assert receiver.receive(timeout=WAIT_S).body == "one"
    receiver.accept()
    connection.close()


@scenario
def durable_subscriber(url: str) -> None:
    """Detached, a durable subscriber misses nothing."""

    class Subscriber(Collector):
        def on_link_opened(self, event: Any) -> None:
            if not self._count:
                event.receiver.detach()

        def on_message(self, event: Any) -> None:
            self.bodies.append(event.message.body)
            event.receiver.detach()

        def on_link_remote_detach(self, event: Any) -> None:
            event.connection.close()

    def subscribe(count: int) -> list[Any]:
        def start(container: Any) -> None:
            connection = container.connect(url)
            options = [AsTopic(), DurableSubscription()]
            container.create_receiver(connection, "proton.durable", name="mine", options=options)

        subscriber = Subscriber(start, count)
        container = Container(subscriber)
        container.container_id = "proton-durable-client"
        container.run()
        return subscriber.bodies

    assert subscribe(0) == []
    send(url, "proton.durable", Message(body="while away"), options=AsTopic())
    assert subscribe(1) == ["while away"]


@scenario
def selector(url: str) -> None:
    """A receiver with a selector gets what fits, the rest stays."""
    colours = ["red", "green", "blue", "green"]
    send(url, "proton.selected", *[Message(body=each, properties={"colour": each}) for each in colours])
    assert receive(url, "proton.selected", 2, Selector("colour = 'green'")) == ["green", "green"]
    assert receive(url, "proton.selected", 2) == ["red", "blue"]


@scenario
def queue_browser(url: str) -> None:
    """Browsing shows messages, and leaves them."""
    send(url, "proton.browsed", Message(body="one"), Message(body="two"))
    assert receive(url, "proton.browsed", 2, Copy()) == ["one", "two"]
    assert receive(url, "proton.browsed", 2) == ["one", "two"]


class Transacted(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """What transacted scenarios share: one transaction, then the end of the connection."""

    def __init__(self, url: str) -> None:
        super().__init__(prefetch=0, auto_accept=False)
        self.url = url
        self.transaction: Any = None

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = event.container.connect(self.url)
        self.open()
        event.container.declare_transaction(self.connection, handler=self)

    def open(self) -> None:
        """Open links before the transaction is there."""

    def on_transaction_committed(self, event: Any) -> None:
        self.connection.close()

    def on_transaction_aborted(self, event: Any) -> None:
        self.connection.close()


class TransactedSender(Transacted):
    """Sends in one transaction, and commits or aborts it."""

    def __init__(self, url: str, bodies: list[str], *, commit: bool) -> None:
        super().__init__(url)
        self.bodies, self.commit = bodies, commit
        self.confirmed = 0

    def open(self) -> None:
        self.sender = self.container.create_sender(self.connection, "proton.tx")

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.send()

    def on_sendable(self, event: Any) -> None:
        self.send()

    def send(self) -> None:
        """Send all once there are credit and a transaction."""
        if self.transaction and self.bodies and self.sender.credit >= len(self.bodies):
            bodies, self.bodies = self.bodies, []
            for body in bodies:
                self.transaction.send(self.sender, Message(body=body))
            self.transaction.commit() if self.commit else self.transaction.abort()


class TransactedReceiver(Transacted):
    """Receives so many messages in one transaction, and commits or aborts it."""

    def __init__(self, url: str, count: int, *, commit: bool) -> None:
        super().__init__(url)
        self.count, self.commit = count, commit
        self.bodies: list[str] = []

    def open(self) -> None:
        self.receiver = self.container.create_receiver(self.connection, "proton.tx")

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.receiver.flow(self.count)

    def on_message(self, event: Any) -> None:
        self.bodies.append(event.message.body)
        self.transaction.accept(event.delivery)
        if len(self.bodies) == self.count:
            self.transaction.commit() if self.commit else self.transaction.abort()


@scenario
def transacted_send(url: str) -> None:
    """What an aborted transaction sent is not there; what a committed one sent is."""
    Container(TransactedSender(url, ["never", "ever"], commit=False)).run()
    Container(TransactedSender(url, ["one", "two"], commit=True)).run()
    assert receive(url, "proton.tx", 2) == ["one", "two"]


@scenario
def transacted_receive(url: str) -> None:
    """What an aborted transaction received comes again; what a committed one received does not."""
    send(url, "proton.tx", Message(body="one"), Message(body="two"), Message(body="three"))
    for commit in (False, True):
        receiver = TransactedReceiver(url, 2, commit=commit)
        Container(receiver).run()
        assert receiver.bodies == ["one", "two"]
    assert receive(url, "proton.tx", 1) == ["three"]


if __name__ == "__main__":
    SCENARIOS[sys.argv[1]](sys.argv[2])

"""Apache Qpid Proton's own high-level client, as its users write it, against the broker."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container, Copy
from proton.utils import BlockingConnection

from tests.support.server import Server, server

COUNT = 50


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with server(tmp_path_factory.mktemp("proton") / "store") as running:
        yield running


class Send(MessagingHandler):  # type: ignore[misc]
    """As in Proton's simple_send."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.sent = self.confirmed = 0

    def on_start(self, event: Any) -> None:
        event.container.create_sender(self.url)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self.sent < COUNT:
            event.sender.send(Message(id=self.sent + 1, body={"sequence": self.sent + 1}))
            self.sent += 1

    def on_accepted(self, event: Any) -> None:
        self.confirmed += 1
        if self.confirmed == COUNT:
            event.connection.close()


class Receive(MessagingHandler):  # type: ignore[misc]
    """As in Proton's simple_recv; `options` as for queue_browser."""

    def __init__(self, url: str, options: Any = None) -> None:
        super().__init__()
        self.url, self.options = url, options
        self.received: list[int] = []

    def on_start(self, event: Any) -> None:
        event.container.create_receiver(self.url, options=self.options)

    def on_message(self, event: Any) -> None:
        self.received.append(event.message.body["sequence"])
        if len(self.received) == COUNT:
            event.receiver.close()
            event.connection.close()


class SendInTransactions(MessagingHandler, TransactionHandler):  # type: ignore[misc]
    """As in Proton's tx_send: batches of ten, a coordinator link beside the sender."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url
        self.transaction: Any = None
        self.in_batch = self.committed = self.sent = 0

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = self.container.connect(self.url)
        self.sender = self.container.create_sender(self.connection, "tx")
        self.container.declare_transaction(self.connection, handler=self)

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction
        self.send()

    def on_sendable(self, event: Any) -> None:
        self.send()

    def send(self) -> None:
        while self.transaction and self.sender.credit and self.sent < COUNT and self.in_batch < 10:
            self.sent += 1
            self.transaction.send(self.sender, Message(id=self.sent, body={"sequence": self.sent}))
            self.in_batch += 1
            if self.in_batch == 10:
                transaction, self.transaction = self.transaction, None
                transaction.commit()

    def on_transaction_committed(self, event: Any) -> None:
        self.committed += self.in_batch
        self.in_batch = 0
        if self.committed == COUNT:
            self.connection.close()
        else:
            self.container.declare_transaction(self.connection, handler=self)


@pytest.mark.filterwarnings("ignore")
def test_sent_browsed_and_received(broker: Server) -> None:
    url = f"127.0.0.1:{broker.port}/examples"
    send = Send(url)
    Container(send).run()
    assert send.confirmed == COUNT

    browse = Receive(url, Copy())
    Container(browse).run()
    receive = Receive(url)
    Container(receive).run()
    assert browse.received == receive.received == list(range(1, COUNT + 1))


@pytest.mark.filterwarnings("ignore")
def test_transactions(broker: Server) -> None:
    send = SendInTransactions(f"127.0.0.1:{broker.port}")
    Container(send).run()
    assert send.committed == COUNT
    receive = Receive(f"127.0.0.1:{broker.port}/tx")
    Container(receive).run()
    assert receive.received == list(range(1, COUNT + 1))


@pytest.mark.filterwarnings("ignore")
def test_the_blocking_client(broker: Server, tmp_path: Path) -> None:
    connection = BlockingConnection(f"127.0.0.1:{broker.port}", allowed_mechs="ANONYMOUS")
    sender = connection.create_sender("blocking")
    sender.send(Message(body="one"))
    receiver = connection.create_receiver("blocking")
    assert receiver.receive(timeout=60).body == "one"
    receiver.release()
    assert receiver.receive(timeout=60).body == "one"
    receiver.accept()
    connection.close()

"""A client and a server connection joined by hand, for tests without sockets."""

from __future__ import annotations

from typing import Any

from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Attached, Event, SessionBegan
from legato.amqp.engine.link import Receiver, Sender, Session
from legato.amqp.engine.settings import Settings
from legato.amqp.engine.terminus import Terminus


class Pair:
    """Two connections; `exchange` hands bytes across until both are silent."""

    def __init__(self, *, client: dict[str, Any] | None = None, server: dict[str, Any] | None = None) -> None:
        self.client = Connection(server=False, settings=Settings(container_id="client", **(client or {})))
        self.server = Connection(server=True, settings=Settings(container_id="server", **(server or {})))

    def exchange(self) -> tuple[list[Event], list[Event]]:
        """What the client and the server were told."""
        to_client: list[Event] = []
        to_server: list[Event] = []
        while True:
            up, down = self.client.data_to_send(), self.server.data_to_send()
            if not up and not down:
                return to_client, to_server
            to_server += self.server.receive_data(up)
            to_client += self.client.receive_data(down)

    def opened(self) -> Pair:
        """Open both ends."""
        self.client.open()
        self.server.open()
        self.exchange()
        return self

    def session(self) -> tuple[Session, Session]:
        """Begin a session; the client's and the server's end of it."""
        ours = self.client.begin_session()
        _, events = self.exchange()
        (began,) = [event for event in events if isinstance(event, SessionBegan)]
        began.session.open()
        self.exchange()
        return ours, began.session

    def outgoing(
        self, *, credit: int = 100, max_message_bytes: int | None = None, **attach: Any
    ) -> tuple[Sender, Receiver]:
        """A link over which the client sends: the client's and the server's end of it."""
        session, _ = self.session()
        sender = session.sender("out", target=Terminus(address="q"), **attach)
        _, events = self.exchange()
        (attached,) = [event for event in events if isinstance(event, Attached)]
        receiver = attached.link
        assert isinstance(receiver, Receiver)
        receiver.accept(max_message_bytes=max_message_bytes)
        receiver.add_credit(credit)
        self.exchange()
        return sender, receiver

    def incoming(self, *, credit: int = 100, **attach: Any) -> tuple[Receiver, Sender]:
        """A link over which the client receives: the client's and the server's end of it."""
        session, _ = self.session()
        receiver = session.receiver("in", source=Terminus(address="q"), **attach)
        receiver.add_credit(credit)
        _, events = self.exchange()
        (attached,) = [event for event in events if isinstance(event, Attached)]
        sender = attached.link
        assert isinstance(sender, Sender)
        sender.accept()
        self.exchange()
        return receiver, sender

    def free(self) -> None:
        """Give both ends' memory back."""
        self.client.free()
        self.server.free()


def of(events: list[Event], kind: type) -> list[Any]:
    """The events of one kind."""
    return [event for event in events if isinstance(event, kind)]

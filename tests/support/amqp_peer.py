"""A blocking AMQP client over Legato's engine: tests choose each performative, and see the answers."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from typing import Any, TypeVar

from legato import limits
from legato.amqp.codec.coordinator import encode_declare, encode_discharge
from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, decode_message, encode_message
from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Attached, Closed, Detached, Disposition, Event, Opened, Transfer
from legato.amqp.engine.link import Receiver, Sender, Session
from legato.amqp.engine.outcomes import Declared, Outcome
from legato.amqp.engine.sasl import SaslClient
from legato.amqp.engine.settings import Settings
from legato.amqp.engine.terminus import Terminus

E = TypeVar("E", bound=Event)
WAIT_S = 60.0


def text(body: bytes, message_id: str = "") -> bytes:
    """A durable message with these bytes of data."""
    return encode_message(
        header=Header(durable=True), properties=Properties(message_id=message_id or None), body=DataBody(body)
    )


def data_of(transfer: Transfer) -> bytes:
    """The data of a message that came."""
    body = decode_message(transfer.data).body
    assert isinstance(body, DataBody)
    return body.data


class Refused(Exception):
    """SASL failed, or the connection was closed."""


class AmqpPeer:
    """A connection with one session."""

    def __init__(
        self,
        port: int,
        *,
        container: str = "test",
        user: str | None = None,
        password: str | None = None,
        tls: ssl.SSLContext | None = None,
        max_frame_bytes: int = limits.MAX_FRAME_BYTES,
        properties: dict[str, Any] | None = None,
        token: str | None = None,
        certificate: bool = False,
        hostname: str | None = None,
    ) -> None:
        plain = socket.create_connection(("127.0.0.1", port), timeout=WAIT_S)
        self.socket = tls.wrap_socket(plain, server_hostname="localhost") if tls else plain
        settings = Settings(container_id=container, max_frame_bytes=max_frame_bytes, properties=properties or {})
        settings.hostname = hostname
        self.amqp = Connection(server=False, settings=settings)
        self.events: list[Event] = []
        self._names = 0
        leftover = self._negotiate(
            SaslClient(user, password, token=None if token is None else lambda: token, certificate=certificate)
        )
        self.amqp.open()
        self.session: Session = self.amqp.begin_session()
        self.flush()
        if leftover:
            self.events += self.amqp.receive_data(leftover)
        self.opened = self.expect(Opened)

    def _negotiate(self, sasl: SaslClient) -> bytes:
        while not sasl.done:
            if out := sasl.data_to_send():
                self.socket.sendall(out)
            data = self.socket.recv(1 << 16)
            sasl.receive_data(data)
            if sasl.failed is not None or not data:
                raise Refused(sasl.failed or "the server hung up")
        if out := sasl.data_to_send():
            self.socket.sendall(out)
        return sasl.leftover

    def flush(self) -> None:
        """Send what the engine has to send."""
        if data := self.amqp.data_to_send():
            self.socket.sendall(data)

    def expect(self, kind: type[E], where: Callable[[E], bool] = lambda event: True) -> E:
        """The next event of that kind; others stay for later."""
        while True:
            for index, event in enumerate(self.events):
                if isinstance(event, kind) and where(event):
                    del self.events[index]
                    return event
            if any(isinstance(event, Closed) for event in self.events) and kind is not Closed:
                raise Refused(str(self.events[-1]))
            self.flush()
            data = self.socket.recv(1 << 18)
            self.events += self.amqp.receive_data(data) if data else self.amqp.receive_eof()
            self.flush()

    def sender(self, address: str | None, properties: dict[str, Any] | None = None, name: str = "") -> Sender:
        """An attached sender with credit."""
        link = self.session.sender(
            name or self._name(), target=Terminus(address=address, kind="target"), properties=properties
        )
        self._attached(link)
        while link.credit == 0:
            self.flush()
            self.events += self.amqp.receive_data(self.socket.recv(1 << 16))
        return link

    def coordinator(self) -> Sender:
        link = self.session.sender(self._name(), target=Terminus(kind="coordinator"))
        self._attached(link)
        while link.credit == 0:
            self.events += self.amqp.receive_data(self.socket.recv(1 << 16))
        return link

    def receiver(
        self,
        address: str,
        credit: int,
        properties: dict[str, Any] | None = None,
        name: str = "",
        mode: str | None = None,
    ) -> Receiver:
        """An attached receiver that was given credit."""
        link = self.session.receiver(
            name or self._name(),
            source=Terminus(address=address, kind="source", distribution_mode=mode),
            properties=properties,
        )
        self._attached(link)
        if credit:
            link.add_credit(credit)
        self.flush()
        return link

    def _attached(self, link: Sender | Receiver) -> None:
        self.flush()
        self.expect(Attached, lambda event: event.link is link)
        refused = [event for event in self.events if isinstance(event, Detached) and event.link is link]
        if refused:
            raise Refused(f"{refused[0].condition}: {refused[0].description}")

    def send(self, link: Sender, data: bytes, tag: bytes = b"", txn_id: bytes | None = None) -> Outcome | None:
        """Send one message, and wait for what becomes of it."""
        handle = link.send(data, tag or self._name().encode(), data, txn_id=txn_id)
        self.flush()
        return self.expect(Disposition, lambda event: event.link is link and event.delivery == handle).outcome

    def declare(self, coordinator: Sender) -> bytes:
        outcome = self.send(coordinator, encode_declare())
        assert isinstance(outcome, Declared)
        return outcome.txn_id

    def discharge(self, coordinator: Sender, txn_id: bytes, *, fail: bool = False) -> Outcome | None:
        return self.send(coordinator, encode_discharge(txn_id, fail))

    def transfer(self) -> Transfer:
        """The next message."""
        return self.expect(Transfer)

    def close(self) -> None:
        self.amqp.close()
        self.flush()
        self.expect(Closed)
        self.drop()

    def drop(self) -> None:
        """Hang up without a word."""
        self.socket.close()
        self.amqp.free()

    def _name(self) -> str:
        self._names += 1
        return f"n{self._names}"

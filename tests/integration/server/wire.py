"""What the tests of the wire say often: termini, filters, and short ways to receive."""

from __future__ import annotations

from typing import Any

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.amqp.codec.types import Described, ULong
from legato.amqp.engine.events import Detached, Flow, Transfer
from legato.amqp.engine.link import Receiver, Sender
from legato.amqp.engine.terminus import Terminus
from tests.support.amqp_peer import AmqpPeer, data_of

SELECTOR = ULong(0x0000468C00000004)
NO_LOCAL = ULong(0x0000468C00000003)


def topic(name: str, *capabilities: str, **fields: Any) -> Terminus:
    """The source of a receiver on a topic."""
    return Terminus(address=name, kind="source", capabilities=["topic", *capabilities], **fields)


def durable(name: str, *capabilities: str, **fields: Any) -> Terminus:
    """The source of a durable subscriber, as Qpid JMS writes it."""
    return topic(name, *capabilities, durable=2, expiry_policy="never", distribution_mode="copy", **fields)


def selecting(text: str) -> dict[str, Any]:
    """A filter map with a selector."""
    return {"jms-selector": Described(SELECTOR, text)}


def without_local() -> dict[str, Any]:
    """A filter map with no-local."""
    return {"no-local": Described(NO_LOCAL, "NoLocalFilter{}")}


def attach(peer: AmqpPeer, source: Terminus, credit: int = 0, name: str = "", **fields: Any) -> Receiver:
    """An attached receiver; raises `Refused` if the broker does not want it."""
    link = peer.session.receiver(name or peer._name(), source=source, **fields)
    peer._attached(link)
    if credit:
        link.add_credit(credit)
    peer.flush()
    return link


def attach_sender(peer: AmqpPeer, target: Terminus, **fields: Any) -> Sender:
    """An attached sender, with credit or without."""
    link = peer.session.sender(peer._name(), target=target, **fields)
    peer._attached(link)
    return link


def got(peer: AmqpPeer, link: Receiver, count: int) -> list[bytes]:
    """The next messages on a link, accepted."""
    bodies = []
    for _ in range(count):
        transfer = peer.expect(Transfer, lambda event: event.link is link)
        bodies.append(data_of(transfer))
        link.settle(transfer.delivery)
    peer.flush()
    return bodies


def nothing_more(peer: AmqpPeer, link: Receiver) -> bool:
    """Whether a drain comes back without a message (AMQP 2.6.7)."""
    if link.drain(1):
        peer.flush()
        while link.draining:
            peer.expect(Flow, lambda event: event.link is link)
    return not [event for event in peer.events if isinstance(event, Transfer) and event.link is link]


def detached(peer: AmqpPeer, link: Receiver | Sender) -> Detached:
    """The broker's detach of a link."""
    return peer.expect(Detached, lambda event: event.link is link)


def close(peer: AmqpPeer, link: Receiver | Sender) -> None:
    """Close a link and wait for the answer."""
    link.close()
    peer.flush()
    detached(peer, link)


def leave(peer: AmqpPeer, link: Receiver | Sender) -> None:
    """Detach a link without closing it, and wait for the answer."""
    link.detach()
    peer.flush()
    detached(peer, link)


def message(
    body: bytes,
    *,
    header: Header | None = None,
    properties: Properties | None = None,
    annotations: dict[str, Any] | None = None,
    **application_properties: Any,
) -> bytes:
    """A message with all that a test wants to say."""
    return encode_message(
        header=header or Header(durable=True),
        properties=properties,
        message_annotations=annotations,
        application_properties=application_properties,
        body=DataBody(body),
    )

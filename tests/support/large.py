"""Large messages over the wire, written and read in pieces, so that the test holds none whole in memory either."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from typing import Any

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import DataBody, Properties, encode_message
from legato.amqp.codec.stubs import find_body
from legato.amqp.engine.events import Disposition, TransferPart
from legato.amqp.engine.link import Receiver, Sender
from legato.amqp.engine.outcomes import Outcome
from tests.support.amqp_peer import AmqpPeer

MIB = 1 << 20
_DATA_CONSTRUCTOR_BYTES = 8


def pieces(size: int, seed: int = 1) -> Iterator[bytes]:
    """The data of a message of that size: every piece another one, the same for the same seed."""
    block = random.Random(seed).randbytes(MIB)
    for number in range(-(-size // MIB)):
        yield (number.to_bytes(8, "big") + block[8:])[: min(MIB, size - number * MIB)]


def digest(size: int, seed: int = 1) -> str:
    """What `pieces` make."""
    made = hashlib.sha256()
    for piece in pieces(size, seed):
        made.update(piece)
    return made.hexdigest()


def head(size: int, *, message_id: str = "", **application_properties: Any) -> bytes:
    """All of a message with so much data that is before the data."""
    whole = encode_message(
        header=Header(durable=True),
        properties=Properties(message_id=message_id or None),
        application_properties=application_properties,
        body=DataBody(b""),
    )
    return whole[: find_body(whole)] + b"\x00\x53\x75\xb0" + size.to_bytes(4, "big")


def push_large(peer: AmqpPeer, link: Sender, size: int, seed: int = 1, *, pieces_max: int = 1 << 30) -> None:
    """Send the data of a message that was begun, or its first pieces."""
    for number, piece in enumerate(pieces(size, seed)):
        if number == pieces_max:
            return
        link.push(piece)
        peer.flush()


def send_large(
    peer: AmqpPeer,
    link: Sender,
    size: int,
    seed: int = 1,
    *,
    tag: bytes = b"large",
    txn_id: bytes | None = None,
    **head_fields: Any,
) -> Outcome | None:
    """Send one whole, and wait for what becomes of it."""
    handle = link.begin(tag, None, txn_id=txn_id)
    link.push(head(size, **head_fields))
    push_large(peer, link, size, seed)
    link.finish()
    return peer.expect(Disposition, lambda event: event.link is link and event.delivery == handle).outcome


class Came:
    """A large message that came: what was before its data, how much data, and its digest."""

    def __init__(self, head_bytes: bytes, size: int, sha256: str, delivery: int) -> None:
        self.head = head_bytes
        self.size = size
        self.sha256 = sha256
        self.delivery = delivery


def receive_large(peer: AmqpPeer, link: Receiver) -> Came:
    """The next message on a link that `streams`, piece by piece."""
    data = hashlib.sha256()
    before = b""
    size = 0
    while True:
        part = peer.expect(TransferPart, lambda event: event.link is link)
        piece = part.data
        if part.first:
            at = find_body(piece) + _DATA_CONSTRUCTOR_BYTES
            before, piece = piece[:at], piece[at:]
        data.update(piece)
        size += len(piece)
        if part.last:
            return Came(before, size, data.hexdigest(), part.delivery)


def streaming_receiver(peer: AmqpPeer, address: str, credit: int, **options: Any) -> Receiver:
    """A receiver that reports large messages in parts."""
    link = peer.receiver(address, 0, **options)
    link.streams = True
    link.add_credit(credit)
    peer.flush()
    return link

"""Tickets: signed permissions to read a range of a queue, to stage rows, or to copy the store, given over an
authenticated connection.

A ticket belongs to its holder: who asks for one gives the digest of a secret, which is in the ticket, and shows the
secret itself with the ticket. Whoever else comes by the ticket cannot use it.
"""

from __future__ import annotations

import hashlib
import hmac
from typing import Protocol, TypeVar

import msgspec

from legato.errors import LegatoError

TICKET_S = 600
"""How long a ticket is good."""
BODY_BYTES_MAX = 256 << 20
"""A larger body than that is not given out."""
_MAC_BYTES = 32


class TicketRefused(LegatoError):
    """The ticket is not this broker's, or has expired; ask the broker for a new one."""


class Ticket(msgspec.Struct, frozen=True, array_like=True, tag="range"):
    """A range of a queue: messages with `after` < seq <= `through`, in the lane of `after`."""

    queue: int
    after: int
    through: int
    until_s: float
    """When it is over, on the broker's wall clock."""
    bare: bool = False
    """Whether the messages themselves are left out."""
    body_bytes_max: int = BODY_BYTES_MAX
    """Of large messages, larger bodies than that are left out, and how large they are is said (`frames.OMITTED`)."""
    holder: bytes = b""
    """See `digest_of_holder`; empty: whoever has it may use it, as there are no users."""


class CopyTicket(msgspec.Struct, frozen=True, array_like=True, tag="copy"):
    """A copy of the whole store, users included."""

    until_s: float
    holder: bytes = b""
    """See `Ticket`."""


def digest_of_holder(secret: bytes) -> bytes:
    """What a ticket says of its holder's secret."""
    return hashlib.sha256(secret).digest()


class Limited(Protocol):
    """A ticket of any kind, with its expiry by the broker's wall clock."""

    @property
    def until_s(self) -> float: ...

    @property
    def holder(self) -> bytes: ...


T = TypeVar("T", bound=Limited)


def seal(secret: bytes, ticket: Limited) -> bytes:
    """The ticket, so that nobody who does not know `secret` can make another one."""
    data = msgspec.msgpack.encode(ticket)
    return hmac.digest(secret, data, hashlib.sha256) + data


def unseal(secret: bytes, sealed: bytes, now_s: float, kind: type[T], holder: bytes = b"") -> T:
    """The ticket of that kind, or of one of those kinds, that was sealed.

    Args:
        holder: the secret of who shows it.

    Raises:
        TicketRefused: it was not sealed with `secret`, is over, or is somebody else's.
    """
    mac, data = sealed[:_MAC_BYTES], sealed[_MAC_BYTES:]
    if not hmac.compare_digest(mac, hmac.digest(secret, data, hashlib.sha256)):
        raise TicketRefused("The ticket is not one of this broker's: it may have failed over; ask it for a new one.")
    try:
        ticket = msgspec.msgpack.decode(data, type=kind)
    except msgspec.DecodeError:
        raise TicketRefused("The ticket is for something else; ask the broker for the right one.") from None
    if now_s > ticket.until_s:
        raise TicketRefused("The ticket is over; ask the broker for a new one.")
    if ticket.holder and not hmac.compare_digest(ticket.holder, digest_of_holder(holder)):
        raise TicketRefused("The ticket is somebody else's; ask the broker for one of your own.")
    return ticket

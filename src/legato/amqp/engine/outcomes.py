"""Delivery states of AMQP 1.0 (3.4, 4.5.6) as plain values."""

import msgspec


class Outcome(msgspec.Struct, frozen=True, gc=False):
    """A delivery state."""


class Accepted(Outcome, frozen=True, gc=False):
    """AMQP 3.4.2."""


class Released(Outcome, frozen=True, gc=False):
    """AMQP 3.4.4: back to its place, not counted."""


class Rejected(Outcome, frozen=True, gc=False):
    """AMQP 3.4.3: the message itself is at fault."""

    condition: str = ""
    description: str = ""
    info: tuple[tuple[str, str | int], ...] = ()
    """Further properties of the dead letter that the message becomes, by the receiver's application (AMQP 2.8.14)."""
    tag: bytes = b""
    """Of a message that a broker cannot route, its delivery tag (Anonymous Terminus 2.2.2)."""


class Modified(Outcome, frozen=True, gc=False):
    """AMQP 3.4.5."""

    delivery_failed: bool = False
    undeliverable_here: bool = False
    text: str = ""
    """What went wrong, in the words of the receiver's application (`names.EXCEPTION`)."""
    duplicate: bool = False
    """A broker's word to a sender: not stored, because it was before (`names.DUPLICATE`)."""


class Received(Outcome, frozen=True, gc=False):
    """AMQP 3.4.1, not terminal. A Legato client sends it when it presents a message to its application."""


class Declared(Outcome, frozen=True, gc=False):
    """AMQP 4.5.5: the answer to a declare."""

    txn_id: bytes


class Transactional(Outcome, frozen=True, gc=False):
    """AMQP 4.5.6: `outcome` holds once the transaction commits; None on a transfer."""

    txn_id: bytes
    outcome: Outcome | None = None


ACCEPTED = Accepted()
RELEASED = Released()
RECEIVED = Received()
DELIVERY_FAILED = Modified(delivery_failed=True)
IS_DUPLICATE = Modified(duplicate=True)

"""Events of a connection, as plain data; a shell matches on the type.

Handles: `Transfer.delivery` is an int that names the delivery on its link until it is settled. `Disposition.context` is
the object that was given to `Sender.send`.
"""

from __future__ import annotations

from array import array
from typing import Any

import msgspec

from legato.amqp.engine.link import Link, Receiver, Sender, Session
from legato.amqp.engine.outcomes import Outcome


class Event(msgspec.Struct, gc=False):
    """Base of all events."""


class Opened(Event):
    """The peer opened the connection (its Open arrived)."""

    container_id: str
    hostname: str | None
    properties: dict[str, Any]
    desired_capabilities: list[str]
    offered_capabilities: list[str]


class Closed(Event):
    """The peer closed the connection, or broke it: the transport failed, or the input ended. Always the last event.

    `clean` is True only for a Close frame without error. A server answers a Close frame with `Connection.close`.
    """

    condition: str
    description: str
    clean: bool
    info: dict[str, Any] = {}


class SessionBegan(Event):
    """The peer began a session (on a server: answer with `session.open()`)."""

    session: Session


class SessionEnded(Event):
    session: Session
    condition: str
    description: str


class Attached(Event):
    """The peer attached `link`: on a server a request to answer; on a client the answer to ours."""

    link: Link


class Detached(Event):
    """The peer detached `link`; `closed` says for good. Answer with `link.close()` or `link.detach()`, once."""

    link: Link
    closed: bool
    condition: str
    description: str
    info: dict[str, Any] = {}


class Flow(Event):
    """A sender's credit or drain changed: re-read `link.credit` and `link.draining`; or a receiver's drain is done."""

    link: Sender | Receiver


class Transfer(Event):
    """A whole message arrived."""

    link: Receiver
    delivery: int
    tag: bytes
    data: bytes
    settled: bool
    txn_id: bytes | None


class TransferRun(Event):
    """Whole messages arrived together over a receiver that `takes_runs`, none in a transaction.

    They are what so many `Transfer` would tell: deliveries `delivery`, `delivery + 1` ..., of which the first ends in
    `data` at `ends[0]`. If the link `reads_apart`, they are in `bodies` instead, and `data` and `ends` are empty. If it
    `reads_tags`, the tags are the numbers from `number` on, big-endian.
    """

    link: Receiver
    delivery: int
    data: bytes
    ends: array[int]
    settled: bool
    number: int = 0
    bodies: list[bytes] | None = None


class TransferPart(Event):
    """More of a large message arrived, over a receiver that `streams`.

    `first` and `last` say which part it is; `settled` is known with the last one. No other message comes over the link
    meanwhile.
    """

    link: Receiver
    delivery: int
    tag: bytes
    data: bytes
    first: bool
    last: bool
    settled: bool
    txn_id: bytes | None


class TransferAborted(Event):
    """The sender aborted a message of which parts had arrived."""

    link: Receiver
    tag: bytes = b""


class TransferLost(Event):
    """A message, or a part of one, came over a closed link, or made us close it; it is dropped.

    Only told of what was sent in a transaction, which cannot commit without it.
    """

    link: Receiver
    txn_id: bytes


class OutcomeLost(Event):
    """An outcome came for a delivery whose link had ended.

    Only told of what was stated in a transaction, which cannot commit without it, and while the connection
    `remembers_ended_links`.
    """

    txn_id: bytes


class Disposition(Event):
    """The peer stated an outcome, or settled. `outcome` is None if it settled without one.

    For a sender's delivery `context` is what was given to `send`; for a receiver's delivery (the answer to an
    unsettled outcome of ours) it is the delivery's int.
    """

    link: Link
    context: Any
    outcome: Outcome | None
    settled: bool
    delivery: int = 0
    """Names the delivery on its link: what `Sender.confirm` takes."""


class AcceptedRun(Event):
    """The peer accepted `count` neighbours of a run that was sent with `Sender.send_run`, from the one at `at` on.

    They are what so many `Disposition` of deliveries `delivery`, `delivery + 1` ... would tell, whose contexts are
    `(context, at)`, `(context, at + 1)` ...
    """

    link: Sender
    context: Any
    at: int
    count: int
    settled: bool
    delivery: int


class ConfirmedRun(Event):
    """The peer settled as accepted `count` neighbours of what `Receiver.state_accepted` stated, from `delivery` on.

    They are what so many `Disposition` would tell, whose contexts are `delivery`, `delivery + 1` ...
    """

    link: Receiver
    delivery: int
    count: int

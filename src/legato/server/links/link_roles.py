"""Per-link state: the role that each AMQP link plays for the broker."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import overload

from legato import limits
from legato.amqp.codec.admission import Admission
from legato.amqp.engine.link import Link, Receiver, Sender
from legato.core.consumers import Browser, Consumer
from legato.core.producers import Producer
from legato.core.queues import Queue
from legato.core.topics import Topic
from legato.server.shell import Peer

Node = Queue | Topic
PRODUCER_REFILL = limits.PRODUCER_CREDIT // 10
_SETTLED = 1
_REJECTED = "amqp:rejected:list"
ANSWERS_WAITING_MAX = 1000
COORDINATOR_REFILL = limits.COORDINATOR_CREDIT // 2


def may_reject(link: Receiver) -> bool:
    """Whether the source of a sender knows the outcome `rejected` (AMQP 3.5.3); one that says nothing knows all."""
    outcomes = link.remote_source.outcomes
    return not outcomes or _REJECTED in outcomes


class PublisherLink:
    """A link over which messages arrive. `target` is None for the anonymous relay (each message names its own)."""

    __slots__ = ("admit", "admit_run", "limited", "notices", "owed", "peer", "producer", "rejects", "target")

    def __init__(self, peer: Peer, target: Node | None, producer: Producer | None, *, notices: bool = False) -> None:
        self.peer = peer
        self.notices = notices
        """Whether the sender is told of duplicates (`names.DUPLICATE_NOTICE`)."""
        self.target = target
        admission = Admission(peer.user if peer.realm else None)
        self.admit = admission.admit
        self.admit_run = admission.admit_run
        self.producer = producer
        self.owed = 0
        """Messages settled since credit was last given back; given in lumps."""
        self.limited = False
        """Whether its address may become full, so that credit is given message by message."""
        self.rejects = True
        """Whether messages may be rejected; else the link is detached for one that would be."""


class DeliveryLink:
    """A link over which messages are delivered. `durable` is its subscription's, None if it is on a queue.

    `settled` says that its receiver wants to settle nothing (AMQP 2.8.2).
    """

    __slots__ = ("durable", "link", "peer", "settled")

    def __init__(self, peer: Peer, link: Sender, durable: bool | None = None) -> None:
        self.peer = peer
        self.link = link
        self.durable = durable
        self.settled = link.remote_snd_settle_mode == _SETTLED


class Coordinator:
    """A link over which transactions are declared and discharged."""

    __slots__ = ("declared", "owed", "peer", "rejects")

    def __init__(self, peer: Peer, link: Receiver) -> None:
        self.peer = peer
        self.rejects = may_reject(link)
        self.owed = 0
        self.declared: set[bytes] = set()
        """Transactions declared here and not discharged: they end with this link."""


class StatusLink:
    """A link that answers with the broker's status; `waits` while an answer waits for the peer's socket."""

    __slots__ = ("peer", "waits")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.waits = False


class HeartbeatLink:
    """A link that receives heartbeats; `begun` after the first one."""

    __slots__ = ("begun", "link", "peer")

    def __init__(self, peer: Peer, link: Sender) -> None:
        self.peer = peer
        self.link = link
        self.begun = False


class ManagementLink:
    """A link over which management requests arrive."""

    __slots__ = ("owed", "peer")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.owed = 0


class ManagementReplies:
    """A receiving link on the management address: it gets the replies to `address`."""

    __slots__ = ("address", "goes_on", "link", "peer", "sent_bytes", "waiting")

    def __init__(self, peer: Peer, link: Sender, address: str) -> None:
        self.peer = peer
        self.link = link
        self.address = address
        self.waiting: deque[bytes] = deque()
        self.sent_bytes = 0
        """Since its peer was written to last, about."""
        self.goes_on = False
        """Whether more is sent in a later turn."""

    def wait(self, answer: bytes) -> None:
        """An answer waits for credit; the oldest of too many is dropped."""
        if len(self.waiting) >= ANSWERS_WAITING_MAX:
            self.next()
        self.waiting.append(answer)
        self.peer.unread_bytes += len(answer)

    def next(self) -> bytes:
        """The oldest answer, which waits no more."""
        answer = self.waiting.popleft()
        self.peer.unread_bytes -= len(answer)
        return answer

    def forget_all(self) -> None:
        """Nobody waits for answers any more."""
        while self.waiting:
            self.next()


class SubscriptionLookup:
    """A link without a source: it looks up a durable subscription, and its closing ends it (amqp.md A4)."""

    __slots__ = ("peer", "subscription")

    def __init__(self, peer: Peer, subscription: Queue) -> None:
        self.peer = peer
        self.subscription = subscription


SendToken = tuple[Receiver, int]
"""Where to answer a publication: its link and its delivery. The core hands it back in effects."""


class RunTokens(Sequence[SendToken]):
    """The tokens of messages that came together, deliveries with neighbouring numbers."""

    __slots__ = ("deliveries", "link")

    def __init__(self, link: Receiver, first: int, count: int) -> None:
        self.link = link
        self.deliveries = range(first, first + count)

    def __len__(self) -> int:
        return len(self.deliveries)

    @overload
    def __getitem__(self, at: int) -> SendToken: ...

    @overload
    def __getitem__(self, at: slice) -> list[SendToken]: ...

    def __getitem__(self, at: int | slice) -> SendToken | list[SendToken]:
        found = self.deliveries[at]
        if isinstance(found, range):
            return [(self.link, delivery) for delivery in found]
        return self.link, found


class DischargeToken:
    """The link and delivery to answer a discharge on, and what was attached there: the link may be leaving."""

    __slots__ = ("delivery", "link", "port", "txn_id")

    def __init__(self, link: Receiver, delivery: int, port: Coordinator, txn_id: bytes) -> None:
        self.link = link
        self.delivery = delivery
        self.port = port
        self.txn_id = txn_id


def peer_of(link: Link) -> Peer:
    """Whose link it is; something must still hang on it."""
    port = link.context
    peer: Peer = port.port.peer if isinstance(port, (Consumer, Browser)) else port.peer
    return peer

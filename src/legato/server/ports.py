"""What the shell hangs on its links: who is at the other end, in the broker's terms."""

from __future__ import annotations

from typing import TYPE_CHECKING

from legato import limits
from legato.amqp.admission import Admission
from legato.core.producers import Producer
from legato.core.queues import Queue

if TYPE_CHECKING:
    from legato.amqp.link import Receiver, Sender
    from legato.server.peer import Peer


class Publisher:
    """A link that messages come in on. `queue` is None for the anonymous relay (messages name their own)."""

    __slots__ = ("admit", "owed", "peer", "producer", "queue")

    def __init__(self, peer: Peer, queue: Queue | None, producer: Producer | None) -> None:
        self.peer = peer
        self.queue = queue
        self.admit = Admission().admit
        self.producer = producer
        self.owed = 0
        """Messages settled since credit was last given back; given in lumps."""


class Outlet:
    """A link that messages go out on."""

    __slots__ = ("link", "peer")

    def __init__(self, peer: Peer, link: Sender) -> None:
        self.peer = peer
        self.link = link


class Coordinator:
    """A link that transactions are declared and discharged on."""

    __slots__ = ("declared", "owed", "peer")

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.owed = 0
        self.declared: set[bytes] = set()
        """Transactions declared here and not discharged: they end with this link."""


class StatusPort:
    """A link that answers with the broker's status."""

    __slots__ = ("peer",)

    def __init__(self, peer: Peer) -> None:
        self.peer = peer


class DischargeToken:
    """Where to answer a discharge."""

    __slots__ = ("delivery", "link")

    def __init__(self, link: Receiver, delivery: int) -> None:
        self.link = link
        self.delivery = delivery


PRODUCER_REFILL = limits.PRODUCER_CREDIT // 10
COORDINATOR_REFILL = limits.COORDINATOR_CREDIT // 2

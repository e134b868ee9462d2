"""How much producers may send: in lumps where there is no limit, as much as there is room where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from legato import limits
from legato.amqp.link import Receiver
from legato.core.queues import Queue
from legato.server.ports import PRODUCER_REFILL, Publisher

if TYPE_CHECKING:
    from collections.abc import Callable

    from legato.core.broker import Broker
    from legato.server.peer import Peer


class ProducerCredit:
    """Gives producers their credit.

    The credit of all producers of a full, blocking address together is not more than its room, save that while there is
    room each may have one: a producer that does not use its credit must not stop the others.

    Args:
        touch: what has a peer flushed.
    """

    def __init__(self, broker: Broker, touch: Callable[[Peer], None]) -> None:
        self._broker = broker
        self._touch = touch
        self._limited: dict[str, dict[Receiver, Publisher]] = {}
        """Producers of addresses that may become full, by the node's name."""

    def begin(self, link: Receiver, port: Publisher) -> None:
        """A producer attached."""
        port.owed = limits.PRODUCER_CREDIT
        self.give(link, port)

    def owe(self, link: Receiver, port: Publisher, messages: int = 1) -> None:
        """So many of its messages were settled."""
        port.owed += messages
        if port.owed >= port.refill:
            self.give(link, port)
        self._touch(port.peer)

    def give(self, link: Receiver, port: Publisher) -> None:
        """Give what is owed, as far as there is room."""
        target = port.target
        room = None if target is None else self._broker.room(target)
        if room is None:
            if port.refill == 1:
                self.gone(link, port)
            port.refill = PRODUCER_REFILL
            given = port.owed
        else:
            assert target is not None
            port.refill = 1
            others = self._limited.setdefault(target.name, {})
            others[link] = port
            free = room - sum(other.credit for other in others)
            given = min(port.owed, max(free, 1 if room and not link.credit else 0))
        if given:
            port.owed -= given
            link.add_credit(given)
            self._touch(port.peer)

    def gone(self, link: Receiver, port: Publisher) -> None:
        """A producer's link ended, or its address has no limit any more."""
        if port.target is not None and (others := self._limited.get(port.target.name)):
            others.pop(link, None)
            if not others:
                del self._limited[port.target.name]

    def room(self, queue: Queue) -> None:
        """There is room again: those with the least credit come first."""
        node = queue.topic or queue
        waiting = self._limited.get(node.name, {})
        for link, port in sorted(waiting.items(), key=lambda item: item[0].credit):
            self.give(link, port)

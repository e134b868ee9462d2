"""Credit of producers: in large grants without a limit, by the room of the address with one."""

from __future__ import annotations

from collections.abc import Callable

from legato import limits
from legato.amqp.engine.link import Receiver
from legato.core.broker import Broker
from legato.core.queues import Queue
from legato.server.links.link_roles import PRODUCER_REFILL, PublisherLink
from legato.server.shell import Peer


class ProducerCredit:
    """Grants credit to producers.

    The credit of all producers of a full, blocking address together is not more than its room, save that while there is
    room each may have one: a producer that does not use its credit must not stop the others.

    Args:
        touch: what has a peer flushed.
    """

    def __init__(self, broker: Broker, touch: Callable[[Peer], None]) -> None:
        self._broker = broker
        self._touch = touch
        self._limited: dict[str, _Producers] = {}
        """Of addresses that may become full, by the node's name."""

    def begin(self, link: Receiver, port: PublisherLink) -> None:
        """A producer attached."""
        port.owed = limits.PRODUCER_CREDIT
        self.give(link, port)

    def owe(self, link: Receiver, port: PublisherLink, messages: int = 1) -> None:
        """So many of its messages were settled."""
        port.owed += messages
        if port.limited and port.target is not None:
            self._limited[port.target.name].promised -= messages
            self.give(link, port)
        elif port.owed >= PRODUCER_REFILL:
            self.give(link, port)
        self._touch(port.peer)

    def give(self, link: Receiver, port: PublisherLink) -> None:
        """Give what is owed, as far as there is room."""
        target = port.target
        room = None if target is None else self._broker.backpressure.room(target)
        if target is None or room is None:
            self.gone(link, port)
            given = port.owed
        else:
            producers = self._limited.setdefault(target.name, _Producers())
            producers.add(link, port)
            free = room - producers.promised
            given = min(port.owed, max(free, 1 if room and not link.credit else 0))
            producers.promised += given
        if given:
            port.owed -= given
            link.add_credit(given)
            self._touch(port.peer)

    def gone(self, link: Receiver, port: PublisherLink) -> None:
        """A producer's link ended, or its address has no limit any more."""
        if port.limited and port.target is not None:
            producers = self._limited[port.target.name]
            producers.remove(link, port)
            if not producers.links:
                del self._limited[port.target.name]

    def room(self, queue: Queue) -> None:
        """There is room again: those with the least credit come first."""
        producers = self._limited.get((queue.topic or queue).name)
        if producers is not None:
            for link, port in sorted(producers.links.items(), key=lambda item: item[0].credit):
                self.give(link, port)


class _Producers:
    """The producers of an address with a limit.

    `promised` is what they may still send and what they sent that is not settled yet: what is settled is in the room.
    """

    def __init__(self) -> None:
        self.links: dict[Receiver, PublisherLink] = {}
        self.promised = 0

    def add(self, link: Receiver, port: PublisherLink) -> None:
        if not port.limited:
            port.limited = True
            self.links[link] = port
            self.promised += limits.PRODUCER_CREDIT - port.owed

    def remove(self, link: Receiver, port: PublisherLink) -> None:
        port.limited = False
        del self.links[link]
        self.promised -= limits.PRODUCER_CREDIT - port.owed

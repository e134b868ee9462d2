"""Consumers of links: link stealing (AMQP 2.6.1), claims of held messages, priority."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from legato.amqp import names
from legato.amqp.codec.types import ULong
from legato.amqp.engine.link import Link, Sender
from legato.amqp.engine.terminus import Terminus
from legato.core.broker import Broker
from legato.core.consumers import Consumer
from legato.core.queues import Queue
from legato.server.links.damaged_queues import DamagedQueues
from legato.server.links.expiry_timers import ExpiryTimers
from legato.server.links.link_closing import STOLEN
from legato.server.links.link_endings import LinkEnding
from legato.server.links.link_roles import DeliveryLink, peer_of
from legato.server.links.registry import Registry
from legato.server.shell import Peer, Shell
from legato.server.storage.fault_injection import pass_claim

_STEAL_US = 1_000_000
"""What a stolen link had is kept for its thief, who attaches in the same breath."""
_SEQ_MAX = 2**63 - 1
"""No message has a greater number: what is claimed beyond that can neither be there nor be answered."""


class Consumers:
    """Attaches consumers of queues and subscriptions.

    Args:
        damaged: queues that nobody can receive from.
        left: is told of a link that was taken over, and of the node that it was attached to.
    """

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        registry: Registry,
        expiry_timers: ExpiryTimers,
        damaged: DamagedQueues,
        left: Callable[[str, Link], None],
    ) -> None:
        self._shell = shell
        self._broker = broker
        self._registry = registry
        self._expiry_timers = expiry_timers
        self._damaged = damaged
        self._left = left

    def steal(self, peer: Peer, link: Sender, to: str) -> None:
        """A client that came back before we noticed that it was gone takes its link over (AMQP 2.6.1).

        What its application still holds stays its own; the subscription that the link was on stays too, if the new one
        is for that. What was kept with a link that had been detached goes back: our engine cannot resume deliveries
        (AMQP 2.6.13).

        Args:
            to: the name of the queue or subscription that the link is for now.
        """
        old = self._registry.holder(peer.container, link.name)
        if old is None:
            return
        old_peer = peer_of(old)
        consumer, old.context = old.context, None
        resumed = self._registry.suspended.pop(old, None) is not None
        hold_until_us = 0 if resumed else self._broker.now_us + _STEAL_US
        moving = consumer.queue.name == to
        self._broker.receivers.detach(consumer, clean=resumed, hold_until_us=hold_until_us, moving=moving)
        old_peer.links.discard(old)
        old_peer.holdings.count_links(len(old_peer.links))
        old_peer.receivers.discard(consumer)
        if (node := self._registry.remove(old)) is not None:
            self._left(node, old)
        self._registry.release(peer.container, old)
        if resumed:
            old.suspend()
        old.close(STOLEN, "the same client attached this link again")
        self._shell.touch(old_peer)

    def attach(
        self, peer: Peer, link: Sender, queue: Queue, port: DeliveryLink, matches: Callable[[bytes], bool] | None = None
    ) -> dict[str, Any] | None:
        """Make a consumer of `queue` hang on the link; returns what its attach is answered about its claims.

        Raises:
            Refused: the queue is damaged.
        """
        self._damaged.refuse(queue)
        self.steal(peer, link, queue.name)
        claims = held = _held_by(link)
        if held and link.remote_properties.get(names.QUEUE, queue.id) != queue.id:
            # They are of a queue of the same name that was deleted: here other messages have these numbers.
            held = []
        if held:
            pass_claim()
        consumer, elsewhere = self._broker.receivers.attach(
            queue,
            port,
            peer.container,
            reports_presented=link.remote_properties.get(names.REPORTS_PRESENTED) is True,
            held=held,
            matches=matches,
            priority=_priority_of(link),
            name=link.name,
        )
        link.context = consumer
        peer.links.add(link)
        peer.receivers.add(consumer)
        self._registry.hold(peer.container, link)
        if not claims:
            return None
        return {names.HELD_COUNT: len(consumer.first), names.ELSEWHERE: elsewhere if held else claims}

    def accept(
        self, peer: Peer, link: Sender, answer: Terminus, properties: dict[str, Any] | None, *, durable: bool = False
    ) -> None:
        """Answer an attach: when all that was asked before is durable, if the answer speaks of that.

        What became of claims is: a message that is neither coming nor elsewhere was acknowledged, says the client.

        Args:
            properties: what `attach` returned.
            durable: whether it was for a durable subscription.
        """
        consumer: Consumer = link.context
        said = {names.QUEUE: ULong(consumer.queue.id), **(properties or {})}
        if durable or properties is not None:
            self._shell.when_durable(peer, lambda: link.accept(source=answer, properties=said))
        else:
            link.accept(source=answer, properties=said)

    def detach(self, consumer: Consumer, ending: LinkEnding, *, moving: bool = False) -> None:
        """A consumer's link ended; what it has is kept for it if its connection was lost."""
        hold_until_us = self._expiry_timers.hold_until_us(ending, self._broker.now_us)
        self._broker.receivers.detach(consumer, clean=ending.clean, hold_until_us=hold_until_us, moving=moving)


def _held_by(link: Sender) -> list[int]:
    """Messages that its application still holds, as plain numbers: the wire's own types stay outside."""
    value = link.remote_properties.get(names.HELD)
    if not isinstance(value, list):
        return []
    return [int(seq) for seq in value if isinstance(seq, int) and 0 <= seq <= _SEQ_MAX]


def _priority_of(link: Sender) -> int:
    value = link.remote_properties.get(names.CONSUMER_PRIORITY)
    return int(value) if isinstance(value, int) else 0

"""Consumers behind receiving links: who takes over whose, what they still hold, and who comes first."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from legato.amqp import names
from legato.amqp.link import Sender
from legato.core.broker import Broker
from legato.core.consumers import Consumer
from legato.core.queues import Queue
from legato.server.cutting import STOLEN
from legato.server.endings import Ending
from legato.server.lingering import Lingering
from legato.server.ports import Outlet, peer_of
from legato.server.registry import Registry
from legato.server.rigging import pass_claim

if TYPE_CHECKING:
    from legato.server.peer import Peer


_STEAL_US = 1_000_000
"""What a stolen link had is kept for its thief, who attaches in the same breath."""


class Consumers:
    """Attaches consumers of queues and subscriptions."""

    def __init__(self, broker: Broker, registry: Registry, lingering: Lingering, touch: Callable[[Peer], None]) -> None:
        self._broker = broker
        self._registry = registry
        self._lingering = lingering
        self._touch = touch

    def steal(self, peer: Peer, link: Sender) -> None:
        """A client that came back before we noticed that it was gone takes its link over (AMQP 2.6.1).

        What its application still holds stays its own; the subscription that the link was on stays too.
        """
        old = self._registry.holder(peer.container, link.name)
        if old is None:
            return
        old_peer = peer_of(old)
        consumer, old.context = old.context, None
        self._broker.detach(consumer, clean=False, hold_until_us=self._broker.now_us + _STEAL_US, moving=True)
        old_peer.links.discard(old)
        old_peer.receivers.discard(consumer)
        self._registry.remove(old)
        self._registry.release(peer.container, old)
        old.close(STOLEN, "the same client attached this link again")
        self._touch(old_peer)

    def attach(
        self, peer: Peer, link: Sender, queue: Queue, outlet: Outlet, matches: Callable[[bytes], bool] | None = None
    ) -> dict[str, Any] | None:
        """Make a consumer of `queue` hang on the link; returns the properties of the answer to its attach."""
        self.steal(peer, link)
        held = _held_by(link)
        if held:
            pass_claim()
        consumer, elsewhere = self._broker.attach(
            queue,
            outlet,
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
        return {names.HELD_COUNT: len(consumer.first), names.ELSEWHERE: elsewhere} if held else None

    def detach(self, consumer: Consumer, ending: Ending, *, moving: bool = False) -> None:
        """A consumer's link ended; what it has is kept for it if its connection was lost."""
        hold_until_us = self._lingering.hold_until_us(ending, self._broker.now_us)
        self._broker.detach(consumer, clean=ending.clean, hold_until_us=hold_until_us, moving=moving)


def _held_by(link: Sender) -> list[int]:
    """What its application still holds, as plain numbers: the wire's own types stay outside."""
    value = link.remote_properties.get(names.HELD)
    return [int(seq) for seq in value if isinstance(seq, int)] if isinstance(value, list) else []


def _priority_of(link: Sender) -> int:
    value = link.remote_properties.get(names.CONSUMER_PRIORITY)
    return int(value) if isinstance(value, int) else 0

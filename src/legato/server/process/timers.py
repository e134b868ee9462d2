"""Timers of a service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from legato.core.broker import Broker
from legato.server.links.attachment import Links
from legato.server.links.timeouts import TimeoutReview
from legato.server.management.rates import RateMeter
from legato.server.messages.executor import Executor
from legato.server.process.memory_watch import MemoryWatch
from legato.server.shell import Shell
from legato.server.storage.fault_injection import pass_turn
from legato.server.storage.maintenance import Upkeep

TICK_S = 0.1
KEEPALIVE_EVERY_MS = 1000
"""How often a connection is looked at, if its own deadlines do not come sooner."""
UPKEEP_EVERY_TICKS = 20
PRUNE_EVERY_TICKS = 600
"""Forgetting waits for the writer, and the writer for it: seldom, and only if there is something to forget."""
MARKS_EVERY_TICKS = 50
PRODUCERS_EVERY_TICKS = 36_000
"""An hour: what an idle producer that is attached may lose of its retention when the primary dies."""


class Ticking:
    """Runs every `TICK_S`.

    Args:
        begin: does work in steps, some at once and more in each turn of the loop.
    """

    def __init__(
        self,
        shell: Shell,
        broker: Broker,
        executor: Executor,
        links: Links,
        rates: RateMeter,
        upkeep: Upkeep,
        memory: MemoryWatch,
        timeouts: TimeoutReview,
        begin: Callable[[Iterator[None]], None],
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._shell = shell
        self._broker = broker
        self._executor = executor
        self._links = links
        self._rates = rates
        self._upkeep = upkeep
        self._memory = memory
        self._timeouts = timeouts
        self._begin = begin
        self._is_keeping_alive = False
        self._loop = loop
        self._ticks = 0
        self._next = loop.call_later(TICK_S, self._tick)

    def stop(self) -> None:
        """Time does nothing any more."""
        self._next.cancel()

    def _tick(self) -> None:
        shell, broker = self._shell, self._broker
        if not shell.may_serve():
            return
        self._next = self._loop.call_later(TICK_S, self._tick)
        self._ticks += 1
        pass_turn()
        now_us = shell.clock.now_us()
        broker.tick(now_us)
        self._rates.tick(now_us)
        self._links.sweep()
        if self._ticks % MARKS_EVERY_TICKS == 0:
            broker.mark_queues()
        if self._ticks % PRODUCERS_EVERY_TICKS == 0:
            broker.producers.refresh()
        if self._ticks % PRUNE_EVERY_TICKS == 0:
            broker.producers.forget_unused()
        self._keep_alive()
        self._memory.tick()
        self._timeouts.review(now_us)
        if self._ticks % UPKEEP_EVERY_TICKS == 0:
            self._upkeep.run(prune=broker.uploads.has_larges or self._ticks % PRUNE_EVERY_TICKS == 0)
            if broker.uploads.has_larges and not self._executor.streams.are_running:
                broker.uploads.review()
        shell.advance()

    def _keep_alive(self) -> None:
        """Look at the connections, unless that is being done: there may be ten thousands."""
        if not self._is_keeping_alive:
            self._is_keeping_alive = True
            self._begin(self._keep_alive_in_steps())

    def _keep_alive_in_steps(self) -> Iterator[None]:
        try:
            for peer in list(self._shell.peers):
                now_ms = self._shell.clock.monotonic_ms()
                if now_ms >= peer.due_ms and peer.opened and not peer.ended:
                    # Who was heard is not silent, though the engine has not got it yet.
                    peer.hear_kept()
                    if peer.ended:
                        continue
                    latest_ms = now_ms + KEEPALIVE_EVERY_MS
                    peer.due_ms = min(peer.amqp.tick(now_ms) or latest_ms, latest_ms)
                    self._executor.touched.add(peer)
                    peer.measure()
                    if events := peer.amqp.take_events():
                        peer.timed_out(events)
                    yield
        finally:
            self._is_keeping_alive = False

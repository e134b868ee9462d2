"""The single writer: commands of all peers, one commit at a time, and only then what they lead to."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

import msgspec

from legato import __version__, limits
from legato.amqp import names
from legato.amqp.connection import Settings
from legato.amqp.events import Event
from legato.amqp.header import Header
from legato.amqp.message import DataBody, encode_message
from legato.amqp.sasl import SaslServer
from legato.clock import Clock
from legato.core.broker import Broker
from legato.core.consumers import Consumer
from legato.core.records import Batch, Meta
from legato.errors import StoreError, StoreFullError
from legato.server.config import Config
from legato.server.executor import Executor
from legato.server.peer import Peer
from legato.server.status import snapshot
from legato.server.translate import Translator
from legato.store.base import Store
from legato.store.writer import GroupWriter

log = logging.getLogger("legato.service")

TICK_S = 0.1
KEEPALIVE_EVERY_TICKS = 10
UPKEEP_EVERY_TICKS = 20
PRUNE_EVERY_TICKS = 600
"""Forgetting waits for the writer, and the writer for it: seldom, and only if there is something to forget."""
MARKS_EVERY_TICKS = 50
PRODUCERS_EVERY_TICKS = 36_000


class Service:
    """What an active broker process runs: the broker, its writer, its peers.

    Durable first, visible second, here and nowhere else: `_submit` hands a batch to the store, `_done` lets the
    world see what it led to. If a commit fails for any reason but lack of room, nothing is retried behind the
    store's back: `on_fatal` is called and the process stops serving.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        meta: Meta,
        clock: Clock,
        on_fatal: Callable[[StoreError], None],
    ) -> None:
        self.config = config
        self.broker = Broker(store, meta)
        self.peers: set[Peer] = set()
        self.full = ""
        """Why producers are refused now; empty while there is room."""
        self.started_us = clock.now_us()
        self.takeover_ms: float | None = None
        self.container_id = config.server.container_id or f"legato@{socket.gethostname()}"
        self._store = store
        self._clock = clock
        self._on_fatal = on_fatal
        self._executor = Executor()
        self._translator = Translator(self, self.broker)
        self._loop = asyncio.get_running_loop()
        self._writer = GroupWriter(store, self._written)
        self._ticks = 0
        self._throttled = False
        self._stopped = False
        self._idle = asyncio.Event()
        self._upkeep: asyncio.Future[None] | None = None
        self.exported_through: Callable[[], int] = lambda: 0
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        self._check_room()

    # -- for peers ---------------------------------------------------------------------------------------------

    def new_sasl(self) -> SaslServer:
        """The negotiation that a new connection begins with."""
        auth = self.config.auth
        verify = (lambda user, password: auth.users.get(user) == password) if auth.users else None
        return SaslServer(anonymous=auth.anonymous, verify=verify)

    def settings(self) -> Settings:
        """What the broker's end of a connection says and bounds."""
        return Settings(
            container_id=self.container_id,
            idle_timeout_ms=self.config.server.idle_timeout_ms,
            max_message_bytes=self.config.server.max_message_bytes,
            properties={"product": "legato", "version": __version__, names.EPOCH: self.broker.epoch},
            offered_capabilities=["ANONYMOUS-RELAY"],
        )

    def handle(self, peer: Peer, events: list[Event]) -> None:
        """Apply what one read of one peer asks for, and set the rest in motion."""
        now_us = self._clock.now_us()
        self._translator.handle(peer, events, now_us)
        self.broker.dispatch_returned(now_us)
        self._executor.touched.add(peer)
        self._advance()

    def block(self, peer: Peer, blocked: bool) -> None:
        """A peer's socket cannot take more now, or can again."""
        now_us = self._clock.now_us()
        for receiver in peer.receivers:
            if isinstance(receiver, Consumer):
                self.broker.block(receiver, blocked, now_us)
                if not blocked:
                    self.broker.resume(receiver, now_us)
            else:
                self.broker.block_browser(receiver, blocked)
        self._advance()

    def owe(self, link: Any, port: Any) -> None:
        """Credit is due on an incoming link."""
        self._executor.owe(link, port)

    def touch(self, peer: Peer) -> None:
        """Something waits to be flushed to a peer that is not the one being handled."""
        self._executor.touched.add(peer)

    def send_status(self, link: Any) -> None:
        """Answer on a status link, once for each credit."""
        while link.credit > 0:
            document = msgspec.json.encode(snapshot(self, self._store))
            link.send(encode_message(header=Header(), body=DataBody(document)), b"status", None, settled=True)

    # -- commits -----------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        self._executor.perform(self.broker.take_effects())
        self._submit()
        self._executor.flush()
        if self._executor.paced:
            paced, self._executor.paced = self._executor.paced, []
            self._loop.call_soon(self._resume, paced)
        self._throttle()

    def _resume(self, paced: list[Consumer]) -> None:
        """Consumers whose sockets took what they were given go on; the others when their sockets say so."""
        now_us = self._clock.now_us()
        for consumer in paced:
            if not consumer.port.peer.paused:
                self.broker.resume(consumer, now_us)
        self._advance()

    def _throttle(self) -> None:
        """Read no more while a whole batch waits behind the one being committed: memory stays bounded."""
        full = self.broker.tick_is_full
        if full != self._throttled:
            self._throttled = full
            for peer in self.peers:
                peer.pause_reading(full)

    def _submit(self) -> None:
        while not self._stopped and (batch := self.broker.take_batch(self._clock.now_us())) is not None:
            if batch.facts:
                self._writer.submit(batch)
                return
            self.broker.committed(self._clock.now_us())
            self._executor.perform(self.broker.take_effects())
        if self.broker.idle:
            self._idle.set()

    def _written(self, batch: Batch, position: int | None, error: StoreError | None) -> None:
        self._loop.call_soon_threadsafe(self._done, error)

    def _done(self, error: StoreError | None) -> None:
        if self._stopped:
            return
        if error is None:
            self.broker.committed(self._clock.now_us())
        elif isinstance(error, StoreFullError):
            self.full = str(error)
            log.error("! producers are refused: %s", error)
            try:
                self.broker.failed(str(error))
            except StoreError as fatal:
                self._fatal(fatal)
                return
        else:
            self._fatal(error)
            return
        self._advance()

    def _fatal(self, error: StoreError) -> None:
        self.abort()
        self._on_fatal(error)

    # -- time --------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if self._stopped:
            return
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        self._ticks += 1
        self.broker.tick()
        if self._ticks % MARKS_EVERY_TICKS == 0:
            self.broker.mark_queues()
        if self._ticks % PRODUCERS_EVERY_TICKS == 0:
            self.broker.refresh_producers()
        if self._ticks % KEEPALIVE_EVERY_TICKS == 0:
            now_ms = self._clock.monotonic_ms()
            for peer in list(self.peers):
                if peer.opened and not peer.ended:
                    peer.amqp.tick(now_ms)
                    self._executor.touched.add(peer)
                    if events := peer.amqp.take_events():
                        self.handle(peer, events)
        if self._ticks % UPKEEP_EVERY_TICKS == 0:
            self._keep_up()
        self._advance()

    def _keep_up(self) -> None:
        """Check room, and let the store forget what is past its time, off the loop."""
        self._check_room()
        if self._upkeep is None or self._upkeep.done():
            self._upkeep = self._loop.run_in_executor(None, self._forget, self._ticks % PRUNE_EVERY_TICKS == 0)

    def _check_room(self) -> None:
        usage = self._store.usage()
        reserve = self.config.store.free_disk_reserve_bytes
        if usage.free_disk_bytes < reserve:
            full = f"only {usage.free_disk_bytes >> 20} MiB of disk are free; the reserve is {reserve >> 20} MiB"
        elif usage.used_bytes > usage.capacity_bytes * 0.95:
            full = f"store.map_bytes ({usage.capacity_bytes}) is used up to 95 %; enlarge it or empty some queues"
        else:
            full = ""
        if full and not self.full:
            log.error("! producers are refused: %s", full)
        elif self.full and not full:
            log.info("= producers are welcome again")
        self.full = full

    def _forget(self, prune: bool) -> None:
        try:
            if prune:
                self._store.prune(self._clock.now_us())
            first, last = self._store.log_range()
            through = self._through(first, last)
            if through >= first:
                self._store.trim_log(through, limits.LOG_TRIM_RECORDS)
        except StoreError as error:
            log.warning("! upkeep of the store: %s", error)

    def _through(self, first: int, last: int) -> int:
        """Up to which position the log is not needed: what the ledger has, or what exceeds the log's bound."""
        excess = self._store.log_bytes() - self.config.store.log_bytes
        through = self.exported_through()
        if excess > 0:
            records = last - first + 1
            bound = first + records * excess // (excess + self.config.store.log_bytes)
            if bound > through:
                log.warning("! the log exceeds store.log_bytes: facts up to %s go before a ledger has them", bound)
            through = max(through, bound)
        return min(through, last)

    # -- the end -----------------------------------------------------------------------------------------------

    async def stop(self, timeout_s: float = 5.0) -> None:
        """Finish what was begun, record the end, tell the peers and let go of them."""
        self.broker.end("stopped")
        self._idle.clear()
        self._advance()
        try:
            await asyncio.wait_for(self._idle.wait(), timeout_s)
        except TimeoutError:
            log.warning("! commits were still running after %s s", timeout_s)
        for peer in list(self.peers):
            if not peer.ended:
                peer.amqp.close("amqp:connection:forced", "the broker stops")
                peer.end()
        self.abort()

    def abort(self) -> None:
        """Stop at once: nothing more is committed, nothing more becomes visible."""
        if self._stopped:
            return
        self._stopped = True
        self._ticker.cancel()
        for peer in list(self.peers):
            if not peer.ended:
                peer.ended = True
                peer.drop()
        self._writer.close()

"""The single writer: commands of all peers, one commit at a time, and only then what they lead to."""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from legato import __version__
from legato.amqp import names
from legato.amqp.connection import Settings
from legato.amqp.events import Event
from legato.amqp.link import Link, Receiver
from legato.amqp.sasl import SaslServer
from legato.clock import Clock
from legato.core.broker import Broker
from legato.core.consumers import Browser, Consumer
from legato.core.records import Batch, Meta
from legato.errors import StoreError, StoreFullError
from legato.ha.heartbeat_connection import BACKUP_USER
from legato.ha.lease import Lease, Standing
from legato.server.addresses import Addresses
from legato.server.bodies import MessageBodies
from legato.server.config import Config
from legato.server.credit import ProducerCredit
from legato.server.discovery import FAILOVER_SERVER_LIST, server_list
from legato.server.executor import Executor
from legato.server.failover import STARTED, Failover, Takeover, describe
from legato.server.heartbeats import Heartbeats
from legato.server.inspecting import Inspector
from legato.server.lingering import Lingering
from legato.server.peer import Peer
from legato.server.ports import Coordinator, ManagementPort, ManagementReplies
from legato.server.rates import RateMeter
from legato.server.refused import NO_BACKUP, Refused
from legato.server.status import snapshot
from legato.server.translate import Translator
from legato.server.upkeep import Upkeep
from legato.store.base import Store
from legato.store.writer import GroupWriter

if TYPE_CHECKING:
    from legato.server.reign import Reign

log = logging.getLogger("legato.service")

OFFERED = ["ANONYMOUS-RELAY", "DELAYED_DELIVERY", "SHARED-SUBS", "sole-connection-for-container"]
"""What Qpid JMS looks for (AMQP.md A1.4)."""
TICK_S = 0.1
ANSWER_GRACE_S = 1.0
"""So long may one who asked for a switchover take to go with the answer: a client forgets what it has not handed
out when its connection ends."""
KEEPALIVE_EVERY_TICKS = 10
UPKEEP_EVERY_TICKS = 20
PRUNE_EVERY_TICKS = 600
"""Forgetting waits for the writer, and the writer for it: seldom, and only if there is something to forget."""
MARKS_EVERY_TICKS = 50
PRODUCERS_EVERY_TICKS = 36_000
_FAREWELLS = {
    "shutdown": "the broker stops",
    "switchover": "another broker serves from now on",
    "lapsed": "the broker has fenced itself",
}


class Service:
    """What an active broker process runs: the broker, its writer, its peers.

    Durable first, visible second, here and nowhere else: `_submit` hands a batch to the store, `_done` lets the
    world see what it led to. If a commit fails for any reason but lack of room, nothing is retried behind the
    store's back: the reign ends and the process stops serving. Before it answers anybody it asks its lease.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        meta: Meta,
        clock: Clock,
        lease: Lease,
        reign: Reign,
        read_config: Callable[[], Config],
    ) -> None:
        self.config = config
        self.addresses = Addresses(config.address)
        self.broker = Broker(
            store, meta, bodies=MessageBodies(), settings=self.addresses.settings, chance=random.random
        )
        self.peers: set[Peer] = set()
        self.started_us = clock.now_us()
        self.takeover = Takeover(STARTED, 0.0)
        self.backup_token = secrets.token_urlsafe()
        """What backups log in with; the lock's file tells it to whoever may use the store."""
        self.container_id = config.server.container_id or f"legato@{socket.gethostname()}"
        self._properties: dict[str, Any] = {"product": "legato", "version": __version__, names.EPOCH: self.broker.epoch}
        if config.ha.addresses:
            self._properties[FAILOVER_SERVER_LIST] = server_list(
                config.ha.addresses, secure=bool(config.tls.certificate)
            )
        self._read_config = read_config
        self._clock = clock
        self._lease = lease
        self._reign = reign
        self._loop = asyncio.get_running_loop()
        self.lingering = Lingering(self._loop, self._advance)
        self.heartbeats = Heartbeats(self._loop, config.ha.heartbeat_interval_s, self.broker.epoch, self._advance)
        self.credit = ProducerCredit(self.broker, self.touch)
        self.rates = RateMeter(self.broker.queues)
        self.inspector = Inspector(
            self.broker, store, self.rates, clock.now_us, lambda: snapshot(self, store, self.inspector)
        )
        self._executor = Executor(self.broker, store, self.credit, self._unblock)
        self._translator = Translator(self, self.broker)
        self._writer = GroupWriter(store, self._written)
        self._ticks = 0
        self._throttled = False
        self._waiting: set[Peer] = set()
        """Peers that are not read from because they send large messages."""
        self._scanning = False
        self._streaming = False
        self._ending = False
        """Nothing is taken from peers any more; what was asked before is still committed and confirmed."""
        self._stopped = False
        self._idle = asyncio.Event()
        self._alone = asyncio.Event()
        self._askers: set[Peer] = set()
        """Who asked for a switchover and is still here."""
        self._gathering = 1
        """The number of the batch that is being gathered."""
        self._until_durable: list[tuple[int, Peer, Callable[[], None]]] = []
        self.upkeep = Upkeep(store, config.store, clock)
        self._ticker = self._loop.call_later(TICK_S, self._tick)

    # -- for peers ---------------------------------------------------------------------------------------------

    def new_sasl(self) -> SaslServer:
        """The negotiation that a new connection begins with."""
        auth = self.config.auth
        return SaslServer(anonymous=auth.anonymous, verify=self._verify if auth.users else None)

    def _verify(self, user: str, password: str) -> bool:
        if user == BACKUP_USER:
            return secrets.compare_digest(password.encode(), self.backup_token.encode())
        return self.config.auth.users.get(user) == password

    def settings(self) -> Settings:
        """What the broker's end of a connection says and bounds."""
        return Settings(
            container_id=self.container_id,
            idle_timeout_ms=self.config.server.idle_timeout_ms,
            max_message_bytes=self.config.server.max_message_bytes,
            properties=self._properties,
            offered_capabilities=OFFERED,
        )

    def forget(self, peer: Peer) -> None:
        """Its socket is closed."""
        self.peers.discard(peer)
        if not self.peers:
            self._alone.set()
        if peer in self._askers:
            self._askers.discard(peer)
            if not self._askers:
                self._reign.switch_over()

    def may_serve(self) -> bool:
        """Whether peers may be listened to and answered; if the lease has ended, all stops here."""
        if self._stopped:
            return False
        standing = self._lease.standing(self._clock.monotonic_ms())
        if standing is not Standing.GOOD:
            self.abort()
            self._reign.lose(standing)
            return False
        return True

    def failover(self) -> Failover:
        """The last takeover, and what to expect of the next."""
        return describe(self.takeover, self.config.ha, self._reign.backups())

    def switch_over(self) -> dict[str, Any]:
        """Have a backup take over as soon as those who may have asked for it are gone with their answer.

        Raises:
            Refused: there is no backup.
        """
        backups = self._reign.backups()
        if not backups:
            raise Refused(NO_BACKUP, "There is no backup that could take over.")
        self._askers = {peer for peer in self.peers if any(_is_for_answers(link) for link in peer.links)}
        self._loop.call_later(ANSWER_GRACE_S, self._reign.switch_over)
        return {"epoch": self.broker.epoch, "backups": backups}

    def handle(self, peer: Peer, events: list[Event]) -> None:
        """Apply what one read of one peer asks for, and set the rest in motion."""
        if self._ending:
            return
        now_us = self._clock.now_us()
        self._translator.handle(peer, events, now_us)
        self.broker.dispatch_returned(now_us)
        self._executor.touched.add(peer)
        self._advance()

    def block(self, peer: Peer, blocked: bool) -> None:
        """A peer's socket cannot take more now, or can again."""
        if self._ending:
            return
        now_us = self._clock.now_us()
        for receiver in peer.receivers:
            if blocked or not self._executor.streams.is_busy(receiver):
                self._block(receiver, blocked, now_us)
        self._advance()

    def _block(self, receiver: Consumer | Browser, blocked: bool, now_us: int) -> None:
        if isinstance(receiver, Browser):
            self.broker.block_browser(receiver, blocked)
            return
        self.broker.block(receiver, blocked, now_us)
        if not blocked:
            self.broker.resume(receiver, now_us)

    def _unblock(self, receiver: Consumer | Browser) -> None:
        self._block(receiver, False, self._clock.now_us())

    @property
    def full(self) -> str:
        """Why producers are refused now; empty while there is room."""
        return self.upkeep.full

    def owe(self, link: Receiver, port: Coordinator | ManagementPort) -> None:
        """Credit is due to somebody who asks."""
        self._executor.owe(link, port)

    def when_durable(self, peer: Peer, then: Callable[[], None]) -> None:
        """Tell `peer` something once everything that was asked so far is durable: at once if it is."""
        if self.broker.idle:
            then()
            self.touch(peer)
        else:
            self._until_durable.append((self._gathering, peer, then))

    def reload(self) -> None:
        """Read the configuration again: settings of addresses and users hold from now on, all else after a restart.

        Raises:
            ConfigError: it cannot be used; what held goes on to hold.
        """
        config = self._read_config()
        self.addresses.replace(Addresses(config.address))
        self.config.auth = config.auth
        self.broker.settings_changed()
        self._translator.links.review_credit()
        self._advance()
        log.info("= settings of addresses and users were read again")

    def touch(self, peer: Peer) -> None:
        """Something waits to be flushed to a peer that is not the one being handled."""
        self._executor.touched.add(peer)

    # -- commits -----------------------------------------------------------------------------------------------

    def _advance(self) -> None:
        if not self.may_serve():
            return
        self._executor.perform(self.broker.take_effects())
        self._submit()
        self._executor.flush()
        if self._executor.scan_again and not self._scanning:
            self._scanning = True
            self._loop.call_soon(self._go_on)
        self._executor.scan_again = False
        if self._executor.streams.can_go_on and not self._streaming:
            self._streaming = True
            self._loop.call_soon(self._stream)
        if self._executor.paced:
            paced, self._executor.paced = self._executor.paced, []
            self._loop.call_soon(self._resume, paced)
        self._throttle()

    def _go_on(self) -> None:
        """The next slice of what takes long; between two slices everybody has a turn."""
        self._scanning = False
        if not self._ending:
            self.broker.go_on(self._clock.now_us())
            self._advance()

    def _stream(self) -> None:
        """More of the large messages that go out."""
        self._streaming = False
        if not self._ending:
            self._executor.streams.go_on()
            self._advance()

    def _resume(self, paced: list[Consumer]) -> None:
        """Consumers whose sockets took what they were given go on; the others when their sockets say so."""
        if self._ending:
            return
        now_us = self._clock.now_us()
        for consumer in paced:
            if not consumer.port.peer.paused:
                self.broker.resume(consumer, now_us)
        self._advance()

    def _throttle(self) -> None:
        """Read no more while a whole batch waits behind the one being committed: memory stays bounded."""
        full = self.broker.tick_is_full
        if full != self._throttled and not self._ending:
            self._throttled = full
            for peer in self.peers:
                peer.pause_reading(full)
            self._waiting.clear()
        if self.broker.has_larges and not full and not self._ending:
            self._throttle_uploads()

    def _throttle_uploads(self) -> None:
        """Senders of large messages wait sooner than the others, so that commits stay short."""
        uploading = self._translator.uploads.peers if self.broker.uploads_are_full else set()
        for peer in self._waiting - uploading:
            peer.pause_reading(False)
        for peer in uploading - self._waiting:
            peer.pause_reading(True)
        self._waiting = uploading

    def _submit(self) -> None:
        while not self._stopped and (batch := self.broker.take_batch(self._clock.now_us())) is not None:
            self._gathering += 1
            if batch.facts or batch.chunks or batch.ended:
                self._writer.submit(batch)
                return
            self._committed()
            self._executor.perform(self.broker.take_effects())
        if self.broker.idle:
            self._idle.set()

    def _committed(self) -> None:
        """The batch that was out is durable: who waited for it is told."""
        self.broker.committed(self._clock.now_us())
        if self._until_durable:
            through = self._gathering if self.broker.idle else self._gathering - 1
            due = [waiting for waiting in self._until_durable if waiting[0] <= through]
            self._until_durable = [waiting for waiting in self._until_durable if waiting[0] > through]
            for _, peer, then in due:
                then()
                self.touch(peer)

    def _written(self, batch: Batch, position: int | None, error: StoreError | None) -> None:
        self._loop.call_soon_threadsafe(self._done, error)

    def _done(self, error: StoreError | None) -> None:
        if self._stopped:
            return
        if error is None:
            self._committed()
        elif isinstance(error, StoreFullError):
            self.upkeep.full = str(error)
            log.error("! producers are refused: %s", error)
            try:
                self.broker.failed(str(error))
            except StoreError as fatal:
                self._fatal(fatal)
                return
            # What else the batch held is tried again with the next one.
            self._until_durable = [(self._gathering, peer, then) for _, peer, then in self._until_durable]
        else:
            self._fatal(error)
            return
        self._advance()

    def _fatal(self, error: StoreError) -> None:
        self.abort()
        self._reign.fail(error)

    # -- time --------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        if not self.may_serve():
            return
        self._ticker = self._loop.call_later(TICK_S, self._tick)
        self._ticks += 1
        now_us = self._clock.now_us()
        self.broker.tick(now_us)
        self.rates.tick(now_us)
        self._translator.links.temporaries.sweep()
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
            self.upkeep.run(prune=self.broker.has_larges or self._ticks % PRUNE_EVERY_TICKS == 0)
            if self.broker.has_larges and not self._executor.streams.are_running:
                self.broker.review_larges()
        self._advance()

    # -- the end -----------------------------------------------------------------------------------------------

    async def finish(self, why: str, timeout_s: float = 5.0) -> None:
        """Take nothing more, commit and confirm what was asked before, and record the end of the epoch.

        Peers stay connected and are told nothing until `dismiss`.
        """
        self._stop_timers()
        self._ending = True
        for peer in self.peers:
            peer.pause_reading(True)
        if not self._stopped:
            self.broker.end(why)
            self._idle.clear()
            self._advance()
            try:
                await asyncio.wait_for(self._idle.wait(), timeout_s)
            except TimeoutError:
                log.warning("! commits were still running after %s s", timeout_s)
        self._stopped = True
        self._writer.close()

    async def dismiss(self, why: str, timeout_s: float = 1.0) -> None:
        """Tell the peers to go elsewhere, and wait until they have (AMQP.md A11).

        Args:
            timeout_s: those that have not gone after this time are dropped.
        """
        self._alone.clear()
        for peer in list(self.peers):
            if not peer.ended:
                peer.amqp.close("amqp:connection:forced", _FAREWELLS[why], {names.FAREWELL: why})
                peer.part()
        try:
            if self.peers:
                await asyncio.wait_for(self._alone.wait(), timeout_s)
        except TimeoutError:
            for peer in list(self.peers):
                peer.drop()

    def abort(self) -> None:
        """Stop at once: nothing more is committed, nothing more becomes visible."""
        if self._stopped:
            return
        self._ending = self._stopped = True
        self._idle.set()
        self._stop_timers()
        for peer in list(self.peers):
            if not peer.ended:
                peer.ended = True
                peer.drop()
        self._writer.close()

    def _stop_timers(self) -> None:
        self._ticker.cancel()
        self.lingering.stop()
        self.heartbeats.stop()


def _is_for_answers(link: Link) -> bool:
    return isinstance(link.context, ManagementReplies)

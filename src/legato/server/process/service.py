"""The service of an active broker: listener, peers, broker, writer and timers of one epoch."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

from legato import limits
from legato.amqp.engine.events import Event
from legato.amqp.engine.link import Link
from legato.bulk.stage_files import sweep
from legato.clock import Clock
from legato.core.broker import Broker
from legato.core.consumers import Browser, Consumer
from legato.core.facts import ActionAudited
from legato.core.records import Meta
from legato.errors import FencedError, StoreError
from legato.ha.heartbeat_connection import BACKUP_USER
from legato.ha.lease import Lease, Standing
from legato.ids import group_digest
from legato.replication.replica_status import ReplicaStatus
from legato.server.access.access import Access
from legato.server.access.roles import read_roles
from legato.server.config.addresses import Addresses
from legato.server.config.configuration import Config, check_intervals, memory_mark
from legato.server.config.group_maps import last_group_map
from legato.server.config.restart import given, take, tell_restart
from legato.server.connections.handshake import Handshake
from legato.server.connections.reconnect_pacing import ReconnectPacing
from legato.server.connections.small_reads import SmallReads
from legato.server.connections.turns import Turns
from legato.server.identity.audit_trail import AuditTrail
from legato.server.identity.authentication import Authentication
from legato.server.identity.certificate_expiry import expires_s, expiry_warnings
from legato.server.identity.exposure import has_logins
from legato.server.identity.users import Users
from legato.server.limits.accounts import Accounts
from legato.server.limits.memory_mark import HeldMemory, MemoryMark
from legato.server.limits.names import Names
from legato.server.links.attachment import Links
from legato.server.links.damaged_queues import DamagedQueues, ReadableArchive
from legato.server.links.expiry_timers import ExpiryTimers
from legato.server.links.heartbeats import Heartbeats
from legato.server.links.link_roles import ManagementReplies
from legato.server.links.membership import Membership
from legato.server.links.producer_credit import ProducerCredit
from legato.server.links.refused import NO_BACKUP, Refused
from legato.server.links.timeouts import TimeoutReview
from legato.server.management.assignments import Pipelines
from legato.server.management.bulk_process import BulkProcess
from legato.server.management.management import Management
from legato.server.management.operations import Operations
from legato.server.management.rates import RateMeter
from legato.server.management.staged_batches import Stages
from legato.server.management.status import snapshot
from legato.server.management.takeover_report import STARTED, Failover, Takeover, describe
from legato.server.management.views import Inspector
from legato.server.messages.commits import Commits
from legato.server.messages.executor import Executor
from legato.server.messages.message_bodies import MessageBodies
from legato.server.messages.transfers import Transfers
from legato.server.messages.translator import Translator
from legato.server.monitoring.activity import Activity
from legato.server.monitoring.readings import PrimaryReadings, read_in_steps
from legato.server.process.fairness import Fairness
from legato.server.process.memory_watch import MemoryWatch
from legato.server.process.shutdown import Farewell
from legato.server.process.sliced_work import Spreading
from legato.server.process.timers import Ticking
from legato.server.process.usable import read_again
from legato.server.shell import Peer
from legato.server.storage.invariant_check import InvariantCheck
from legato.server.storage.maintenance import Upkeep
from legato.store.base import Committer, Store

log = logging.getLogger("legato.service")

READING_SLICE_MS = 2
"""Of a turn of the loop, what may go to a scrape."""
ANSWER_GRACE_S = 1.0
"""So long may one who asked for a switchover take to go with the answer: a client forgets what it has not handed
out when its connection ends."""


ANOTHER_CLAIMED = "another broker has claimed the replicated log, and serves or is about to"
STORE_FAILED = "this broker can neither store nor append any more; its log says why"
"""Last words to clients."""
UNSURE_POLL_S = 0.02
"""How often is looked whether answers may leave that were held back."""
EXPULSION_GRACE_S = 0.5
"""So long stays who was found to be no user any more, so that the answer to a reload goes out."""


class EpochOwner(Protocol):
    """The owner of an epoch: holds the store's lock, and ends the epoch."""

    def switch_over(self) -> None:
        """End it cleanly, so that a backup takes over."""

    def lose(self, standing: Standing) -> None:
        """The service has stopped at once because of what it was told of its lease."""

    def fail(self, error: StoreError) -> None:
        """The store cannot be used any more, or by another only."""

    def backups(self) -> list[str]:
        """Addresses of the processes that would take over."""

    def use_tls(self, context: ssl.SSLContext) -> None:
        """Connections that come from now on speak TLS with these settings."""

    def note_connections(self, connections: int) -> None:
        """Let a successor know with how many connections to count."""


class Replicated(NamedTuple):
    """What commits to a replicated log, too."""

    committer: Committer
    give_up: Callable[[], None]
    """Ends the wait for the log."""
    status: Callable[[], ReplicaStatus]
    record_bytes_max: int
    """The size of the largest commit."""


class Service:
    """The broker of one epoch, its writer, its peers; before it answers anybody it asks its lease.

    Attributes:
        ending: nothing is taken from peers any more; what was asked before is still committed and confirmed.
        stopped: nothing is stored or becomes visible any more.
    """

    def __init__(
        self,
        config: Config,
        store: Store,
        meta: Meta,
        clock: Clock,
        lease: Lease,
        owner: EpochOwner,
        read_config: Callable[[], Config],
        expected_connections: int = 0,
        users: Users | None = None,
        replicated: Replicated | None = None,
    ) -> None:
        self.config = config
        self._started = given(config)
        self.clock = clock
        self.addresses = Addresses(config.address)
        self.damaged = DamagedQueues(store)
        self.broker = Broker(
            ReadableArchive(store, self.damaged),
            meta,
            bodies=MessageBodies(),
            settings=self.addresses.settings,
            chance=Random().random,
            turn_ms=clock.monotonic_ms,
            detailed=config.ledger.detail == "all" and config.store.log_facts,
            group=group_digest(config.groups.name),
            reconnect_timeout_s=config.server.reconnect_timeout_s,
        )
        self.peers: set[Peer] = set()
        self.internal_errors = 0
        """Connections that were cut off because of an error that nobody expected."""
        self.ending = False
        self.stopped = False
        self.started_us = clock.now_us()
        self.takeover = Takeover(STARTED, 0.0)
        self.certificate_expires_s = expires_s(config.tls.certificate) if config.tls.certificate else None
        self.handshake = Handshake(config, self.broker.epoch)
        self.authentication = Authentication(
            config, users if users is not None else Users.load(config), self.handshake.backup_token, clock
        )
        self.audit = AuditTrail(
            Path(config.audit.file) if config.audit.file else None,
            clock.now_us,
            self.broker.epoch,
            self._record_action if config.audit.in_ledger and config.store.log_facts else None,
            detailed=config.ledger.detail == "all",
        )
        self.audit.say("epoch", None, "allowed", object=config.server.listen)
        self.access = Access(read_roles(config.role), self.authentication.users)
        self.accounts = Accounts(config.limits, lambda: clock.monotonic_ms() / 1000, log.warning)
        self.membership = Membership(
            config.groups.name,
            last_group_map(config),
            secure=bool(config.tls.certificate),
            dead_letter_queues=self.addresses.dead_letter_queues,
        )
        self._names = Names(config.limits.name_bytes, printable=config.limits.names_printable)
        self._read_config = read_config
        self._lease = lease
        self._held_back_since_s: float | None = None
        """Since when answers wait for the lease."""
        self._owner = owner
        self._replicated = replicated
        self._loop = loop = asyncio.get_running_loop()
        self.turns = Turns(loop.call_soon, clock.monotonic_ms)
        self.small_reads = SmallReads(loop.call_later)
        self.expiry_timers = ExpiryTimers(loop, config.server.reconnect_timeout_s, self.advance)
        self.heartbeats = Heartbeats(
            loop,
            config.ha.heartbeat_interval_s,
            config.ha.activation_interval_s,
            self.broker.epoch,
            self.touch,
            self.advance,
        )
        self.credit = ProducerCredit(self.broker, self.touch)
        self.rates = RateMeter(self.broker.directory.queues)
        self.activity = Activity() if config.http.listen else None
        self.inspector = Inspector(
            self.broker,
            store,
            self.rates,
            clock.now_us,
            lambda *most: snapshot(self, store, self.inspector, *most),
            self.damaged,
        )
        self.bulk = BulkProcess(config, loop, self.advance, self._has_users)
        self.upkeep = Upkeep(store, config.store, clock)
        self.upkeep.sweep = partial(sweep, config.store_directory, limits.STAGE_RETENTION_S)
        self._executor = Executor(self.broker, store, self.credit, self._unblock)
        self._links = links = Links(
            self,
            self.broker,
            self.credit,
            self.expiry_timers,
            self.heartbeats,
            config.server.max_message_bytes,
            self._names,
            self.membership,
            self.damaged,
        )
        self._executor.cut = links.closer.cut
        self._executor.whose = self.membership.whose
        self._spreading = spreading = Spreading(loop, clock, self._may_work, self.advance)
        operations = self._make_operations(links, spreading)
        management = Management(self, self.broker, links.nodes, operations, spreading.add)
        transfers = Transfers(self, self.broker, links.nodes, links.closer, management, self.credit, self._executor.owe)
        self._translator = Translator(
            self,
            self.broker,
            links,
            management,
            transfers,
            lambda: self.return_window_ms,
            self.heartbeats,
            self.expiry_timers,
            self.inspector.broker,
            self._names,
            self.membership.redirection,
        )
        invariants = (
            InvariantCheck(self.broker, store, clock, lambda error: loop.call_soon(self.fatal, error))
            if config.server.check_invariants
            else None
        )
        observe = self.activity.observe if self.activity is not None else None
        self._commits = Commits(
            self,
            self.broker,
            self._executor,
            replicated.committer if replicated is not None else store,
            loop,
            self.upkeep,
            self.small_reads,
            self.fatal,
            invariants,
            observe,
            replicated.give_up if replicated is not None else lambda: None,
        )
        self._store = store
        self._reading = Spreading(loop, clock, self._may_work, lambda: None, slice_ms=READING_SLICE_MS)
        self._fairness = Fairness(self, self.broker, self._executor, transfers.uploads, loop)
        self._farewell = Farewell(
            self,
            self.broker,
            self._commits,
            lambda: self.return_window_ms,
            self.stop_timers,
            lambda: self._held_back_since_s is not None,
        )
        self._reconnect_pacing = ReconnectPacing(
            config.server.returns_per_s,
            config.server.reconnect_timeout_s,
            expected_connections,
            clock,
            owner.note_connections,
        )
        self._askers: set[Peer] = set()
        """Who asked for a switchover and is still here."""
        self.timeouts = TimeoutReview(
            self.broker,
            self.peers,
            lambda peer: peer.holdings.timeouts,
            self.addresses.transaction_timeout_s,
            config.limits.slow_consumer_s,
            spreading.begin,
            spreading.add,
            clock.now_us,
            lambda: clock.monotonic_ms() * 1000,
        )
        mark = MemoryMark[Peer](memory_mark(config.limits), config.limits.memory_relief_s, log.warning)
        self.memory = MemoryWatch(self, self.accounts, mark, clock, self.expel)
        self._ticking = Ticking(
            self,
            self.broker,
            self._executor,
            links,
            self.rates,
            self.upkeep,
            self.memory,
            self.timeouts,
            spreading.begin,
            loop,
        )

    def _make_operations(self, links: Links, spreading: Spreading) -> Operations:
        broker, nodes = self.broker, links.nodes
        return Operations(
            broker,
            nodes,
            links.closer,
            self.inspector,
            self.reload,
            self.switch_over,
            self.update,
            Pipelines(broker, nodes, self.bulk, self._names),
            Stages(
                broker,
                nodes,
                self.bulk,
                self.config.store_directory,
                self.advance,
                self._names,
                self.fatal,
                None if self._replicated is None else self._replicated.record_bytes_max,
            ),
            self.bulk,
            spreading.add,
            self.peers,
            self.damaged,
            self.membership.whereabouts,
        )

    # -- for peers ---------------------------------------------------------------------------------------------

    def forget(self, peer: Peer) -> None:
        """Its socket is closed."""
        self.peers.discard(peer)
        self._fairness.forget(peer)
        if not self.peers:
            self._farewell.is_alone()
        if peer in self._askers:
            self._askers.discard(peer)
            if not self._askers:
                self._owner.switch_over()

    def may_serve(self, *, look: bool = False) -> bool:
        """See `Shell.may_serve`."""
        if self.stopped:
            return False
        standing = self._lease.standing(self.clock.monotonic_ms(), look=look)
        if standing is Standing.GOOD or standing is Standing.UNSURE:
            return True
        self._farewell.abort(*self._last_words(standing))
        self._owner.lose(standing)
        return False

    def _last_words(self, standing: Standing) -> tuple[str, str]:
        """What clients are told of brokers with a replicated log; without one they see that the connection is lost."""
        if self._replicated is None:
            return "", ""
        if standing is Standing.LOST:
            return "lost", ANOTHER_CLAIMED
        interval_s = self.config.ha.activation_interval_s
        return "lapsed", (
            f"the replicated log has acknowledged nothing for {interval_s:g} s: it has no quorum, or this broker "
            "cannot reach it; what was not confirmed may be stored or not"
        )

    def may_answer(self, peer: Peer) -> bool:
        """Whether what there is for a peer may leave: not while another broker may be the primary.

        It leaves when that is known not to be so. Backups hear meanwhile that this process lives; where nobody logs in
        they are known by it that they listen to heartbeats and do nothing else.
        """
        if self._lease.is_sure or self.stopped or peer.user == BACKUP_USER or peer.only_listens:
            return True
        if self._held_back_since_s is None:
            self._held_back_since_s = self._loop.time()
            log.warning("! the replicated log does not answer: nothing is confirmed until it does")
            self._loop.call_later(UNSURE_POLL_S, self._look_again)
        return False

    def _look_again(self) -> None:
        """Whether answers that were held back may leave now."""
        if not self.may_serve():
            return
        if not self._lease.is_sure:
            self._loop.call_later(UNSURE_POLL_S, self._look_again)
            return
        began_s, self._held_back_since_s = self._held_back_since_s, None
        log.info("= the replicated log answers again, after %.1f s", self._loop.time() - (began_s or 0.0))
        for peer in list(self.peers):
            if not peer.ended:
                peer.flush()
                self._fairness.review_windows(peer, self.broker.now_us)
        self.advance()

    def _may_work(self) -> bool:
        return not self.ending and self.may_serve()

    def read(self, done: Callable[[PrimaryReadings], None]) -> None:
        """Take readings for a scrape, a little in each turn of the loop; `done` is never called if the epoch ends."""
        if self.activity is not None:
            self._reading.add(read_in_steps(self, self._store, self.config.http, done))

    @property
    def container_id(self) -> str:
        """The container id in its opens."""
        return self.handshake.container_id

    @property
    def return_window_ms(self) -> int:
        """Over which time its clients are to spread their return, should they lose it now."""
        return self._reconnect_pacing.window_ms(len(self.peers))

    def replication(self) -> ReplicaStatus | None:
        """The replicated log, if there is one."""
        return None if self._replicated is None else self._replicated.status()

    def failover(self) -> Failover:
        """The last takeover, and what to expect of the next."""
        backups = self._owner.backups()
        lease_ms = 0.0 if self._replicated is None else self.config.replication.lease_s * 1000
        window_ms = self.return_window_ms
        return describe(self.takeover, self.config.ha, backups, return_window_ms=window_ms, lease_ms=lease_ms)

    def switch_over(self) -> dict[str, Any]:
        """Have a backup take over as soon as those who may have asked for it are gone with their answer.

        Raises:
            Refused: there is no backup.
        """
        backups = self._owner.backups()
        if not backups:
            raise Refused(NO_BACKUP, "There is no backup that could take over.")
        self._askers = {peer for peer in self.peers if any(_is_for_answers(link) for link in peer.links)}
        self._loop.call_later(ANSWER_GRACE_S, self._owner.switch_over)
        return {"epoch": self.broker.epoch, "backups": backups}

    def handle(self, peer: Peer, events: list[Event]) -> list[Event]:
        """Apply what one read of one peer asks for, and set the rest in motion.

        Returns:
            What took too long to be done at once: the peer hands it in again when others have had a turn.
        """
        # One that was stopped for a while may not be the primary any more: what it reads is another's by now.
        if self.ending or not self.may_serve():
            return []
        # What these events begin (a loss is waited out, a delivery put off) lasts from now, not from the last tick.
        now_us = self.broker.now_us = self.clock.now_us()
        rest = self._translator.handle(peer, events, now_us)
        self.broker.dispatcher.dispatch_returned(now_us)
        self._executor.touched.add(peer)
        self.advance()
        if self._fairness.review_windows(peer, now_us):
            self.advance()
        return rest

    def block(self, peer: Peer, blocked: bool) -> None:
        """A peer's socket cannot take more now, or can again."""
        if self.ending or not self.may_serve():
            return
        now_us = self.clock.now_us()
        if not blocked:
            self._translator.resume(peer, now_us)
        for receiver in peer.receivers:
            if blocked or not self._executor.streams.is_busy(receiver):
                self._block(receiver, blocked, now_us)
        self.advance()

    def _block(self, receiver: Consumer | Browser, blocked: bool, now_us: int) -> None:
        if isinstance(receiver, Consumer):
            self.broker.receivers.block(receiver, blocked, now_us)
        elif blocked:
            self.broker.browsers.block(receiver, True)
        if not blocked:
            self._fairness.resume(receiver, now_us)

    def _unblock(self, receiver: Consumer | Browser) -> None:
        self._block(receiver, False, self.clock.now_us())

    @property
    def full(self) -> str:
        """Why producers are refused now; empty while there is room."""
        return self.upkeep.full

    def when_durable(self, peer: Peer, then: Callable[[], None]) -> None:
        """Tell `peer` something once everything that was asked so far is durable: at once if it is."""
        self._commits.when_durable(peer, then)

    def when_settled(self, peer: Peer, then: Callable[[StoreError | None], None]) -> None:
        """Tell `peer` something once other processes see everything that was asked so far, or why they do not."""
        self._commits.when_settled(peer, then)

    def reload(self) -> list[str]:
        """Read the configuration again: settings of addresses and users hold from now on, all else after a restart.

        Returns:
            The settings that were changed and need one.

        Raises:
            ConfigError: it cannot be used; what held goes on to hold.
        """
        read, config, users, tls = read_again(self.config, self._read_config, self.authentication.users)
        permissions = read_roles(config.role)
        self.renew_map(config)
        take(self.config, config)
        self.addresses.replace(Addresses(config.address))
        if tls is not None:
            self._owner.use_tls(tls)
            self.certificate_expires_s = expires_s(config.tls.certificate)
            for said in expiry_warnings(config.tls.certificate):
                log.warning("! %s", said)
        self.authentication.replace(self.config, users)
        self.accounts.replace(config.limits)
        self.timeouts.slow_consumer_s = config.limits.slow_consumer_s
        self.memory.mark.mark_bytes = memory_mark(config.limits)
        self.memory.mark.relief_s = config.limits.memory_relief_s
        self._names.replace(config.limits.name_bytes, printable=config.limits.names_printable)
        self.access.replace(permissions, users)
        for peer in self.peers:
            if peer.user is not None:
                peer.admit()
        self._links.review_rights()
        gone = [peer for peer in self.peers if not self.authentication.still_admits(peer)]
        if gone:
            # One of them may have asked for this, and is to hear the answer.
            self._loop.call_later(EXPULSION_GRACE_S, self._expel, gone)
        if self._has_users() or tls is not None:
            self.bulk.renew()
        self._spreading.begin(chain(self.broker.administration.apply_settings(), self._links.review_credit()))
        self.advance()
        log.info("= settings of addresses and users were read again")
        return tell_restart(self._started, read)

    def renew_map(self, config: Config) -> None:
        """Go by the map of groups as it is now. Links stay where they are; the next attach goes where it says.

        Raises:
            ConfigError: it is an older one, or another one under the same revision.
        """
        group_map = last_group_map(config)
        if group_map is None:
            return
        if self.membership.replace(group_map):
            log.info("= the map of groups has revision %d: %d groups", group_map.revision, len(group_map.group))
        self.config.__dict__.update(group_map=group_map)

    def expel(self, peer: Peer, why: str, condition: str = "amqp:connection:forced") -> None:
        """Close its connection, and say why; its client may log in again."""
        self._translator.expel(peer, why, condition)
        self.advance()

    def _record_action(self, action: ActionAudited) -> None:
        """Soon: a login is looked at outside of a peer's turn."""
        if not self.ending:
            self.broker.administration.record_action(action)
            self._loop.call_soon(self._advance_unless_over)

    def _advance_unless_over(self) -> None:
        if self._may_work():
            self.advance()

    def _has_users(self) -> bool:
        return has_logins(self.config, self.authentication.users)

    def held_memory(self) -> HeldMemory:
        """What connections hold in memory."""
        return self.memory.describe()

    def memory_grew(self) -> None:
        """A connection may hold more than before."""
        self.memory.grown()

    def transaction_bytes(self, peer: Peer) -> int:
        """What its open transactions hold in memory."""
        return self.broker.transactions.held_bytes(peer)

    def _expel(self, gone: list[Peer]) -> None:
        """Close the connections of users who may not be here any more."""
        if self.ending or not self.may_serve():
            return
        for peer in gone:
            if not peer.ended:
                self._translator.expel(peer, "its user may not be here any more")
        self.advance()

    def update(self, given: dict[str, float]) -> dict[str, float]:
        """Change how often backups hear of us, and after how long without that they act (CONTRACT B20).

        The backups are told, so these intervals hold over takeovers; nothing is written anywhere, so they end when no
        broker of the store runs any more.

        Args:
            given: what is to change of `heartbeat_interval_s` and `activation_interval_s`.

        Returns:
            Both, as they are now.

        Raises:
            ConfigError: they do not fit together; nothing has changed.
        """
        ha = self.config.ha
        heartbeat_s = float(given.get("heartbeat_interval_s", ha.heartbeat_interval_s))
        activation_s = float(given.get("activation_interval_s", ha.activation_interval_s))
        check_intervals(
            heartbeat_s, activation_s, None if self._replicated is None else self.config.replication.lease_s
        )
        if given:
            ha.heartbeat_interval_s, ha.activation_interval_s = heartbeat_s, activation_s
            if ha.self_fencing or self._replicated is not None:
                self._lease.set_term(round(activation_s * 1000))
            self.heartbeats.set_intervals(heartbeat_s, activation_s)
            log.info("= a heartbeat every %g s, activation after %g s", heartbeat_s, activation_s)
        return {"heartbeat_interval_s": heartbeat_s, "activation_interval_s": activation_s}

    def touch(self, peer: Peer) -> None:
        """Something waits to be flushed to a peer that is not the one being handled."""
        self._executor.touched.add(peer)

    def advance(self) -> None:
        """Perform what the broker has to say, have stored what it wants stored, write to whom it concerns."""
        if not self.may_serve():
            return
        if self.damaged.fresh:
            self._links.review_damaged()
        self._executor.perform(self.broker.take_effects())
        self._commits.submit()
        self._executor.flush()
        self._fairness.plan()

    # -- the end -----------------------------------------------------------------------------------------------

    async def finish(self, why: str) -> None:
        """See `Farewell.finish`."""
        await self._farewell.finish(why)

    async def dismiss(self, why: str) -> None:
        """See `Farewell.dismiss`."""
        await self._farewell.dismiss(why)

    def abort(self) -> None:
        """See `Farewell.abort`."""
        self._farewell.abort()

    def fatal(self, error: StoreError) -> None:
        """The store cannot be used any more."""
        if self._replicated is None:
            self.abort()
        else:
            fenced = isinstance(error, FencedError)
            self._farewell.abort("lost", ANOTHER_CLAIMED if fenced else STORE_FAILED)
        self._owner.fail(error)

    def stop_timers(self) -> None:
        """Nothing happens any more because time passes."""
        self._ticking.stop()
        self.expiry_timers.stop()
        self.heartbeats.stop()
        self.bulk.stop()
        self.authentication.stop()
        self.audit.stop()


def _is_for_answers(link: Link) -> bool:
    return isinstance(link.context, ManagementReplies)

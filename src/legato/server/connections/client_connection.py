"""A client's connection: bytes through SASL and the engine, back-pressure both ways, time-outs."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, cast

from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import AcceptedRun, Closed, Event, TransferRun
from legato.amqp.engine.mechanisms import Anonymous, Failure, Success
from legato.amqp.engine.sasl import SaslServer
from legato.core.consumers import Browser, Consumer
from legato.ha.heartbeat_connection import BACKUP_USER
from legato.quoting import escaped
from legato.server import shell
from legato.server.access.access import Access
from legato.server.client_description import ClientDescription
from legato.server.config.configuration import Config
from legato.server.connections.handshake import Handshake
from legato.server.connections.small_reads import SmallReads
from legato.server.connections.turns import Turns, Usage
from legato.server.identity.authentication import Authentication
from legato.server.identity.mechanisms import BY_PASSWORD
from legato.server.identity.origin import Origin
from legato.server.identity.users import Users
from legato.server.limits.accounts import Accounts, Holdings, LimitExceeded

log = logging.getLogger("legato.peer")

WRITE_HIGH_BYTES = 1 << 20
PART_BYTES_MIN = 2048
"""Parts of so many bytes, on average, are written without being joined; of smaller ones a copy costs less."""
RARE_EVENTS_MAX = 64
"""Attaches and the like that are looked at in one go."""
MEASURED_EVERY_BYTES = 16 << 10
"""After so much that a peer sent it is counted what it holds."""
LINGER_S = 5.0
"""So long a socket that is closed may take for what was written; who does not read it would keep it in memory."""
_SHOWN_MAX = 200


class Host(shell.Shell, Protocol):
    """The parts of the service that a connection uses."""

    config: Config
    handshake: Handshake
    authentication: Authentication
    access: Access
    accounts: Accounts
    turns: Turns
    small_reads: SmallReads
    internal_errors: int

    def block(self, peer: shell.Peer, blocked: bool) -> None:
        """A peer's socket cannot take more now, or can again."""

    def may_answer(self, peer: shell.Peer) -> bool:
        """Whether what there is for a peer may leave; if not it is flushed later."""

    def forget(self, peer: shell.Peer) -> None:
        """Its socket is closed."""

    def expel(self, peer: shell.Peer, why: str, condition: str = "amqp:connection:forced") -> None:
        """Close its connection, and say why; its client may log in again."""

    def memory_grew(self) -> None:
        """A connection may hold more than before."""

    def transaction_bytes(self, peer: shell.Peer) -> int:
        """What its open transactions hold in memory."""


class Peer(asyncio.Protocol):
    """A connection from accept to its end. Everything it does to the broker goes through the service.

    Args:
        holdings: what it has, if it was counted as it was accepted.
    """

    def __init__(self, service: Host, holdings: Holdings | None = None) -> None:
        self._service = service
        self.container = ""
        self.name = "?"
        self.product = ""
        """What its open says that the client is."""
        self.user: str | None = None
        self.realm = ""
        self.rights: Any = None
        self.proof = BY_PASSWORD
        self._expiry: asyncio.TimerHandle | None = None
        self.client = ClientDescription()
        self.since_us = service.clock.now_us()
        self.receivers: set[Consumer | Browser] = set()
        self.links: set[Any] = set()
        self.only_listens: bool | None = None
        self.opened = False
        self._leaves = False
        """Whether nothing more comes from it."""
        self.ended = False
        self._greeted = False
        """Whether our Open was written."""
        self._withheld = False
        """Whether what there is for it is never to be written."""
        self.paused = False
        self.due_ms = 0
        """When its heartbeats and its silence are to be looked at."""
        self._transport: asyncio.Transport | None = None
        self._is_plain = False
        """Whether its transport writes to a socket what it is given, and makes no records of TLS of it."""
        self.origin = Origin()
        self._counted = holdings is not None
        self.holdings = holdings or Holdings()
        self._users: Users | None = None
        """Those of whom it is to be one."""
        self._sasl: SaslServer | None = None
        self.amqp = Connection(server=True, settings=service.handshake.settings(), rare_events_max=RARE_EVENTS_MAX)
        self._events: list[Event] = []
        """What was received and waits for its turn."""
        self._received: deque[Callable[[], list[Event]]] = deque()
        """What came behind that."""
        self._last: Event | None = None
        """What ends it, when nothing else is handled any more."""
        self._waits = False
        """Whether it is among those that wait for a turn."""
        self._busy = False
        """Whether anything waits for its turn: then nothing is read."""
        self._usage = Usage(service.clock.monotonic_ms())
        self._held = False
        """Whether the broker wants nothing to be read."""
        self._held_back = False
        """Whether nothing is read because of what it holds in memory."""
        self._has_unread = False
        """Whether nothing is read because it does not read the answers to what it asked."""
        self._linger: asyncio.TimerHandle | None = None
        """Until when its closed socket may take what was written."""
        self._slowed: asyncio.TimerHandle | None = None
        """Until when nothing is read because it sent more than it may."""
        self._unmeasured_bytes = 0
        """What came since it was counted last what it holds."""
        self.unread_bytes = 0
        self.slow_consumers = 0
        self._waits_for_login = False
        """Whether its login is looked at, or its answer put off."""
        self._handshake: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=WRITE_HIGH_BYTES)
        self._is_plain = transport.get_extra_info("ssl_object") is None
        peername = transport.get_extra_info("peername")
        self.name = f"{peername[0]}:{peername[1]}" if peername else "local"
        self.origin = Origin.of(transport)
        try:
            if not self._counted:
                self.holdings = self._service.accounts.arrive(self.origin.address)
        except LimitExceeded:
            self.ended = True
            transport.abort()
            return
        self._sasl = self._service.authentication.new_sasl(self.origin)
        self._users = self._service.authentication.users
        self._begin_handshake()
        self._service.peers.add(self)
        log.debug("+ %s connected", self.name)

    def _too_slow(self) -> None:
        if self._waits_for_login or self._busy:
            # It waits for us.
            self._begin_handshake()
        elif not self.opened:
            log.warning("- %s did not open in time", self.name)
            self.drop()

    def _begin_handshake(self) -> None:
        loop = asyncio.get_running_loop()
        self._handshake = loop.call_later(self._service.config.server.handshake_timeout_s, self._too_slow)

    def data_received(self, data: bytes) -> None:
        if self.ended or not self._service.may_serve():
            return
        self._unmeasured_bytes += len(data)
        if self.opened and not self._busy:
            data = self._service.small_reads.due(self, data)
            if not data:
                return
        self._take(lambda: self._take_in(data))

    def take(self, data: bytes) -> None:
        """Handle a small read that has waited for a commit."""
        if not self.ended and self._service.may_serve():
            self._take(lambda: self._take_in(data))

    def hear_kept(self) -> None:
        """See `shell.Peer`."""
        if kept := self._service.small_reads.give_up(self):
            self.take(kept)

    def _note_usage(self, began_ms: int) -> int:
        """It was served; returns for how long."""
        now_ms = self._service.clock.monotonic_ms()
        if spent_ms := now_ms - began_ms:
            self._usage.add(spent_ms, now_ms)
        return spent_ms

    def _wait_for_turn(self) -> None:
        if not self._waits:
            self._waits = True
            is_heavy = self._is_heavy(self._service.clock.monotonic_ms())
            self._service.turns.add(self, is_heavy=is_heavy)
        if not self._busy:
            self._busy = True
            self._read_or_not()

    def _is_heavy(self, now_ms: int) -> bool:
        """Whether others go first. Thousands may come or go at once: those who work do not wait for them."""
        return not self.opened or self._leaves or self._usage.is_heavy(now_ms)

    def _take_in(self, data: bytes) -> list[Event]:
        """What it sent, as events; who sends more than it may is not read from for a while."""
        if self._sasl is not None:
            self._sasl.receive_data(data)
            data = self._negotiate(self._sasl)
            if not data:
                return []
        events = self.amqp.receive_data(data)
        wait_s = self.holdings.spend(_messages_of(events))
        if wait_s > 0 and self._slowed is None:
            self._slowed = asyncio.get_running_loop().call_later(wait_s, self._speed_up)
            self._read_or_not()
        return events

    def _speed_up(self) -> None:
        self._slowed = None
        wait_s = self.holdings.spend(0)
        if wait_s > 0 and not self.ended:
            # Others of its user were faster.
            self._slowed = asyncio.get_running_loop().call_later(wait_s, self._speed_up)
        self._read_or_not()

    def measure(self) -> None:
        """Count what it holds in memory; who holds too much is cut off."""
        self._unmeasured_bytes = 0
        transport = self._transport
        if transport is None:
            return
        if self.ended:
            self._measure_unread(transport)
            return
        held_bytes = self.amqp.held_bytes + self.unread_bytes + transport.get_write_buffer_size()
        held_bytes += self._service.transaction_bytes(self)
        try:
            self.holdings.hold(held_bytes, self.amqp.engine_bytes)
        except LimitExceeded as exceeded:
            self._service.expel(self, str(exceeded), exceeded.condition)
        else:
            self._service.memory_grew()

    def _measure_unread(self, transport: asyncio.Transport) -> None:
        """Of a connection that is over there is what it has not read."""
        try:
            self.holdings.hold(transport.get_write_buffer_size())
        except LimitExceeded:
            self.drop()

    def begin_holdings(self) -> None:
        """See `shell.Peer`."""
        if self.user == BACKUP_USER:
            self.holdings.exempt()
            return
        user = "" if self.user in (None, Anonymous.USER) else self.user or ""
        self.holdings.begin(user, [role.name for role in self.rights.roles] if self.rights is not None else ())

    def hold_back(self, held_back: bool) -> None:
        """See `shell.Peer`."""
        self._held_back = held_back
        self._read_or_not()

    def _handle(self, events: list[Event]) -> None:
        """Have events handled; what takes too long for one turn of the loop goes on in the next one."""
        if events or self._sasl is None:
            rest = self._service.handle(self, events)
            self._events = rest if self._last is None else [self._last]
        if self._unmeasured_bytes >= MEASURED_EVERY_BYTES:
            self.measure()
        self._review_unread()
        if not self.ended and (self._events or self._received or self.amqp.has_more):
            self._wait_for_turn()
        elif self._busy:
            self._busy = False
            self._read_or_not()

    def go_on(self) -> None:
        """Others had a turn: the next slice of what this peer sent."""
        self._waits = False
        began_ms = self._service.clock.monotonic_ms()
        if self.ended or self._service.ending or not self._service.may_serve():
            return
        try:
            if self._events:
                events = self._events
            elif self.amqp.has_more:
                events = self._take_in(b"")
            else:
                events = self._received.popleft()() if self._received else []
            self._handle(events)
            self._note_usage(began_ms)
        except Exception as error:
            self.fail(error)

    def fail(self, error: Exception) -> None:
        """See `shell.Peer`."""
        # Where another broker has claimed the store, that is why: what this one knows of it is not true any more.
        if self._service.may_serve(look=True):
            self._cut_off(error)

    def _cut_off(self, error: Exception) -> None:
        """An internal error costs the peer its connection, and nobody else anything."""
        self._service.internal_errors += 1
        log.error("! %s is cut off after an internal error: %s", self.name, _told(error))
        log.debug("what led to it:", exc_info=error)
        self._events = []
        self._received.clear()
        try:
            if not self.ended:
                self.amqp.close("amqp:internal-error", "the broker could not do what was asked for")
                rest: list[Event] = [Closed("", "", clean=False)]
                while rest and not self.ended:
                    rest = self._service.handle(self, rest)
        except Exception as second:
            log.error("! %s is not cleared away: %s", self.name, _told(second))
        self.ended = True
        self.drop(linger=True)

    def _negotiate(self, sasl: SaslServer) -> bytes:
        """Go on with the login; returns what belongs to AMQP once that is done."""
        authentication = self._service.authentication
        if sasl.refused is not None:
            log.warning("! %s refused: %s", self.name, escaped(sasl.failed or ""))
            self._service.audit.say(
                "login",
                self,
                "refused",
                mechanism=sasl.mechanism,
                object=sasl.refused.user,
                reason=sasl.failed,
            )
            self._put_off(authentication.failed(self.origin, sasl.refused), sasl)
            return b""
        if sasl.done and authentication.users is not self._users:
            sasl.done = False
            sasl.data_to_send()
            log.info("- %s has to log in again: the users were read again", self.name)
            self.drop(linger=True)
            return b""
        answer = sasl.data_to_send()
        if answer and self._transport is not None:
            self._transport.write(answer)
        if sasl.failed is not None:
            log.warning("! %s refused: %s", self.name, escaped(sasl.failed or ""))
            self.drop(linger=True)
            return b""
        if sasl.check is not None:
            self._hold_login(True)
            authentication.run(sasl.check, self._checked)
            return b""
        if not sasl.done:
            return b""
        self.user = sasl.user
        self.realm = authentication.realm_of(sasl.user or "")
        self.proof = sasl.proved or BY_PASSWORD
        self.admit()
        self._sasl = None
        self._service.audit.say("login", self, "allowed", mechanism=sasl.mechanism or "ANONYMOUS")
        authentication.succeeded(self.origin, sasl.user or "")
        return sasl.leftover

    def admit(self) -> None:
        """Give it the rights of its user, until its token expires."""
        proof = self.proof
        self.rights = self._service.access.rights_of(self.user or "", proof.groups, by_password=proof.by_password)
        if proof.expires_s and self._expiry is None:
            left_s = proof.expires_s - self._service.clock.now_us() / 1_000_000
            self._expiry = asyncio.get_running_loop().call_later(max(0.0, left_s), self._expire)

    def _expire(self) -> None:
        if not self.ended and not self._service.ending and self._service.may_serve():
            self._service.expel(self, "its token has expired")

    def _checked(self, result: Success | Failure) -> None:
        """What was looked at beside the loop is known."""
        sasl = self._sasl
        if sasl is None or self.ended or self._service.ending or not self._service.may_serve():
            return
        if self._transport is None or self._transport.is_closing():
            return
        try:
            sasl.resume(result)
            self._hold_login(False)
            data = self._negotiate(sasl)
        except Exception as error:
            self.fail(error)
            return
        if data:
            self.data_received(data)

    def _put_off(self, delay_s: float, sasl: SaslServer) -> None:
        """Answer a failed login, but not at once: guessing is to take its time."""
        self._hold_login(True)

        def answer() -> None:
            if self._transport is not None and not self._transport.is_closing():
                self._transport.write(sasl.data_to_send())
                self.drop(linger=True)

        asyncio.get_running_loop().call_later(delay_s, answer)

    def _hold_login(self, held: bool) -> None:
        """Leave what comes in the socket while a login waits."""
        self._waits_for_login = held
        self._read_or_not()

    def eof_received(self) -> bool:
        """The client sends no more; the socket stays open for what was read and waits for its turn, and for the answer
        to a Close that is not durable yet."""
        self._leaves = True
        self._end_with(self.amqp.receive_eof)
        return self._busy or self.amqp.close_unanswered

    def connection_lost(self, exc: BaseException | None) -> None:
        # Its end may wait for a turn: until then nothing is written.
        self._transport = None
        # What it attaches there counts for its user until the end below.
        self.hear_kept()
        if self._expiry is not None:
            self._expiry.cancel()
        if self._slowed is not None:
            self._slowed.cancel()
        if self._linger is not None:
            self._linger.cancel()
        self.holdings.end()
        self._leaves = True
        self._end_with(lambda: [Closed("", str(exc) if exc else "connection lost", clean=False)])
        self._service.forget(self)

    @property
    def is_cut_off(self) -> bool:
        """See `shell.Peer`."""
        return self._last is not None

    def end_with(self, last: Event) -> None:
        """See `shell.Peer`."""
        if self.ended or self._last is not None:
            return
        self._last = last
        self._events = [last]
        self._received.clear()
        self._service.small_reads.give_up(self)
        self._wait_for_turn()

    def timed_out(self, events: list[Event]) -> None:
        """Events of the engine that are due to time."""
        self._end_with(lambda: events)

    def _end_with(self, last: Callable[[], list[Event]]) -> None:
        """Nothing more comes: what did is handled first."""
        self.hear_kept()
        if not self.ended:
            self._take(last)

    def _take(self, received: Callable[[], list[Event]]) -> None:
        """Handle what came at once, or when it has its turn."""
        began_ms = self._service.clock.monotonic_ms()
        if self._busy:
            self._received.append(received)
            return
        if not self._service.turns.may_serve(is_heavy=self._is_heavy(began_ms)):
            self._received.append(received)
            self._wait_for_turn()
            return
        try:
            self._handle(received())
        except Exception as error:
            self.fail(error)
        if spent_ms := self._note_usage(began_ms):
            self._service.turns.took(spent_ms)

    def pause_writing(self) -> None:
        self.paused = True
        self._service.block(self, True)
        self._review_unread()

    def _review_unread(self) -> None:
        """Take no more questions from a peer that does not read the answers."""
        if self.paused and self.unread_bytes and not self._has_unread:
            self._has_unread = True
            self._read_or_not()

    def resume_writing(self) -> None:
        self.paused = self._has_unread = False
        self._service.block(self, False)
        self._read_or_not()

    def pause_reading(self, paused: bool) -> None:
        """Leave what the client sends in its socket, or go on."""
        self._held = paused
        self._read_or_not()

    def _read_or_not(self) -> None:
        # One that was closed while its peer waited for a turn takes no orders any more.
        if self._transport is not None and not self._transport.is_closing() and not self.ended:
            waits_long = self._held_back or self._slowed is not None
            if self._held or self._busy or self._waits_for_login or self._has_unread or waits_long:
                self._transport.pause_reading()
                if waits_long and self.opened:
                    self.amqp.expect_silence()
            else:
                self._transport.resume_reading()

    def flush(self) -> None:
        """Write what the engine has to send."""
        if self._transport is None or self._withheld or not self._service.may_answer(self):
            return
        try:
            parts = self.amqp.parts_to_send()
        except RuntimeError as error:
            # A body is not there: it is cut off, and others do not suffer.
            self._service.internal_errors += 1
            log.error("! %s is cut off after an internal error: %s", self.name, _told(error))
            self.drop()
            return
        if parts and not self._transport.is_closing():
            self._write(parts)
            self._greeted = self.opened
        if self.ended:
            self._close_socket()

    def _write(self, parts: list[bytes | memoryview]) -> None:
        transport = self._transport
        assert transport is not None
        if len(parts) == 1:
            transport.write(parts[0])
        elif self._is_plain and sum(map(len, parts)) >= PART_BYTES_MIN * len(parts):
            transport.writelines(parts)
        else:
            transport.write(b"".join(parts))

    def established(self) -> None:
        """The peer's Open arrived and was answered."""
        self.opened = True
        if self._handshake is not None:
            self._handshake.cancel()

    def end(self) -> None:
        """The AMQP connection is over: write what is left, then close the socket and free the engine."""
        if self.ended:
            return
        self.ended = True
        if self._handshake is not None:
            self._handshake.cancel()
        if self.amqp.close_unanswered:
            self.amqp.close()
        if not self._service.may_answer(self):
            self.drop()
        self.flush()
        self.amqp.free()
        self.measure()

    def part(self) -> None:
        """Like `end`, but leave the closing to the client, as far as TLS allows.

        Closing a socket with something in it that was not read resets the connection, which could cost the client our
        last words.
        """
        self.ended = True
        if self._handshake is not None:
            self._handshake.cancel()
        transport = self._transport
        if transport is not None and not transport.is_closing():
            transport.write(self.amqp.data_to_send())
            if transport.can_write_eof():
                transport.resume_reading()
                transport.write_eof()
            else:
                transport.close()
        self.amqp.free()

    def withhold(self) -> None:
        """Write nothing any more of what there is for it: another broker may have said otherwise meanwhile."""
        self._withheld = True

    def part_unanswered(self, why: str, info: dict[str, Any]) -> None:
        """Say why it is left, and nothing of what was withheld."""
        self.amqp.data_to_send()
        if self._greeted:
            self.amqp.close("amqp:connection:forced", why, info)
            self.part()
        else:
            self.drop()

    def drop(self, *, linger: bool = False) -> None:
        """Cut the socket, at once unless what was written should still arrive."""
        if self._transport is not None:
            if linger:
                self._close_socket()
            else:
                self._transport.abort()

    def _close_socket(self) -> None:
        """Close it when what was written has left; cut it if that takes too long."""
        assert self._transport is not None
        self._transport.close()
        if self._linger is None:
            self._linger = asyncio.get_running_loop().call_later(LINGER_S, self.drop)


def _messages_of(events: list[Event]) -> int:
    """Messages and outcomes in `events`: a run is so many, anything else is one."""
    messages = len(events)
    for event in events:
        if type(event) is TransferRun:
            messages += len(event.ends) - 1
        elif type(event) is AcceptedRun:
            messages += event.count - 1
    return messages


def _told(error: Exception) -> str:
    """An error and where it arose, in one line of bounded length, whatever a peer had a part in."""
    at = error.__traceback__
    while at is not None and at.tb_next is not None:
        at = at.tb_next
    where = f" ({at.tb_frame.f_code.co_filename}:{at.tb_lineno})" if at is not None else ""
    return f"{type(error).__name__}: {str(error)!r:.{_SHOWN_MAX}}{where}"

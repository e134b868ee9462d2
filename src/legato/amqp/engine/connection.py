"""One AMQP connection over the Proton engine, without I/O: bytes in, events and bytes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cproton import ffi, lib

from legato import limits
from legato.amqp.engine import batch
from legato.amqp.engine.bypass import Bypass, push
from legato.amqp.engine.deliveries import Deliveries, Known
from legato.amqp.engine.events import (
    Attached,
    Closed,
    Detached,
    Event,
    Opened,
    SessionBegan,
    SessionEnded,
)
from legato.amqp.engine.frames import Broken, Echo, Errant, Frames
from legato.amqp.engine.gate import Gate, Look
from legato.amqp.engine.link import Link, Receiver, Sender, Session, links_limit_reached
from legato.amqp.engine.pndata import c_text, kept_bytes, read_map, read_symbols, write_map, write_symbols
from legato.amqp.engine.runs import Runs
from legato.amqp.engine.settings import Settings
from legato.amqp.engine.states import read_condition, write_condition
from legato.errors import ProtocolError

SESSION_WINDOW_FRAMES = 8192
"""Transfers a peer may send per session without hearing from us. The engine counts its window in frames of the largest
size, and empties it on every call of `receive_data`: a window in bytes would be a window of a few small messages."""
SESSION_CAPACITY_BYTES_MAX = (1 << 32) - 1
"""A window of more is closed to the engine; with the largest frames that is one of 1,023 transfers."""
SESSIONS_MAX = 4095
ECHOES_MAX = 64
"""Of flows that are asked for between two writes, no more are answered: each tells the state of then."""
CONNECTION_BYTES, SESSION_BYTES, LINK_BYTES, DELIVERY_BYTES = 32 << 10, 8 << 10, 8 << 10, 1 << 10
"""What each takes in memory, about, but for what the peer says in its Open and in its attaches."""
AMQP_HEADER = b"AMQP\x00\x01\x00\x00"

PUSHED_BYTES_MAX = 256 << 10
"""The engine takes no more before what it made of it was looked at."""
ELEMENTS_AT_ONCE = 2_000
"""Nor frames of so many elements, besides messages, if what it makes of them is to be handled in slices."""
_ENDLESS = 1 << 31

_DELIVERY, _LINK_FLOW = lib.PN_DELIVERY, lib.PN_LINK_FLOW

_peek = lib.pn_collector_peek
_pop = lib.pn_collector_pop
_event_type = lib.pn_event_type
_delivery_readable = lib.pn_delivery_readable
_event_delivery = lib.pn_event_delivery
_transport_pending = lib.pn_transport_pending
_unpack = ffi.unpack
_new_uncleared = ffi.new_allocator(should_clear_after_alloc=False)


class Connection:
    """A connection's engine, for either side. Not thread-safe; two connections may live in two threads.

    Args:
        server: whether the peer speaks first.
        settings: read by `open`, save frame size and idle time-out, which are read now.
        rare_events_max: so many events other than transfers, dispositions and flows come out of one call at most; if
            it then `has_more`, that is got by `receive_data(b"")`. 0: no bound.
    """

    def __init__(self, *, server: bool, settings: Settings, rare_events_max: int = 0) -> None:
        self.settings = settings
        self.closed = False
        """No event will come any more: the peer closed, or broke, or `free` was called."""
        self.close_unanswered = False
        """The peer of this server sent Close and waits for ours: `close` sends it."""
        self.closing = False
        """We sent Close, or need not: the connection's sessions and links do nothing any more."""
        capacity_bytes = max(settings.session_window_bytes, SESSION_WINDOW_FRAMES * settings.max_frame_bytes)
        self.session_capacity_bytes = min(capacity_bytes, SESSION_CAPACITY_BYTES_MAX)
        self.remembers_ended_links = False
        """Whether outcomes are wanted that come in transactions for deliveries of links that have ended."""
        self._server = server
        self.has_more = False
        """Something of what was received waits to be looked at."""
        self._rare_events_max = rare_events_max
        self._rare_events = 0
        """How many the present call may still bring, if that is bounded."""
        self._gate = Gate(settings.max_frame_bytes)
        self._unpushed = b""
        """What was received and the engine does not have yet."""
        self._admitted = 0
        """How much of that it may have."""
        self._freed = False
        self._deaf = False
        """Whether the peer is not read from."""
        self._opened = False
        self._greeted = False
        self._greeting = b""
        self._outbox: list[bytes | memoryview] = []
        self._frames = Frames(settings.max_frame_bytes) if server else None
        self._echoes: list[Echo] = []
        self._by_channel: dict[int, Session] = {}
        """Sessions by the channel that the peer uses for them."""
        self._sessions: dict[Any, Session] = {}
        self._links: dict[Any, Link] = {}
        self._late_links = 0
        """How many links the peer attached to sessions that we had ended."""
        self._links_kept_bytes = 0
        """What their attaches take in memory, about."""
        self._open_kept_bytes = 0
        """The same of the peer's Open."""
        self._deliveries: Known = {}
        self._run_deliveries = 0
        """How many there are besides, in runs."""
        self._unfinished = 0
        """Over how many links part of a message has come."""
        self._ticked: list[Event] = []
        self._pn = lib.pn_connection()
        self._collector = lib.pn_collector()
        self._batches = batch.available
        lib.pn_connection_collect(self._pn, self._collector)
        self._transport = transport = lib.pn_transport()
        self._bypass = Bypass(transport) if self._batches and batch.bypasses else None
        self._transfers = Deliveries(self._links, self._deliveries, settings, self._bypass)
        self._runs = Runs(self._links, self._deliveries, self._transfers, self._bypass) if self._batches else None
        if server:
            lib.pn_transport_set_server(transport)
        lib.pn_transport_set_max_frame(transport, settings.max_frame_bytes)
        lib.pn_transport_set_idle_timeout(transport, settings.idle_timeout_ms)
        lib.pn_transport_set_channel_max(transport, SESSIONS_MAX)
        lib.pn_transport_bind(transport, self._pn)
        self._handlers: dict[int, Callable[[Any, list[Event]], None]] = {
            lib.PN_CONNECTION_REMOTE_OPEN: self._on_remote_open,
            lib.PN_CONNECTION_REMOTE_CLOSE: self._on_remote_close,
            lib.PN_SESSION_REMOTE_OPEN: self._on_session_open,
            lib.PN_SESSION_REMOTE_CLOSE: self._on_session_close,
            lib.PN_LINK_REMOTE_OPEN: self._on_link_open,
            lib.PN_LINK_REMOTE_DETACH: self._on_link_detach,
            lib.PN_LINK_REMOTE_CLOSE: self._on_link_detach,
            lib.PN_TRANSPORT_ERROR: self._on_transport_error,
            lib.PN_TRANSPORT_TAIL_CLOSED: self._on_tail_closed,
        }

    @property
    def remote_max_frame_bytes(self) -> int:
        """The largest frame that the peer takes (AMQP 2.7.1); known once it has opened the connection."""
        frame_bytes: int = lib.pn_transport_get_remote_max_frame(self._transport)
        return frame_bytes or limits.FRAME_BYTES_MOST

    @property
    def held_bytes(self) -> int:
        """What is held of messages and frames that have come in part, and of what the peer's windows do not take."""
        sessions = self._sessions.values()
        begun_bytes = 0 if self._bypass is None else self._bypass.begun_bytes
        return (
            len(self._unpushed)
            + begun_bytes
            + sum(session.partial_bytes + session.outgoing_bytes for session in sessions)
        )

    @property
    def engine_bytes(self) -> int:
        """What the engine and its objects take besides, about."""
        return (
            CONNECTION_BYTES
            + self._open_kept_bytes
            + self._links_kept_bytes
            + LINK_BYTES * len(self._links)
            + SESSION_BYTES * len(self._sessions)
            + DELIVERY_BYTES * (len(self._deliveries) + self._run_deliveries)
        )

    def expect_silence(self) -> None:
        """The peer is not read from for a while: until something of it is, its silence is no reason to end."""
        if not (self._freed or self._deaf):
            self._deaf = True
            lib.pn_transport_set_idle_timeout(self._transport, 0)

    # ---- bytes and time

    def receive_data(self, data: bytes) -> list[Event]:
        """Take what a socket delivered; returns what it means, in order.

        Bytes that are not AMQP end in a `Closed` event, never in an exception.
        """
        if self.closed:
            self.has_more = False
            return []
        if not self._greeted:
            self._greeting += data
            data = self._check_greeting()
            if self.closed:
                return [Closed("amqp:connection:framing-error", "the peer does not speak AMQP 1.0", False)]
            self._push(data[: len(AMQP_HEADER)])
            data = data[len(AMQP_HEADER) :]
        if self._deaf and data:
            self._deaf = False
            lib.pn_transport_set_idle_timeout(self._transport, self.settings.idle_timeout_ms)
        if self._unpushed:
            data = self._unpushed + data
        self._rare_events = self._rare_events_max
        self._gate.elements = 0
        events: list[Event] = []
        if self.has_more:
            self._take_events(events)
            if self._rare_events_max and len(events) >= self._rare_events_max and not self.closed:
                # That is enough for one call.
                self._unpushed = data
                self.has_more = self.has_more or bool(data)
                return events
        self._feed(data, events)
        return events

    def _feed(self, data: bytes, events: list[Event]) -> None:
        """Let the engine have what may be given to it now, and keep the rest."""
        elements_max = ELEMENTS_AT_ONCE if self._rare_events_max else _ENDLESS
        at, admitted, size, look = 0, self._admitted, len(data), Look.FINE
        while at < size and not self.has_more and not self.closed:
            if at == admitted:
                admitted, look = self._gate.admit(data, at, elements_max)
                if at == admitted:
                    break
            end = min(admitted, at + PUSHED_BYTES_MAX)
            self._take_in(data if end - at == size else data[at:end], events)
            at = end
        if at == admitted and at < size and not self.has_more and (error := look.error) is not None:
            self._break_at(error.condition, str(error), events)
        if self.closed or at == size:
            self._unpushed, self._admitted = b"", 0
            return
        self._unpushed, self._admitted = data[at:], admitted - at
        if look is Look.FINE:
            self.has_more = True

    def _take_in(self, data: bytes, events: list[Event]) -> None:
        """Give the engine what it may have, and do what it would not."""
        for piece in (data,) if self._frames is None else self._frames.cut(data):
            if isinstance(piece, bytes):
                if self._bypass is not None:
                    self._bypass.push(piece)
                else:
                    self._push(piece)
                continue
            # What came before it comes first, however much that is.
            rare, self._rare_events = self._rare_events, -1
            was_opened, before = self._opened, len(events)
            self._take_events(events)
            self._rare_events = rare
            if not (self.closed or was_opened) and isinstance(piece, Broken):
                # An open that is none: it is answered, and nobody hears of it.
                del events[before:]
                self.open()
            if not self.closed:
                self._found(piece, events)
        self._take_events(events)

    def _push(self, data: bytes) -> None:
        push(self._transport, data)

    def _break_at(self, condition: str, description: str, events: list[Event]) -> None:
        """A frame that the engine does not get ends the connection."""
        if self._server and not self._opened:
            # A connection can be closed only once it was opened.
            self.open()
        self._break(condition, description, events)
        self._drop_events()

    def _found(self, found: Echo | Errant | Broken, events: list[Event]) -> None:
        """Do what the engine would not."""
        if isinstance(found, Broken):
            self._break(found.condition, found.description, events)
            self._drop_events()
        elif isinstance(found, Errant):
            session = self._by_channel.get(found.channel)
            if session is None:
                self._break(found.condition, found.description, events)
                self._drop_events()
            else:
                session.close(found.condition, found.description)
        elif len(self._echoes) < ECHOES_MAX:
            self._echoes.append(found)

    def _answer_echoes(self) -> None:
        """Have flows written that were asked for: of sessions, and of links that the peer sends over.

        The engine writes no flow of a link that we send over, unless its credit is drained: the session's says that all
        we had to send is on its way.
        """
        echoes, self._echoes = self._echoes, []
        for echo in dict.fromkeys(echoes):
            session = self._by_channel.get(echo.channel)
            if session is None or session.closed:
                continue
            # The engine's only way to be made to write a flow.
            lib.pn_session_set_incoming_capacity(session._pn, self.session_capacity_bytes)
            for link in session.links if echo.is_sender else ():
                if link.name == echo.name and isinstance(link, Receiver) and not (link.closed or link.suspended):
                    lib.pn_link_flow(link._pn, 0)
            self._produce()

    def _check_greeting(self) -> bytes:
        """Check the protocol header: the engine would also speak SASL and TLS if the peer began with that."""
        greeting = self._greeting
        if greeting[: len(AMQP_HEADER)] != AMQP_HEADER[: len(greeting)]:
            self._forget_all()
            self.closing = self.closed = True
            return b""
        if len(greeting) < len(AMQP_HEADER):
            return b""
        self._greeted = True
        self._greeting = b""
        return greeting

    def receive_eof(self) -> list[Event]:
        """The socket reached its end: returns the last events."""
        if self.closed:
            return []
        self._unpushed, self._admitted = b"", 0
        if self._bypass is not None:
            self._bypass.give_up()
        lib.pn_transport_close_tail(self._transport)
        events: list[Event] = []
        self._take_events(events)
        return events

    def data_to_send(self) -> bytes:
        """Everything that is to be written to the socket, empty if nothing is."""
        parts = self.parts_to_send()
        first = parts[0] if len(parts) == 1 else None
        return first if isinstance(first, bytes) else b"".join(parts)

    def parts_to_send(self) -> list[bytes | memoryview]:
        """The same in parts: large bodies by themselves, where they are."""
        if self._freed:
            return []
        self._produce()
        if self._echoes:
            self._answer_echoes()
        parts, self._outbox = self._outbox, []
        return parts

    def _produce(self) -> None:
        """Let the engine write what it has: it writes attaches before detaches, whatever the order of the calls."""
        transport = self._transport
        pending = _transport_pending(transport)
        written: list[bytes] = []
        while pending > 0:
            buffer = _new_uncleared("char[]", pending)
            lib.pn_transport_peek(transport, buffer, pending)
            written.append(_unpack(buffer, pending))
            lib.pn_transport_pop(transport, pending)
            pending = _transport_pending(transport)
        if written:
            self._outbox += written if self._bypass is None else self._bypass.fill(written)
        if self._bypass is not None and self._bypass.ended:
            self._bypass.forget_ended()

    def tick(self, now_ms: int) -> int:
        """Let heartbeats and time-outs happen; call after every input and at the deadline, then send.

        Args:
            now_ms: of a monotonic clock.

        Returns:
            The absolute time in ms of the next call, 0 for none. If the peer was silent too long, `closed` is set and
            the `Closed` event waits in `take_events`.
        """
        if self._freed or self.closed:
            return 0
        deadline: int = lib.pn_transport_tick(self._transport, now_ms)
        if lib.pn_condition_is_set(lib.pn_transport_condition(self._transport)):
            self._take_events(self._ticked)
        return deadline

    def take_events(self) -> list[Event]:
        """The events that did not come out of input: of `tick`."""
        events, self._ticked = self._ticked, []
        return events

    # ---- the connection itself

    def open(self) -> None:
        """Send our Open."""
        if self._freed:
            return
        pn, settings = self._pn, self.settings
        lib.pn_connection_set_container(pn, settings.container_id.encode("utf-8"))
        if settings.hostname is not None:
            lib.pn_connection_set_hostname(pn, settings.hostname.encode("utf-8"))
        write_map(lib.pn_connection_properties(pn), settings.properties)
        write_symbols(lib.pn_connection_offered_capabilities(pn), settings.offered_capabilities)
        write_symbols(lib.pn_connection_desired_capabilities(pn), settings.desired_capabilities)
        lib.pn_connection_open(pn)
        if self.closing:
            # The peer broke the rules in the breath in which it opened: it is still told which.
            lib.pn_connection_close(pn)

    def refuse(self, condition: str, description: str, info: dict[str, Any] | None = None) -> None:
        """Answer the peer's Open by one that says it failed, and Close (amqp.md A1.7)."""
        self.settings.properties = {
            **self.settings.properties,
            "amqp:connection-establishment-failed": True,
        }
        self.open()
        self.close(condition, description, info)

    def close(self, condition: str = "", description: str = "", info: dict[str, Any] | None = None) -> None:
        """Send Close; what the peer had sent before is no longer reported. Does nothing the second time."""
        if self._freed or (self.closing and not self.close_unanswered):
            return
        self.closing = True
        self.close_unanswered = False
        write_condition(lib.pn_connection_condition(self._pn), condition, description, info)
        lib.pn_connection_close(self._pn)
        self._forget_all()

    def begin_session(self) -> Session:
        """Begin a session, for a client; on a closed connection it is closed from the start."""
        if self.closing:
            return Session(self, None)
        pn_session = lib.pn_session(self._pn)
        session = self._sessions[pn_session] = Session(self, pn_session)
        session.open()
        return session

    def free(self) -> None:
        """Give all memory back; afterwards every call on the connection and its links does nothing."""
        if self._freed:
            return
        self._forget_all()
        self._freed = self.closed = self.closing = True
        self.close_unanswered = False
        self._sessions.clear()
        self._by_channel.clear()
        self._echoes.clear()
        self._links.clear()
        self._links_kept_bytes = self._open_kept_bytes = 0
        self._handlers.clear()
        if self._bypass is not None:
            self._bypass.clear()
        lib.pn_transport_unbind(self._transport)
        lib.pn_decref(self._transport)
        lib.pn_connection_release(self._pn)
        lib.pn_decref(self._pn)
        while _peek(self._collector):
            _pop(self._collector)
        lib.pn_collector_release(self._collector)
        lib.pn_collector_free(self._collector)
        del self._transport, self._pn, self._collector

    def _forget_all(self) -> None:
        for link in self._links.values():
            link._forget()
        for session in self._sessions.values():
            session.closed = True
        self._deliveries.clear()

    # ---- events of the engine

    def _take_events(self, events: list[Event]) -> None:
        """Add what the engine says happened, as far as the present call may bring it."""
        self.has_more = False
        try:
            self._handle_all(events)
        except ProtocolError as error:
            self._break(error.condition, str(error), events)
            self._drop_events()
        if self._bypass is not None and not self.has_more:
            # What came was read, or will never be.
            self._bypass.received.clear()

    def _handle_all(self, events: list[Event]) -> None:
        collector = self._collector
        transfers = self._transfers
        known_of = self._deliveries.get
        handlers = self._handlers
        runs = self._runs
        while event := _peek(collector):
            kind = _event_type(event)
            if kind == _DELIVERY:
                if not self.closing:
                    delivery = _event_delivery(event)
                    if runs is not None and runs.take(collector, delivery, events):
                        continue
                    known = known_of(delivery)
                    if known is not None:
                        transfers.on_disposition(delivery, known, events)
                    elif _delivery_readable(delivery):
                        transfers.on_transfer(delivery, events)
                    else:
                        transfers.on_stray(delivery, events)
            elif kind == _LINK_FLOW:
                if not self.closing:
                    transfers.on_flow(lib.pn_event_link(event), events)
            else:
                handler = handlers.get(kind)
                if handler is not None:
                    handler(event, events)
                    self._rare_events -= 1
                    if not self._rare_events:
                        _pop(collector)
                        self._rare_events = 1
                        self.has_more = not self.closed and bool(_peek(collector))
                        return
            _pop(collector)

    def _drop_events(self) -> None:
        while _peek(self._collector):
            _pop(self._collector)

    def _break(self, condition: str, description: str, events: list[Event]) -> None:
        """The peer broke the rules: tell it, tell the shell, and handle nothing more."""
        if not self.closed:
            self.close(condition, description)
            self.closed = True
            events.append(Closed(condition, description, False))

    def _on_remote_open(self, event: Any, events: list[Event]) -> None:
        if self.closing:
            return
        if self._opened:
            raise ProtocolError("Open came a second time", "amqp:not-allowed")
        self._opened = True
        pn = self._pn
        container_id = c_text(lib.pn_connection_remote_container(pn))
        if container_id is None:
            self.open()
            raise ProtocolError("an open has no container id", "amqp:decode-error")
        properties = lib.pn_connection_remote_properties(pn)
        desired = lib.pn_connection_remote_desired_capabilities(pn)
        offered = lib.pn_connection_remote_offered_capabilities(pn)
        hostname = c_text(lib.pn_connection_remote_hostname(pn))
        opened = Opened(container_id, hostname, read_map(properties), read_symbols(desired), read_symbols(offered))
        texts = len(container_id) + len(hostname or "")
        self._open_kept_bytes = kept_bytes(properties, desired, offered) + 2 * texts
        events.append(opened)

    def _on_remote_close(self, event: Any, events: list[Event]) -> None:
        if self.closed:
            return
        name, description, info = read_condition(lib.pn_connection_remote_condition(self._pn))
        if self._server and not self.closing:
            # A server may have something to finish first, and answers when that is done.
            self.closing = self.close_unanswered = True
            self._forget_all()
        else:
            self.close()
        self.closed = True
        events.append(Closed(name, description, not name, info))

    def _on_transport_error(self, event: Any, events: list[Event]) -> None:
        if self.closed:
            return
        name, description, _ = read_condition(lib.pn_transport_condition(self._transport))
        self.closing = self.closed = True
        self._forget_all()
        events.append(Closed(name, description, False))

    def _on_tail_closed(self, event: Any, events: list[Event]) -> None:
        if self.closed:
            return
        self.closing = self.closed = True
        self._forget_all()
        events.append(Closed("", "the connection ended without Close", False))

    def _on_session_open(self, event: Any, events: list[Event]) -> None:
        if self.closing:
            return
        pn_session = lib.pn_event_session(event)
        begun = self._sessions.get(pn_session)
        if begun is not None:
            if begun.closed:
                lib.pn_session_close(pn_session)
        else:
            session = self._sessions[pn_session] = Session(self, pn_session)
            if self._frames is not None and self._frames.begun:
                self._by_channel[self._frames.begun.popleft()] = session
            events.append(SessionBegan(session))

    def _on_session_close(self, event: Any, events: list[Event]) -> None:
        pn_session = lib.pn_event_session(event)
        session = self._sessions.get(pn_session)
        if session is None or self.closing:
            return
        name, description, _ = read_condition(lib.pn_session_remote_condition(pn_session))
        session.remote_ended = True
        if session.closed:
            session._free()
        events.append(SessionEnded(session, name, description))

    def _on_link_open(self, event: Any, events: list[Event]) -> None:
        pn_link = lib.pn_event_link(event)
        if self.closing:
            return
        link = self._links.get(pn_link)
        if link is None:
            session = self._sessions.get(lib.pn_link_session(pn_link))
            if session is None or session.closed:
                # The peer may not have heard of it; but the engine keeps each link until the connection ends.
                self._late_links += 1
                if self._late_links > limits.MAX_LINKS_PER_SESSION:
                    raise ProtocolError(
                        "links are attached to a session that has ended", "amqp:resource-limit-exceeded"
                    )
                return
            if links_limit_reached(session):
                session.close("amqp:resource-limit-exceeded", "too many links")
                return
            name = c_text(lib.pn_link_name(pn_link))
            if name is None:
                # It could not be answered: the answer has the same name (AMQP 2.7.3).
                session.close("amqp:decode-error", "an attach has no name")
                return
            link = (Sender if lib.pn_link_is_sender(pn_link) else Receiver)(session, name, pn_link)
        if not link.closed:
            link._read_remote()
            events.append(Attached(link))

    def _on_link_detach(self, event: Any, events: list[Event]) -> None:
        pn_link = lib.pn_event_link(event)
        link = self._links.get(pn_link)
        if link is None or self.closing:
            return
        closed = _event_type(event) == lib.PN_LINK_REMOTE_CLOSE
        name, description, info = read_condition(lib.pn_link_remote_condition(pn_link))
        link.remote_detached = True
        if link.closed:
            link._retire()
        events.append(Detached(link, closed, name, description, info))

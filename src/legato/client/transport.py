"""The I/O thread of a connection: the only one that touches the engine. Connects, moves bytes, fails over.

1. Everything of one wake-up is handled in a lump: commands of the application's threads, then the broker's events; the
   output is flushed once, and each waiting thread is woken once.
2. Between lumps it sleeps; `mailbox` says how and until when.
"""

from __future__ import annotations

import random
import selectors
import threading
import time
from collections.abc import Callable

import msgspec

from legato.amqp.connection import Settings
from legato.amqp.events import (
    Attached,
    Closed,
    Detached,
    Disposition,
    Event,
    Flow,
    SessionEnded,
    Transfer,
    TransferAborted,
    TransferPart,
)
from legato.amqp.types import UInt
from legato.client.channel import Channel, End
from legato.client.completion import complete_all
from legato.client.conditions import UNBLOCKED, error_of
from legato.client.failover import FailoverEvent, Schedule
from legato.client.gate import Gate
from legato.client.mailbox import Mailbox
from legato.client.notifier import Notifier
from legato.client.sender_end import SenderEnd
from legato.client.session_state import Send
from legato.client.steps import NOTHING, Steps, Wait
from legato.client.uri import Host, Uri
from legato.client.wire import Login, Wire, establish
from legato.errors import InvalidClientIDError, JMSError, JMSSecurityError

_POLICY = "sole-connection-enforcement-policy"
_CLOSE_EXISTING = UInt(1)

CLOSE_WAIT_S = 2.0
"""How long `close()` waits for the broker's answer to ours."""


class _Stopped(Exception):
    """`close()` was called while there was no connection."""


class _Outage:
    """A failover under way."""

    def __init__(self, wire: Wire, began: float) -> None:
        self.host = wire.host
        self.epoch = wire.epoch
        self.began = began
        self.resent = 0
        self.aborted = 0


class Transport:
    """One connection's thread and everything that only it may touch."""

    def __init__(self, uri: Uri, settings: Settings, login: Login, notifier: Notifier) -> None:
        self._uri = uri
        self.settings = settings
        self._login = login
        self.gate = Gate()
        self.touched: set[Gate] = set()
        self.completed: list[Send] = []
        """Sends whose completion listeners are to be called after this lump."""
        self.notifier = notifier
        self.wire: Wire | None = None
        self.connected_once = False
        self.started = False
        self.error: JMSError | None = None
        """Why the connection is gone for good."""
        self.finished = False
        self.ended = False
        """Whether the thread has nothing more to do."""
        self.on_exception: Callable[[JMSError], Steps[None]] = _unheard
        self.on_failover: Callable[[FailoverEvent], None] = lambda event: None
        self._channels: list[Channel] = []
        self._base: Channel | None = None
        self._held_back: list[Channel] = []
        """Sessions that begin on a new wire once the temporary destinations, which they may use, exist there."""
        self._awaited: set[End] = set()
        self.uploading: set[SenderEnd] = set()
        """Producers that have a message on its way out of a file."""
        self._outage: _Outage | None = None
        self._stopping = False
        self._stop_deadline = 0.0
        self._mailbox = Mailbox()
        self.post = self._mailbox.post
        self.hurry = self._mailbox.hurry
        self._watched = 0
        self._thread = threading.Thread(target=self._run, name=f"legato {settings.container_id}", daemon=True)

    # -- called by the application's threads -------------------------------------------------------------

    def start_thread(self) -> None:
        """Begin to connect."""
        self._thread.start()

    @property
    def is_current_thread(self) -> bool:
        """Whether the I/O thread itself is asking."""
        return threading.current_thread() is self._thread

    def stop(self) -> Steps[None]:
        """Close the connection in good order, or drop it if there is none; returns when the thread has ended."""
        self.give_up()
        if not self.is_current_thread and self._thread.ident is not None:
            yield Wait(self.gate, lambda: self.ended, self._login.timeout_s + CLOSE_WAIT_S)
        yield from self.notifier.stop()

    def give_up(self) -> None:
        """Nobody waits for the connection any more: end soon."""
        self._stopping = True
        self.post(self._begin_stop)
        self.hurry()

    def set_started(self, started: bool) -> None:
        """Let messages come, or not (Jakarta Messaging 6.1.4)."""
        self.started = started
        if started:
            self.post(self._grant_all)

    def add(self, channel: Channel) -> None:
        """A session was created."""
        self.post(self._add, channel)

    def add_base(self, channel: Channel) -> None:
        """What temporary destinations hang on."""
        self.post(self._add_base, channel)

    # -- called by ends ----------------------------------------------------------------------------------

    def awaits(self, end: End) -> None:
        """A link is being attached."""
        if self._outage is not None:
            self._awaited.add(end)

    def restored(self, end: End) -> None:
        """A link is attached, or never will be; the last one ends the outage."""
        self._awaited.discard(end)
        if self._outage is not None and not self._awaited:
            if self._held_back:
                self._begin_rest()
            else:
                self._end_outage()

    def forget(self, channel: Channel) -> None:
        """A session is closed."""
        if channel in self._channels:
            self._channels.remove(channel)

    def report(self, error: JMSError) -> None:
        """Tell the exception listener."""
        self.notifier.call(lambda: self.on_exception(error))

    # -- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._adopt(self._connect(0, self._uri.options.connect_attempts))
            self.connected_once = True
            self.touched.add(self.gate)
            while not self.finished:
                self._turn()
        except _Stopped:
            self._finish()
        except JMSError as error:
            self._fail(error)
        except Exception as error:  # a bug of ours must not leave anybody waiting for ever
            self._fail(JMSError(f"The client library failed: {error!r}.", linked=error))
            raise
        finally:
            self._notify()
            self._release()
            self.ended = True
            self.gate.open()

    def _turn(self) -> None:
        """One lump: commands, output, news for waiting threads, sleep, input."""
        busy = self._mailbox.run()
        wire = self.wire
        assert wire is not None
        wire.flush()
        now = time.monotonic()
        deadline_ms = wire.tick(int(now * 1000))
        if wire.ended or wire.engine.closed:
            self._handle(wire.engine.take_events())
            if self.wire is wire:
                self._lost(JMSError(f"The connection to {wire.host} was lost."))
            return
        wire.flush()
        if self.uploading:
            self._upload(wire)
        self._notify()
        if self._sleep(wire, deadline_ms, now, doze=busy):
            self._handle(wire.receive())
        if self._stop_deadline and time.monotonic() > self._stop_deadline:
            self._finish()

    def _sleep(self, wire: Wire, deadline_ms: int, now: float, *, doze: bool) -> bool:
        """Wait for the socket, a command, or the end of the doze; returns whether the socket has something to read."""
        wanted = selectors.EVENT_READ | (selectors.EVENT_WRITE if wire.wants_write else 0)
        if wanted != self._watched:
            self._mailbox.selector.modify(wire, wanted)
            self._watched = wanted
        timeout_s = max(deadline_ms / 1000 - now, 0.0) if deadline_ms else None
        if self._stop_deadline:
            timeout_s = min(timeout_s or CLOSE_WAIT_S, CLOSE_WAIT_S)
        if self.uploading and not wire.wants_write and any(end.can_upload for end in self.uploading):
            timeout_s, doze = 0.0, False
        return any(mask & selectors.EVENT_READ for _, mask in self._mailbox.sleep(timeout_s, doze=doze))

    def _upload(self, wire: Wire) -> None:
        """Send more of what goes out of files."""
        for end in list(self.uploading):
            if not end.upload(wire):
                self.uploading.discard(end)
        wire.flush()

    def _notify(self) -> None:
        if self.completed:
            completed, self.completed = self.completed, []
            self.notifier.call(lambda: complete_all(completed))
        if self.touched:
            touched, self.touched = self.touched, set()
            for gate in touched:
                gate.open()

    # -- events ------------------------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        for event in events:
            kind = event.__class__
            if kind is Transfer:
                event.link.context.on_transfer(event)  # type: ignore[attr-defined]
            elif kind is Disposition:
                event.link.context.on_disposition(event)  # type: ignore[attr-defined]
            else:
                self._handle_rare(event)

    def _handle_rare(self, event: Event) -> None:
        match event:
            case TransferPart(link=receiver):
                receiver.context.on_part(event)
            case TransferAborted(link=receiver):
                receiver.context.on_aborted(event)
            case Flow(link=link):
                end = link.context
                end.on_flow(event)
            case Attached(link=link):
                link.context.on_attached(event)
            case Detached(link=link):
                link.context.on_detached(event)
            case SessionEnded():
                self._session_ended(event)
            case Closed():
                self._closed(event)

    def _session_ended(self, event: SessionEnded) -> None:
        channel = event.session.context
        event.session.close()
        if isinstance(channel, Channel) and not channel.closed:
            channel.session = None
            channel.fail(error_of(event.condition, event.description, "The broker ended the session"))

    def _closed(self, event: Closed) -> None:
        wire = self.wire
        if wire is None:
            return
        if self._stopping:
            wire.flush()
            self._finish()
            return
        wire.flush()
        error = error_of(event.condition, event.description, f"The connection to {wire.host} was lost")
        if isinstance(error, JMSSecurityError):
            raise error
        self._lost(error)

    # -- connecting and failing over ---------------------------------------------------------------------

    def _connect(self, first: int, rounds_max: int) -> Wire:
        """Try brokers until one lets us in.

        Raises:
            JMSError: none did, and it is of no use to go on.
        """
        schedule = Schedule(self._uri.hosts, self._uri.options, rounds_max=rounds_max, first=first)
        problems: dict[Host, str] = {}
        while (attempt := schedule.next(random.random())) is not None:
            self._pause(attempt.wait_ms / 1000)
            try:
                return establish(attempt.host, self._login, self._opening_settings())
            except JMSSecurityError:
                raise
            except InvalidClientIDError as error:
                # After a loss the old connection may still look alive to the broker (AMQP.md A1.7).
                if not self.connected_once:
                    raise
                problems[attempt.host] = str(error)
            except (OSError, JMSError) as error:
                problems[attempt.host] = getattr(error, "strerror", None) or str(error)
        tried = "; ".join(f"{host}: {problem}" for host, problem in problems.items())
        raise JMSError(
            f"No broker can be reached ({tried}). Check that one runs, and the hosts of the connection URI.",
            code=UNBLOCKED if self.connected_once else None,
        )

    def _opening_settings(self) -> Settings:
        if not self.connected_once:
            return self.settings
        # To the broker our old connection may still look alive: it is to give way.
        return msgspec.structs.replace(self.settings, properties=self.settings.properties | {_POLICY: _CLOSE_EXISTING})

    def reopen(self, settings: Settings, outcome: list[JMSError | None]) -> None:
        """Connect anew with other settings, before anything hangs on the connection; `outcome` gets the error or None.

        If that fails all stays as it was.
        """
        old = self.wire
        error: JMSError | None = None
        if old is not None:
            try:
                wire = establish(old.host, self._login, settings)
            except JMSError as refusal:
                error = refusal
            except OSError as problem:
                error = JMSError(f"{old.host} cannot be reached: {problem}.", linked=problem)
            else:
                old.engine.close()
                old.flush()
                self._mailbox.selector.unregister(old)
                old.close()
                self._adopt(wire)
        if error is None:
            self.settings = settings
        outcome.append(error)
        self.touched.add(self.gate)

    def _pause(self, wait_s: float) -> None:
        """Wait before a try, doing meanwhile what needs no broker."""
        deadline = time.monotonic() + wait_s
        while True:
            self._mailbox.run()
            self._notify()
            if self._stopping:
                raise _Stopped
            remaining_s = deadline - time.monotonic()
            if remaining_s <= 0:
                return
            self._mailbox.sleep(remaining_s)

    def _adopt(self, wire: Wire) -> None:
        self.wire = wire
        self._watched = selectors.EVENT_READ
        self._mailbox.selector.register(wire, self._watched)
        self._held_back = list(self._channels)
        if self._base is not None:
            self._base.begin()
        if not self._awaited:
            self._begin_rest()
        early, wire.early_events = wire.early_events, []
        self._handle(early)

    def _begin_rest(self) -> None:
        channels, self._held_back = self._held_back, []
        for channel in channels:
            channel.begin()
        if self._outage is not None and not self._awaited:
            self._end_outage()

    def _lost(self, cause: JMSError) -> None:
        """The wire is gone: fail over, or fail."""
        wire = self.wire
        assert wire is not None
        began = time.monotonic()
        self.wire = None
        self._mailbox.selector.unregister(wire)
        if self._outage is None:
            self._outage = _Outage(wire, began)
        self._awaited.clear()
        self._held_back.clear()
        if self._base is not None:
            self._base.connection_lost(cause)
        for channel in list(self._channels):
            resent, aborted = channel.connection_lost(cause)
            self._outage.resent += resent
            self._outage.aborted += aborted
        wire.close()
        self._notify()
        if self._stopping:
            raise _Stopped
        rounds_max = self._uri.options.reconnect_attempts
        if rounds_max == 0:
            raise JMSError(str(cause), code=UNBLOCKED, linked=cause)
        self._adopt(self._connect(self._uri.hosts.index(wire.host) + 1, rounds_max))

    def _end_outage(self) -> None:
        outage, self._outage = self._outage, None
        wire = self.wire
        assert outage is not None
        assert wire is not None
        event = FailoverEvent(
            old_host=str(outage.host),
            new_host=str(wire.host),
            old_epoch=outage.epoch,
            new_epoch=wire.epoch,
            gap_ms=(time.monotonic() - outage.began) * 1000,
            resent_sends=outage.resent,
            aborted_transactions=outage.aborted,
        )
        self.on_failover(event)

    # -- the end -----------------------------------------------------------------------------------------

    def _begin_stop(self) -> None:
        if self.wire is None:
            return
        self.wire.engine.close()
        self._stop_deadline = time.monotonic() + CLOSE_WAIT_S

    def _finish(self) -> None:
        self.finished = True
        self.error = self.error or JMSError("The connection is closed.", code=UNBLOCKED)
        for channel in [*self._channels, *([] if self._base is None else [self._base])]:
            channel.abandon(self.error)
        self.touched.add(self.gate)

    def _fail(self, error: JMSError) -> None:
        self.error = error
        self._finish()
        if self.connected_once:
            self.report(error)

    def _release(self) -> None:
        wire, self.wire = self.wire, None
        if wire is not None:
            self._mailbox.selector.unregister(wire)
            wire.close()
        self._mailbox.close()

    # -- commands ----------------------------------------------------------------------------------------

    def _add(self, channel: Channel) -> None:
        self._channels.append(channel)
        if self.wire is not None:
            if self._held_back:
                self._held_back.append(channel)
            else:
                channel.begin()

    def _add_base(self, channel: Channel) -> None:
        self._base = channel
        if self.wire is not None:
            channel.begin()

    def _grant_all(self) -> None:
        for channel in self._channels:
            channel.grant()


def _unheard(error: JMSError) -> Steps[None]:
    """Nobody listens."""
    yield from NOTHING

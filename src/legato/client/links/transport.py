"""The I/O thread of a connection: it alone touches the socket and the engine.

`connection_attempts` chooses the broker; `outages` restores the sessions after a loss.

1. A wake-up handles everything at once: commands of the application's threads, then the broker's events. Output is
   flushed once, and each waiting thread is woken once.
2. Between wake-ups it sleeps in `mailbox`.
"""

from __future__ import annotations

import selectors
import threading
import time
from collections.abc import Callable
from random import Random

import msgspec

from legato.amqp.engine.events import Closed, Event, SessionEnded
from legato.amqp.engine.settings import Settings
from legato.client.failover.connection_attempts import ConnectionAttempts
from legato.client.failover.disconnect_reason import Loss, loss_of, return_window_s_of
from legato.client.failover.outage_log import OutageLog
from legato.client.failover.peer_problems import UnheardError, explained
from legato.client.failover.schedule import FailoverEvent
from legato.client.failover.uri import Host, Uri
from legato.client.failover.wire import Login, Wire, establish
from legato.client.gate import Gate
from legato.client.links.channel import Channel
from legato.client.links.completion import complete_all
from legato.client.links.forked_child import remember
from legato.client.links.link_names import LinkNames
from legato.client.links.mailbox import Mailbox
from legato.client.links.notifier import Notifier
from legato.client.links.outages import Outages
from legato.client.links.routing import route
from legato.client.links.sender_end import SenderEnd
from legato.client.links.session_state import Send
from legato.client.mapping.conditions import UNBLOCKED, error_of
from legato.client.steps import NOTHING, Steps, Wait
from legato.errors import JMSError, JMSSecurityError
from legato.limits import FRAME_BYTES_LEAST

CLOSE_WAIT_S = 2.0
"""How long `close()` waits for the broker's answer to ours."""
DROP_WAIT_S = 0.5
"""How long it waits for the thread if there is no connection: that may be knocking at a host that does not answer, and
ends by itself."""


class _Stopped(Exception):
    """`close()` was called while there was no connection."""


PAUSE_S_MAX = 3600.0
"""A selector takes no more than some weeks, and a clock may be set."""


class Transport:
    """One connection's thread and everything that only it may touch."""

    def __init__(self, uri: Uri, settings: Settings, login: Login, notifier: Notifier) -> None:
        self.connecting = ConnectionAttempts(uri, settings)
        self._login = login
        self._log = OutageLog(uri)
        self._looked_at: set[Host] = set()
        # Not the module's own generator: programs seed that, and expect what it says to stay the same.
        self._chance = Random().random
        self.gate = Gate()
        self.touched: dict[Gate, None] = {}
        self.completed: list[Send] = []
        """Sends whose completion listeners are to be called after this lump."""
        self.notifier = notifier
        self.shares_notifier = False
        """Whether it is another connection's, which stops it."""
        self.wire: Wire | None = None
        self.frame_bytes_max = FRAME_BYTES_LEAST
        """The largest frame that the broker takes, or the last one took."""
        self.heard = 0
        """Counts the times that something was heard from a broker."""
        self.started = False
        self.awaits_start = True
        """It was neither started nor stopped yet."""
        self.error: JMSError | None = None
        """Why the connection is gone for good."""
        self.failed = False
        """Whether it is gone for good without having been closed."""
        self.finished = False
        self.deaf = False
        """Whether the thread looks no more for commands and sends."""
        self.ended = False
        """Whether the thread has nothing more to do."""
        self.on_exception: Callable[[JMSError, bool], Steps[None]] = _unheard
        self.on_failover: Callable[[FailoverEvent], None] = lambda event: None
        self.on_end: Callable[[], None] = lambda: None
        """Called by the thread as it ends: commands that it has not run, it never will, so who waits is to look."""
        self.outages = Outages(self._restored)
        self.awaits = self.outages.awaits
        self.restored = self.outages.restored
        self.forget = self.outages.forget
        self.link_names = LinkNames()
        self.uploading: set[SenderEnd] = set()
        """Producers that have a message on its way out of a file."""
        self._naming: list[tuple[str, list[JMSError | None]]] = []
        """Client ids that were given while there was no connection (`reopen`)."""
        self._stopping = False
        self._stop_deadline = 0.0
        self._mailbox = Mailbox()
        self.post = self._mailbox.post
        self.hurry = self._mailbox.hurry
        self._watched = 0
        self.disowned = False
        """Whether this process is a child of the one whose connection it is."""
        remember(self)
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
            away = self.wire is None
            wait_s = DROP_WAIT_S if away else self._login.timeout_s + CLOSE_WAIT_S
            yield Wait(self.gate, lambda: self.ended, wait_s)
        if not self.shares_notifier:
            yield from self.notifier.stop()

    @property
    def is_stopping(self) -> bool:
        """Whether somebody has begun to close the connection."""
        return self._stopping

    def give_up(self) -> None:
        """Nobody waits for the connection any more: end soon."""
        self._stopping = True
        self.post(self._begin_stop)
        self.hurry()

    def wake(self) -> None:
        """Look for commands: a call of the application's was interrupted, and may not have said that there are any."""
        self._mailbox.wake()

    def set_started(self, started: bool) -> None:
        """Let messages come, or not (Jakarta Messaging 6.1.4)."""
        self.started = started
        self.awaits_start = False
        if started:
            self.post(self.outages.grant_all)

    def add(self, channel: Channel) -> None:
        """A session was created."""
        self.post(self.outages.add, channel)

    def add_base(self, channel: Channel) -> None:
        """Register the base of temporary destinations."""
        self.post(self.outages.add_base, channel)

    # -- called by ends ----------------------------------------------------------------------------------

    def later(self, function: Callable[[], None]) -> None:
        """Have `function` called in the lump after this one."""
        self._mailbox.later(function)

    def flush(self) -> None:
        """Write now what the engine has to say, as far as the socket takes it."""
        if self.wire is not None:
            self.wire.flush()

    def encode(self) -> None:
        """What the engine is told from now on is to come after what it has to say now."""
        if self.wire is not None:
            self.wire.encode()

    def report(self, error: JMSError, *, usual: bool = False) -> None:
        """Tell the exception listener; without one the log, unless it is usual or the log has it."""
        self.notifier.call(lambda: self.on_exception(error, usual))

    # -- the thread --------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._adopt(self._connect())
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
            self._end()

    def _end(self) -> None:
        """All is over: nobody waits for this thread from here on."""
        self._notify()
        self.deaf = True
        # What came at the last moment; who sends from here on sees that nobody listens.
        self.outages.refuse_last()
        self._notify()
        self._release()
        self.ended = True
        self.gate.open()
        self.on_end()

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
                self._closed(Closed("", "", clean=False))
            return
        wire.flush()
        if self.uploading:
            self._upload(wire)
        self._notify()
        if self._sleep(wire, deadline_ms, now, doze=busy):
            self.heard += 1
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
            self.notifier.call(lambda: complete_all(completed, self.notifier))
        if self.touched:
            touched, self.touched = self.touched, {}
            for gate in touched:
                gate.open()

    # -- events ------------------------------------------------------------------------------------------

    def _handle(self, events: list[Event]) -> None:
        for event in route(events):
            if isinstance(event, SessionEnded):
                self._session_ended(event)
            elif isinstance(event, Closed):
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
        wire.flush()
        if self._stopping:
            self._finish()
            return
        window_s = return_window_s_of(wire.properties) or 0.0
        loss = loss_of(wire.host, event, silent=wire.silent, return_window_s=window_s)
        if isinstance(loss.cause, JMSSecurityError):
            raise loss.cause
        self._lost(wire, loss)

    # -- connecting and failing over ---------------------------------------------------------------------

    def _connect(self) -> Wire:
        """Try brokers until one lets us in.

        Raises:
            JMSError: none did, and it is of no use to go on.
        """
        began = time.monotonic()
        while True:
            now = time.monotonic()
            waited_s = now - began
            attempt = self.connecting.next(self._chance(), waited_s)
            self._log.waiting(self.connecting.problems, now)
            self._pause(attempt.wait_s)
            login = self._login.within(attempt.timeout_s_max)
            try:
                wire = establish(attempt.host, login, self.connecting.opening_settings())
            except (OSError, JMSError) as error:
                self.connecting.failed(attempt.host, self._explained(attempt.host, error))
                continue
            if self._stopping:
                wire.close()
                raise _Stopped
            return wire

    def _explained(self, host: Host, error: Exception) -> Exception:
        """The error, after a closer look if a host that never let us in closes the connection without a word."""
        if self.connecting.connected_once or host in self._looked_at or not isinstance(error, UnheardError):
            return error
        self._looked_at.add(host)
        return explained(host, error, tls=self._login.tls is not None)

    def reopen(self, client_id: str, outcome: list[JMSError | None]) -> None:
        """Connect anew under a client id, before anything hangs on the connection; `outcome` gets the error or None.

        If that fails all stays as it was. Without a connection it waits for the next one: who comes back under a name
        is let in whoever else has it.
        """
        old = self.wire
        if old is None:
            self._naming.append((client_id, outcome))
            return
        settings = msgspec.structs.replace(self.connecting.settings, container_id=client_id)
        error: JMSError | None = None
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
            self.connecting.settings = settings
            self._adopt(wire)
        outcome.append(error)
        self.touched[self.gate] = None

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
            self._mailbox.sleep(min(remaining_s, PAUSE_S_MAX))

    def _adopt(self, wire: Wire) -> None:
        self.wire = wire
        self.frame_bytes_max = wire.engine.remote_max_frame_bytes
        self._watched = selectors.EVENT_READ
        self._mailbox.selector.register(wire, self._watched)
        if not self.connecting.connected_once:
            self.touched[self.gate] = None
            self._log.first_connected(wire.host, time.monotonic())
        self.connecting.connected(wire, after_loss=self.outages.is_open)
        self.outages.begin(wire)
        for naming in self._naming:
            self.post(self.reopen, *naming)
        self._naming.clear()
        early, wire.early_events = wire.early_events, []
        self._handle(early)

    def _lost(self, wire: Wire, loss: Loss) -> None:
        """The wire is gone: fail over, or fail."""
        began = time.monotonic()
        self.wire = None
        self._mailbox.selector.unregister(wire)
        self.outages.lost(wire, loss, began)
        wire.close()
        self._notify()
        if self._stopping:
            raise _Stopped
        if not self.connecting.begin_again(loss):
            raise JMSError(f"{loss.cause} {self.connecting.resignation}", code=UNBLOCKED, linked=loss.cause)
        self._log.lost(loss, self.connecting.hosts, began)
        self._adopt(self._connect())

    def _restored(self) -> None:
        """Everything is on the new wire."""
        assert self.wire is not None
        event = self.outages.end(self.wire, time.monotonic(), self.connecting.take_attempts())
        self._log.back(event)
        self.on_failover(event)

    # -- the end -----------------------------------------------------------------------------------------

    def disown(self, error: JMSError) -> None:
        """This process was made by `fork()`: the connection is its parent's, and no thread serves it here.

        Gives back this process's file descriptors, which changes nothing for the parent.
        """
        self.disowned = self.finished = self.ended = True
        self.error = error
        self.outages.disown(error)
        self._mailbox.close()
        wire, self.wire = self.wire, None
        if wire is not None:
            wire.drop()

    def _begin_stop(self) -> None:
        if self.wire is None or self._stop_deadline:
            return
        self.outages.flush_all()
        self.wire.engine.close()
        self._stop_deadline = time.monotonic() + CLOSE_WAIT_S

    def _finish(self) -> None:
        self.finished = True
        self.error = self.error or JMSError("The connection is closed.", code=UNBLOCKED)
        self.outages.abandon(self.error)
        self.touched[self.gate] = None

    def _fail(self, error: JMSError) -> None:
        self.error = error
        self.failed = True
        self._finish()
        if self.connecting.connected_once:
            self.report(error)

    def _release(self) -> None:
        wire, self.wire = self.wire, None
        if wire is not None:
            self._mailbox.selector.unregister(wire)
            wire.close()
        self._mailbox.close()


def _unheard(error: JMSError, usual: bool) -> Steps[None]:
    """Nobody listens."""
    yield from NOTHING

"""The client's I/O thread without a thread: the production transport, with the kernel in place of its waiting."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, ClassVar

from legato.amqp.engine.connection import Connection as Engine
from legato.amqp.engine.events import Closed, Event, Opened
from legato.amqp.engine.sasl import SaslClient
from legato.amqp.engine.settings import Settings
from legato.client.failover import wire as wires
from legato.client.failover.schedule import Try
from legato.client.failover.uri import Host, Uri
from legato.client.failover.wire import ESTABLISHMENT_FAILED, Login, Wire
from legato.client.links.notifier import Notifier
from legato.client.links.transport import Transport, _Stopped
from legato.errors import JMSError, JMSSecurityError
from simulator.history import History
from simulator.kernel import Event as Scheduled
from simulator.kernel import Kernel, Process, ProcessDiedError
from simulator.network import Network, Pipe

SWITCH_US = (1, 400)
"""How long a thread takes to wake."""


class ClientSocket:
    """What a `Wire` sees of its connection: a socket that does not block."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe

    def setblocking(self, blocking: bool) -> None:
        """It never blocks."""

    def recv(self, size: int) -> bytes:
        """What came."""
        pipe = self.pipe
        if pipe.broken:
            raise ConnectionResetError("connection reset")
        if not pipe.inbox:
            if pipe.ended:
                return b""
            raise BlockingIOError
        data = bytes(pipe.inbox[:size])
        del pipe.inbox[:size]
        return data

    def send(self, data: bytes) -> int:
        """Takes all."""
        if self.pipe.broken:
            raise BrokenPipeError("broken pipe")
        self.pipe.write(bytes(data))
        return len(data)

    def close(self) -> None:
        """Close."""
        self.pipe.reader = None
        self.pipe.close()

    @property
    def readable(self) -> bool:
        """Whether there is something to read."""
        return bool(self.pipe.inbox) or self.pipe.ended or self.pipe.broken


class SimulatedMailbox:
    """Takes the place of `Mailbox`: commands for the I/O thread, which `wake` makes run."""

    def __init__(self) -> None:
        self.wake: Callable[[], None] = lambda: None
        self.selector = SimpleNamespace(
            register=lambda *_: None, unregister=lambda *_: None, modify=lambda *_: None, close=lambda: None
        )
        self._commands: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()

    def post(self, function: Callable[..., None], *arguments: Any) -> None:
        """See `Mailbox.post`."""
        self._commands.append((function, arguments))
        self.wake()

    def hurry(self) -> None:
        """See `Mailbox.hurry`; it is always in a hurry."""

    def run(self) -> bool:
        """See `Mailbox.run`."""
        commands = self._commands
        if not commands:
            return False
        while commands:
            function, arguments = commands.popleft()
            function(*arguments)
        return True

    def close(self) -> None:
        """See `Mailbox.close`."""


class _ConnectingError(Exception):
    """Raised where the thread would block until it is connected; who catches it begins to connect."""


class Handshake:
    """What `wire.establish` does, step by step; `ended` gets the wire, or why there is none."""

    def __init__(self, transport: SimulatedTransport, attempt: Try, ended: Callable[[Wire | Exception], None]) -> None:
        self._transport = transport
        self._host = host = attempt.host
        self._ended = ended
        self._over = False
        self._socket: ClientSocket | None = None
        self._sasl = SaslClient(None, None)
        self._engine: Engine | None = None
        self._events: list[Event] = []
        kernel = transport.kernel
        timeout_s = transport.login.within(attempt.timeout_s_max).timeout_s
        self._deadline = kernel.after(int(timeout_s * 1_000_000), self._fail, TimeoutError("timed out"))
        transport.network.connect(str(host), transport.process, self._connected)

    def _connected(self, pipe: Pipe | None) -> None:
        if self._over:
            # Too late: the client has given up and drops what the network brings.
            if pipe is not None:
                pipe.reset()
        elif pipe is None:
            self._fail(ConnectionRefusedError("connection refused"))
        else:
            self._socket = ClientSocket(pipe)
            pipe.reader = self
            self._go_on(b"")

    def readable(self) -> None:
        """The broker said something, or the connection ended."""
        assert self._socket is not None
        if self._over:
            return
        try:
            data = self._socket.recv(wires.READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(error)
            return
        if data:
            self._go_on(data)
        else:
            self._fail(ConnectionResetError("the broker closed the connection"))

    def _go_on(self, data: bytes) -> None:
        try:
            if self._engine is None:
                self._sasl.receive_data(data)
            else:
                self._events += self._engine.receive_data(data)
            self._advance()
        except (OSError, JMSError) as error:
            self._fail(error)

    def _advance(self) -> None:
        socket = self._socket
        assert socket is not None
        if self._engine is None:
            if data := self._sasl.data_to_send():
                socket.send(data)
            if self._sasl.failed is not None:
                raise JMSSecurityError(self._sasl.failed)
            if not self._sasl.done:
                return
            self._engine = Engine(server=False, settings=self._transport.connecting.opening_settings())
            self._engine.open()
            if self._sasl.leftover:
                self._events += self._engine.receive_data(self._sasl.leftover)
        if data := self._engine.data_to_send():
            socket.send(data)
        for event in self._events:
            if isinstance(event, Closed):
                raise wires.refusal(self._host, event)
        for event in self._events:
            if isinstance(event, Opened) and not event.properties.get(ESTABLISHMENT_FAILED):
                self._events.remove(event)
                self._over = True
                self._deadline.cancel()
                wire = Wire(self._host, socket, self._engine, event, self._events)  # type: ignore[arg-type]
                self._ended(wire)
                return

    def _fail(self, error: Exception) -> None:
        if self._over:
            return
        self._over = True
        self._deadline.cancel()
        if self._socket is not None:
            self._socket.close()
        if self._engine is not None:
            self._engine.free()
        self._ended(error)


class SimulatedTransport(Transport):
    """The production transport; a lump of work is an event of the kernel."""

    kernel: ClassVar[Kernel]
    network: ClassVar[Network]
    history: ClassVar[History]
    _mailbox: SimulatedMailbox  # type: ignore[assignment]

    def __init__(self, uri: Uri, settings: Settings, login: Login, notifier: Notifier) -> None:
        super().__init__(uri, settings, login, notifier)
        assert self.kernel.process is not None
        self.process: Process = self.kernel.process
        self.login = login
        self._mailbox.wake = self._wake
        # `stop()` asks whether the thread was started.
        self._thread = SimpleNamespace(ident=1)  # type: ignore[assignment]
        self._next: Scheduled | None = None
        self._handshake: Handshake | None = None
        self._retry: Scheduled | None = None

    def start_thread(self) -> None:
        """See `Transport.start_thread`."""
        self._guarded(lambda: self._adopt(self._connect()))

    @property
    def is_current_thread(self) -> bool:
        """See `Transport.is_current_thread`."""
        return False

    # -- lumps ---------------------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """Something is to be done soon."""
        self._call_at(self.kernel.between_us(*SWITCH_US))

    def readable(self) -> None:
        """The broker said something."""
        self._wake()

    def _call_at(self, delay_us: int) -> None:
        at_us = self.kernel.now_us + delay_us
        if self._next is not None:
            if self._next.time_us <= at_us:
                return
            self._next.cancel()
        self._next = self.kernel.after_for(self.process, delay_us, self._lump)

    def _lump(self) -> None:
        self._next = None
        if not self.ended:
            self._guarded(self._turn if self.wire is not None else self._while_connecting)

    def _while_connecting(self) -> None:
        if self._handshake is None:
            self._mailbox.run()
        self._notify()
        if self._stopping and self._handshake is None:
            raise _Stopped

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except _ConnectingError:
            self._guarded(self._try_next)
        except _Stopped:
            self._finish()
        except JMSError as error:
            self._fail(error)
        except ProcessDiedError:
            return
        if self.finished and not self.ended:
            self._end()

    def _sleep(self, wire: Wire, deadline_ms: int, now: float, *, doze: bool) -> bool:
        socket: ClientSocket = wire._socket  # type: ignore[assignment]
        if socket.readable:
            self._wake()
            return True
        if deadline_ms:
            self._call_at(max(deadline_ms * 1000 - self.kernel.now_us, 0) + 1000)
        if self._stop_deadline:
            self._call_at(int((self._stop_deadline - now) * 1_000_000) + 1000)
        if self.uploading and any(end.can_upload for end in self.uploading):
            self._wake()
        return False

    # -- connecting ----------------------------------------------------------------------------------------------

    def _connect(self) -> Wire:
        raise _ConnectingError

    def _try_next(self) -> None:
        """As `Transport._connect` does it."""
        attempt = self.connecting.next(self.kernel.random.random())
        self._retry = self.kernel.after_for(self.process, int(attempt.wait_s * 1_000_000), self._begin, attempt)

    def _begin(self, attempt: Try) -> None:
        self._guarded(self._while_connecting)
        if not self.ended:
            host = attempt.host
            self._handshake = Handshake(
                self, attempt, lambda result: self._guarded(lambda: self._answered(host, result))
            )

    def _answered(self, host: Host, result: Wire | Exception) -> None:
        self._handshake = None
        if isinstance(result, Wire):
            socket: ClientSocket = result._socket  # type: ignore[assignment]
            socket.pipe.reader = self
            self.history.counts["failovers" if self.connecting.connected_once else "connections"] += 1
            self._adopt(result)
            self._wake()
        else:
            self.connecting.failed(host, result)
            self._try_next()

    def died(self) -> None:
        """The process is dead: give the engine's memory back."""
        if self.wire is not None:
            self.wire.engine.free()
        if self._handshake is not None and self._handshake._engine is not None:
            self._handshake._engine.free()

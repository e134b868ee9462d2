"""A network whose connections have latency, reorder or lose what is in flight, are cut, or fall silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from simulator.kernel import Kernel, Process

LATENCY_US = (50, 3_000)
SLOW_LATENCY_US = (20_000, 200_000)
REFUSED = "refused"


class Reader(Protocol):
    """What sits on an end of a connection."""

    def readable(self) -> None:
        """Bytes, or the end, came."""


class Pipe:
    """One end of a connection: what arrived is in `inbox`; what is written goes to `other`, in order."""

    def __init__(self, network: Network, process: Process) -> None:
        self.other: Pipe = self
        self.process = process
        self.inbox = bytearray()
        self.ended = False
        """The other end closed, after what is in the inbox."""
        self.broken = False
        """The connection was reset."""
        self.reader: Reader | None = None
        self.silent = False
        """Nothing arrives here any more, and nobody is told."""
        self._held: list[tuple[Callable[..., None], tuple[bytes, ...]]] | None = None
        """What arrives while the network holds it back."""
        self._network = network
        self._closed = False
        self._next_us = 0

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._closed or self.broken:
            return
        kernel = self._network.kernel
        if len(data) > 1 and kernel.chance(0.1):
            cut = kernel.random.randrange(1, len(data))
            self._send(self.other._arrive, data[:cut])
            data = data[cut:]
        self._send(self.other._arrive, data)

    def close(self) -> None:
        """Nothing more will be sent."""
        if not self._closed:
            self._closed = True
            self._send(self.other._end)

    def reset(self) -> None:
        """Drop the connection: both ends learn of it, what is under way is lost."""
        self._closed = True
        self._send(self.other._break)

    def cut(self) -> None:
        """The network drops the connection: both ends learn of it, each in its time."""
        for end in (self, self.other):
            end._next_us = 0
            self._network.kernel.after_for(end.process, self._network.latency_us(), end._break)
            end.silent = True

    def hold(self, duration_us: int) -> None:
        """What is on its way here comes late, all of it and in its order."""
        if self._held is None:
            self._held = []
            self._network.kernel.after_for(self.process, duration_us, self._let_go)

    def _let_go(self) -> None:
        held, self._held = self._held or [], None
        for arrive, arguments in held:
            arrive(*arguments)

    def _is_held(self, arrive: Callable[..., None], *arguments: bytes) -> bool:
        if self._held is None:
            return False
        self._held.append((arrive, arguments))
        return True

    def _send(self, arrive: Callable[..., None], *arguments: bytes) -> None:
        kernel = self._network.kernel
        at_us = max(kernel.now_us + self._network.latency_us(), self._next_us)
        self._next_us = at_us + 1
        kernel.after_for(self.other.process, at_us - kernel.now_us, arrive, *arguments)

    def _arrive(self, data: bytes) -> None:
        if not self.broken and not self.silent and not self._is_held(self._arrive, data):
            self.inbox += data
            self._tell()

    def _end(self) -> None:
        if not self.broken and not self.silent and not self._is_held(self._end):
            self.ended = True
            self._tell()

    def _break(self) -> None:
        if not self.broken and not self._is_held(self._break):
            self.inbox.clear()
            self.broken = True
            self._tell()

    def _tell(self) -> None:
        if self.reader is not None:
            self.reader.readable()


class Network:
    """All connections, and who listens where.

    Attributes:
        calm: it does nothing nasty by itself any more.
    """

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.calm = False
        self.connections: list[Pipe] = []
        """Client's ends."""
        self._listeners: dict[str, tuple[Process, Callable[[Pipe], None]]] = {}

    def latency_us(self) -> int:
        """How long the next packet takes."""
        bounds = SLOW_LATENCY_US if not self.calm and self.kernel.chance(0.02) else LATENCY_US
        return self.kernel.between_us(*bounds)

    def listen(self, host: str, process: Process, accept: Callable[[Pipe], None]) -> None:
        """`accept` is called with the server's end of each connection to `host`, until `process` ends."""
        self._listeners[host] = (process, accept)

    def connect(self, host: str, process: Process, answered: Callable[[Pipe | None], None]) -> None:
        """Connect: `answered` is told later, with None if nobody listens, or never: it was lost."""
        kernel = self.kernel
        self.connections = [pipe for pipe in self.connections if not pipe.broken and pipe.process.alive]
        if not self.calm and kernel.chance(0.05):
            return
        if not self.calm and kernel.chance(0.05):
            # A duplicate arrives sometime, and nobody ever speaks on it.
            kernel.after_for(None, self.latency_us(), self._accept, host, process, lambda pipe: None)
        delay_us = self.latency_us() if self.calm or kernel.chance(0.9) else kernel.between_us(100_000, 8_000_000)
        kernel.after_for(None, delay_us, self._accept, host, process, answered)

    def _accept(self, host: str, process: Process, answered: Callable[[Pipe | None], None]) -> None:
        kernel = self.kernel
        listener = self._listeners.get(host)
        if listener is None or not listener[0].alive:
            kernel.after_for(process, self.latency_us(), answered, None)
            return
        server, accept = listener
        client_end, server_end = Pipe(self, process), Pipe(self, server)
        client_end.other, server_end.other = server_end, client_end
        self.connections.append(client_end)
        kernel.after_for(server, 0, accept, server_end)
        kernel.after_for(process, self.latency_us(), answered, client_end)

    def died(self, process: Process, *, quietly: bool) -> None:
        """A process is dead: the other ends of its connections hear so from its system, or, quietly, nothing ever."""
        for pipe in list(self.connections):
            for end in (pipe, pipe.other):
                if end.process is process and not end.other.broken:
                    if quietly:
                        end.other.silent = True
                    else:
                        end.reset()

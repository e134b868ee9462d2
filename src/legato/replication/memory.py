"""A log in the memory of one process, with faults to order: for tests of what uses a log."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Condition

from legato.errors import LogUnavailableError
from legato.replication.chained_log import ChainedLog
from legato.replication.engine import AppendRefused, Bounds, EngineHealth, Message
from legato.replication.log import ReplicaHealth
from legato.replication.register import Entry, Registered

MESSAGE_BYTES_MAX = 1 << 20


class MemoryServers:
    """Servers that keep one log, and what may go wrong with them.

    Args:
        names: of the servers; the first one leads.
        message_bytes_max: the size of the largest message. Records beyond it are split.
    """

    def __init__(self, names: Sequence[str] = ("a", "b", "c"), message_bytes_max: int = MESSAGE_BYTES_MAX) -> None:
        self.message_bytes_max = message_bytes_max
        self.names = tuple(names)
        self.leader = self.names[0]
        self.changed = Condition()
        self._messages: list[bytes] = []
        self._first = 1
        self._lost: set[tuple[str, int]] = set()
        self._altered: dict[tuple[str, int], bytes] = {}
        self._up = True
        self._answers_to_lose = 0
        self._requests_to_lose = 0
        self._deposed_last: int | None = None
        self._unapplied: tuple[int, int] = 0, 0
        self.beginning_allowed = False
        self.entries: dict[str, tuple[Entry, float]] = {}
        """Of the register, by their `listen`, and when they were said, by `time.monotonic()`."""

    def register(self) -> "MemoryRegister":
        """The register of the group's replicas."""
        return MemoryRegister(self)

    def log(self, group: str) -> ChainedLog:
        """The log, for one broker of a group. Brokers that share it get an object each."""
        return ChainedLog(group, MemoryEngine(self))

    @contextmanager
    def outage(self) -> Iterator[None]:
        """No quorum meanwhile: appends and reads wait."""
        self._set_up(False)
        try:
            yield
        finally:
            self._set_up(True)

    def lose_answers(self, count: int) -> None:
        """Store the next appends, and do not say so."""
        self._answers_to_lose = count

    def lose_requests(self, count: int) -> None:
        """Neither store nor answer the next appends."""
        self._requests_to_lose = count

    def lose(self, sequence: int, server: str | None = None) -> None:
        """Let a message vanish from the disk of a server, or of all."""
        for name in self._those(server):
            self._lost.add((name, sequence))

    def alter(self, sequence: int, server: str | None = None) -> None:
        """Flip a bit of a message on the disk of a server, or of all."""
        message = bytearray(self._messages[sequence - 1])
        message[-1] ^= 1
        for name in self._those(server):
            self._altered[name, sequence] = bytes(message)

    def let_in(self, message: bytes) -> None:
        """Store a message that should have been refused."""
        with self.changed:
            self._messages.append(message)
            self.changed.notify_all()

    def message(self, sequence: int) -> bytes:
        """A message as it was appended, envelope and all."""
        return self._messages[sequence - 1]

    def append(self, data: bytes, after: int) -> int:
        """As `Engine.append`."""
        with self.changed:
            if self._requests_to_lose:
                self._requests_to_lose -= 1
                raise LogUnavailableError("the append was lost")
            if after != len(self._messages):
                raise AppendRefused
            self._messages.append(data)
            self.changed.notify_all()
            if self._answers_to_lose:
                self._answers_to_lose -= 1
                raise LogUnavailableError("the acknowledgement was lost")
            return len(self._messages)

    @contextmanager
    def deposed(self, last: int) -> Iterator[None]:
        """Let a deposed leader answer reads meanwhile, which ends with a message."""
        self._deposed_last = last
        try:
            yield
        finally:
            self._deposed_last = None

    def not_all_applied(self, last: int, answers: int) -> None:
        """Let the leader's next answers say that it ends with a message: it has not applied all that it has."""
        self._unapplied = last, answers

    def bounds(self) -> Bounds:
        """As `Engine.bounds`."""
        if self._deposed_last is not None:
            return Bounds(self._first, self._deposed_last, settled=False)
        last, answers = self._unapplied
        if answers:
            self._unapplied = last, answers - 1
            return Bounds(self._first, last)
        return Bounds(self._first, len(self._messages))

    def found(self, first: int, last: int) -> Iterator[Message]:
        """The messages that the leader has."""
        for sequence in range(max(first, self._first), min(last, self.bounds().last) + 1):
            if (self.leader, sequence) not in self._lost:
                altered = self._altered.get((self.leader, sequence))
                yield Message(sequence, self._messages[sequence - 1] if altered is None else altered)

    def trim(self, first: int) -> None:
        """As `Engine.trim`."""
        self._first = max(self._first, min(first, len(self._messages)))

    def kept_bytes(self) -> int:
        """The size of what is kept."""
        return sum(len(message) for message in self._messages[self._first - 1 :])

    def wait_until_up(self, timeout_s: float) -> None:
        """Wait for the end of an outage.

        Raises:
            LogUnavailableError: it lasts longer.
        """
        with self.changed:
            if not self.changed.wait_for(lambda: self._up, timeout_s):
                raise LogUnavailableError("the log has no quorum")

    def _set_up(self, up: bool) -> None:
        with self.changed:
            self._up = up
            self.changed.notify_all()

    def _those(self, server: str | None) -> Sequence[str]:
        return self.names if server is None else (server,)


class MemoryEngine:
    """One broker's way to the servers."""

    def __init__(self, servers: MemoryServers) -> None:
        self._servers = servers

    @property
    def message_bytes_max(self) -> int:
        """As `Engine.message_bytes_max`."""
        return self._servers.message_bytes_max

    def append(self, data: bytes, after: int, timeout_s: float) -> int:
        """As `Engine.append`."""
        self._servers.wait_until_up(timeout_s)
        return self._servers.append(data, after)

    def bounds(self, timeout_s: float) -> Bounds:
        """As `Engine.bounds`."""
        self._servers.wait_until_up(timeout_s)
        return self._servers.bounds()

    def get(self, sequence: int, timeout_s: float) -> bytes | None:
        """As `Engine.get`."""
        self._servers.wait_until_up(timeout_s)
        return next((message.data for message in self._servers.found(sequence, sequence)), None)

    def read(self, first: int, last: int, limit_bytes: int, timeout_s: float) -> Sequence[Message]:
        """As `Engine.read`."""
        self._servers.wait_until_up(timeout_s)
        messages: list[Message] = []
        for message in self._servers.found(first, last):
            messages.append(message)
            limit_bytes -= len(message.data)
            if limit_bytes <= 0:
                break
        return messages

    def watch(self, first: int) -> "MemoryWatch":
        """As `Engine.watch`."""
        return MemoryWatch(self._servers, first)

    def trim(self, first: int, timeout_s: float) -> None:
        """As `Engine.trim`."""
        self._servers.wait_until_up(timeout_s)
        self._servers.trim(first)

    def vouch(self, timeout_s: float) -> None:
        """As `Engine.vouch`: memory is for tests."""

    def health(self, timeout_s: float) -> EngineHealth:
        """As `Engine.health`."""
        self._servers.wait_until_up(timeout_s)
        replicas = [ReplicaHealth(name, name == self._servers.leader, True, 0, True) for name in self._servers.names]
        return EngineHealth(replicas, self._servers.bounds(), self._servers.kept_bytes(), ())

    def move_leader(self, away_from: str, timeout_s: float) -> str:
        """As `Engine.move_leader`."""
        self._servers.wait_until_up(timeout_s)
        if self._servers.leader == away_from:
            self._servers.leader = next(name for name in self._servers.names if name != away_from)
        return self._servers.leader

    def close(self) -> None:
        """As `Engine.close`: the servers go on."""


class MemoryWatch:
    """Messages of the leader as they come."""

    def __init__(self, servers: MemoryServers, first: int) -> None:
        self._servers = servers
        self._next = first
        self._closed = False

    def take(self, timeout_s: float) -> Sequence[Message]:
        """As `Watch.take`."""
        with self._servers.changed:
            self._servers.changed.wait_for(lambda: self._closed or self._servers.bounds().last >= self._next, timeout_s)
            if self._closed:
                return ()
            last = self._servers.bounds().last
            messages = list(self._servers.found(self._next, last))
            self._next = last + 1
            return messages

    def close(self) -> None:
        """As `Watch.close`."""
        with self._servers.changed:
            self._closed = True
            self._servers.changed.notify_all()


class MemoryRegister:
    """The register beside a log in memory; none while the servers are out.

    Args:
        servers: that keep it.
    """

    def __init__(self, servers: MemoryServers) -> None:
        self._servers = servers

    def say(self, entry: Entry, timeout_s: float) -> None:
        """As `Register.say`."""
        self._servers.wait_until_up(timeout_s)
        former, _ = self._servers.entries.get(entry.listen, (entry, 0.0))
        if entry.commits or not former.commits:
            self._servers.entries[entry.listen] = entry, time.monotonic()

    def entries(self, timeout_s: float) -> Sequence[Registered]:
        """As `Register.entries`."""
        self._servers.wait_until_up(timeout_s)
        now_s = time.monotonic()
        return [Registered(entry, now_s - said_s) for _, (entry, said_s) in sorted(self._servers.entries.items())]

    def allow_beginning(self, timeout_s: float) -> None:
        """As `Register.allow_beginning`."""
        self._servers.wait_until_up(timeout_s)
        self._servers.beginning_allowed = True

    def may_begin(self, timeout_s: float) -> bool:
        """As `Register.may_begin`."""
        self._servers.wait_until_up(timeout_s)
        return self._servers.beginning_allowed

    def forget(self, listen: str, timeout_s: float) -> bool:
        """As `Register.forget`."""
        self._servers.wait_until_up(timeout_s)
        return self._servers.entries.pop(listen, None) is not None

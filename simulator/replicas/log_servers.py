"""The servers of the simulated log, the way of brokers to them, and what is wrong with them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from legato.errors import LogUnavailableError
from legato.replication.chained_log import ChainedLog
from legato.replication.engine import AppendRefused, Bounds, EngineHealth, Message
from legato.replication.log import ReplicaHealth
from legato.replication.nats.answers import WRONG_LAST_SEQUENCE, Refusal, result
from simulator.kernel import Kernel
from simulator.replicas.cables import Cables
from simulator.replicas.log_server import Entry, LogServer, Request
from simulator.replicas.threads import Condition, Future, wait_here

SERVERS = ("log-a", "log-b", "log-c")
MESSAGE_BYTES_MAX = 1 << 20
SILENCE_US = (800_000, 2_500_000)
"""Who watches and is sent nothing for so long asks another server."""
LEADERSHIP_POLL_S = 0.05
SLOW_APPEND_US = 100_000


class LogServers:
    """Servers that keep one log.

    Args:
        kernel: of the run.
        cables: between them and to brokers.
        on_message: is told of each message when it is acknowledged, in their order.
        message_bytes_max: the size of the largest message. Records beyond it are split.

    Attributes:
        entries: those that were acknowledged, as long as there are servers: they are never to be others.
        first: the first message that is kept.
        refusing: the share of appends that are refused for no reason.
        losing: the share of acknowledgements that are lost.
        letting_in: the share of appends that are stored though their condition does not hold.
        on_slow_append: is called when one takes long.
        elections: so many times a server began to lead.
        let_in: so many appends were stored so.
    """

    def __init__(
        self,
        kernel: Kernel,
        cables: Cables,
        on_message: Callable[[int, bytes], None] = lambda sequence, data: None,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
        names: Sequence[str] = SERVERS,
    ) -> None:
        self.kernel = kernel
        self.cables = cables
        self.message_bytes_max = message_bytes_max
        self.entries: list[Entry] = []
        self.first = 1
        self.refusing = self.losing = self.letting_in = 0.0
        self.elections = 0
        self.let_in = 0
        self.on_slow_append: Callable[[], None] = lambda: None
        self._leaders: dict[int, str] = {}
        self._on_message = on_message
        self.servers: dict[str, LogServer] = {}
        for name in names:
            self.servers[name] = LogServer(self, name)
        first = self.servers[names[0]]
        kernel.after_for(first.process, 0, first.campaign)

    def log(self, group: str, node: str, home: str) -> ChainedLog:
        """The log, for a broker.

        Args:
            group: whose log it is.
            node: the broker's name on the cables.
            home: the server that it asks first.
        """
        return ChainedLog(group, SimulatedEngine(self, node, home))

    @property
    def leader(self) -> LogServer | None:
        """The server that leads; of two that believe so, the later one."""
        leading = [server for server in self.servers.values() if server.leads and server.process.alive]
        return max(leading, key=lambda server: server.term, default=None)

    def elected(self, server: LogServer) -> None:
        """A server leads from now on."""
        if self._leaders.setdefault(server.term, server.name) != server.name:
            raise AssertionError(f"term {server.term} has two leaders")
        self.elections += 1

    def acknowledged(self, index: int, entry: Entry) -> None:
        """A server knows that an entry will never be another."""
        if index > len(self.entries):
            self.entries.append(entry)
            if entry.data is not None:
                self._on_message(entry.sequence, entry.data)
        elif self.entries[index - 1] != entry:
            raise AssertionError(f"entry {index} of the log is another than was acknowledged")

    def refuses(self) -> bool:
        """Whether the leader refuses an append, for once."""
        return self.refusing > 0 and self.kernel.chance(self.refusing)

    def loses_answer(self) -> bool:
        """Whether an acknowledgement is lost."""
        return self.losing > 0 and self.kernel.chance(self.losing)

    def lets_in(self, after: int, last: int) -> bool:
        """Whether an append is stored though something is behind `after`."""
        if self.letting_in > 0 and after < last and self.kernel.chance(self.letting_in):
            self.let_in += 1
            return True
        return False

    @property
    def complete(self) -> bool:
        """Whether each server is there and has all that was acknowledged on its disk."""
        return all(
            server.process.alive and server.voter and server.synced >= len(self.entries)
            for server in self.servers.values()
        )


class SimulatedEngine:
    """One broker's way to the servers; an `Engine`. Its calls wait in threads of `threads`."""

    def __init__(self, group: LogServers, node: str, home: str) -> None:
        self.group = group
        self.node = node
        self._home = home

    @property
    def message_bytes_max(self) -> int:
        """As `Engine.message_bytes_max`."""
        return self.group.message_bytes_max

    def append(self, data: bytes, after: int, timeout_s: float) -> int:
        """As `Engine.append`."""
        kernel = self.group.kernel
        sent_us = kernel.now_us
        try:
            answer = self._ask(timeout_s, "append", data, after)
        finally:
            if kernel.now_us - sent_us > SLOW_APPEND_US:
                self.group.on_slow_append()
        try:
            return int(result(answer)["seq"])
        except Refusal as refusal:
            if refusal.code == WRONG_LAST_SEQUENCE:
                raise AppendRefused from None
            raise refusal.as_trouble() from None

    def bounds(self, timeout_s: float) -> Bounds:
        """As `Engine.bounds`."""
        return _bounds(self._ask(timeout_s, "info"))

    def get(self, sequence: int, timeout_s: float) -> bytes | None:
        """As `Engine.get`."""
        found = self._ask(timeout_s, "read", sequence, sequence, 1)
        return found[0][1] if found else None

    def read(self, first: int, last: int, limit_bytes: int, timeout_s: float) -> Sequence[Message]:
        """As `Engine.read`."""
        return [Message(*each) for each in self._ask(timeout_s, "read", first, last, limit_bytes)]

    def watch(self, first: int) -> SimulatedWatch:
        """As `Engine.watch`."""
        return SimulatedWatch(self, first)

    def trim(self, first: int, timeout_s: float) -> None:
        """As `Engine.trim`."""
        self._ask(timeout_s, "trim", first)

    def vouch(self, timeout_s: float) -> None:
        """As `Engine.vouch`: they sync before they acknowledge."""
        self._ask(timeout_s, "info")

    def health(self, timeout_s: float) -> EngineHealth:
        """As `Engine.health`."""
        info = self._ask(timeout_s, "info")
        *_, leader, others = info
        replicas = [ReplicaHealth(leader, True, True, 0, True)]
        replicas += [ReplicaHealth(name, False, current, lag, True) for name, current, lag in others]
        trouble = [f"{each.server} does not answer the leader" for each in replicas if not each.current]
        group = self.group
        kept = [entry.data for entry in group.entries if entry.data is not None and entry.sequence >= group.first]
        return EngineHealth(replicas, _bounds(info), sum(map(len, kept)), trouble)

    def move_leader(self, away_from: str, timeout_s: float) -> str:
        """As `Engine.move_leader`."""
        until_us = self.group.kernel.now_us + int(timeout_s * 1_000_000)
        while True:
            leader = str(self._ask(timeout_s, "info")[3])
            if leader != away_from:
                return leader
            if not self._ask(timeout_s, "step_down"):
                raise LogUnavailableError(f"no server but {away_from} is current, so that none may lead the log")
            while leader == away_from:
                if self.group.kernel.now_us > until_us:
                    raise LogUnavailableError("no other server leads yet")
                wait_here(LEADERSHIP_POLL_S)
                try:
                    leader = str(self._ask(timeout_s, "info")[3])
                except LogUnavailableError:
                    continue
            return leader

    def close(self) -> None:
        """As `Engine.close`."""

    def turn_away(self) -> None:
        """Ask another server from now on."""
        names = [name for name in self.group.servers if name != self._home]
        self._home = self.group.kernel.random.choice(names)

    @property
    def server(self) -> LogServer:
        """Whom it asks.

        Raises:
            LogUnavailableError: that one is down; another is asked next.
        """
        server = self.group.servers[self._home]
        if not server.process.alive:
            self.turn_away()
            raise LogUnavailableError("a server of the log refused the connection")
        return server

    def _ask(self, timeout_s: float, operation: str, *arguments: Any) -> Any:
        future: Future[Any] = Future()
        server = self.server
        request = Request(self.node, server.name, operation, arguments, future.set_result)
        self.group.cables.send(self.node, server.name, server.process, server.take, request)
        try:
            answer = future.result(timeout_s)
        except TimeoutError:
            self.turn_away()
            raise LogUnavailableError("no server of the log answered in time") from None
        if isinstance(answer, bytes) and operation != "append":
            try:
                result(answer)
            except Refusal as refusal:
                raise refusal.as_trouble() from None
        return answer


def _bounds(info: tuple[int, int, bool, str, Any]) -> Bounds:
    first, last, settled, *_ = info
    return Bounds(first if last else last + 1, last, settled)


class SimulatedWatch:
    """Messages of one of the servers as they come; of another after a silence."""

    def __init__(self, engine: SimulatedEngine, first: int) -> None:
        self.node = engine.node
        self._engine = engine
        self._next = first
        self._subscription = 0
        self._waiting: deque[Message] = deque()
        self._changed = Condition()
        self._closed = False
        self._heard_us = 0
        self._patience_us = 0

    def take(self, timeout_s: float) -> Sequence[Message]:
        """As `Watch.take`."""
        kernel = self._engine.group.kernel
        if kernel.now_us - self._heard_us >= self._patience_us:
            self._subscribe()
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closed, timeout_s)
            taken = [] if self._closed else list(self._waiting)
            self._waiting.clear()
        return taken

    def arrive(self, subscription: int, sequence: int, data: bytes) -> None:
        """A message came."""
        if subscription == self._subscription and sequence >= self._next:
            self._heard_us = self._engine.group.kernel.now_us
            self._next = sequence + 1
            self._waiting.append(Message(sequence, data))
            self._changed.notify_all()

    def close(self) -> None:
        """As `Watch.close`."""
        self._closed = True
        for server in self._engine.group.servers.values():
            server.unsubscribe(self)
        self._changed.notify_all()

    def _subscribe(self) -> None:
        kernel = self._engine.group.kernel
        if self._subscription:
            self._engine.turn_away()
        self._heard_us = kernel.now_us
        self._patience_us = kernel.between_us(*SILENCE_US)
        self._subscription += 1
        try:
            server = self._engine.server
        except LogUnavailableError:
            return
        self._engine.group.cables.send(
            self.node, server.name, server.process, server.subscribe, self, self._subscription, self._next
        )

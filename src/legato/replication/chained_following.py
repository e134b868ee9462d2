"""The records of a chain, as they come."""

from collections import deque
from collections.abc import Callable, Sequence
from threading import Event

from legato.clock import elapsed_s
from legato.errors import LogUnavailableError
from legato.replication.chain import Chain
from legato.replication.engine import Engine, Message
from legato.replication.gapless import read_on
from legato.replication.log import Position, Record
from legato.replication.patience import ATTEMPT_S, Patience

LOOK_S = 0.5
"""So long it may ask, beyond the time that whoever takes has."""
FILL_BYTES = 1 << 22
"""So much is asked for at once of what did not come: a log may be larger than the memory."""


class ChainedFollowing:
    """The records behind a chain.

    What the servers send may have gaps, as after a loss of the connection; the leader is asked for what is in them.

    Args:
        engine: the log's servers.
        chain: where to begin.
        count: told of the chain after each step.
        silence_s: after so long a silence the leader is asked whether the log goes on where nothing was sent.
    """

    def __init__(self, engine: Engine, chain: Chain, count: Callable[[Chain], None], silence_s: float) -> None:
        self._engine = engine
        self._chain = chain
        self._count = count
        self._silence_s = silence_s
        self._closed = Event()
        self._watch = engine.watch(chain.looked_at + 1)
        self._ready: deque[Record] = deque()
        self._end = chain.end
        self._heard_s = self._seen_s = elapsed_s()
        self._missed = chain.looked_at
        """Up to here the leader has messages that were not fed to the chain, if this is beyond it."""

    @property
    def end(self) -> Position:
        """As `Following.end`."""
        return self._end

    @property
    def seen(self) -> int:
        """As `Following.seen`."""
        return self._chain.looked_at

    @property
    def heard_s(self) -> float:
        """As `Following.heard_s`."""
        return self._seen_s

    def take(self, timeout_s: float, limit_bytes: int = 1 << 22) -> Sequence[Record]:
        """As `Following.take`."""
        until_s = elapsed_s() + timeout_s
        while not self._ready and not self._closed.is_set():
            left_s = until_s - elapsed_s()
            self._receive(min(max(left_s, 0), self._silence_s))
            if left_s <= 0:
                break
        taken: list[Record] = []
        size = 0
        while self._ready and (size < limit_bytes or not taken):
            taken.append(self._ready.popleft())
            size += len(taken[-1].data)
        if taken:
            self._end = taken[-1].position
        return taken

    def close(self) -> None:
        """As `Following.close`."""
        self._closed.set()
        self._watch.close()

    def _receive(self, timeout_s: float) -> None:
        is_behind = self._missed > self._chain.looked_at
        messages = self._watch.take(0 if is_behind else timeout_s)
        seen, now_s = self.seen, elapsed_s()
        if messages:
            self._heard_s = now_s
            self._put(messages)
        elif is_behind:
            self._heard_s = now_s
            self._fill(self._missed)
        elif now_s - self._heard_s >= self._silence_s and not self._closed.is_set():
            self._heard_s = now_s
            self._look_behind(min(max(timeout_s, LOOK_S), ATTEMPT_S))
        if self.seen > seen:
            self._seen_s = elapsed_s()
        self._count(self._chain)

    def _put(self, messages: Sequence[Message]) -> None:
        for message in messages:
            if message.sequence > self._chain.looked_at + 1:
                self._fill(message.sequence - 1)
            if message.sequence > self._chain.looked_at + 1:  # the gap was too large to be filled at once
                self._missed = messages[-1].sequence if self._missed else 0
                return
            if message.sequence == self._chain.looked_at + 1:  # else it was sent again
                self._ready.extend(self._chain.feed([message]))

    def _look_behind(self, timeout_s: float) -> None:
        """Go on where servers send nothing though the log does, as they do where messages are missing at its end."""
        try:
            last = self._engine.bounds(timeout_s).last
        except LogUnavailableError:
            return
        self._fill(last)

    def _fill(self, last: int) -> None:
        """Feed the chain what the leader has of messages that did not come, some of it if that is very much."""
        self._missed = last
        size = 0
        try:
            while self._chain.looked_at < last and size < FILL_BYTES:
                patience = Patience(2 * ATTEMPT_S, self._closed)
                found = read_on(self._engine, self._chain.looked_at + 1, last, FILL_BYTES, patience)
                size += sum(len(message.data) for message in found)
                self._ready.extend(self._chain.feed(found))
        except LogUnavailableError:
            self._missed = 0  # the next look asks again

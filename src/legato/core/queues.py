"""A queue: its order, the window of its head that is in the heap, and what came back.

1. Order is the sequence number. What came back is older than anything not yet dispatched, so it goes first.
2. `ready` holds committed messages `loaded_seq` and below that were never dispatched since they were loaded;
   those between `loaded_seq` and `visible_seq` wait on disk.
3. A message above `mark` may not be dispatched: after a crash nobody would know that it may have been seen.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from legato.core.message import Message
from legato.core.records import Archive, QueueRecord
from legato.limits import FIRST_LOAD_MESSAGES, WINDOW_BYTES, WINDOW_MESSAGES

if TYPE_CHECKING:
    from legato.core.consumers import Consumer

_ELSEWHERE_MAX = 10_000


class Queue:
    """One queue, durable state and window."""

    __slots__ = (
        "claimed",
        "consumed",
        "consumers",
        "flag_upto",
        "id",
        "last_seq",
        "load_next",
        "loaded_seq",
        "mark",
        "mark_pending",
        "name",
        "ready",
        "recorded",
        "returned",
        "returning",
        "ring",
        "stored",
        "taken_again",
        "visible_seq",
        "window_bytes",
    )

    def __init__(self, record: QueueRecord) -> None:
        self.id = record.queue
        self.name = record.name
        self.last_seq = record.last_seq
        self.visible_seq = record.last_seq
        self.loaded_seq = 0 if record.stored > record.consumed else record.last_seq
        self.load_next = FIRST_LOAD_MESSAGES
        self.flag_upto = record.dispatch_mark
        self.mark = record.dispatch_mark
        self.mark_pending = record.dispatch_mark
        self.stored = record.stored
        self.consumed = record.consumed
        self.ready: deque[Message] = deque()
        self.returned: list[Message] = []
        self.returning = 0
        """Messages that come back with the next commits: until then nothing is dispatched past them."""
        self.window_bytes = 0
        self.recorded = (record.stored, record.consumed)
        """Counters as of the last `QueueMarked`."""
        self.consumers: list[Consumer] = []
        self.ring: deque[Consumer] = deque()
        """Consumers that can be given a message now, next one first."""
        self.claimed: set[int] = set()
        """Messages on disk that a returning consumer holds: loading passes over them."""
        self.taken_again: dict[int, str] = {}
        """Redelivered messages that were consumed, and by whose container: bounded, so that a late
        acknowledgement can be told the truth (promise 5)."""

    @property
    def depth(self) -> int:
        """Messages stored and not consumed, in flight ones included."""
        return self.stored - self.consumed

    def append(self, message: Message) -> None:
        """A message became durable: it joins the window if somebody may want it, the window reaches up to it, and
        there is room; else it waits on disk."""
        seq = message.seq
        if (
            self.loaded_seq == self.visible_seq
            and self.consumers
            and self.window_bytes < WINDOW_BYTES
            and len(self.ready) < WINDOW_MESSAGES
        ):
            self.ready.append(message)
            self.window_bytes += message.size
            self.loaded_seq = seq
        self.visible_seq = seq

    def load(self, archive: Archive) -> bool:
        """Read the next part of the queue from disk; whether anything came."""
        while self.loaded_seq < self.visible_seq:
            stored = archive.messages(self.id, self.loaded_seq, self.load_next, WINDOW_BYTES)
            self.load_next = min(2 * self.load_next, WINDOW_MESSAGES)
            if not stored:
                self.loaded_seq = self.visible_seq
                return False
            for found in stored:
                if found.seq > self.visible_seq:
                    break
                self.loaded_seq = found.seq
                if found.seq in self.claimed:
                    self.claimed.discard(found.seq)
                    continue
                self.ready.append(self._restored(found.seq, found.body, found.count, found.flagged))
                self.window_bytes += len(found.body)
            if self.ready:
                return True
        return False

    def unload(self) -> None:
        """Nobody receives any more: what was never dispatched waits on disk (promise 6)."""
        self.load_next = FIRST_LOAD_MESSAGES
        if self.ready:
            self.loaded_seq = self.ready[0].seq - 1
            self.ready.clear()
            self.window_bytes = 0

    def body(self, message: Message, archive: Archive) -> bytes:
        """The bytes of a message that came back without them."""
        if message.body is None:
            found = archive.messages(self.id, message.seq - 1, 1, 0)
            assert found, f"{message} is waiting but not in the store"
            assert found[0].seq == message.seq, f"{message} is waiting but not in the store"
            message.body = found[0].body
        return message.body

    def _restored(self, seq: int, body: bytes, count: int, presented: bool) -> Message:
        message = Message(self, seq, body, len(body))
        # Presented and neither settled nor returned before the crash: that delivery counts (promise 4).
        message.count = count + 1 if presented else count
        message.flagged = seq <= self.flag_upto
        return message

    def head(self) -> Message | None:
        """The next message in order, if it is in the window."""
        if self.returned:
            return self.returned[0]
        return self.ready[0] if self.ready else None

    def take(self) -> Message:
        """Remove and return the next message in order; the window must hold one."""
        if self.returned:
            return heappop(self.returned)
        message = self.ready.popleft()
        self.window_bytes -= message.size
        return message

    def put_back(self, message: Message) -> None:
        """A message returns to its original place."""
        assert message.consumer is None
        heappush(self.returned, message)

    def claim(self, seqs: set[int], archive: Archive) -> dict[int, Message]:
        """Take messages out of order, for a consumer whose application still holds them: those that are still here."""
        claimed = {message.seq: message for message in (*self.returned, *self.ready) if message.seq in seqs}
        if claimed:
            self.window_bytes -= sum(message.size for message in self.ready if message.seq in claimed)
            self.returned = sorted(message for message in self.returned if message.seq not in claimed)
            self.ready = deque(message for message in self.ready if message.seq not in claimed)
        on_disk = sorted(seq for seq in seqs if self.loaded_seq < seq <= self.visible_seq)
        while on_disk:
            found = archive.messages(self.id, on_disk[0] - 1, FIRST_LOAD_MESSAGES, WINDOW_BYTES)
            for stored in found:
                if stored.seq in seqs:
                    claimed[stored.seq] = self._restored(stored.seq, stored.body, stored.count, stored.flagged)
            read_through = found[-1].seq if found else self.visible_seq
            on_disk = [seq for seq in on_disk if seq > read_through]
        # Should the window be read again, it passes over them.
        self.claimed.update(claimed)
        return claimed

    def holder(self, seq: int) -> Consumer | None:
        """The consumer that has the message `seq` in flight."""
        return next((consumer for consumer in self.consumers if seq in consumer.unsettled), None)

    def remember_taken(self, seq: int, container: str) -> None:
        """A redelivered message was consumed by `container`."""
        if len(self.taken_again) >= _ELSEWHERE_MAX:
            del self.taken_again[next(iter(self.taken_again))]
        self.taken_again[seq] = container

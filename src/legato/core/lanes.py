"""A lane: the messages of one priority in a queue; the window of its head is in memory.

1. Order is the sequence number, also of what came back. That is mostly older than anything not yet dispatched, but not
   where a consumer chose it (`core.selecting`): then what is before it is read first.
2. `ready` holds committed messages `loaded_seq` and below that were never dispatched since they were loaded;
   those between `loaded_seq` and `visible_seq` wait on disk.
3. A message above `mark` may not be dispatched: after a crash nobody would know that it may have been seen.
4. While the queue selects (`core.selecting`) there is no window: each consumer looks through what is on disk itself.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from legato.core.message import Message, MessageRun
from legato.core.message_states import ARRIVING, AVAILABLE, LEAVE, PUT_BACK, enter
from legato.core.records import Archive, Run, StoredMessage, StoredRun
from legato.limits import (
    DELIVERY_BYTES_IN_ONE_GO,
    FIRST_LOAD_MESSAGES,
    JOINED_BYTES_MAX,
    LOAD_BYTES,
    RETURNED_MIN,
    WINDOW_BYTES,
    WINDOW_MESSAGES,
)

if TYPE_CHECKING:
    from legato.core.queues import Queue

RUN_MIN = 4
"""Fewer neighbours that are read from disk are cheaper one by one."""
LANE_SHIFT = 56
"""The bits of a sequence number above these say which lane it is of."""
PRIORITY_DEFAULT = 4


def lane_number(priority: int) -> int:
    """The number of a priority's lane: 0 for the default priority, so that its sequences are 1, 2, 3 ..."""
    return 0 if priority == PRIORITY_DEFAULT else min(max(priority, 0), 9) + 1


def lane_priority(number: int) -> int:
    """The priority of the lane of that number."""
    return PRIORITY_DEFAULT if number == 0 else number - 1


class _Neighbours:
    """Plain messages that are read from disk one behind the other, until they join the window."""

    __slots__ = ("ends", "next_seq", "pieces", "size")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        self.pieces: list[StoredMessage | StoredRun] = []
        self.ends = array("I")
        self.size = self.next_seq = 0

    def add(self, message: StoredMessage) -> None:
        self.pieces.append(message)
        self.size += len(message.body)
        self.ends.append(self.size)
        self.next_seq = message.seq + 1

    def add_run(self, run: StoredRun) -> None:
        if self.pieces:
            self.ends.extend([self.size + end for end in run.ends])
        else:
            self.ends = run.ends[:]
        self.pieces.append(run)
        self.size += len(run.content)
        self.next_seq = run.last_seq + 1

    def messages(self) -> Iterator[StoredMessage]:
        """Each of them."""
        for piece in self.pieces:
            if isinstance(piece, StoredRun):
                yield from piece.messages()
            else:
                yield piece

    def run(self, queue: Queue) -> MessageRun:
        """All of them; large ones are not copied to be one."""
        content: bytes | list[bytes]
        if self.size >= JOINED_BYTES_MAX * len(self.ends):
            content = [message.body for message in self.messages()]
        else:
            pieces = [piece.content if isinstance(piece, StoredRun) else piece.body for piece in self.pieces]
            content = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        return MessageRun(queue, self.pieces[0].seq, content, self.ends)


class Lane:
    """The messages of one priority in a queue."""

    __slots__ = (
        "_returned_max",
        "claimed",
        "flag_upto",
        "last_seq",
        "load_next",
        "loaded_seq",
        "mark",
        "mark_pending",
        "number",
        "priority",
        "queue",
        "ready",
        "returned",
        "run_messages",
        "start",
        "visible_seq",
        "wanted",
        "window_bytes",
    )

    def __init__(self, queue: Queue, number: int, last_seq: int, mark: int, *, waiting: bool) -> None:
        self.queue = queue
        self.number = number
        self.priority = lane_priority(number)
        self.start = number << LANE_SHIFT
        self.last_seq = max(last_seq, self.start)
        self.visible_seq = self.last_seq
        self.loaded_seq = self.start if waiting else self.last_seq
        self.load_next = FIRST_LOAD_MESSAGES
        self.flag_upto = mark
        self.mark = mark
        self.mark_pending = mark
        self.wanted = 0
        """The furthest message that was found for a consumer and is above the mark."""
        self.ready: deque[Message | MessageRun] = deque()
        self.returned: list[Message] = []
        """A heap; those not `waiting` any more are stale, and one that came back again may be there twice."""
        self._returned_max = RETURNED_MIN
        """With more of them, the stale ones are forgotten: while the queue selects nobody else does it."""
        self.window_bytes = 0
        self.run_messages = 0
        """How many messages the runs in `ready` have, beyond one for each."""
        self.claimed: set[int] = set()
        """Messages on disk that are known here as objects: reading passes over them."""

    def append(self, message: Message) -> None:
        """A message became durable: it joins the window if somebody may want it, the window reaches up to it, and
        there is room; else it waits on disk."""
        seq = message.seq
        if (
            self.loaded_seq == self.visible_seq
            and self.queue.windowed
            and self.window_bytes < WINDOW_BYTES
            and len(self.ready) + self.run_messages < WINDOW_MESSAGES
        ):
            assert message.state == ARRIVING
            message.state = AVAILABLE
            self.ready.append(message)
            self.window_bytes += message.size
            self.loaded_seq = seq
        if seq > self.visible_seq:
            self.visible_seq = seq

    def append_run(self, run: MessageRun) -> None:
        """A run became durable: likewise, as a whole."""
        last = run.last_seq
        if (
            self.loaded_seq == self.visible_seq
            and self.queue.windowed
            and self.window_bytes < WINDOW_BYTES
            and len(self.ready) + self.run_messages < WINDOW_MESSAGES
        ):
            self.ready.append(run)
            self.run_messages += run.count - 1
            self.window_bytes += run.size
            self.loaded_seq = last
        self.visible_seq = max(self.visible_seq, last)

    def take_run(self, count: int) -> MessageRun:
        """Remove and return the first ones of the run that is first in the window."""
        run = self.ready[0]
        assert isinstance(run, MessageRun)
        if count == run.count:
            self.ready.popleft()
            self.run_messages -= count - 1
            return run
        self.run_messages -= count
        return run.split(count)

    def tell_apart(self) -> None:
        """The run that is first in the window is its messages from now on."""
        run = self.ready.popleft()
        assert isinstance(run, MessageRun)
        self.run_messages -= run.count - 1
        self.ready.extendleft(reversed(run.messages()))

    def window(self) -> list[Message]:
        """The messages of the window, in order, as objects of their own."""
        found: list[Message] = []
        for entry in self.ready:
            found += [entry] if isinstance(entry, Message) else entry.messages()
        return found

    def seq_at(self, place: int) -> int:
        """The sequence of the message at a place in the window, from 0 on."""
        if self.run_messages:
            for entry in self.ready:
                count = 1 if isinstance(entry, Message) else entry.count
                if place < count:
                    return entry.seq + place
                place -= count
        return self.ready[place].seq

    def _tell_all_apart(self) -> None:
        if self.run_messages or any(isinstance(entry, MessageRun) for entry in self.ready):
            self.ready = deque(self.window())
            self.run_messages = 0

    def load(self, archive: Archive) -> bool:
        """Read the next part of the lane from disk; whether anything came."""
        while self.loaded_seq < self.visible_seq:
            as_runs = self.number == 0 and self.queue.takes_runs
            read = archive.messages_in_runs if as_runs else archive.messages
            stored = read(self.queue.id, self.loaded_seq, self.load_next, LOAD_BYTES)
            self.load_next = min(2 * self.load_next, WINDOW_MESSAGES)
            if not stored:
                self.loaded_seq = self.visible_seq
                return False
            neighbours = _Neighbours()
            for found in self._readable(stored):
                if found.seq > self.visible_seq:
                    # Durable, and not announced yet: nothing that may be had is before it.
                    self.loaded_seq = self.visible_seq
                    break
                if isinstance(found, StoredRun):
                    self.loaded_seq = found.last_seq
                    self.window_bytes += len(found.content)
                    self._add_run(neighbours, found)
                    continue
                self.loaded_seq = found.seq
                if found.seq in self.claimed:
                    continue
                self.window_bytes += len(found.body)
                if as_runs and found.seq > self.flag_upto and found.is_plain:
                    self._end_run(neighbours, found.seq)
                    neighbours.add(found)
                    continue
                self._join(neighbours)
                self.ready.append(self.restored(found))
            self._join(neighbours)
            if self.ready:
                return True
        return False

    def _readable(self, stored: Sequence[StoredMessage | StoredRun]) -> Iterator[StoredMessage | StoredRun]:
        """What was read, with the messages of a run apart if not all of them join the window as they are."""
        for found in stored:
            if isinstance(found, StoredRun) and (
                found.seq <= self.flag_upto
                or found.last_seq > self.visible_seq
                or (self.claimed and not self.claimed.isdisjoint(range(found.seq, found.last_seq + 1)))
            ):
                yield from found.messages()
            else:
                yield found

    def _add_run(self, neighbours: _Neighbours, run: StoredRun) -> None:
        """A run was read, of which some may be one with those before it."""
        while True:
            self._end_run(neighbours, run.seq)
            count = bisect_left(run.ends, DELIVERY_BYTES_IN_ONE_GO - neighbours.size) + 1
            if count >= len(run.ends):
                neighbours.add_run(run)
                return
            first, run = run.split(count)
            neighbours.add_run(first)

    def _end_run(self, neighbours: _Neighbours, seq: int) -> None:
        """What was read is not one run with `seq`, if there is a gap, or a consumer is not given more at once."""
        if neighbours.pieces and (neighbours.next_seq != seq or neighbours.size >= DELIVERY_BYTES_IN_ONE_GO):
            self._join(neighbours)

    def _join(self, neighbours: _Neighbours) -> None:
        """Plain neighbours that were read join the window, as a run if they are not few; none are left then."""
        if len(neighbours.ends) < RUN_MIN:
            self.ready.extend(map(self.restored, neighbours.messages()))
        else:
            run = neighbours.run(self.queue)
            self.ready.append(run)
            self.run_messages += run.count - 1
        neighbours.clear()

    def unload(self) -> None:
        """Nobody receives any more: what was never dispatched waits on disk (promise 6)."""
        self.load_next = FIRST_LOAD_MESSAGES
        if self.ready:
            self.loaded_seq = self.ready[0].seq - 1
            self.ready.clear()
            self.window_bytes = self.run_messages = 0

    def restart(self) -> None:
        """The window begins again at the lane's start; what is claimed will be passed over."""
        self.ready.clear()
        self.window_bytes = self.run_messages = 0
        self.load_next = FIRST_LOAD_MESSAGES
        self.loaded_seq = self.start
        self._forget_stale()

    def _forget_stale(self) -> None:
        waiting = {message.seq: message for message in self.returned if message.waiting}
        self.returned = list(waiting.values())
        heapify(self.returned)
        self._returned_max = max(2 * len(self.returned), RETURNED_MIN)

    def restored(self, stored: StoredMessage) -> Message:
        """The message of this lane as it was read."""
        message = Message(self.queue, stored.seq, stored.body, len(stored.body))
        message.state = AVAILABLE
        # Presented and neither settled nor returned before the crash: that delivery counts (promise 4).
        message.count = stored.count + 1 if stored.flagged else stored.count
        message.flagged = stored.seq <= self.flag_upto
        if message.count:
            cut_off = sum(attempt.cause == "disconnect" for attempt in stored.history)
            message.lost = min(message.count, cut_off + stored.flagged)
            message.unrecorded = stored.flagged
        message.expires_us = stored.expires_us
        return message

    def take_out(self, seqs: set[int]) -> None:
        """Messages leave the window, wherever they are in it."""
        kept: deque[Message | MessageRun] = deque()
        for entry in self.ready:
            if isinstance(entry, Message) and entry.seq in seqs:
                self.window_bytes -= entry.size
            else:
                kept.append(entry)
        self.ready = kept

    def pass_over(self, run: Run, floor: int) -> list[int]:
        """A run of what waits is taken away, the first there is above `floor`.

        If something may wait at or below `floor`, the run is claimed until its commit (`release_run`): the lane may be
        read again from there.

        Returns:
            The sequences of the run that somebody had had.
        """
        end = run.seq + run.count - 1
        if self.ready and self.ready[0].seq <= end:
            self._tell_all_apart()
            kept = [message for message in self.window() if not run.seq <= message.seq <= end]
            self.ready = deque(kept)
            self.window_bytes = sum(message.size for message in kept)
        returned: list[int] = []
        for message in self.returned:
            # One that came back twice is there twice.
            if message.waiting and run.seq <= message.seq <= end:
                message.waiting = False
                enter(message, LEAVE)
                returned.append(message.seq)
        if floor > self.start:
            self.claimed.update(range(run.seq, end + 1))
            return returned
        if self.claimed:
            self.claimed = {seq for seq in self.claimed if not run.seq <= seq <= end}
        self.start = max(self.start, end)
        self.loaded_seq = max(self.loaded_seq, end)
        return returned

    def release_run(self, run: Run) -> None:
        """A run that was claimed when it was taken away is not on disk any more."""
        self.claimed.difference_update(range(run.seq, run.seq + run.count))

    def find(self, archive: Archive) -> bool:
        """Whether anything waits; the next message in order is in the heap then, maybe in a run."""
        returned = self.first_returned
        if self.ready:
            return True
        if returned is None:
            return self.load(archive)
        if returned.seq > self.loaded_seq:
            self.load(archive)
        return True

    def _returned_first(self) -> bool:
        """Whether the next message in order came back; ask after `find`."""
        return bool(self.returned and not (self.ready and self.ready[0].seq < self.returned[0].seq))

    @property
    def first_run(self) -> MessageRun | None:
        """The run that is next in order, if it is a run; ask after `find`."""
        if not self.ready or self._returned_first():
            return None
        first = self.ready[0]
        return first if isinstance(first, MessageRun) else None

    def head(self, archive: Archive) -> Message | None:
        """The next message in order, if anything waits; a run before it is told apart."""
        if not self.find(archive):
            return None
        if self._returned_first():
            return self.returned[0]
        if self.ready[0].__class__ is MessageRun:
            self.tell_apart()
        first = self.ready[0]
        assert first.__class__ is Message
        return first

    def take(self) -> Message:
        """Remove and return what `head` returned."""
        if self._returned_first():
            return self.take_returned()
        first = self.ready.popleft()
        assert first.__class__ is Message
        self.window_bytes -= first.size
        return first

    @property
    def first_returned(self) -> Message | None:
        """The first message that came back and still waits."""
        returned = self.returned
        while returned and not returned[0].waiting:
            heappop(returned)
        return returned[0] if returned else None

    def take_returned(self) -> Message:
        """Remove and return what `first_returned` returned."""
        message = heappop(self.returned)
        message.waiting = False
        return message

    def put_back(self, message: Message) -> None:
        """A message returns to its original place."""
        assert message.consumer is None
        assert not message.waiting
        enter(message, PUT_BACK)
        message.waiting = True
        heappush(self.returned, message)
        if len(self.returned) > self._returned_max:
            self._forget_stale()

    def claim(self, seqs: set[int], archive: Archive) -> dict[int, Message]:
        """Take messages out of order, for a consumer whose application still holds them: those that are still here."""
        claimed = {m.seq: m for m in self.returned if m.waiting and m.seq in seqs}
        for message in claimed.values():
            message.waiting = False
        self._tell_all_apart()
        in_window = {m.seq: m for m in self.ready if isinstance(m, Message) and m.seq in seqs}
        if in_window:
            self.window_bytes -= sum(message.size for message in in_window.values())
            self.ready = deque(message for message in self.ready if message.seq not in in_window)
            claimed |= in_window
        on_disk = sorted(seq for seq in seqs - claimed.keys() if self.loaded_seq < seq <= self.visible_seq)
        on_disk = [seq for seq in on_disk if seq not in self.claimed]
        for stored in archive.unread_messages(self.queue.id, on_disk) if on_disk else ():
            message = claimed[stored.seq] = self.restored(stored)
            message.size = stored.unread_bytes
        for message in claimed.values():
            # They may be many and large: their bytes are read when they are given.
            message.body = None
        # Should the lane be read again, it passes over them.
        self.claimed.update(claimed)
        return claimed

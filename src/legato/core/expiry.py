"""Expiry: expired messages leave their queues."""

from __future__ import annotations

from legato import limits
from legato.core.commit import Commit
from legato.core.directory import Directory
from legato.core.facts import Kind
from legato.core.kernel import Kernel
from legato.core.lanes import Lane
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.records import ExpiryPlace
from legato.core.router import Router

_PERIOD_US = 500_000


class _Look:
    """One look at what expired.

    Each lane is looked through once, and what leaves its window leaves at the end: there may be very many, and those in
    flight are never found.
    """

    def __init__(self) -> None:
        self._returned: dict[Lane, dict[int, Message]] = {}
        self._window: dict[Lane, dict[int, Message]] = {}
        self._taken: dict[Lane, set[int]] = {}

    def take_returned(self, lane: Lane, seq: int) -> Message | None:
        """What came back to the lane and waits, at most once."""
        returned = self._returned.get(lane)
        if returned is None:
            returned = self._returned[lane] = {message.seq: message for message in lane.returned if message.waiting}
        return returned.pop(seq, None)

    def take_from_window(self, lane: Lane, seq: int) -> Message | None:
        """What waits in the window; it is not there any more after `end`."""
        window = self._window.get(lane)
        if window is None:
            # Those in runs do not expire.
            window = self._window[lane] = {m.seq: m for m in lane.ready if isinstance(m, Message) and m.expires_us}
        message = window.pop(seq, None)
        if message is not None:
            self._taken.setdefault(lane, set()).add(seq)
        return message

    def end(self) -> None:
        """What was taken leaves the windows."""
        for lane, seqs in self._taken.items():
            lane.take_out(seqs)


class Expiry:
    """Finds expired messages from time to time."""

    __slots__ = ("_bytes", "_commit", "_directory", "_kernel", "_next_us", "_router", "_upto")

    def __init__(self, kernel: Kernel, directory: Directory, router: Router) -> None:
        self._kernel = kernel
        self._directory = directory
        self._router = router
        self._next_us = 0
        self._upto = ExpiryPlace()
        self._commit: Commit | None = None
        """What messages expired with last."""
        self._bytes = 0
        """How many bytes of them: so many were read, or go to expiry queues with it."""

    def tick(self) -> None:
        """Expire messages nobody has, some at a time; those in flight may still be consumed."""
        kernel = self._kernel
        # A time further away than a period is of before the clock was set back.
        if self._is_full() or 0 < self._next_us - kernel.now_us <= _PERIOD_US:
            return
        self._next_us = kernel.now_us + _PERIOD_US
        places = kernel.archive.expired(self._upto, kernel.now_us, limits.SCAN_MESSAGES)
        look = _Look()
        for place in places:
            if self._is_full():
                self._next_us = 0
                break
            self._upto = place
            queue = self._directory.node(place.queue)
            if isinstance(queue, Queue) and queue.kind in (Kind.QUEUE, Kind.SUBSCRIPTION):
                self._expire_at(queue, place.seq, look)
        else:
            if len(places) == limits.SCAN_MESSAGES:
                self._next_us = 0
            else:
                self._upto = ExpiryPlace()
        look.end()

    def expire_first(self, queue: Queue) -> None:
        """The same for one queue, at once: as much as one look at the clock would find."""
        kernel = self._kernel
        look = _Look()
        for place in kernel.archive.expired(ExpiryPlace(), kernel.now_us, limits.SCAN_MESSAGES):
            if self._is_full():
                break
            if place.queue == queue.id:
                self._expire_at(queue, place.seq, look)
        look.end()

    def _is_full(self) -> bool:
        """Whether no more expire with the next commit, which gets no more bytes of them than of publishers."""
        if self._commit is not self._kernel.gathering:
            self._commit, self._bytes = None, 0
        return self._bytes >= limits.BATCH_BYTES_MAX

    def _expire(self, message: Message) -> None:
        self._commit = self._kernel.gathering
        self._bytes += message.size
        self._router.expire(message)

    def _expire_at(self, queue: Queue, seq: int, look: _Look) -> None:
        """Expire a message that waits, in the window or on disk."""
        lane = queue.lane(seq) if seq >> 56 in queue.lanes else queue.main
        returned = look.take_returned(lane, seq)
        if returned is not None and returned.waiting:
            # Dispatching sees it only if somebody has credit, and wants it.
            found = self._kernel.archive.messages(queue.id, seq - 1, 1, 0)
            if found and found[0].seq == seq:
                returned.body = found[0].body
                returned.waiting = False
                lane.claimed.add(seq)
                queue.claims = True
                self._expire(returned)
            return
        if queue.selecting or seq > lane.loaded_seq:
            if seq in lane.claimed or seq > lane.visible_seq:
                return
            found = self._kernel.archive.messages(queue.id, seq - 1, 1, 0)
            if found and found[0].seq == seq:
                lane.claimed.add(seq)
                queue.claims = True
                self._expire(lane.restored(found[0]))
            return
        waiting = look.take_from_window(lane, seq)
        if waiting is not None:
            # The window may begin again before it, while it is still on disk.
            lane.claimed.add(seq)
            queue.claims = True
            self._expire(waiting)

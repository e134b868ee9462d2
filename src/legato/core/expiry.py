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
        if self._is_full() or kernel.now_us < self._next_us:
            return
        self._next_us = kernel.now_us + _PERIOD_US
        places = kernel.archive.expired(self._upto, kernel.now_us, limits.SCAN_MESSAGES)
        returned: dict[Lane, dict[int, Message]] = {}
        for place in places:
            if self._is_full():
                self._next_us = 0
                return
            self._upto = place
            queue = self._directory.node(place.queue)
            if isinstance(queue, Queue) and queue.kind in (Kind.QUEUE, Kind.SUBSCRIPTION):
                self._expire_at(queue, place.seq, returned)
        if len(places) == limits.SCAN_MESSAGES:
            self._next_us = 0
        else:
            self._upto = ExpiryPlace()

    def expire_first(self, queue: Queue) -> None:
        """The same for one queue, at once: as much as one look at the clock would find."""
        kernel = self._kernel
        returned: dict[Lane, dict[int, Message]] = {}
        for place in kernel.archive.expired(ExpiryPlace(), kernel.now_us, limits.SCAN_MESSAGES):
            if self._is_full():
                return
            if place.queue == queue.id:
                self._expire_at(queue, place.seq, returned)

    def _is_full(self) -> bool:
        """Whether no more expire with the next commit, which gets no more bytes of them than of publishers."""
        if self._commit is not self._kernel.gathering:
            self._commit, self._bytes = None, 0
        return self._bytes >= limits.BATCH_BYTES_MAX

    def _expire(self, message: Message) -> None:
        self._commit = self._kernel.gathering
        self._bytes += message.size
        self._router.expire(message)

    def _expire_at(self, queue: Queue, seq: int, came_back: dict[Lane, dict[int, Message]]) -> None:
        """Expire a message that waits, in the window or on disk.

        Args:
            came_back: of each lane that was looked at, what came back to it and waits: there may be very many.
        """
        lane = queue.lane(seq) if seq >> 56 in queue.lanes else queue.main
        if lane not in came_back:
            came_back[lane] = {message.seq: message for message in lane.returned if message.waiting}
        returned = came_back[lane].pop(seq, None)
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
        waiting = next((m for m in lane.ready if isinstance(m, Message) and m.seq == seq), None)
        if waiting is not None:
            lane.ready.remove(waiting)
            lane.window_bytes -= waiting.size
            # The window may begin again before it, while it is still on disk.
            lane.claimed.add(seq)
            queue.claims = True
            self._expire(waiting)

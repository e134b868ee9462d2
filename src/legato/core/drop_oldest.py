"""Drop the oldest messages of a full address."""

from __future__ import annotations

from legato import limits
from legato.core.kernel import Kernel
from legato.core.lanes import Lane
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.router import Router


class DropOldest:
    """`when_full = "drop-oldest"`."""

    __slots__ = ("_kernel", "_router")

    def __init__(self, kernel: Kernel, router: Router) -> None:
        self._kernel = kernel
        self._router = router

    def enforce(self, queue: Queue) -> None:
        """Drop what is too much: the lowest priority first, the oldest of that first; never what somebody has."""
        if queue.settings.when_full != "drop-oldest":
            return
        for lane in reversed(queue.order):
            while _is_over(queue):
                oldest = self._take_oldest(lane)
                if oldest is None:
                    break
                self._router.drop(oldest, "dropped")
        if not queue.consumers:
            queue.unload()

    def _take_oldest(self, lane: Lane) -> Message | None:
        if not lane.queue.selecting:
            # Asked again, `head` tells a run apart that was read: one message of it goes.
            if lane.head() is None and not (lane.load(self._kernel.archive) and lane.head() is not None):
                return None
            return lane.take()
        after = lane.start
        while found := self._kernel.archive.messages(lane.queue.id, after, limits.SCAN_MESSAGES, limits.WINDOW_BYTES):
            for stored in found:
                after = stored.seq
                if after not in lane.claimed:
                    lane.claimed.add(after)
                    return lane.restored(stored)
        return None


def _is_over(queue: Queue) -> bool:
    settings = queue.settings
    return bool(
        (settings.max_messages and queue.depth > settings.max_messages)
        or (settings.max_bytes and queue.bytes > settings.max_bytes)
    )

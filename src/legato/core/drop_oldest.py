"""Drop the oldest messages of a full address."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from legato import limits
from legato.core.commit import Commit
from legato.core.kernel import Kernel
from legato.core.lanes import Lane
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.records import Archive, StoredMessage
from legato.core.router import Router


class DropOldest:
    """`when_full = "drop-oldest"`."""

    __slots__ = ("_kernel", "_router", "_unfinished")

    def __init__(self, kernel: Kernel, router: Router) -> None:
        self._kernel = kernel
        self._router = router
        self._unfinished: dict[Queue, dict[Lane, int]] = {}
        """Queues with more to drop than one slice of a turn, and where to read on in lanes without windows."""

    def enforce(self, queue: Queue, commit: Commit) -> None:
        """Drop what is too much after a commit: the lowest priority first, the oldest of that first; never what
        somebody has.

        As much as came with the commit goes at once, else the queue would grow for as long as producers go on. There
        may be more: a whole backlog where a limit was lowered, or a batch of any size that somebody staged. What of
        that is beyond a slice is for `go_on`.
        """
        places = self._unfinished.pop(queue, {})
        if queue.settings.when_full == "drop-oldest" and _is_over(queue):
            count, size = commit.came_to(queue)
            budget = limits.SCAN_MESSAGES + min(count, limits.BATCH_FACTS_MAX)
            owed_bytes = size if queue.settings.max_bytes else 0
            self._drop(_Slice(queue, self._kernel.archive, places, budget, owed_bytes))

    def review(self, queue: Queue) -> None:
        """Its settings changed: what is too much now is for `go_on`, there may be many such queues."""
        if queue.settings.when_full == "drop-oldest" and _is_over(queue):
            self._unfinished.setdefault(queue, {})
            self._kernel.scan_again()

    def review_returned(self, queue: Queue) -> None:
        """Something may have been given back without a commit, and was given to nobody: likewise."""
        if any(lane.first_returned is not None for lane in queue.order):
            self.review(queue)

    def go_on(self) -> None:
        """The next slice of what is too much."""
        is_over = self._kernel.begin_slice()
        while self._unfinished and not is_over():
            queue = next(iter(self._unfinished))
            places = self._unfinished.pop(queue)
            self._drop(_Slice(queue, self._kernel.archive, places, limits.SCAN_MESSAGES, time_is_over=is_over))
            if queue in self._unfinished:
                break
        if self._unfinished:
            self._kernel.scan_again()

    def _drop(self, piece: _Slice) -> None:
        queue = piece.queue
        if queue.settings.when_full != "drop-oldest" or queue.deleted:
            return
        for lane in reversed(queue.order):
            while piece.wants_more:
                oldest = piece.oldest(lane)
                if oldest is None:
                    break
                piece.dropped(oldest.size)
                self._router.drop(oldest, "dropped")
        if piece.is_cut_short:
            self._unfinished[queue] = piece.places
            self._kernel.scan_again()
        if not queue.consumers:
            queue.unload()


class _Slice:
    """One slice of what is dropped from a queue.

    Args:
        budget: how many messages it may look at, at least.
        owed_bytes: what it drops until it has dropped so many costs nothing of the budget, up to a commit's worth.
        time_is_over: whether it has to end all the same.

    Attributes:
        is_cut_short: whether there may be more to drop.
        places: where the next slice is to read on in lanes without windows.
        queue: the queue.
    """

    def __init__(
        self,
        queue: Queue,
        archive: Archive,
        places: dict[Lane, int],
        budget: int,
        owed_bytes: int = 0,
        time_is_over: Callable[[], bool] = lambda: False,
    ) -> None:
        self.is_cut_short = False
        self.places = places
        self.queue = queue
        self._archive = archive
        self._time_is_over = time_is_over
        self._left = budget
        self._owed_bytes = owed_bytes
        self._free = limits.BATCH_FACTS_MAX
        self._read: deque[StoredMessage] = deque()
        """Read from a lane without a window, and not looked at yet."""
        self._read_next = limits.SCAN_FIRST_MESSAGES

    @property
    def wants_more(self) -> bool:
        """Whether more is too much, and this slice may drop it."""
        if not _is_over(self.queue):
            return False
        if not self._left or self._time_is_over():
            self.is_cut_short = True
            return False
        return True

    def dropped(self, size: int) -> None:
        """The message that it gave was dropped; passing over what somebody has is never free."""
        if self._owed_bytes > 0 and self._free:
            self._owed_bytes -= size
            self._free -= 1
            self._left += 1

    def oldest(self, lane: Lane) -> Message | None:
        """The oldest message of a lane that nobody has, taken out of it; None at the end of the lane or the slice."""
        if not self.queue.selecting:
            if lane.head(self._archive) is None:
                return None
            self._left -= 1
            return lane.take()
        # What came back is claimed: on disk it is passed over.
        returned = lane.first_returned
        before = lane.visible_seq + 1 if returned is None else returned.seq
        while (stored := self._next(lane, before)) is not None:
            self._left -= 1
            if stored.seq not in lane.claimed:
                lane.claimed.add(stored.seq)
                return lane.restored(stored)
            if not self.wants_more:
                return None
        if returned is None:
            self._read.clear()
            return None
        self._left -= 1
        return lane.take_returned()

    def _next(self, lane: Lane, before: int) -> StoredMessage | None:
        """The next message on disk below `before`, whoever has it."""
        after = max(self.places.get(lane, 0), lane.start)
        if after + 1 >= before:
            return None
        if not self._read:
            limit = min(self._left, self._read_next)
            self._read_next = limits.SCAN_MESSAGES
            self._read.extend(self._archive.messages(self.queue.id, after, limit, limits.WINDOW_BYTES))
        # What is durable and not announced yet is not the lane's.
        if not self._read or self._read[0].seq >= before:
            return None
        stored = self._read.popleft()
        self.places[lane] = stored.seq
        return stored


def _is_over(queue: Queue) -> bool:
    settings = queue.settings
    return bool(
        (settings.max_messages and queue.depth > settings.max_messages)
        or (settings.max_bytes and queue.bytes > settings.max_bytes)
    )

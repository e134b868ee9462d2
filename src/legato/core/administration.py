"""Administration: purge, move, pause, and reload of settings; long work is done in slices."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from legato import limits
from legato.core.backpressure import Backpressure
from legato.core.commit import Commit
from legato.core.consumers import Matcher
from legato.core.dead_letters import NOTHING_MORE
from legato.core.directory import Directory
from legato.core.dispatch_modes import DispatchModes
from legato.core.dispatcher import Dispatcher
from legato.core.drop_oldest import DropOldest
from legato.core.effects import Finished
from legato.core.facts import ActionAudited, QueuePaused
from legato.core.kernel import Kernel
from legato.core.message import Message
from legato.core.outcome import Outcome, RefusedCommit
from legato.core.queues import Queue
from legato.core.records import StoredMessage
from legato.core.router import Router
from legato.core.topics import Node


class Job:
    """A purge or move: the waiting messages that match are moved to `to`, or dropped."""

    def __init__(
        self,
        queue: Queue,
        to: Node | None,
        matches: Matcher | None,
        limit: int,
        token: Any,
        properties: Mapping[str, str | int] = NOTHING_MORE,
        above: Callable[[], int] = lambda: 0,
    ) -> None:
        self.queue = queue
        self.to = to
        self.matches = matches
        self.left = limit
        self.token = token
        self.properties = properties
        self.above = above
        """What of the queue is to stay, or is leaving: all sequences up to there, each time anew."""
        self.count = 0
        """Messages of which that is durable."""
        self.refused = ""
        """Why some found no room."""
        self.returned: deque[Message] = deque()
        """What had come back when it was asked for, and is still to be looked at, the oldest first."""
        self.ranges = [(lane.start, lane.visible_seq) for lane in queue.order]
        """What is still to be looked at: above the first, up to the second."""


class CameBack(msgspec.Struct, gc=False):
    """What was coming back to its queue when a job was asked for is there: the job begins."""

    administration: Administration
    job: Job

    def durable(self, outcome: Outcome) -> None:
        """The next slice finds it in its place."""
        self.administration.begin(self.job)

    def refused(self, refusal: RefusedCommit) -> None:
        """It comes back all the same."""
        refusal.retry(self)
        refusal.await_end()


class Worked(msgspec.Struct, gc=False):
    """A slice of a job purged or moved so many messages."""

    job: Job
    count: int

    def durable(self, outcome: Outcome) -> None:
        """They are gone."""
        self.job.count += self.count

    def refused(self, refusal: RefusedCommit) -> None:
        """What was moved found no room, and is in its place again: the job ends. What is purged goes all the same."""
        if self.job.to is None:
            refusal.retry(self)
        else:
            self.job.left = 0
            self.job.refused = refusal.description


class Ended(msgspec.Struct, gc=False):
    """A job looked at all that it was to look at."""

    job: Job

    def durable(self, outcome: Outcome) -> None:
        """It is known what became of all of it."""
        outcome.answers.append(Finished(self.job.token, self.job.count, self.job.refused))

    def refused(self, refusal: RefusedCommit) -> None:
        """It ended all the same."""
        refusal.retry(self)
        refusal.await_end()


class Administration:
    """The commands of administrators."""

    __slots__ = ("_backpressure", "_directory", "_dispatcher", "_drop_oldest", "_jobs", "_kernel", "_modes", "_router")

    def __init__(
        self,
        kernel: Kernel,
        modes: DispatchModes,
        directory: Directory,
        backpressure: Backpressure,
        drop_oldest: DropOldest,
        router: Router,
        dispatcher: Dispatcher,
    ) -> None:
        self._kernel = kernel
        self._modes = modes
        self._directory = directory
        self._backpressure = backpressure
        self._drop_oldest = drop_oldest
        self._router = router
        self._dispatcher = dispatcher
        self._jobs: deque[Job] = deque()

    def pause(self, queue: Queue, paused: bool) -> None:
        """Stop dispatching from a queue, or go on; publishing goes on."""
        if queue.paused != paused:
            queue.paused = paused
            self._kernel.record(QueuePaused(queue.id, paused))
            self._dispatcher.dispatch(queue)

    def record_action(self, action: ActionAudited) -> None:
        """Put on record what the audit trail says somebody did."""
        self._kernel.record(action)

    def apply_settings(self) -> Iterator[None]:
        """Settings were read again: they hold for what happens from now on; a step is for so many addresses.

        What is made in the meantime has them already.
        """
        for place, topic in enumerate(list(self._directory.topics.values()), 1):
            topic.settings = self._directory.settings_of(topic.address)
            if place % limits.SETTINGS_IN_ONE_GO == 0:
                yield
        for place, queue in enumerate(list(self._directory.queues.values()), 1):
            if not queue.deleted:
                queue.settings = self._directory.settings_of(queue.address)
                self._modes.review(queue)
                self._drop_oldest.review(queue)
                self._dispatcher.dispatch(queue)
            if place % limits.SETTINGS_IN_ONE_GO == 0:
                yield
        self._backpressure.announce_all()

    # -- long work -----------------------------------------------------------------------------------------------

    def purge(self, queue: Queue, token: Any) -> None:
        """Drop what waits now and is in nobody's hands; `Finished` tells how many those were."""
        self._ask_for(Job(queue, None, None, queue.depth, token))

    def move(
        self,
        queue: Queue,
        to: Node,
        token: Any,
        *,
        matches: Matcher | None = None,
        limit: int = 1 << 62,
        properties: Mapping[str, str | int] = NOTHING_MORE,
        above: Callable[[], int] = lambda: 0,
    ) -> None:
        """Move what waits now, or what matches, to another address; `Finished` tells how many those were.

        It ends where a commit finds no room.

        Args:
            properties: that the messages get on their way, in place of those of the same names.
            above: tells which messages stay, or are leaving in another way: all up to that sequence.
        """
        self._ask_for(Job(queue, to, matches, limit, token, properties, above))

    def _ask_for(self, job: Job) -> None:
        """The job begins; where something is coming back to its queue, once that is there."""
        queue = job.queue
        queue.jobs += 1
        self._modes.review(queue)
        returned = [message for lane in queue.order for message in lane.returned if message.waiting]
        last: Commit | None = None
        for commit in self._kernel.commits:
            if coming := [message for message in commit.returned if message.queue is queue]:
                returned += coming
                last = commit
        job.returned.extend(sorted(returned, key=lambda each: (-queue.lane(each.seq).priority, each.seq)))
        if last is None:
            self.begin(job)
        else:
            last.changes.append(CameBack(self, job))
            last.awaited = True

    def begin(self, job: Job) -> None:
        """All that the job is to look at is in its place."""
        self._jobs.append(job)
        self._kernel.scan_again()

    def go_on(self) -> None:
        """The next slice of the oldest job."""
        if self._jobs:
            job = self._jobs.popleft()
            if self._work(job):
                job.queue.jobs -= 1
                if not job.queue.deleted:
                    self._modes.review(job.queue)
                    self._dispatcher.dispatch(job.queue)
                self._kernel.change(Ended(job))
                self._kernel.gathering.awaited = True
            else:
                self._jobs.append(job)
            if self._jobs:
                self._kernel.scan_again()

    def _work(self, job: Job) -> bool:
        """A slice of a job; whether it is done."""
        queue = job.queue
        if queue.deleted or (job.to is not None and job.to.deleted):
            return True
        before = job.left
        try:
            return self._work_returned(job, is_over := self._kernel.begin_slice()) and self._work_on_disk(job, is_over)
        finally:
            if job.left < before:
                self._kernel.change(Worked(job, before - job.left))

    def _work_on_disk(self, job: Job, is_over: Callable[[], bool]) -> bool:
        queue = job.queue
        while job.ranges and job.left:
            after, until = job.ranges[0]
            after = max(after, job.above())
            found = self._kernel.archive.messages(queue.id, after, limits.SCAN_MESSAGES, limits.WINDOW_BYTES)
            lane = queue.lane(after) if after >> 56 in queue.lanes else queue.main
            for stored in found:
                after = stored.seq
                if after > until or not job.left:
                    break
                if after not in lane.claimed:
                    self._work_on(job, lane.restored(stored), stored)
                    if is_over():
                        break
            if not found or after >= until:
                job.ranges.pop(0)
            else:
                job.ranges[0] = (after, until)
                return False
        return True

    def _work_returned(self, job: Job, is_over: Callable[[], bool]) -> bool:
        """Work on the messages that had come back: they are in the heap. Whether that was all of them."""
        for _ in range(limits.SCAN_MESSAGES):
            if not (job.returned and job.left):
                return True
            message = job.returned.popleft()
            if message.waiting:
                body = job.queue.body(message, self._kernel.archive)
                self._work_on(job, message, StoredMessage(message.seq, body))
                if is_over():
                    break
        return not (job.returned and job.left)

    def _work_on(self, job: Job, message: Message, stored: StoredMessage) -> None:
        if job.matches is not None and not job.matches(stored.body):
            return
        job.queue.lane(message.seq).claimed.add(message.seq)
        if job.to is None:
            self._router.drop(message, "purged")
        else:
            outgoing = self._router.copy_of(message)
            outgoing.count = 0
            if job.properties:
                outgoing.body = self._kernel.bodies.annotate(outgoing.body, job.properties)
            self._router.move(message, "moved", job.to, outgoing)
        job.left -= 1

"""Administration: addresses come and go, are emptied, paused and re-read; long work is done in slices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from legato import limits
from legato.core.consumers import Consumer, Matcher
from legato.core.directory import Node
from legato.core.effects import Finished
from legato.core.facts import QueuePaused
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.receivers import Consuming
from legato.core.records import StoredMessage
from legato.core.redelivery import NOTHING_MORE
from legato.core.refusals import Exists
from legato.core.topics import Topic


class Job:
    """Work on what waits in a queue when it begins: those that match are moved to `to`, or dropped."""

    def __init__(
        self,
        queue: Queue,
        to: Node | None,
        matches: Matcher | None,
        limit: int,
        token: Any,
        properties: Mapping[str, str | int] = NOTHING_MORE,
    ) -> None:
        self.queue = queue
        self.to = to
        self.matches = matches
        self.left = limit
        self.token = token
        self.properties = properties
        self.count = 0
        self.ranges = [(lane.start, lane.visible_seq) for lane in queue.order]
        """What is still to be looked at: above the first, up to the second."""


class Administering(Consuming):
    """Creating, deleting, emptying, moving, pausing."""

    def create_temporary(self, name: str, *, topic: bool, container: str) -> Node:
        """A queue or topic that lives until `delete` (AMQP 3.5.10), or until nobody comes back for it.

        Raises:
            Exists: there is one of that name.
        """
        if self.lookup(name) is not None:
            raise Exists(f"There is already something named {name!r}.")
        if topic:
            return self.create_topic(name, container=container, temporary=True)
        return self.create_queue(name, container=container, temporary=True)

    def delete(self, node: Node) -> list[Consumer]:
        """Delete a queue, subscription or topic with all that is in it; returns the consumers that were cut off."""
        if isinstance(node, Topic):
            cut_off = [consumer for queue in node.subscriptions.values() for consumer in queue.consumers]
            for queue in list(node.subscriptions.values()):
                self._delete(queue)
            self._forget(node, 0)
            self.topics.pop(node.address, None)
            return cut_off
        cut_off = list(node.consumers)
        self._delete(node)
        return cut_off

    def pause(self, queue: Queue, paused: bool) -> None:
        """Stop dispatching from a queue, or go on; publishing goes on."""
        if queue.paused != paused:
            queue.paused = paused
            self._kernel.record(QueuePaused(queue.id, paused))
            self._dispatch(queue)

    def settings_changed(self) -> None:
        """Settings were read again: they hold for what happens from now on."""
        for topic in self.topics.values():
            topic.settings = self._settings(topic.address)
        for queue in self.queues.values():
            queue.settings = self._settings(queue.address)
            self._review(queue)
            self._dispatch(queue)

    # -- long work -----------------------------------------------------------------------------------------------

    def purge(self, queue: Queue, token: Any) -> None:
        """Drop what waits now and is in nobody's hands; `Finished` tells how many those were."""
        self._begin(Job(queue, None, None, queue.depth, token))

    def move(
        self,
        queue: Queue,
        to: Node,
        token: Any,
        *,
        matches: Matcher | None = None,
        limit: int = 1 << 62,
        properties: Mapping[str, str | int] = NOTHING_MORE,
    ) -> None:
        """Move what waits now, or what matches, to another address; `Finished` tells how many those were.

        Args:
            properties: that the messages get on their way, in place of those of the same names.
        """
        self._begin(Job(queue, to, matches, limit, token, properties))

    def _begin(self, job: Job) -> None:
        job.queue.jobs += 1
        self._review(job.queue)
        self._jobs.append(job)
        self._kernel.scan_again()

    def go_on(self, now_us: int) -> None:
        """The next slice of what is looked through in slices."""
        self._kernel.now_us = now_us
        self._kernel.scan_began()
        is_over = self._kernel.begin_slice()
        unscanned, self._unscanned = list(self._unscanned), {}
        for place, queue in enumerate(unscanned, 1):
            self._dispatch(queue)
            if place < len(unscanned) and is_over():
                # First the next time, before those that were looked through now.
                self._unscanned = dict.fromkeys(unscanned[place:]) | self._unscanned
                self._kernel.scan_again()
                break
        if self._jobs:
            job = self._jobs.popleft()
            if self._work(job):
                job.queue.jobs -= 1
                if not job.queue.deleted:
                    self._review(job.queue)
                    self._dispatch(job.queue)
                self._kernel.emit(Finished(job.token, job.count))
            else:
                self._jobs.append(job)
            if self._jobs:
                self._kernel.scan_again()

    def _work(self, job: Job) -> bool:
        """A slice of a job; whether it is done."""
        queue = job.queue
        if queue.deleted:
            return True
        is_over = self._kernel.begin_slice()
        self._work_returned(job)
        while job.ranges and job.left:
            after, until = job.ranges[0]
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

    def _work_returned(self, job: Job) -> None:
        """What came back is in the heap."""
        queue = job.queue
        for lane in queue.order:
            for message in list(lane.returned):
                if not job.left:
                    return
                if not message.waiting:
                    continue
                body = queue.body(message, self._kernel.archive)
                self._work_on(job, message, StoredMessage(message.seq, body))

    def _work_on(self, job: Job, message: Message, stored: StoredMessage) -> None:
        if job.matches is not None and not job.matches(stored.body):
            return
        job.queue.lane(message.seq).claimed.add(message.seq)
        if job.to is None:
            self._drop(message, "purged")
        else:
            outgoing = self._again(message)
            outgoing.count = 0
            if job.properties:
                outgoing.body = self._kernel.bodies.annotate(outgoing.body, job.properties)
            self._move(message, "moved", job.to, outgoing)
        job.count += 1
        job.left -= 1

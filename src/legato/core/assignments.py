"""Assignments: a pipeline takes ranges of messages that it can read again until it acknowledges them.

1. An assignment is one subscription's share of one queue. What it takes leaves the queue for good and gets numbers
   without gaps, 1, 2, 3 ..., which last: a range of numbers means the same messages after any restart or takeover.
2. It is done in order: acknowledging a number acknowledges all below it.
3. Each run of a pipeline fences the one before it, so that what is left of that cannot take or acknowledge anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from legato import limits
from legato.core.administration import Administration
from legato.core.changes import RunGone
from legato.core.deletion import Deletion
from legato.core.directory import Directory
from legato.core.dispatch_modes import DispatchModes
from legato.core.expiry import Expiry
from legato.core.facts import AssignmentAcknowledged, AssignmentFenced, Kind, MessagesAssigned, MessageTaken
from legato.core.kernel import Kernel
from legato.core.lanes import LANE_SHIFT, Lane
from legato.core.outcome import Outcome, RefusedCommit
from legato.core.queues import Queue
from legato.core.records import QueueRecord, Run
from legato.core.refusals import AssignmentFencedOff, NotFound, Refusal

_NO_LIMIT = 1 << 62


class Assignment:
    """The messages that a subscription has taken from a queue.

    Args:
        queue: where that is; its sequences are the numbers.
        source: the number of the queue that it takes from.
    """

    __slots__ = ("acknowledged", "begun", "fence", "floors", "queue", "source")

    def __init__(self, queue: Queue, record: QueueRecord) -> None:
        self.queue = queue
        self.source = record.topic
        self.fence = record.fence
        self.floors = {floor >> LANE_SHIFT: floor for floor in record.floors}
        self.acknowledged = record.acknowledged
        """The last number that the pipeline is done with."""
        self.begun: int | None = None
        """The last number that the pipeline has begun to read; None if this epoch was not told. It is not durable."""

    @property
    def last(self) -> int:
        """The last number given out."""
        return self.queue.main.last_seq


class Assigned(msgspec.Struct, frozen=True):
    """The state of an assignment; `waiting` counts the messages that its queue still has.

    What is not known to have been begun, since an earlier epoch or a client of an earlier version saw to it, counts as
    begun.
    """

    fence: int
    acknowledged: int
    last: int
    waiting: int
    begun: int


class Extent(msgspec.Struct, frozen=True):
    """Messages of an assignment without gaps between them, up to the number `last`, and their bytes."""

    last: int
    count: int
    size: int


class Assignments:
    """Commands of pipelines.

    Attributes:
        by_number: those in use, by the number of their queue.
    """

    __slots__ = ("_administration", "_deletion", "_directory", "_expiry", "_kernel", "_modes", "by_number")

    def __init__(
        self,
        kernel: Kernel,
        modes: DispatchModes,
        directory: Directory,
        expiry: Expiry,
        deletion: Deletion,
        administration: Administration,
    ) -> None:
        self.by_number: dict[int, Assignment] = {}
        self._kernel = kernel
        self._modes = modes
        self._directory = directory
        self._expiry = expiry
        self._deletion = deletion
        self._administration = administration

    def open(
        self, name: str, source: Queue, *, latest: bool = False, renew: bool = False, tells: bool = False
    ) -> Assignment:
        """The assignment of that name, made if there is none; a new run of its pipeline has it from now on.

        Args:
            name: `ASSIGNMENT_PREFIX` and whatever tells it from others.
            latest: what waits when the assignment is made is not for it.
            renew: if the queue that it took from was deleted, it takes from `source` from now on; its numbers go on.
            tells: whether its run will tell what it begins to read.

        Raises:
            Refusal: there is one of that name that takes from another queue.
        """
        renewed = 0
        assignment = self.find(name)
        if assignment is None:
            floors = [lane.last_seq for lane in source.order] if latest else []
            record = self._directory.new_record(name, Kind.ASSIGNMENT, topic=source.id)
            record.floors = floors
            queue = self._directory.adopt(record)
            assert isinstance(queue, Queue)
            assignment = self.by_number[queue.id] = Assignment(queue, record)
        elif assignment.source != source.id:
            if not renew or self.has_source(assignment):
                raise Refusal(
                    f"{name} takes from another queue, which was deleted since. Let its pipeline go on with the new "
                    "one (failOnDataLoss = false), or delete the assignment first."
                )
            renewed = assignment.source = source.id
            assignment.floors = {}
        self._fence(assignment, renewed)
        if not tells:
            assignment.begun = None
        elif assignment.begun is None:
            assignment.begun = assignment.last
        return assignment

    def resume(self, assignment: Assignment) -> None:
        """A new run of its pipeline has the assignment from now on, whether or not its queue is still there."""
        self._fence(assignment)

    def has_source(self, assignment: Assignment) -> bool:
        """Whether the queue that it takes from is there, or was deleted."""
        return isinstance(self._directory.node(assignment.source), Queue)

    def _fence(self, assignment: Assignment, renewed: int = 0) -> None:
        """Fence off the former owner of an assignment.

        Args:
            renewed: the number of the queue that it takes from since, if that is another one.
        """
        assignment.fence += 1
        self._kernel.record(
            AssignmentFenced(assignment.queue.id, assignment.fence, list(assignment.floors.values()), renewed)
        )

    def find(self, name: str) -> Assignment | None:
        """The assignment of that name, if there is one."""
        queue = self._directory.find_queue(name)
        if queue is None or queue.kind != Kind.ASSIGNMENT:
            return None
        assignment = self.by_number.get(queue.id)
        if assignment is None:
            record = self._kernel.archive.queue_by_number(queue.id)
            assert record is not None, f"{name} is in use and not in the store"
            assignment = self.by_number[queue.id] = Assignment(queue, record)
        return assignment

    def stand(self, assignment: Assignment) -> Assigned:
        """How the assignment stands."""
        source = self._directory.node(assignment.source)
        depth = source.depth if isinstance(source, Queue) else 0
        begun = assignment.last if assignment.begun is None else assignment.begun
        return Assigned(assignment.fence, assignment.acknowledged, assignment.last, depth, begun)

    def begin_reading(self, assignment: Assignment, fence: int, through: int) -> None:
        """The pipeline begins to read the numbers up to `through`.

        Raises:
            AssignmentFencedOff: a later run has the assignment.
        """
        self._check_fence(assignment, fence)
        assignment.begun = max(assignment.begun or 0, through)

    def assign(self, assignment: Assignment, fence: int, limit: int, limit_bytes: int) -> Assigned:
        """Take what waits in its queue and nobody has, the highest priority first.

        Nothing while the queue gives nothing out: it is paused, or all of it waits for a redelivery.

        Args:
            limit: at most so many messages.
            limit_bytes: no more once this is exceeded, or soon after.

        Raises:
            AssignmentFencedOff: a later run has the assignment.
            NotFound: its queue was deleted.
            Refusal: the queue's consumers select what they want (selectors, groups, priorities of consumers).
        """
        self._check_fence(assignment, fence)
        source = self._directory.node(assignment.source)
        if not isinstance(source, Queue):
            raise NotFound(f"The queue of {assignment.queue.name} was deleted.")
        if source.selecting and (source.consumers or source.jobs):
            raise Refusal(
                f"{source.name} has consumers with selectors, groups or priorities, or that gave back many messages as "
                "undeliverable there, or an operation on it is under way; its messages cannot be assigned meanwhile."
            )
        if source.paused or source.held_until_us > self._kernel.now_us:
            return self.stand(assignment)
        if limit > 0:
            self._expiry.expire_first(source)
        for lane in source.order:
            for run in self._available(assignment, source, lane, limit, limit_bytes):
                self._take_run(assignment, source, run)
                limit -= run.count
                limit_bytes -= run.size
            if limit <= 0 or limit_bytes < 0:
                break
        return self.stand(assignment)

    def acknowledge_through(self, assignment: Assignment, fence: int, through: int) -> None:
        """The pipeline is done with all numbers up to `through`, if it was not already.

        Raises:
            AssignmentFencedOff: a later run has the assignment.
            Refusal: there is no such number yet.
        """
        self._check_fence(assignment, fence)
        if through > assignment.last:
            raise Refusal(f"{assignment.queue.name} has numbers up to {assignment.last}, not {through}.")
        if through > assignment.acknowledged:
            extents = self._extents_of(assignment, through)
            if not extents or extents[-1].last < through:
                extents.append(Extent(through, 0, 0))
            for extent in extents:
                # Whoever reads the log is to know which numbers these were.
                assignment.queue.bytes -= extent.size
                assignment.queue.consumed += extent.count
                self._kernel.record(AssignmentAcknowledged(assignment.queue.id, extent.last, extent.count))
            assignment.acknowledged = through

    def _extents_of(self, assignment: Assignment, through: int) -> list[Extent]:
        """What is in it of the numbers not acknowledged, up to `through`; what went back to its queue is not."""
        queue, after = assignment.queue, assignment.acknowledged
        extents: list[Extent] = []
        for run in self._runs_through(queue, after, through):
            _extend(extents, run)
            after = extents[-1].last
        # The rest is being assigned by commits that are not durable yet: it still is where it came from.
        for fact in self._pending_facts():
            first = max(fact.to_seq, after + 1)
            pending = min(fact.to_seq + fact.count - 1, through) - first + 1
            if fact.to_queue == queue.id and pending > 0:
                seq = fact.seq + first - fact.to_seq
                runs = self._kernel.archive.runs(fact.queue, seq - 1, pending, _NO_LIMIT, frozenset())
                _extend(extents, Run(first, pending, sum(run.size for run in runs)))
        return extents

    def _runs_through(self, queue: Queue, after: int, through: int) -> Iterator[Run]:
        """What the store has of an assignment above `after` up to `through`, but for what leaves it with a commit."""
        archive, gone = self._kernel.archive, set().union(*(commit.taken(queue) for commit in self._kernel.commits))
        while after < through:
            found = archive.runs(queue.id, after, through - after, _NO_LIMIT, gone)
            found = [run for run in found if run.seq <= through]
            if not found:
                break
            for run in found:
                if run.seq + run.count - 1 > through:
                    (run,) = archive.runs(queue.id, run.seq - 1, through - run.seq + 1, _NO_LIMIT, gone)
                yield run
                after = run.seq + run.count - 1

    def _pending_facts(self) -> Iterator[MessagesAssigned]:
        """Of the commits that are not durable yet, the older one's first."""
        for commit in self._kernel.commits:
            yield from (fact for fact in commit.facts if isinstance(fact, MessagesAssigned))

    def release(self, assignment: Assignment, token: Any) -> None:
        """Return all that was not acknowledged to its queue, behind the waiting messages.

        `Finished` tells how many those were.

        Raises:
            NotFound: its queue was deleted.
        """
        source = self._directory.node(assignment.source)
        if not isinstance(source, Queue):
            raise NotFound(f"The queue of {assignment.queue.name} was deleted.")
        self._fence(assignment)
        # Those numbers stand for nothing any more: there is nothing in them to be read.
        assignment.begun = assignment.last
        release = Release(self._administration, assignment, source, token)
        if any(fact.to_queue == assignment.queue.id for fact in self._pending_facts()):
            # The store does not have it in its place yet.
            self._kernel.change(release)
        else:
            release.begin()

    def delete(self, assignment: Assignment) -> None:
        """Forget an assignment in which nothing is left, or whose queue was deleted.

        Raises:
            Refusal: something is left.
        """
        left = assignment.queue.depth
        if left and isinstance(self._directory.node(assignment.source), Queue):
            raise Refusal(f"{left} messages of {assignment.queue.name} were not acknowledged: release them first.")
        self._deletion.delete(assignment.queue)

    def _check_fence(self, assignment: Assignment, fence: int) -> None:
        if fence != assignment.fence:
            raise AssignmentFencedOff(
                f"Another run of the pipeline uses {assignment.queue.name} since: this one must stop."
            )

    def _available(
        self, assignment: Assignment, source: Queue, lane: Lane, limit: int, limit_bytes: int
    ) -> Iterator[Run]:
        """Runs of a lane that are on disk and that nobody has; none of what an earlier call took without its commit.

        What is durable and not announced yet is for a later call: once it is announced a consumer may be given it.
        """
        archive, in_heap = self._kernel.archive, self._modes.in_heap(source)
        after = max(lane.number << LANE_SHIFT, assignment.floors.get(lane.number, 0), self._pending(source, lane))
        for run in archive.runs(source.id, after, limit, limit_bytes, in_heap):
            announced = lane.visible_seq - run.seq + 1
            if run.count <= announced:
                yield run
                continue
            if announced > 0:
                yield from archive.runs(source.id, run.seq - 1, announced, _NO_LIMIT, in_heap)
            break

    def _pending(self, source: Queue, lane: Lane) -> int:
        """Up to where the lane's messages are being assigned by commits that are not durable yet."""
        taken = [
            fact.seq + fact.count - 1
            for fact in self._pending_facts()
            if fact.queue == source.id and fact.seq >> LANE_SHIFT == lane.number
        ]
        return max(taken, default=0)

    def _take_run(self, assignment: Assignment, source: Queue, run: Run) -> None:
        """The run leaves the source's window, and becomes the end of the assignment."""
        queue = assignment.queue
        lane = source.lane(run.seq)
        floor = assignment.floors.get(lane.number, 0)
        returned = lane.pass_over(run, floor)
        if floor > lane.start:
            self._kernel.change(RunGone(lane, run))
        self._note_taken(source, run, lane.flag_upto, returned)
        source.consumed += run.count
        source.bytes -= run.size
        number = queue.main.last_seq + 1
        queue.main.last_seq = queue.main.visible_seq = queue.main.loaded_seq = number + run.count - 1
        queue.stored += run.count
        queue.bytes += run.size
        self._kernel.record(MessagesAssigned(source.id, run.seq, run.count, run.size, queue.id, number))

    def _note_taken(self, source: Queue, run: Run, flag_upto: int, returned: list[int]) -> None:
        """Note messages as taken: a former holder must not hear that its acknowledgement counted (promise 5)."""
        seen = range(run.seq, min(run.seq + run.count - 1, flag_upto) + 1)
        for seq in sorted({*seen, *returned})[-limits.TAKEN_MESSAGES :]:
            source.remember_taken(seq, "", "")
            self._kernel.record(MessageTaken(source.id, seq, "", ""))


def _extend(extents: list[Extent], run: Run) -> None:
    """Put a run behind the others; one extent is made of neighbours."""
    last, count, size = run.seq + run.count - 1, run.count, run.size
    if extents and extents[-1].last == run.seq - 1:
        before = extents.pop()
        count, size = before.count + count, before.size + size
    extents.append(Extent(last, count, size))


class Release(msgspec.Struct, gc=False):
    """What an assignment holds is to go back to its queue."""

    administration: Administration
    assignment: Assignment
    source: Queue
    token: Any

    def begin(self) -> None:
        """Move it, but for what is acknowledged before its turn comes, which the store may still have."""
        assignment = self.assignment
        self.administration.move(assignment.queue, self.source, self.token, above=lambda: assignment.acknowledged)

    def durable(self, outcome: Outcome) -> None:
        """All that was assigned is in its place."""
        self.begin()

    def refused(self, refusal: RefusedCommit) -> None:
        """It goes back all the same."""
        refusal.retry(self)

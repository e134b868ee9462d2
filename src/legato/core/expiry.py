"""What happens because time passes: presentations become durable, delays and lives end, the forsaken goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legato import limits
from legato.core.administration import Administering
from legato.core.commit import Commit
from legato.core.directory import Node
from legato.core.facts import Kind, MessagePresented
from legato.core.message import Message
from legato.core.queues import Queue
from legato.core.records import Archive, ExpiryPlace, Meta, QueueRecord
from legato.core.router import Outgoing
from legato.core.schedule import SCHEDULE_NAME, Schedule, Scheduled
from legato.core.traits import Traits

_EXPIRY_PERIOD_US = 500_000
_DUE_AT_ONCE = 500


class Timing(Administering):
    """The passing of time.

    Args:
        reconnect_timeout_s: how long temporary things of earlier epochs wait for their clients (CONTRACT B21).
    """

    def __init__(
        self, archive: Archive, meta: Meta, *, reconnect_timeout_s: float = limits.RECONNECT_TIMEOUT_S, **options: Any
    ) -> None:
        super().__init__(archive, meta, **options)
        self._expiry_next_us = 0
        self._expired_upto = ExpiryPlace()
        self._forsaken: Sequence[QueueRecord] = archive.temporaries(1 << 30)
        """What was temporary in earlier epochs: it goes, unless somebody comes back for it in time."""
        self._reconnect_timeout_us = int(reconnect_timeout_s * 1_000_000)
        self._forsaken_us = 0
        """When it goes, by the steady clock; 0: not known yet."""

    def tick(self, now_us: int) -> None:
        """Time passed: record presentations that outlived a whole period (most messages are settled before), release
        what is due, expire what is over."""
        self._kernel.now_us = now_us
        self._kernel.steady.tick(now_us)
        self._record_presented(self._presented_before)
        self._presented_before, self._presented = self._presented, []
        if self._reserved:
            self._release_overdue()
        if self._holding:
            self.let_go()
        self._release_due()
        if now_us >= self._expiry_next_us:
            self._expiry_next_us = now_us + _EXPIRY_PERIOD_US
            self._expire_waiting()
        self._clear_away()

    def _record_presented(self, messages: list[Message]) -> None:
        """What of these is still presented is so after a crash too."""
        for message in messages:
            if message.presented and message.consumer is not None and not message.queue.deleted:
                self._end_on_record(message)
                self._kernel.record(MessagePresented(message.queue.id, message.seq, message.consumer.id))

    # -- due -----------------------------------------------------------------------------------------------------

    def _release_due(self) -> None:
        if self._schedule is None and (self._kernel.in_flight is not None or self.find_queue(SCHEDULE_NAME) is None):
            return
        schedule = self._scheduled
        for message, scheduled in schedule.due(self._kernel.now_us, _DUE_AT_ONCE):
            self._kernel.gathering.released.append(message.seq)
            self._release(message, scheduled)

    def _release(self, message: Message, scheduled: Scheduled) -> None:
        """The message's time has come: it goes where it was meant to, if that is still there."""
        node = self._node(scheduled.node)
        if node is None:
            self._drop(message, "dropped")
            return
        traits = Traits(scheduled.priority, scheduled.expires_us, 0, scheduled.group, scheduled.closes_group)
        outgoing = Outgoing(
            scheduled.body, scheduled.message_id, None, traits, scheduled.container, count=scheduled.count
        )
        self._move(message, "due", node, outgoing)

    def _schedule_committed(self, schedule: Schedule, commit: Commit) -> None:
        """Places that were given out are durable, or what was due has moved."""
        queue = schedule.queue
        for message in commit.stored:
            if message.queue is queue:
                schedule.committed(message.seq)
        if commit.released:
            schedule.releasing.difference_update(commit.released)
            schedule.due_us = 0

    # -- expired -------------------------------------------------------------------------------------------------

    def _expire_waiting(self) -> None:
        """Expire messages nobody has, some at a time; those in flight may still be consumed."""
        places = self._kernel.archive.expired(self._expired_upto, self._kernel.now_us, limits.SCAN_MESSAGES)
        for place in places:
            queue = self._node(place.queue)
            if isinstance(queue, Queue) and queue.kind in (Kind.QUEUE, Kind.SUBSCRIPTION):
                self._expire_at(queue, place.seq)
        self._expired_upto = places[-1] if len(places) == limits.SCAN_MESSAGES else ExpiryPlace()
        if len(places) == limits.SCAN_MESSAGES:
            self._expiry_next_us = 0

    def _expire_at(self, queue: Queue, seq: int) -> None:
        """Expire a message that waits, in the window or on disk."""
        lane = queue.lane(seq) if seq >> 56 in queue.lanes else queue.main
        if any(message.seq == seq and message.waiting for message in lane.returned):
            return  # Dispatching will see it.
        if queue.selecting or seq > lane.loaded_seq:
            if seq in lane.claimed or seq > lane.visible_seq:
                return
            found = self._kernel.archive.messages(queue.id, seq - 1, 1, 0)
            if found and found[0].seq == seq:
                lane.claimed.add(seq)
                queue.claims = True
                self._expire(lane.restored(found[0]))
            return
        waiting = next((message for message in lane.ready if message.seq == seq), None)
        if waiting is not None:
            lane.ready.remove(waiting)
            lane.window_bytes -= waiting.size
            self._expire(waiting)

    # -- forsaken ------------------------------------------------------------------------------------------------

    def reclaim(self, node: Node) -> None:
        """Whose temporary queue or topic it is came back for it: it stays until `delete`."""
        self._forsaken = [record for record in self._forsaken if record.queue != node.id]

    def _clear_away(self) -> None:
        """Delete temporary things of earlier epochs for which nobody came back in time."""
        if self._forsaken_us == 0:
            self._forsaken_us = self._kernel.steady.now_us + self._reconnect_timeout_us
        if self._kernel.steady.now_us < self._forsaken_us or not self._forsaken:
            return
        self._forsaken_us = self._kernel.steady.now_us + self._reconnect_timeout_us
        in_use = []
        for record in self._forsaken:
            node = self._node(record.queue)
            if isinstance(node, Queue) and node.consumers:
                in_use.append(record)
            elif node is not None:
                self.delete(node)
        self._forsaken = in_use

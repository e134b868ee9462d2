"""Scheduled deliveries: a message in the schedule goes to its destination when it is due."""

from __future__ import annotations

from legato import limits
from legato.core.changes import Released
from legato.core.directory import Directory
from legato.core.kernel import Kernel
from legato.core.message import Message
from legato.core.outgoing import Outgoing
from legato.core.router import Router
from legato.core.schedule import SCHEDULE_NAME, Scheduled
from legato.core.traits import Traits, kept_expiry_us

_DUE_AT_ONCE = 500


class ScheduledDeliveries:
    """Takes from the schedule what is due; the router puts messages there."""

    __slots__ = ("_directory", "_kernel", "_router")

    def __init__(self, kernel: Kernel, directory: Directory, router: Router) -> None:
        self._kernel = kernel
        self._directory = directory
        self._router = router

    def tick(self) -> None:
        """Move what is due, some of it: the next ones when that is durable.

        A commit gets no more bytes of it than it may get from publishers.
        """
        kernel, router = self._kernel, self._router
        if router.open_schedule is None and (
            kernel.in_flight is not None or self._directory.find_queue(SCHEDULE_NAME) is None
        ):
            return
        schedule = router.schedule
        for message, scheduled in schedule.due(kernel.now_us, _DUE_AT_ONCE, limits.BATCH_BYTES_MAX):
            self._release(message, scheduled)
            kernel.change(Released(schedule, message.seq))

    def _release(self, message: Message, scheduled: Scheduled) -> None:
        """The message's time has come: it goes where it was meant to, if that is still there."""
        node = self._directory.node(scheduled.node)
        if node is None:
            self._router.drop(message, "dropped")
            return
        traits = Traits(
            scheduled.priority, kept_expiry_us(scheduled.expires_us), 0, scheduled.group, scheduled.closes_group
        )
        outgoing = Outgoing(
            scheduled.body, scheduled.message_id, None, traits, scheduled.container, count=scheduled.count
        )
        self._router.move(message, "due", node, outgoing)

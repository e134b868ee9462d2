"""A topic: its subscriptions, and the sequence numbers of its publications."""

from __future__ import annotations

from typing import ClassVar

from legato.core.address_prefixes import TOPIC_PREFIX
from legato.core.facts import Kind
from legato.core.lanes import LANE_SHIFT, lane_number
from legato.core.queues import Queue
from legato.core.records import QueueRecord
from legato.core.settings import DEFAULT_SETTINGS, AddressSettings


class Topic:
    """One topic; `address` is its plain name."""

    __slots__ = (
        "_last_seqs",
        "address",
        "container",
        "deleted",
        "id",
        "kind",
        "name",
        "recorded",
        "settings",
        "stored",
        "subscriptions",
        "temporary",
    )

    special: ClassVar[bool] = True

    def __init__(self, record: QueueRecord, settings: AddressSettings = DEFAULT_SETTINGS) -> None:
        self.id = record.queue
        self.name = record.name
        self.address = record.name.removeprefix(TOPIC_PREFIX)
        self.kind = Kind.TOPIC
        self.settings = settings
        self.temporary = record.temporary
        self.container = record.container
        self.deleted = False
        self.subscriptions: dict[str, Queue] = {}
        self.stored = record.stored
        """Publications that had copies."""
        self.recorded = record.stored
        """`stored` as of the last `QueueMarked`."""
        self._last_seqs = {0: record.last_seq} | {number: last for number, (last, _) in record.lanes.items()}

    def next_seq(self, priority: int) -> int:
        """The sequence number of the next message of that priority, in the topic and in each subscription."""
        number = lane_number(priority)
        last_seq = self._last_seqs.get(number, number << LANE_SHIFT)
        self._last_seqs[number] = last_seq + 1
        return last_seq + 1

    def next_seqs(self, count: int) -> int:
        """The first of `count` neighbouring sequence numbers, for the next messages of the default priority."""
        first = self._last_seqs[0] + 1
        self._last_seqs[0] += count
        return first

    @property
    def takes_runs(self) -> bool:
        """Whether all of its subscriptions want all that is published and asks for nothing, and have no limits.

        One that wants nothing of its own connection's is among them: that holds for a run as for each message.
        """
        by_message_id = self.settings.duplicate_detection == "message-id" and self.settings.duplicate_window > 0
        if self.deleted or by_message_id:
            return False
        return all(queue.matches is None and not queue.special for queue in self.subscriptions.values())

    @property
    def last_seq(self) -> int:
        """The last sequence number that it gave to a message of the default priority."""
        return self._last_seqs[0]

    @property
    def room(self) -> int | None:
        """How many more messages all subscriptions take; None if there is no limit."""
        return self._least([queue.room for queue in self.subscriptions.values()])

    @property
    def room_messages(self) -> int | None:
        """The same by their number alone."""
        return self._least([queue.room_messages for queue in self.subscriptions.values()])

    @property
    def room_bytes(self) -> int | None:
        """How many more bytes all subscriptions take; None if there is no limit."""
        return self._least([queue.room_bytes for queue in self.subscriptions.values()])

    @staticmethod
    def _least(rooms: list[int | None]) -> int | None:
        return min([room for room in rooms if room is not None], default=None)


Node = Queue | Topic

"""Presentations: deliveries that reached their application, and when that is stored (promise 4)."""

from __future__ import annotations

from legato.core.consumers import Consumer
from legato.core.facts import MessagePresented, MessageReturned, MessageSeen
from legato.core.kernel import Kernel
from legato.core.message import Message


class Presentations:
    """Deliveries that reached their application and are not settled. Most are settled before they are on record."""

    __slots__ = ("_before", "_kernel", "_since")

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._since: list[Message] = []
        """Those since the last tick."""
        self._before: list[Message] = []
        """Those of the period before that."""

    def present(self, consumer: Consumer, message: Message) -> None:
        """The consumer's application has the message now: from here on this delivery counts (promise 4)."""
        if message.consumer is consumer and not message.presented:
            message.presented = True
            self._since.append(message)
            if self._kernel.detailed:
                self._kernel.record(MessageSeen(message.queue.id, message.seq, consumer.id))

    def tick(self) -> None:
        """Time passed: what outlived a whole period is put on record."""
        self._record(self._before)
        self._before, self._since = self._since, []

    def record_all(self) -> None:
        """Put all on record, since the broker stops."""
        self._record(self._before + self._since)

    def unrecorded(self) -> set[int]:
        """The `id` of each message whose presentation is not on record."""
        return {id(message) for message in (*self._since, *self._before)}

    def _record(self, messages: list[Message]) -> None:
        """Record the presentations that still stand, so that they outlive a crash."""
        for message in messages:
            if message.presented and message.consumer is not None and not message.queue.deleted:
                self.record(message, message.consumer)

    def record(self, message: Message, consumer: Consumer) -> None:
        """Put on record that the message was presented to an application of `consumer`."""
        self.end_on_record(message)
        self._kernel.record(MessagePresented(message.queue.id, message.seq, consumer.id))

    def end_on_record(self, message: Message) -> None:
        """A delivery that a takeover ended goes on, by what is on record: before another begins it ends there too."""
        if message.unrecorded:
            message.unrecorded = False
            self._kernel.record(MessageReturned(message.queue.id, message.seq, message.count, False, 0, "disconnect"))

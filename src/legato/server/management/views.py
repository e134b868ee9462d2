"""Views of queues, topics and subscriptions: their counters, and their oldest message."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from legato.address_patterns import matches
from legato.core.address_prefixes import TOPIC_PREFIX
from legato.core.broker import Broker
from legato.core.dead_letters import holds_dead_letters
from legato.core.facts import Kind
from legato.core.queues import Queue
from legato.core.records import QueueRecord
from legato.core.topics import Topic
from legato.errors import StoreCorruptError
from legato.server.links.damaged_queues import DamagedQueues
from legato.server.links.link_roles import Node
from legato.server.management.rates import RateMeter
from legato.store.base import Store

_TYPES = {
    Kind.QUEUE: "queue",
    Kind.TOPIC: "topic",
    Kind.SUBSCRIPTION: "subscription",
    Kind.SCHEDULE: "schedule",
    Kind.ASSIGNMENT: "assignment",
}
_LANE_SHIFT = 56


class QueueStatus(msgspec.Struct):
    """One queue or subscription: `depth` counts all that wait, `in_flight` those of them that a consumer has, `held`
    those that are kept for consumers whose connections were lost."""

    name: str
    type: str
    address: str
    """What it is a subscription of; else its name."""
    depth: int
    bytes: int
    in_flight: int
    held: int
    consumers: int
    stored: int
    consumed: int
    stored_per_s: float
    delivered_per_s: float
    acknowledged_per_s: float
    head_age_s: float | None
    """How long the oldest message waits, to a few milliseconds; None if none does."""
    paused: bool
    temporary: bool
    selector: str = ""
    dead_letters: bool = False
    """Whether it is a queue that dead letters go to."""
    damaged: str = ""
    """Why it cannot be read; empty if it can, as far as is known."""


class TopicStatus(msgspec.Struct):
    """One topic."""

    name: str
    type: str
    bytes: int
    subscriptions: int
    temporary: bool


class Inspector:
    """Lists queues, topics and subscriptions with their state.

    Args:
        broker_status: what the whole broker says of itself, given how many queues and topics at most if not as usual.
    """

    def __init__(
        self,
        broker: Broker,
        store: Store,
        rates: RateMeter,
        now_us: Callable[[], int],
        broker_status: Callable[..., Any],
        damaged: DamagedQueues,
    ) -> None:
        self._broker = broker
        self._store = store
        self._rates = rates
        self._now_us = now_us
        self._broker_status = broker_status
        self._damaged = damaged

    def broker(self, rows_max: int | None = None) -> Any:
        """The whole broker, with at most so many queues and topics; None: as many as a status shows."""
        return msgspec.to_builtins(self._broker_status() if rows_max is None else self._broker_status(rows_max))

    def describe(self, node: Node) -> Any:
        """One node, with its settings, and how many duplicate ids it remembers and duplicates it dropped."""
        record = self._store.queue_by_number(node.id) or QueueRecord(node.id, node.name, kind=int(node.kind))
        result = msgspec.to_builtins(self.row(record))
        result["settings"] = msgspec.to_builtins(node.settings)
        result["duplicate_ids"], result["duplicates_dropped"] = self._broker.duplicates.counts_of(node)
        if isinstance(node, Topic):
            result["subscription_names"] = sorted(node.subscriptions)
        return result

    def page(self, kind: str | None, pattern: str, offset: int, count: int) -> tuple[list[Any], bool]:
        """Some rows in the order in which they came to be, and whether there are more.

        Args:
            kind: only of that type.
            pattern: only addresses that match it, as in `[[address]]`; empty: all.
        """
        found: list[tuple[list[Any], bool]] = []
        for _ in self.steps(kind, pattern, offset, count, lambda rows, more: found.append((rows, more))):
            pass
        return found[0]

    def steps(
        self, kind: str | None, pattern: str, offset: int, count: int, found: Callable[[list[Any], bool], None]
    ) -> Iterator[None]:
        """As `page`, in steps that each take little time; the last one calls `found`."""
        words = pattern.split(".") if pattern else None
        rows: list[Any] = []
        more = False
        for record in self.records():
            yield
            if self._broker.directory.is_deleted(record.queue):
                continue
            if kind is not None and _TYPES[Kind(record.kind)] != kind:
                continue
            if words is not None and not matches(words, record.name.removeprefix(TOPIC_PREFIX).split(".")):
                continue
            if offset:
                offset -= 1
            elif len(rows) == count:
                more = True
                break
            else:
                rows.append(self.row(record))
        found(rows, more)

    def records(self) -> Iterator[QueueRecord]:
        """Records in the store, then new ones that the next commits will store."""
        last = 0
        for record in self._store.queues():
            yield record
            last = record.queue
        for record in self._broker.directory.unstored():
            if record.queue > last:
                yield record

    def row(self, record: QueueRecord) -> QueueStatus | TopicStatus:
        """A node as it is now: in the heap if somebody uses it, else in the store."""
        if record.kind == Kind.TOPIC:
            topic = self._broker.directory.topics.get(record.name.removeprefix(TOPIC_PREFIX))
            return TopicStatus(
                name=record.name.removeprefix(TOPIC_PREFIX),
                type=_TYPES[Kind.TOPIC],
                bytes=record.bytes,
                subscriptions=len(
                    topic.subscriptions if topic is not None else self._store.subscriptions(record.queue)
                ),
                temporary=record.temporary,
            )
        queue = self._broker.directory.queues.get(record.name)
        return self._resting(record) if queue is None else self._live(queue)

    def _live(self, queue: Queue) -> QueueStatus:
        rates = self._rates.of(queue.name)
        return QueueStatus(
            name=queue.name,
            type=_TYPES[Kind(queue.kind)],
            address=queue.address,
            depth=queue.depth,
            bytes=queue.bytes,
            in_flight=queue.in_flight,
            held=queue.held,
            consumers=len(queue.consumers),
            stored=queue.stored,
            consumed=queue.consumed,
            stored_per_s=rates.stored_per_s,
            delivered_per_s=rates.delivered_per_s,
            acknowledged_per_s=rates.acknowledged_per_s,
            head_age_s=self._head_age_s(queue.id, queue.depth, list(queue.lanes)),
            paused=queue.paused,
            temporary=queue.temporary,
            selector=queue.selector,
            dead_letters=queue.kind == Kind.QUEUE and holds_dead_letters(queue.name, queue.settings),
            damaged=self._damaged.why(queue.id),
        )

    def _resting(self, record: QueueRecord) -> QueueStatus:
        depth = record.stored - record.consumed
        topic = self._store.queue_by_number(record.topic) if record.topic else None
        return QueueStatus(
            name=record.name,
            type=_TYPES[Kind(record.kind)],
            address=record.name if topic is None else topic.name.removeprefix(TOPIC_PREFIX),
            depth=depth,
            bytes=record.bytes,
            in_flight=0,
            held=0,
            consumers=0,
            stored=record.stored,
            consumed=record.consumed,
            stored_per_s=0.0,
            delivered_per_s=0.0,
            acknowledged_per_s=0.0,
            head_age_s=self._head_age_s(record.queue, depth, [0, *record.lanes]),
            paused=record.paused,
            temporary=record.temporary,
            selector=record.selector,
            dead_letters=record.kind == Kind.QUEUE
            and holds_dead_letters(record.name, self._broker.directory.settings_of(record.name)),
            damaged=self._damaged.why(record.queue),
        )

    def _head_age_s(self, queue: int, depth: int, lanes: list[int]) -> float | None:
        """By one look at the head of each lane."""
        if not depth:
            return None
        try:
            stored_us = [
                found[0].stored_us
                for lane in lanes
                if (found := self._store.messages(queue, lane << _LANE_SHIFT, 1, 0)) and found[0].stored_us
            ]
        except StoreCorruptError as error:
            self._damaged.note(queue, error)
            return None
        return round(max(self._now_us() - min(stored_us), 0) / 1e6, 3) if stored_us else None

"""Staged batches: many messages to any destinations, published in one commit, once (promise 1).

Who stages is a numbered producer whose numbers are its batches: a batch that comes again is confirmed and not stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from legato import limits
from legato.core.backpressure import refusal
from legato.core.dispatch_modes import DispatchModes
from legato.core.dispatcher import Dispatcher
from legato.core.effects import StagePublished, StageRefused
from legato.core.facts import BatchPublished, DuplicateDropped, QueueGrouped, RunStored
from legato.core.kernel import Kernel
from legato.core.lanes import Lane
from legato.core.numbered_producers import NumberedProducers
from legato.core.outcome import Outcome, RefusedCommit
from legato.core.outgoing import Outgoing
from legato.core.producers import SINK_PREFIX, Producer
from legato.core.published_batches import BatchIdentity, objection
from legato.core.publishing import Prepared, Publisher
from legato.core.queues import Queue
from legato.core.records import ProducerRecord
from legato.core.refusals import FULL, STILL_COMMITTING, NotFound, Refusal
from legato.core.topics import Node
from legato.core.traits import Traits
from legato.errors import StoreError

UNKNOWN_BATCH = BatchIdentity()
"""Of former versions' clients."""


class StagedRun(msgspec.Struct, frozen=True):
    """Messages of one priority for a queue, packed into blocks as a store keeps them, and the size of their bodies."""

    queue: Queue
    priority: int
    count: int
    size: int
    blocks: Sequence[bytes | memoryview]
    grouped: bool = False
    """Whether any of them has a group id."""


class StagedMessage(msgspec.Struct, frozen=True):
    """A message that is published by itself: for a topic, for later, or with a duplicate id."""

    node: Node
    body: bytes
    message_id: str
    traits: Traits


class BatchBrokenOffError(StoreError):
    """A batch was stored in part, in memory: nothing of that may become durable."""


class _Wanted:
    """What a batch has for one address."""

    __slots__ = ("count", "last", "size")

    def __init__(self) -> None:
        self.count = self.size = self.last = 0

    def add(self, count: int, size: int, last: int) -> None:
        """So many messages more, of which the last one may go past the limit, as one that comes by itself does."""
        self.count += count
        self.size += size
        self.last = last


class Stage:
    """Outcome of one batch: whom to tell, and what to undo if it finds no room."""

    __slots__ = ("count", "number", "producer", "runs", "token")

    def __init__(self, token: Any, producer: Producer, number: int) -> None:
        self.token = token
        self.producer = producer
        self.number = number
        self.count = 0
        self.runs: list[tuple[Queue, Lane, RunStored]] = []

    def durable(self, outcome: Outcome) -> None:
        """Make the staged messages visible: they wait on disk, and are loaded when a consumer wants them."""
        for queue, lane, fact in self.runs:
            lane.visible_seq = max(lane.visible_seq, fact.seq + fact.count - 1)
            outcome.touched.add(queue)
            outcome.unloaded.add(queue)
        outcome.emit(StagePublished(self.token, self.count))

    def refused(self, refusal: RefusedCommit) -> None:
        """There was no room: nothing of a batch is stored; who repeated one has to ask again."""
        for queue, lane, fact in self.runs:
            queue.stored -= fact.count
            queue.bytes -= fact.size
            # Nobody need wait for it to become durable any more.
            lane.visible_seq = max(lane.visible_seq, fact.seq + fact.count - 1)
            refusal.queues.add(queue)
        if self.number:
            refusal.refuse_number(self.producer, self.number)
        refusal.emit(StageRefused(self.token, refusal.description))


class StagedBatches:
    """Publishes batches."""

    __slots__ = ("_dispatcher", "_kernel", "_modes", "_producers", "_publisher")

    def __init__(
        self,
        kernel: Kernel,
        modes: DispatchModes,
        dispatcher: Dispatcher,
        producers: NumberedProducers,
        publisher: Publisher,
    ) -> None:
        self._kernel = kernel
        self._modes = modes
        self._dispatcher = dispatcher
        self._producers = producers
        self._publisher = publisher

    def publish(
        self,
        name: str,
        number: int,
        runs: Sequence[StagedRun],
        messages: Sequence[StagedMessage],
        token: Any,
        identity: BatchIdentity = UNKNOWN_BATCH,
    ) -> None:
        """Publish a batch, unless it was published before; `StagePublished` or `StageRefused` will carry `token`.

        Args:
            name: who stages; its batches have rising numbers, from 1.
            identity: what the batch is known by.

        Raises:
            Refusal: a destination is gone or full, the batch is being committed for another request, another batch was
                published under its number, or there are too many sinks.
            StoreError: something of it cannot be looked up; nothing of it is stored.
            BatchBrokenOffError: part of it would be: the epoch has to end before the next commit.
        """
        self._check_sink(name)
        producer = self._producers.attach(name)
        self._producers.detach(producer, forget=False)
        if producer.may_be_stored(number):
            self._repeat_stage(producer, number, token, identity)
            return
        if not runs and not messages:
            # Nothing of it is on record: should it come again, the ledger is not to say that it was stored.
            self._stage(Stage(token, producer, 0))
            return
        self._check_room(runs, messages)
        sends = [(message.node, _outgoing(message, producer, number)) for message in messages]
        prepared = self._publisher.prepare(sends)
        producer.accept(number)
        try:
            self._store(Stage(token, producer, number), runs, prepared, identity)
        except Exception as error:
            raise BatchBrokenOffError(f"a batch was stored in part: {error!r}") from error

    def _store(
        self, stage: Stage, runs: Sequence[StagedRun], prepared: Sequence[Prepared], identity: BatchIdentity
    ) -> None:
        for run in runs:
            self._store_run(run, stage)
        for message in prepared:
            self._publisher.publish_prepared(message)
        stage.count += len(prepared)
        self._kernel.record(
            BatchPublished(stage.producer.id, stage.number, stage.count, identity.digest, identity.stages)
        )
        self._stage(stage)

    def _stage(self, stage: Stage) -> None:
        self._kernel.gathering.awaited = True
        self._kernel.change(stage)

    def is_published(self, name: str, number: int) -> bool:
        """Whether a batch was published, or is being."""
        producer = self._producers.attached.get(name)
        if producer is not None:
            return producer.may_be_stored(number)
        record = self._kernel.archive.producer(name)
        return record is not None and Producer(record).may_be_stored(number)

    def sinks(self, offset: int, count: int) -> list[ProducerRecord]:
        """Some of the remembered sinks, by name."""
        names = self._kernel.archive.producer_names(SINK_PREFIX, limits.SINKS_MAX)[offset : offset + count]
        records = [self._kernel.archive.producer(name) for name in names]
        return [record for record in records if record is not None and record.name not in self._producers.forgetting]

    def forget_sink(self, name: str) -> None:
        """Forget a sink: should its query ever repeat a batch, it is published once more.

        Raises:
            NotFound: there is none of that name.
            Refusal: a batch of it is being committed.
        """
        if name in self._producers.attached:
            raise Refusal(STILL_COMMITTING)
        record = None if name in self._producers.forgetting else self._kernel.archive.producer(name)
        if record is None:
            raise NotFound(f"There is no sink {name.removeprefix(SINK_PREFIX)!r}.")
        self._producers.forget(record.producer, name)

    def _check_sink(self, name: str) -> None:
        if (
            not name.startswith(SINK_PREFIX)
            or name in self._producers.attached
            or self._kernel.archive.producer(name) is not None
        ):
            return
        if len(self._kernel.archive.producer_names(SINK_PREFIX, limits.SINKS_MAX)) >= limits.SINKS_MAX:
            raise Refusal(
                f"The broker remembers {limits.SINKS_MAX} sinks, its maximum. Forget sinks whose queries never "
                "run again (legato sink list, legato sink forget NAME)."
            )

    def _repeat_stage(self, producer: Producer, number: int, token: Any, identity: BatchIdentity) -> None:
        for change in [change for commit in self._kernel.commits for change in commit.changes]:
            # Also one that follows it: what the record says of it is known when that is durable.
            if isinstance(change, Stage) and change.producer.name == producer.name and change.number >= number:
                raise Refusal(STILL_COMMITTING)
        record = self._kernel.archive.producer(producer.name)
        if record is not None and (why := objection(record, number, identity)):
            raise Refusal(why)
        self._kernel.record(DuplicateDropped(producer.id, number))
        self._stage(Stage(token, producer, 0))

    def _check_room(self, runs: Sequence[StagedRun], messages: Sequence[StagedMessage]) -> None:
        """See that there is room for all of a batch: nobody is told of one row of it that there is none."""
        wanted: dict[Node, _Wanted] = {}
        for run in runs:
            wanted.setdefault(run.queue, _Wanted()).add(run.count, run.size, run.size // max(run.count, 1))
        for message in messages:
            size = len(message.body)
            wanted.setdefault(message.node, _Wanted()).add(1, size, size)
        for node, batch in wanted.items():
            why = refusal(node)
            if why is not None:
                raise Refusal(why[1])
            if node.settings.when_full not in ("fail", "block"):
                continue
            if (room := node.room_messages) is not None and room < batch.count:
                raise Refusal(f"{node.address} has room for {room} messages; the batch has {batch.count} ({FULL}).")
            if (room := node.room_bytes) is not None and (not room or room <= batch.size - batch.last):
                raise Refusal(f"{node.address} has room for {room} bytes; the batch has {batch.size} ({FULL}).")

    def _store_run(self, run: StagedRun, stage: Stage) -> None:
        queue = run.queue
        lane = queue.lane_for(run.priority)
        seq = lane.last_seq + 1
        lane.last_seq += run.count
        queue.stored += run.count
        queue.bytes += run.size
        fact = RunStored(queue.id, seq, run.count, run.size, stage.producer.id, stage.number)
        self._kernel.record(fact)
        self._kernel.gathering.runs.append(run.blocks)
        self._kernel.gathering.body_bytes += run.size
        stage.runs.append((queue, lane, fact))
        stage.count += run.count
        if run.grouped and not queue.grouped:
            queue.grouped = True
            self._kernel.record(QueueGrouped(queue.id))
            self._modes.review(queue)


def _outgoing(message: StagedMessage, producer: Producer, number: int) -> Outgoing:
    return Outgoing(message.body, message.message_id, None, message.traits, "", producer.id, number)

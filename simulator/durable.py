"""The durable history, as the disk recorded it; a contradiction in it is a violation at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from legato.amqp.codec.stubs import read_stub
from legato.core.fact_runs import single_batch
from legato.core.facts import (
    AnyFact,
    AssignmentAcknowledged,
    AssignmentFenced,
    ConsumerAttached,
    DuplicateDropped,
    DuplicateIdDropped,
    DuplicateIdKept,
    Kind,
    MessageConsumed,
    MessageDeadLettered,
    MessageMoved,
    MessagePresented,
    MessagePublished,
    MessageReturned,
    MessagesAssigned,
    MessagesConsumed,
    MessagesStored,
    MessageStored,
    QueueCreated,
    QueueDeleted,
    QueuePaused,
    RunStored,
    TransactionCommitted,
)
from legato.core.records import Batch
from legato.core.schedule import SCHEDULE_NAME
from legato.core.steady import STEP_MAX_US
from legato.store.blocks import Block
from simulator.record import MARK, Copy, Record


class Durable(Record):
    """Follows the facts of one run."""

    def epoch_began(self, epoch: int) -> None:
        """A broker became the primary."""
        if epoch != self.epoch + 1:
            raise self.broken(f"P7: epoch {epoch} began after {self.epoch}")
        self.note("epoch", epoch, "began")
        self.epoch = epoch
        self.away.clear()
        self.seen_by.clear()
        self.recorded.clear()
        self.outdated.clear()
        self.counts["takeovers" if epoch > 1 else "first epochs"] += 1

    def committed(self, batch: Batch) -> None:
        """A batch became durable."""
        self.durable_us = self.now_us()
        self.counts["commits"] += 1
        if batch.epoch != self.epoch:
            raise self.broken(f"P7: epoch {batch.epoch} committed in epoch {self.epoch}")
        self.counts["runs stored"] += sum(isinstance(fact, MessagesStored) for fact in batch.facts)
        self.counts["runs acknowledged"] += sum(isinstance(fact, MessagesConsumed) for fact in batch.facts)
        batch = single_batch(batch)
        self._check_transactions(batch.facts)
        bodies, runs = iter(batch.bodies), iter(batch.runs)
        self._kept, self._kept_before = set(), self._kept
        self._pushed_out, self._pushed_out_before = set(), self._pushed_out
        self._passed, self._passed_before = set(), self._passed
        for fact in batch.facts:
            self.note("durable:", fact)
            self._apply(fact, bodies)
            if isinstance(fact, RunStored):
                self._run_stored(fact, next(runs))
        self._check_moves(batch.facts)

    def _check_transactions(self, facts: list[AnyFact]) -> None:
        """All of a transaction, or nothing."""
        work: Counter[bytes] = Counter()
        said: Counter[bytes] = Counter()
        for fact in facts:
            if isinstance(fact, MessageConsumed | MessageStored | MessagePublished) and fact.txn:
                work[fact.txn] += 1
            elif isinstance(fact, TransactionCommitted):
                said[fact.txn] += fact.received + fact.sent
                self.counts["transactions"] += 1
        if work != said:
            raise self.broken(f"P2: transactions did {work} in a commit that says {said}")

    def _check_moves(self, facts: list[AnyFact]) -> None:
        """What was moved is where it was moved to, in the same commit, or was to go nowhere."""
        deleted = {fact.queue for fact in facts if isinstance(fact, QueueDeleted)}
        for fact in facts:
            if isinstance(fact, MessageMoved):
                queue, seq, cause = fact.to_queue, fact.to_seq, fact.cause
            elif isinstance(fact, MessageDeadLettered):
                queue, seq, cause = fact.dead_queue, fact.dead_seq, "dead"
            else:
                continue
            if self.names.get(queue, "").startswith("topic:"):
                continue
            if queue and queue not in deleted and (queue, seq) not in self.places:
                raise self.broken(f"{fact} is not where it was moved to")
            purged = cause == "purged" and self.asked_for["purge", self.names[fact.queue]]
            if not queue and not purged and not self._may_vanish(fact.queue, cause):
                raise self.broken(f"{fact} is nowhere")

    def _may_vanish(self, queue: int, cause: str) -> bool:
        """Whether settings say that what leaves a queue so goes nowhere."""
        address = self.plan.address(self.names[queue])
        if address is None:
            return cause in ("expired", "dropped")
        match cause:
            case "dead":
                return not address.dead_letters
            case "expired":
                return not address.settings.get("expiry_queue")
        return cause == "dropped"

    def _apply(self, fact: AnyFact, bodies: Iterator[bytes]) -> None:
        match fact:
            case QueueCreated():
                self.names[fact.queue] = fact.name
                if fact.temporary:
                    self.temporary.add(fact.name)
                if fact.kind == Kind.SUBSCRIPTION:
                    self.topics[fact.queue] = fact.topic
            case QueueDeleted():
                self.topics.pop(fact.queue, None)
                is_queue = fact.name in self.temporary or self.asked_for["delete", fact.name]
                if not is_queue and not self.asked_for["unsubscribe", fact.name]:
                    raise self.broken(f"{fact.name} is deleted, and nobody asked for that")
                self.done["delete" if is_queue else "unsubscribe", fact.name] += 1
                self._forget_queue(fact.name)
                for place in [place for place in self.places if place[0] == fact.queue]:
                    self._leave(*place, "deleted", 0)
            case ConsumerAttached():
                self.containers[fact.consumer] = fact.container
                self.receives_from[fact.consumer] = self.names[fact.queue]
                self.came_back(fact.container)
            case MessagePresented():
                self._presented(fact)
            case MessageReturned():
                self._returned(fact)
            case DuplicateIdKept():
                self._keep_id(self.names[fact.queue], fact)
            case DuplicateIdDropped():
                self._drop(self.names[fact.queue], fact)
            case DuplicateDropped():
                self._resent(fact)
            case MessageStored():
                self._stored(fact, [fact.queue], fact.queue, next(bodies))
            case QueuePaused():
                self._paused(fact)
            case MessagePublished():
                self._published(fact, bodies)
            case MessageConsumed():
                self._leave(fact.queue, fact.seq, "consumed", fact.consumer)
            case MessageDeadLettered():
                self._buried(fact)
                self._leave(fact.queue, fact.seq, f"dead: {fact.cause}", fact.consumer)
            case MessageMoved():
                if fact.cause == "moved":
                    self.moved_to.add((fact.to_queue, fact.to_seq))
                self.done[fact.cause, self.names[fact.queue]] += 1
                self._leave(fact.queue, fact.seq, fact.cause, 0)
            case AssignmentFenced():
                self.fences[self.names[fact.queue]] = fact.fence
            case MessagesAssigned():
                self._assigned(fact)
            case AssignmentAcknowledged():
                gone = [seq for queue, seq in self.places if queue == fact.queue and seq <= fact.through]
                if len(gone) != fact.count:
                    raise self.broken(f"P5: {fact} is of {len(gone)} messages")
                for seq in gone:
                    self._leave(fact.queue, seq, "consumed", 0)

    def _forget_queue(self, name: str) -> None:
        """A queue of the same name is another one."""
        self.durably_paused.discard(name)
        self.paused.discard(name)
        self.remembered.pop(name, None)

    def _paused(self, fact: QueuePaused) -> None:
        name = self.names[fact.queue]
        if fact.paused:
            self.durably_paused.add(name)
        else:
            self.durably_paused.discard(name)

    def _published(self, fact: MessagePublished, bodies: Iterator[bytes]) -> None:
        if not fact.subscriptions:
            self._original(fact)
            return
        body = next(bodies)
        number = number_of(body)
        if fact.origin is None:
            wanted = {
                q for q, topic in self.topics.items() if topic == fact.topic and self.wants(self.names[q], number)
            }
            if wanted != set(fact.subscriptions):
                raise self.broken(f"message {number} went to subscriptions {fact.subscriptions}, not to {wanted}")
        self._stored(fact, fact.subscriptions, fact.topic, body)

    def _original(self, fact: MessageStored | MessagePublished) -> None:
        if fact.origin is not None:
            return
        name = fact.message_id
        self.originals[name] += 1
        if self.originals[name] > 1:
            raise self.broken(f"P1: {name} is stored {self.originals[name]} times")
        if name.startswith("sink-"):
            self.rows[number_of(name.encode())] += 1
        if name in self.void:
            raise self.broken(f"P2: {name} is stored although its sender was told that it is not")

    def went_away(self, consumer: int, container: str) -> None:
        """A broker lost a consumer's connection, and keeps what its application has."""
        self.away[consumer] = (self.now_us(), container)
        self.counts["reservations"] += 1

    def came_back(self, container: str) -> None:
        """A container is there again, or has closed its connection: nothing need be kept for it."""
        for consumer in [consumer for consumer, (_, name) in self.away.items() if name == container]:
            del self.away[consumer]

    def _presented(self, fact: MessagePresented) -> None:
        """An application has a message, unless its client gave that delivery back before it was durable."""
        key = fact.queue, fact.seq, fact.consumer
        self.recorded[key] -= 1
        if self.outdated[key]:
            self.outdated[key] -= 1
        else:
            self.seen_by[fact.queue, fact.seq] = fact.consumer

    def _returned(self, fact: MessageReturned) -> None:
        """What is kept for a consumer goes to others when its time is over (CONTRACT B21)."""
        name = self.copy_name(self.names[fact.queue], fact.seq)
        copy = self.copies.get((name, self.places.get((fact.queue, fact.seq), 0)))
        if copy is not None:
            copy.returned = True
        seen_by = self.seen_by.pop((fact.queue, fact.seq), None)
        if fact.cause == "claimed":
            self.seen_by[fact.queue, fact.seq] = fact.consumer
        since_us, _ = self.away.get(fact.consumer, (None, ""))
        if fact.cause != "disconnect" or since_us is None or seen_by != fact.consumer:
            return
        # A jump counts as so much time at most (docs/decisions/0058-steady-clock.md); clocks are set right at the end.
        jumps = 2 * (self.counts["clocks jumped"] + self.counts["clocks leapt"])
        kept_us = self.plan.reconnect_timeout_s * 1_000_000 - jumps * STEP_MAX_US
        if self.now_us() - since_us < kept_us:
            raise self.broken(f"B21: {fact} after {(self.now_us() - since_us) / 1_000_000} s")

    def _stored(self, fact: MessageStored | MessagePublished, queues: list[int], node: int, body: bytes) -> None:
        self._original(fact)
        if fact.origin is None:
            self._check_id(body)
        number = number_of(body)
        self.counts["stored"] += 1
        self.counts["large ones stored"] += read_stub(body) is not None
        for queue in queues:
            self._place(queue, fact.seq, number, moved=fact.origin is not None)

    def _buried(self, fact: MessageDeadLettered) -> None:
        """Dead letters of a subscription that ends with its listeners are told from those of others in their queue."""
        name, source = self.names.get(fact.dead_queue, ""), self.names[fact.queue]
        if name and name == self.plan.dead_letters_of_listeners and source in self.temporary:
            self.burials[name, fact.dead_seq] = burial_name(name, source)

    def _place(self, queue: int, seq: int, number: int, *, moved: bool = False) -> None:
        """A message waits in a place; `moved`: it was in another one before."""
        if (queue, seq) in self.places:
            raise self.broken(f"place {seq} of queue {queue} is given twice")
        self.places[queue, seq] = number
        name = self.names[queue]
        if name == SCHEDULE_NAME:
            return
        name = self.copy_name(name, seq)
        copy = self.copies.get((name, number))
        if copy is None:
            self.copies[name, number] = Copy()
        elif copy.ended == "delayed":
            copy.ended = ""
        elif moved and copy.ended and (copy.ended == "moved" or (queue, seq) in self.moved_to):
            # It comes back as a new message.
            self.copies[name, number] = Copy()
        else:
            raise self.broken(f"P1: message {number} is in {name} twice")
        if (queue, seq) in self.moved_to:
            self.moved.add(number)

    def _run_stored(self, fact: RunStored, blocks: Sequence[bytes | memoryview]) -> None:
        seq = fact.seq
        for value in blocks:
            for entry in Block(fact.queue, seq, memoryview(value)).entries():
                number = number_of(bytes(entry.body))
                self._row_stored(number)
                self._place(fact.queue, seq, number)
                seq += 1

    def _row_stored(self, number: int) -> None:
        self.rows[number] += 1
        self.counts["rows stored"] += 1
        if self.rows[number] > 1:
            raise self.broken(f"P1: row {number} of a batch is stored {self.rows[number]} times")

    def _assigned(self, fact: MessagesAssigned) -> None:
        name = self.names[fact.to_queue]
        for place in range(fact.count):
            seq, number = fact.to_seq + place, self.places.get((fact.queue, fact.seq + place))
            if number is None:
                raise self.broken(f"P5: {fact} takes what is not there")
            if (holder := self.seen_by.get((fact.queue, fact.seq + place))) is not None:
                raise self.broken(f"P5: message {number} is assigned although consumer {holder}'s application has it")
            self._leave(fact.queue, fact.seq + place, "assigned", 0)
            self._place(fact.to_queue, seq, number, moved=True)
            if self.ranges.setdefault((name, seq), number) != number:
                raise self.broken(f"number {seq} of {name} is another message than before")

    def _leave(self, queue: int, seq: int, how: str, consumer: int) -> None:
        self.seen_by.pop((queue, seq), None)
        number = self.places.pop((queue, seq), None)
        if number is None:
            raise self.broken(f"P5: what is not in {self.names[queue]} at {seq} left it: {how}")
        if self.names[queue] == SCHEDULE_NAME:
            return
        copy = self.copies[self.copy_name(self.names[queue], seq), number]
        copy.ended = how
        copy.ended_epoch = self.epoch
        copy.consumer = consumer
        self.counts[how.partition(":")[0]] += 1


def burial_name(name: str, source: str) -> str:
    """The name under which `copies` has the dead letters of `source` in a queue that others have theirs in, too."""
    return f"{name} of {source}"


def number_of(body: bytes) -> int:
    """The number of the message with that body."""
    found = MARK.search(body)
    assert found is not None, body
    return int(found[1])

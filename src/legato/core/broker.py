"""The broker: commands in, facts and effects out. No leaf logic: order is in `queues`, who gets what in `dispatch`.

1. A command is a method call. It changes what the heap knows, adds facts to the current tick, and effects that need none.
2. `take_batch` hands the facts out to be committed; `committed` makes them visible; `failed` undoes what they announced.
   Nothing that depends on a fact is visible before `committed`: durable first, visible second.
3. Time is an argument, in microseconds. There is no chance and no I/O; the archive is read as of the last commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legato import limits
from legato.core.consumers import Browser, Consumer
from legato.core.dispatch import dispatch, mark_wanted, show
from legato.core.effects import (
    Confirm,
    ConfirmAcknowledged,
    Discharged,
    DischargeRefused,
    Effect,
    Refuse,
)
from legato.core.facts import (
    ConsumerAttached,
    DispatchMarked,
    DuplicateDropped,
    EpochEnded,
    MessageConsumed,
    MessageDeadLettered,
    MessagePresented,
    MessageReturned,
    MessageStored,
    NumberRefused,
    ProducerForgotten,
    ProducerRegistered,
    QueueCreated,
    QueueMarked,
    TransactionCommitted,
    TransactionRolledBack,
)
from legato.core.message import Message
from legato.core.producers import Producer
from legato.core.queues import Queue
from legato.core.records import Archive, Batch, Meta, ProducerRecord, QueueRecord
from legato.core.tick import Tick
from legato.core.transactions import Transaction
from legato.ids import make_txn_id, txn_epoch

DEAD_LETTER_PREFIX = "DLQ."
FULL = "amqp:resource-limit-exceeded"
UNKNOWN_TXN = "amqp:transaction:unknown-id"
# Qpid JMS takes amqp:transaction:rollback for "in doubt"; any other condition is a plain rollback (AMQP.md A7).
ROLLED_BACK = "failed"


class Broker:
    """The state machine of one epoch.

    Args:
        archive: committed state, read when a queue, producer or outcome is first asked for, and when a window is loaded.
        meta: what `Store.begin_epoch` returned.
    """

    def __init__(self, archive: Archive, meta: Meta) -> None:
        self._archive = archive
        self.epoch = meta.epoch
        self._next_queue = meta.next_queue
        self._next_producer = meta.next_producer
        self._next_consumer = meta.next_consumer
        self._next_txn = 1
        self.queues: dict[str, Queue] = {}
        self._producers: dict[str, Producer] = {}
        self._transactions: dict[bytes, Transaction] = {}
        self._committing: set[bytes] = set()
        self._tick = Tick()
        self._in_flight: Tick | None = None
        self._effects: list[Effect] = []
        self._unmarked: set[Queue] = set()
        """Queues that wait for a higher dispatch mark."""
        self._returned_to: set[Queue] = set()
        """Queues that something went back to since they were dispatched."""
        self._presented: list[Message] = []
        self._presented_before: list[Message] = []

    # -- what a shell does with the results ------------------------------------------------------------------

    def take_effects(self) -> list[Effect]:
        """The effects gathered since the last call."""
        effects, self._effects = self._effects, []
        return effects

    def take_batch(self, now_us: int) -> Batch | None:
        """What must be committed next, or None. Only one batch is out at a time."""
        if self._in_flight is not None:
            return None
        tick = self._tick
        self._gather_marks(tick)
        if not tick:
            return None
        self._tick = Tick()
        self._in_flight = tick
        return Batch(self.epoch, now_us, tick.facts, tick.bodies)

    @property
    def tick_is_full(self) -> bool:
        """Whether so much waits for the next commit that publishers should be slowed."""
        tick = self._tick
        return len(tick.facts) >= limits.BATCH_FACTS_MAX or tick.body_bytes >= limits.BATCH_BYTES_MAX

    @property
    def idle(self) -> bool:
        """Whether nothing waits to be committed or for a commit to end."""
        return self._in_flight is None and not self._tick

    def committed(self, now_us: int) -> None:
        """The batch taken last is durable: its consequences become visible."""
        tick = self._in_flight
        assert tick is not None
        self._in_flight = None
        touched: set[Queue] = set()
        confirms = tick.confirms
        for queue, seq in tick.marks:
            queue.mark = max(queue.mark, seq)
            touched.add(queue)
        for message in tick.stored:
            queue = message.queue
            queue.append(message)
            touched.add(queue)
            if message.token is not None:
                confirms.append(message.token)
                message.token = None
        for message in tick.returned:
            message.queue.put_back(message)
            touched.add(message.queue)
        effects = self._effects
        if confirms:
            effects.append(Confirm(confirms))
        if tick.acknowledged:
            effects.append(ConfirmAcknowledged(tick.acknowledged))
        for token, transaction, _ in tick.discharges:
            self._committing.discard(transaction.id)
            effects.append(Discharged(token))
        for queue in touched:
            self._dispatch(queue, now_us)

    def failed(self, description: str) -> None:
        """The batch taken last could not be stored for lack of room: nothing of it happened.

        Publications are refused and transactions that publish are rolled back; what only consumes is tried again.
        """
        tick = self._in_flight
        assert tick is not None
        self._in_flight = None
        stored = iter(tick.stored)
        dead = iter(tick.dead)
        rolled_back = {
            transaction.id: (token, transaction)
            for token, transaction, commits in tick.discharges
            if commits and transaction.sends
        }
        retry = Tick()
        for fact in tick.facts:
            kind = fact.__class__
            if kind is MessageStored:
                assert isinstance(fact, MessageStored)
                message = next(stored)
                message.queue.stored -= 1
                # A dead letter that found no room goes back to where it was, below.
                if fact.origin is None and not fact.txn:
                    self._refuse(message, fact, retry, description)
            elif kind is MessageConsumed or kind is TransactionCommitted:
                assert isinstance(fact, MessageConsumed | TransactionCommitted)
                if fact.txn not in rolled_back:
                    retry.facts.append(fact)
                elif isinstance(fact, MessageConsumed):
                    self._queue_by_id(fact.queue).consumed -= 1
            elif kind is MessageDeadLettered:
                message = next(dead)
                message.queue.consumed -= 1
                retry.returned.append(message)
            elif kind is not QueueMarked:
                retry.facts.append(fact)
        retry.marks = tick.marks
        retry.returned += tick.returned
        retry.acknowledged = tick.acknowledged
        retry.confirms = tick.confirms
        retry.discharges = [d for d in tick.discharges if d[1].id not in rolled_back]
        for token, transaction in rolled_back.values():
            self._committing.discard(transaction.id)
            self._give_up(transaction, "failed", retry)
            self._effects.append(DischargeRefused(token, FULL, description))
        newer, self._tick = self._tick, retry
        for asked in [d for d in newer.discharges if d[1].id in rolled_back]:
            newer.discharges.remove(asked)
            self._effects.append(DischargeRefused(asked[0], ROLLED_BACK, description))
        self._append(newer)

    # -- destinations --------------------------------------------------------------------------------------------

    def queue(self, name: str) -> Queue:
        """The queue of that name, created if there is none."""
        queue = self.queues.get(name)
        if queue is None:
            record = self._archive.queue(name)
            if record is None:
                record = QueueRecord(self._next_queue, name)
                self._next_queue += 1
                self._tick.facts.append(QueueCreated(record.queue, name))
            queue = self.queues[name] = Queue(record)
        return queue

    def _queue_by_id(self, number: int) -> Queue:
        return next(queue for queue in self.queues.values() if queue.id == number)

    # -- publishing --------------------------------------------------------------------------------------------

    def producer(self, name: str) -> Producer:
        """A producer that numbers its messages attached a link; call `detach_producer` when that ends."""
        producer = self._producers.get(name)
        if producer is None:
            record = self._archive.producer(name)
            if record is None:
                record = ProducerRecord(self._next_producer, name)
                self._next_producer += 1
                self._tick.facts.append(ProducerRegistered(record.producer, name))
            producer = self._producers[name] = Producer(record)
        producer.links += 1
        return producer

    def detach_producer(self, producer: Producer, *, forget: bool) -> None:
        """A numbered producer's link ended; `forget` says that it closed for good."""
        producer.links -= 1
        if producer.links == 0 and forget:
            self._producers.pop(producer.name, None)
            self._tick.facts.append(ProducerForgotten(producer.id, producer.name))

    def publish(self, queue: Queue, body: bytes, message_id: str, token: Any) -> None:
        """Store a message; `Confirm` or `Refuse` will carry `token`, which must not be None."""
        queue.last_seq = seq = queue.last_seq + 1
        queue.stored += 1
        size = len(body)
        tick = self._tick
        tick.facts.append(MessageStored(queue.id, seq, size, message_id))
        tick.bodies.append(body)
        tick.body_bytes += size
        tick.stored.append(Message(queue, seq, body, size, token))

    def publish_numbered(
        self, queue: Queue, body: bytes, message_id: str, token: Any, producer: Producer, number: int
    ) -> None:
        """Store a message of a numbered producer, once: a repeated number is confirmed and not stored (promise 1)."""
        if producer.is_duplicate(number):
            self._tick.facts.append(DuplicateDropped(producer.id, number))
            self._tick.confirms.append(token)
            return
        producer.accept(number)
        queue.last_seq = seq = queue.last_seq + 1
        queue.stored += 1
        size = len(body)
        tick = self._tick
        tick.facts.append(MessageStored(queue.id, seq, size, message_id, producer.id, number))
        tick.bodies.append(body)
        tick.body_bytes += size
        tick.stored.append(Message(queue, seq, body, size, token))

    def refuse_number(self, producer: Producer, number: int) -> None:
        """The shell refused a numbered message before it got here: a resend of it is not a duplicate."""
        if number > producer.last:
            producer.last = number
        producer.refuse(number)
        self._tick.facts.append(NumberRefused(producer.id, number))

    def _refuse(self, message: Message, fact: MessageStored, retry: Tick, description: str) -> None:
        if fact.producer:
            producer = next((p for p in self._producers.values() if p.id == fact.producer), None)
            if producer is not None:
                producer.refuse(fact.number)
            retry.facts.append(NumberRefused(fact.producer, fact.number))
        self._effects.append(Refuse(message.token, FULL, description))

    # -- consuming -----------------------------------------------------------------------------------------------

    def attach(
        self,
        queue: Queue,
        port: Any,
        container: str,
        *,
        reports_presented: bool = False,
        held: Sequence[int] = (),
    ) -> tuple[Consumer, list[int]]:
        """A consumer begins to receive; it gets nothing before it has credit.

        Args:
            held: sequence numbers its application still holds (names.HELD): those that are still here come first.

        Returns:
            The consumer, and those of `held` that another receiver has or had.
        """
        consumer = Consumer(self._next_consumer, queue, port, container, reports_presented)
        self._next_consumer += 1
        self._tick.facts.append(ConsumerAttached(consumer.id, queue.id, container))
        elsewhere = []
        for seq in sorted(held):
            message = queue.claim(seq, self._archive)
            if message is not None:
                consumer.first.append(message)
            elif queue.holder(seq) is not None or queue.taken_again.get(seq, container) != container:
                elsewhere.append(seq)
        queue.consumers.append(consumer)
        return consumer, elsewhere

    def detach(self, consumer: Consumer, *, clean: bool, keep: Sequence[int] = ()) -> None:
        """A consumer stops receiving; what it had in flight returns to its place.

        A message counts as a failed delivery if it was presented. If the end was not `clean` the others may have
        been seen too, and are flagged. Those in `keep` are still held by its application: they are not counted.
        """
        queue = consumer.queue
        if consumer not in queue.consumers:
            return
        queue.consumers.remove(consumer)
        if consumer in queue.ring:
            queue.ring.remove(consumer)
        consumer.credit = 0
        for message in consumer.unsettled.values():
            message.consumer = None
            if message.presented and message.seq not in keep:
                message.presented = False
                self._count(message, consumer, "disconnect")
            else:
                message.presented = False
                message.flagged = message.flagged or not clean
                queue.put_back(message)
        for message in consumer.first:
            message.flagged = True
            queue.put_back(message)
        consumer.unsettled.clear()
        consumer.first.clear()
        if not queue.consumers:
            queue.unload()
        self._returned_to.add(queue)

    def flow(self, consumer: Consumer, credit: int, draining: bool, now_us: int) -> None:
        """The consumer's credit is now `credit`."""
        consumer.credit = credit
        consumer.draining = draining
        self._refresh(consumer)
        self._dispatch(consumer.queue, now_us)

    def block(self, consumer: Consumer, blocked: bool, now_us: int) -> None:
        """The consumer's connection cannot take more bytes now, or can again."""
        consumer.blocked = blocked
        self._refresh(consumer)
        if not blocked:
            self._dispatch(consumer.queue, now_us)

    def _refresh(self, consumer: Consumer) -> None:
        ring = consumer.queue.ring
        if consumer.ready:
            if consumer not in ring:
                ring.append(consumer)
        elif consumer in ring:
            ring.remove(consumer)

    def _dispatch(self, queue: Queue, now_us: int) -> None:
        if dispatch(queue, self._archive, now_us, self._effects):
            self._unmarked.add(queue)

    def dispatch_returned(self, now_us: int) -> None:
        """Dispatch again what was given back since the last call; once for all commands of one read."""
        queues, self._returned_to = self._returned_to, set()
        for queue in queues:
            self._dispatch(queue, now_us)

    def tick(self) -> None:
        """Time passed: record presentations that outlived a whole period (most messages are settled before), and
        the high-water marks of queues that moved."""
        for message in self._presented_before:
            if message.presented and message.consumer is not None:
                self._tick.facts.append(MessagePresented(message.queue.id, message.seq, message.consumer.id))
        self._presented_before, self._presented = self._presented, []

    # -- settling ------------------------------------------------------------------------------------------------

    def acknowledge(self, consumer: Consumer, message: Message, *, confirm: bool) -> bool:
        """The consumer accepted the message: it leaves the queue. False if the consumer does not have it (promise 5)."""
        if message.consumer is not consumer:
            return False
        tick = self._tick
        self._consume(consumer, message, b"", tick)
        if confirm:
            tick.acknowledged.append((consumer, message))
        return True

    def _consume(self, consumer: Consumer, message: Message, txn: bytes, tick: Tick) -> None:
        queue = message.queue
        message.consumer = None
        consumer.unsettled.pop(message.seq, None)
        queue.consumed += 1
        tick.facts.append(
            MessageConsumed(queue.id, message.seq, consumer.id, message.delivered_us, message.count + 1, txn)
        )
        if message.flagged or message.count:
            queue.remember_taken(message.seq, consumer.container)

    def release(self, consumer: Consumer, message: Message) -> bool:
        """The consumer gives the message back unseen: to its place, not counted (AMQP 3.4.4)."""
        if message.consumer is not consumer:
            return False
        del consumer.unsettled[message.seq]
        message.consumer = None
        message.presented = False
        message.queue.put_back(message)
        self._returned_to.add(message.queue)
        return True

    def modify(self, consumer: Consumer, message: Message, *, failed: bool, undeliverable_here: bool) -> bool:
        """The consumer gives the message back with remarks (AMQP 3.4.5)."""
        if message.consumer is not consumer:
            return False
        if undeliverable_here:
            message.excluded = (message.excluded or set()) | {consumer.id}
        if not failed:
            return self.release(consumer, message)
        del consumer.unsettled[message.seq]
        message.consumer = None
        message.presented = False
        self._count(message, consumer, "modified")
        return True

    def reject(self, consumer: Consumer, message: Message, cause: str) -> bool:
        """The consumer says that the message itself is at fault (AMQP 3.4.3): it goes to the dead letters."""
        if message.consumer is not consumer:
            return False
        queue = message.queue
        found = self._archive.messages(queue.id, message.seq - 1, 1, 0)
        assert found and found[0].seq == message.seq, "a message in flight is in the store"
        dead = self.queue(DEAD_LETTER_PREFIX + queue.name)
        dead.last_seq += 1
        dead.stored += 1
        queue.consumed += 1
        message.consumer = None
        del consumer.unsettled[message.seq]
        body = found[0].body
        tick = self._tick
        origin = (queue.id, message.seq)
        tick.facts.append(MessageDeadLettered(queue.id, message.seq, consumer.id, cause, dead.id, dead.last_seq))
        tick.facts.append(MessageStored(dead.id, dead.last_seq, len(body), "", origin=origin))
        tick.bodies.append(body)
        tick.stored.append(Message(dead, dead.last_seq, body, len(body)))
        tick.dead.append(message)
        return True

    def present(self, consumer: Consumer, message: Message) -> None:
        """The consumer's application has the message now: from here on this delivery counts (promise 4)."""
        if message.consumer is consumer and not message.presented:
            message.presented = True
            self._presented.append(message)

    def _count(self, message: Message, consumer: Consumer, cause: str, txn: bytes = b"") -> None:
        message.count += 1
        tick = self._tick
        tick.facts.append(MessageReturned(message.queue.id, message.seq, message.count, False, consumer.id, cause, txn))
        tick.returned.append(message)

    # -- transactions --------------------------------------------------------------------------------------------

    def declare(self, owner: Any) -> bytes:
        """A new transaction of the connection `owner` (AMQP 4.2)."""
        txn_id = make_txn_id(self.epoch, self._next_txn)
        self._next_txn += 1
        self._transactions[txn_id] = Transaction(txn_id, owner)
        return txn_id

    def transaction(self, txn_id: bytes, owner: Any) -> Transaction | None:
        """The live transaction of that id, if `owner` declared it."""
        found = self._transactions.get(txn_id)
        return found if found is not None and found.owner is owner else None

    def publish_in(self, transaction: Transaction, queue: Queue, body: bytes, message_id: str) -> None:
        """Publish at commit."""
        transaction.sends.append((queue, body, message_id))

    def acknowledge_in(self, transaction: Transaction, consumer: Consumer, message: Message) -> bool:
        """Consume at commit; until then the message is the transaction's."""
        if message.consumer is not consumer:
            return False
        del consumer.unsettled[message.seq]
        transaction.consumed.append((consumer, message))
        return True

    def discharge(self, txn_id: bytes, owner: Any, *, fail: bool, token: Any) -> None:
        """End a transaction; `Discharged` or `DischargeRefused` will carry `token`.

        A client whose commit was cut off discharges again, on another connection, to learn the outcome (promise 2):
        a transaction that is not committing by then is rolled back, so the answer stays true.
        """
        transaction = self._transactions.get(txn_id)
        if transaction is None:
            self._discharge_again(txn_id, fail, token)
        elif transaction.owner is not owner:
            self.roll_back(transaction, "superseded")
            self._effects.append(DischargeRefused(token, ROLLED_BACK, "rolled back when its connection was lost"))
        elif fail:
            self.roll_back(transaction, "client", token)
        elif transaction.failed is not None:
            self.roll_back(transaction, "failed")
            self._effects.append(DischargeRefused(token, ROLLED_BACK, transaction.failed))
        else:
            self._commit(transaction, token)

    def _discharge_again(self, txn_id: bytes, fail: bool, token: Any) -> None:
        committed = txn_id in self._committing or self._archive.outcome(txn_id)
        if committed and not fail:
            # If its batch is still on its way, this answer must not overtake it: it rides on the next one.
            self._tick.discharges.append((token, Transaction(txn_id, None), True))
        elif txn_epoch(txn_id) is None:
            self._effects.append(DischargeRefused(token, UNKNOWN_TXN, "no broker of this store made this id"))
        elif fail and not committed:
            self._effects.append(Discharged(token))
        else:
            self._effects.append(
                DischargeRefused(token, ROLLED_BACK, "already committed" if committed else "rolled back")
            )

    def _commit(self, transaction: Transaction, token: Any) -> None:
        del self._transactions[transaction.id]
        tick = self._tick
        txn = transaction.id
        for consumer, message in transaction.consumed:
            self._consume(consumer, message, txn, tick)
        for queue, body, message_id in transaction.sends:
            queue.last_seq += 1
            queue.stored += 1
            tick.facts.append(MessageStored(queue.id, queue.last_seq, len(body), message_id, txn=txn))
            tick.bodies.append(body)
            tick.body_bytes += len(body)
            tick.stored.append(Message(queue, queue.last_seq, body, len(body)))
        if transaction.did_work:
            tick.facts.append(TransactionCommitted(txn, len(transaction.consumed), len(transaction.sends)))
            self._committing.add(txn)
        tick.discharges.append((token, transaction, True))

    def roll_back(self, transaction: Transaction, cause: str, token: Any = None) -> None:
        """Undo a transaction: what it received returns to its place and counts, what it sent is gone."""
        self._transactions.pop(transaction.id, None)
        self._give_up(transaction, cause, self._tick)
        if token is not None:
            self._tick.discharges.append((token, transaction, False))

    def _give_up(self, transaction: Transaction, cause: str, tick: Tick) -> None:
        for consumer, message in transaction.consumed:
            message.consumer = None
            message.presented = False
            message.count += 1
            tick.facts.append(
                MessageReturned(
                    message.queue.id, message.seq, message.count, False, consumer.id, "rollback", transaction.id
                )
            )
            tick.returned.append(message)
        if transaction.did_work:
            tick.facts.append(
                TransactionRolledBack(transaction.id, len(transaction.consumed), len(transaction.sends), cause)
            )

    def disconnect(self, owner: Any) -> None:
        """The connection `owner` is gone: its transactions are rolled back (CONTRACT A5)."""
        for transaction in [t for t in self._transactions.values() if t.owner is owner]:
            self.roll_back(transaction, "disconnect")

    # -- browsing ------------------------------------------------------------------------------------------------

    def browse(self, queue: Queue, port: Any) -> Browser:
        """A browser comes: it sees what waits now."""
        return Browser(queue, port)

    def browser_flow(self, browser: Browser, credit: int, draining: bool) -> None:
        """The browser's credit is now `credit`."""
        browser.credit = credit
        browser.draining = draining
        show(browser, self._archive, self._effects)

    def block_browser(self, browser: Browser, blocked: bool) -> None:
        """The browser's connection cannot take more bytes now, or can again."""
        browser.blocked = blocked
        show(browser, self._archive, self._effects)

    # -- the end -------------------------------------------------------------------------------------------------

    def mark_queues(self) -> None:
        """Record the high-water marks of the queues that moved since the last time."""
        for queue in self.queues.values():
            marks = (queue.stored, queue.consumed)
            if queue.recorded != marks:
                queue.recorded = marks
                self._tick.facts.append(QueueMarked(queue.id, queue.last_seq, queue.stored, queue.consumed))

    def end(self, reason: str) -> None:
        """The broker stops cleanly; what follows is refused by the shell."""
        for transaction in list(self._transactions.values()):
            self.roll_back(transaction, "disconnect")
        self.mark_queues()
        self._tick.facts.append(EpochEnded(reason))

    # -- gathering -----------------------------------------------------------------------------------------------

    def _gather_marks(self, tick: Tick) -> None:
        """Raise dispatch marks for what consumers may be given once this tick is durable."""
        queues = self._unmarked
        queues.update(message.queue for message in tick.stored)
        for queue in queues:
            wanted = mark_wanted(queue)
            if wanted > queue.mark_pending:
                queue.mark_pending = wanted
                tick.facts.append(DispatchMarked(queue.id, wanted))
                tick.marks.append((queue, wanted))
        self._unmarked = set()

    def _append(self, newer: Tick) -> None:
        tick = self._tick
        tick.facts += newer.facts
        tick.bodies += newer.bodies
        tick.body_bytes += newer.body_bytes
        tick.stored += newer.stored
        tick.confirms += newer.confirms
        tick.acknowledged += newer.acknowledged
        tick.returned += newer.returned
        tick.dead += newer.dead
        tick.marks += newer.marks
        tick.discharges += newer.discharges

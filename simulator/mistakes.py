"""Mistakes to plant in the broker: storing, delivery, acknowledgement, commits."""

from __future__ import annotations

from typing import Any

from legato.core import router
from legato.core.broker import Broker
from legato.core.commit import Commit
from legato.core.consumers import Consumer
from legato.core.dispatch_modes import DispatchModes
from legato.core.effects import Confirm, Discharged
from legato.core.lanes import Lane
from legato.core.message import Message, MessageRun
from legato.core.outgoing import Outgoing as Publication
from legato.core.producers import Producer
from legato.core.queues import Queue
from legato.core.receivers import Receivers
from legato.core.records import Archive, Batch, StoredMessage
from legato.core.redelivery import Redelivery
from legato.core.schedule import Schedule, Scheduled
from legato.core.settlement import Settlement
from legato.core.topics import Topic
from legato.core.transaction import Transaction
from legato.core.transactions import Transactions
from legato.store.memory import MemoryStore

_take_batch = Broker.take_batch
_detach = Receivers.detach
_acknowledge = Settlement.acknowledge
_attach = Receivers.attach
_give_up = Transactions.give_up
_commit = Transactions._commit
_fail = Redelivery.fail
_restored = Lane.restored
_claim = Lane.claim
_takers = router.matching_subscriptions


def commit_in_any_epoch(self: MemoryStore, batch: Batch) -> int:
    """The store does not look whose epoch it is."""
    with self._lock:
        self._state.apply(batch)
        return self._append(batch.time_us, batch.facts)


def confirm_before_commit(self: Broker, now_us: int) -> Batch | None:
    """Producers hear of a message before it is durable."""
    batch = _take_batch(self, now_us)
    if batch is not None and self.kernel.in_flight is not None:
        told = []
        for message in self.kernel.in_flight.stored:
            if isinstance(message, MessageRun):
                token, message.tokens = message.tokens, None
            else:
                token, message.token = message.token, None
            told += [token] if token is not None else []
        self.kernel.effects.append(Confirm(told))
    return batch


def deliver_before_commit(self: Broker, now_us: int) -> Batch | None:
    """Consumers are given a message before it is durable."""
    batch = _take_batch(self, now_us)
    if batch is not None and self.kernel.in_flight is not None:
        for message in self.kernel.in_flight.stored:
            lane = message.queue.lane(message.seq)
            if isinstance(message, MessageRun):
                lane.mark = max(lane.mark, message.last_seq)
                lane.append_run(message)
            else:
                lane.mark = max(lane.mark, message.seq)
                lane.append(message)
            self.dispatcher.dispatch(message.queue)
    return batch


def is_never_a_duplicate(self: Producer, number: int) -> bool:
    """The broker forgets producers' numbers."""
    return False


def restored_unflagged(self: Lane, stored: StoredMessage) -> Message:
    """What may have been seen before a crash is not flagged: the dispatch mark is ignored."""
    message = _restored(self, stored)
    message.flagged = False
    return message


def without_header(data: bytes, message: Message, exact: bool) -> bytes:
    """Redelivered messages go out as if they were new."""
    return data


def detach_counting_all(self: Receivers, consumer: Consumer, **options: Any) -> None:
    """What waited in a prefetch buffer counts as delivered."""
    for message in consumer.unsettled.values():
        message.presented = True
    _detach(self, consumer, **options)


def fail_twice(self: Redelivery, message: Message, *arguments: Any, **options: Any) -> None:
    """A failed delivery counts twice."""
    message.count += 1
    _fail(self, message, *arguments, **options)


def attach_hiding_who_has_it(
    self: Receivers, queue: Queue, *arguments: Any, **options: Any
) -> tuple[Consumer, list[int]]:
    """A returning consumer is not told that others have what it held."""
    consumer, _ = _attach(self, queue, *arguments, **options)
    return consumer, []


def acknowledge_nothing(self: Settlement, consumer: Consumer, message: Message, *, confirm: bool) -> bool:
    """One acknowledgement in eight is confirmed and forgotten."""
    if message.seq % 8 == 5 and message.consumer is consumer:
        message.consumer = None
        del consumer.unsettled[message.seq]
        if confirm:
            self._kernel.gathering.acknowledged.append((consumer, message))
        return True
    return _acknowledge(self, consumer, message, confirm=confirm)


def begin_selecting_forgetful(self: DispatchModes, queue: Queue) -> None:
    """When selecting begins, what consumers have already is not passed over."""
    queue.selecting = queue.claims = True
    for lane in queue.order:
        lane.unload()
        lane.wanted = 0


def claim_all_that_is_read(self: Lane, seqs: set[int], archive: Archive) -> dict[int, Message]:
    """A returning consumer is given what it held even if another one has it now."""
    claimed = _claim(self, seqs, archive)
    for seq in seqs - claimed.keys():
        found = archive.messages(self.queue.id, seq - 1, 1, 0)
        if found and found[0].seq == seq:
            claimed[seq] = self.restored(found[0])
    return claimed


def give_nothing_back(self: Commit, message: Message) -> None:
    """A message that comes back is forgotten."""


def give_up_and_consume(self: Transactions, transaction: Transaction, cause: str) -> None:
    """What a transaction received stays consumed although it is rolled back."""
    for consumer, message in transaction.consumed:
        self._settlement.consume(consumer, message, b"", self._kernel.gathering)
    transaction.consumed = []
    _give_up(self, transaction, cause)


def give_up_and_publish(self: Transactions, transaction: Transaction, cause: str) -> None:
    """What a transaction sent is stored although it is rolled back."""
    for node, outgoing in transaction.sends:
        outgoing.txn = b""
        self._router.enqueue(node, outgoing)
    _give_up(self, transaction, cause)


def commit_all_but_the_first(self: Transactions, transaction: Transaction, token: Any) -> None:
    """A commit forgets the first message that its transaction received."""
    transaction.consumed = transaction.consumed[1:]
    _commit(self, transaction, token)


def no_outcome(self: MemoryStore, txn: bytes) -> bool:
    """Outcomes of transactions are forgotten at a takeover."""
    return False


def always_committed(self: Transactions, txn_id: bytes, fail: bool, token: Any) -> None:
    """Who asks for the outcome of a commit that was cut off hears that all went well."""
    self._kernel.effects.append(Discharged(token))


def takers_but_one(topic: Topic, outgoing: Publication) -> list[Queue]:
    """One of the subscriptions does not get its copy."""
    return _takers(topic, outgoing)[1:]


def nothing_due(self: Schedule, now_us: int, limit: int, limit_bytes: int) -> list[tuple[Message, Scheduled]]:
    """What was put off never comes."""
    return []

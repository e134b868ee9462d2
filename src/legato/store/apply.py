"""Write a batch's changes to LMDB, inside the write transaction of its commit."""

from collections.abc import Sequence
from typing import Any

from legato import limits
from legato.core.facts import BatchPublished
from legato.core.published_batches import note_batch
from legato.core.records import Meta, ProducerRecord, PublishedBatch
from legato.core.refused_numbers import note_refused
from legato.store import values
from legato.store.apply_queues import apply_queues
from legato.store.changes import Changes
from legato.store.environment import Databases
from legato.store.keys import name_key, number_key, read_time, time_key
from legato.store.larges import end_uploads, put_chunks

INDEX_TXNS = 256
"""Transactions that share an entry of `outcome_times`: what forgetting costs at least."""


def apply_changes(txn: Any, databases: Databases, meta: Meta, changes: Changes) -> None:
    """Write all of `changes`; `meta` is brought up to date but not written.

    Raises:
        StoreError: a fact contradicts the state: a queue it names was never created, or is created again.
    """
    # What is forgotten one day goes by the steady clock, whatever becomes of the other.
    meta.steady_us = steady_us = max(meta.steady_us, changes.steady_us)
    if changes.chunks:
        put_chunks(txn, databases, changes.chunks)
    apply_queues(txn, databases, meta, changes)
    _register_producers(txn, databases, meta, changes.registered, steady_us)
    for producer, numbers in changes.numbers.items():
        batches = [fact for fact in changes.batches if fact.producer == producer] if changes.batches else ()
        _note_numbers(txn, databases, producer, numbers, batches, steady_us)
    for producer in changes.forgotten:
        value = txn.get(number_key(producer), db=databases.producers)
        if value is not None:
            _forget_producer(txn, databases, values.decode_producer(value))
    _keep_outcomes(txn, databases, changes.committed, steady_us)
    meta.next_consumer = max(meta.next_consumer, changes.next_consumer)
    if changes.ended:
        end_uploads(txn, databases, changes.ended)


def _register_producers(txn: Any, databases: Databases, meta: Meta, registered: dict[int, str], steady_us: int) -> None:
    """A producer registered again keeps its numbers: it was merely seen."""
    for producer, name in registered.items():
        value = txn.get(number_key(producer), db=databases.producers)
        record = values.decode_producer(value) if value is not None else ProducerRecord(producer, name)
        record.seen_us = steady_us
        txn.put(number_key(producer), values.encode(record), db=databases.producers)
        txn.put(name_key(name), values.pack_number(producer), db=databases.producer_names)
        meta.next_producer = max(meta.next_producer, producer + 1)


def _note_numbers(
    txn: Any,
    databases: Databases,
    producer: int,
    numbers: dict[int, bool],
    batches: Sequence[BatchPublished],
    steady_us: int,
) -> None:
    """Remember what became of a producer's numbers. One that closed for good meanwhile has no record any more."""
    value = txn.get(number_key(producer), db=databases.producers)
    if value is None:
        return
    record = values.decode_producer(value)
    record.last_number = max(record.last_number, max(numbers))
    note_refused(record, numbers)
    for fact in batches:
        note_batch(record, PublishedBatch(fact.number, fact.count, fact.digest, fact.stages))
    record.seen_us = steady_us
    txn.put(number_key(producer), values.encode(record), db=databases.producers)


def _forget_producer(txn: Any, databases: Databases, record: ProducerRecord) -> None:
    txn.delete(number_key(record.producer), db=databases.producers)
    # Another one may have come under its name.
    if txn.get(name_key(record.name), db=databases.producer_names) == values.pack_number(record.producer):
        txn.delete(name_key(record.name), db=databases.producer_names)


def _keep_outcomes(txn: Any, databases: Databases, committed: list[bytes], steady_us: int) -> None:
    if not committed:
        return
    with txn.cursor(db=databases.outcomes) as cursor:
        cursor.putmulti([(identity, b"") for identity in sorted(committed)])
    for begin in range(0, len(committed), INDEX_TXNS):
        share = committed[begin : begin + INDEX_TXNS]
        txn.put(time_key(steady_us, share[0]), values.encode(share), db=databases.outcome_times)


def forget_outcomes(txn: Any, databases: Databases, meta: Meta, limit: int) -> int:
    """Forget outcomes beyond those that are kept, if they are past their time, oldest first; returns how many.

    Ends when `limit` or a few more are gone. `meta` is brought up to date but not written.
    """
    end_us = meta.steady_us - limits.OUTCOME_RETENTION_S * 1_000_000
    excess = txn.stat(databases.outcomes)["entries"] - limits.OUTCOMES_KEPT
    forgotten = 0
    with txn.cursor(db=databases.outcome_times) as cursor:
        while forgotten < min(excess, limit) and cursor.first() and (time_us := read_time(cursor.key())) < end_us:
            meta.outcomes_forgotten_us = max(meta.outcomes_forgotten_us, time_us)
            for identity in values.decode_txns(cursor.value()):
                txn.delete(identity, db=databases.outcomes)
                forgotten += 1
            cursor.delete()
    return forgotten

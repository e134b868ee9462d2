"""A process that commits until it is killed, and says after each commit that it returned."""

import os
import sys

from legato.core.facts import (
    AnyFact,
    Kind,
    MessageConsumed,
    MessageMoved,
    MessagePublished,
    MessageStored,
    QueueCreated,
    TransactionCommitted,
)
from legato.ids import make_txn_id
from legato.store.base import Batch
from legato.store.lmdb import LmdbStore
from legato.store.transactions import Keeping

BATCH = 40
SIZE = 300
QUEUES = (1, 2)
TOPIC = 3
KEEPS_HALF, KEEPS_LAST = 4, 5
"""Subscriptions: of the batch before, one consumes every other message, one all."""
CREATED: list[AnyFact] = [
    QueueCreated(1, "a"),
    QueueCreated(2, "b"),
    QueueCreated(TOPIC, "topic://t", Kind.TOPIC),
    QueueCreated(KEEPS_HALF, "subscription://c/half", Kind.SUBSCRIPTION, TOPIC),
    QueueCreated(KEEPS_LAST, "subscription://c/last", Kind.SUBSCRIPTION, TOPIC),
]


def batch(epoch: int, number: int) -> Batch:
    """The batch `number`, from 1: stores and publishes its messages, lets some of the batch before's go."""
    first = (number - 1) * BATCH + 1
    facts: list[AnyFact] = []
    for queue in QUEUES:
        facts += [MessageStored(queue, seq, SIZE, f"ID:{queue}-{seq}") for seq in range(first, first + BATCH)]
        if number > 1:
            facts += [MessageConsumed(queue, seq, 1, 1, 1) for seq in range(first - BATCH, first, 2)]
    copies = [KEEPS_HALF, KEEPS_LAST]
    facts += [
        MessagePublished(TOPIC, seq, SIZE, f"ID:t-{seq}", copies, expires_us=seq) for seq in range(first, first + BATCH)
    ]
    if number > 1:
        facts += [MessageConsumed(KEEPS_HALF, seq, 1, 1, 1) for seq in range(first - BATCH, first, 2)]
        facts += [MessageMoved(KEEPS_LAST, seq, "expired") for seq in range(first - BATCH, first)]
    facts.append(TransactionCommitted(make_txn_id(epoch, number), 0, BATCH))
    return Batch(epoch, number, facts, [number.to_bytes(SIZE, "big")] * (3 * BATCH))


def expected(queue: int, number: int) -> list[int]:
    """Sequences that wait in a queue or subscription after the batch `number`."""
    seqs = range(1, number * BATCH + 1)
    return [seq for seq in seqs if seq > (number - 1) * BATCH or (seq % 2 == 0 and queue != KEEPS_LAST)]


def last_batch(store: LmdbStore) -> int:
    """The number of the last batch that the store has; 0 if none."""
    record = store.queue("a")
    return record.stored // BATCH if record else 0


def main(directory: str, checkpoint_s: float, journal_bytes: int, through: int) -> None:
    """Commit, from where the last one ended.

    Args:
        checkpoint_s: time between checkpoints; 0: there is no journal.
        journal_bytes: what it holds.
        through: the last batch; then the process ends without closing anything.
    """
    keeping = Keeping(checkpoint_s, journal_bytes) if checkpoint_s else None
    store = LmdbStore(directory, keeping=keeping)
    epoch = store.begin_epoch("victim", 0).epoch
    if store.queue("a") is None:
        store.commit(Batch(epoch, 0, CREATED, []))
    number = last_batch(store)
    while number < through:
        number += 1
        store.commit(batch(epoch, number))
        os.write(sys.stdout.fileno(), b"%d\n" % number)
    os._exit(0)


if __name__ == "__main__":
    options = [*sys.argv[2:], *("0", "0", str(1 << 60))[len(sys.argv) - 2 :]]
    main(sys.argv[1], float(options[0]), int(options[1]), int(options[2]))

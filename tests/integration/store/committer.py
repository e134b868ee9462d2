"""A process that commits until it is killed, and says after each commit that it returned."""

import sys

from legato.core.facts import AnyFact, MessageConsumed, MessageStored, QueueCreated, TransactionCommitted
from legato.ids import make_txn_id
from legato.store.base import Batch
from legato.store.lmdb import LmdbStore

BATCH = 40


def batch(epoch: int, number: int) -> Batch:
    """The batch `number`, from 1: stores its messages in two queues, consumes half of the batch before's."""
    first = (number - 1) * BATCH + 1
    facts: list[AnyFact] = []
    for queue in (1, 2):
        facts += [MessageStored(queue, seq, 300, f"ID:{queue}-{seq}") for seq in range(first, first + BATCH)]
        if number > 1:
            facts += [MessageConsumed(queue, seq, 1, 1, 1) for seq in range(first - BATCH, first, 2)]
    facts.append(TransactionCommitted(make_txn_id(epoch, number), 0, BATCH))
    return Batch(epoch, number, facts, [number.to_bytes(300, "big")] * (2 * BATCH))


def expected(number: int) -> list[int]:
    """Sequences that wait in each queue after the batch `number`."""
    seqs = range(1, number * BATCH + 1)
    return [seq for seq in seqs if seq > (number - 1) * BATCH or seq % 2 == 0]


def last_batch(store: LmdbStore) -> int:
    """The number of the last batch that the store has; 0 if none."""
    record = store.queue("a")
    return record.stored // BATCH if record else 0


def main(directory: str) -> None:
    """Commit for ever, from where the last one ended."""
    store = LmdbStore(directory)
    epoch = store.begin_epoch("victim", 0).epoch
    if store.queue("a") is None:
        store.commit(Batch(epoch, 0, [QueueCreated(1, "a"), QueueCreated(2, "b")], []))
    number = last_batch(store)
    while True:
        number += 1
        store.commit(batch(epoch, number))
        print(number, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

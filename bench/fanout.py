"""The store alone: copies per second through `commit` when each message has several subscriptions.

Each commit publishes a batch to all of them and consumes one that came earlier from each, in one commit or in one for
each subscription (`--apart`, as of consumers that do not keep pace). The peer has as many queues instead and stores
every body in each of them: what sharing is worth.
"""

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from bench.figures import interleave
from bench.harness import finish_pairs, note, options, temporary_store
from legato.core.facts import AnyFact, Kind, MessageConsumed, MessagePublished, MessageStored, QueueCreated
from legato.store.base import Batch
from legato.store.lmdb import LmdbStore

TOPIC = 1


def publish_shared(seqs: Sequence[int], targets: Sequence[int], body: bytes) -> tuple[list[AnyFact], list[bytes]]:
    """One body for all."""
    facts: list[AnyFact] = [MessagePublished(TOPIC, seq, len(body), f"ID:bench-{seq}", [*targets]) for seq in seqs]
    return facts, [body] * len(seqs)


def publish_each(seqs: Sequence[int], targets: Sequence[int], body: bytes) -> tuple[list[AnyFact], list[bytes]]:
    """A body for each."""
    facts: list[AnyFact] = [
        MessageStored(target, seq, len(body), f"ID:bench-{seq}") for target in targets for seq in seqs
    ]
    return facts, [body] * len(facts)


def measure(shared: bool, given: argparse.Namespace) -> float:
    """Copies a second of commit time."""
    body = bytes(given.size)
    targets = range(TOPIC + 1, TOPIC + 1 + given.subscriptions)
    kind = Kind.SUBSCRIPTION if shared else Kind.QUEUE
    with temporary_store() as path:
        store = LmdbStore(Path(path))
        epoch = store.begin_epoch("bench", 0).epoch
        created: list[AnyFact] = [QueueCreated(TOPIC, "topic", Kind.TOPIC)]
        created += [QueueCreated(target, f"q{target}", kind, TOPIC) for target in targets]
        store.commit(Batch(epoch, 0, created, []))
        spent, cpu = 0.0, 0.0
        for first in range(1, given.backlog + given.count + 1, given.batch):
            seqs = range(first, first + given.batch)
            facts, bodies = (publish_shared if shared else publish_each)(seqs, targets, body)
            earlier = range(first - given.backlog, first - given.backlog + given.batch) if first > given.backlog else ()
            gone: list[list[AnyFact]] = [
                [MessageConsumed(target, seq, 1, seq, 1) for seq in earlier] for target in targets
            ]
            batches = [Batch(epoch, 0, facts, bodies)]
            if given.apart:
                batches += [Batch(epoch, 0, part, []) for part in gone]
            else:
                facts += [fact for part in gone for fact in part]
            begin, begin_cpu = time.perf_counter(), time.thread_time()
            for batch in batches:
                store.commit(batch)
            if earlier:
                spent += time.perf_counter() - begin
                cpu += time.thread_time() - begin_cpu
        store.close()
    copies: int = given.count * given.subscriptions
    side = "shared" if shared else "each"
    note(f"{side}: {copies / spent:,.0f} copies/s, {cpu / copies * 1e6:.2f} us of this thread's CPU a copy")
    return copies / spent


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=20_000)
    parser.add_argument("--subscriptions", type=int, default=10)
    parser.add_argument("--backlog", type=int, default=20_000, help="messages that wait in each all the time")
    parser.add_argument("--batch", type=int, default=500, help="messages published by a commit")
    parser.add_argument("--apart", action="store_true", help="consume from each subscription in a commit of its own")
    given = parser.parse_args()
    pairs = interleave(lambda: measure(True, given), lambda: measure(False, given), given.pairs)
    finish_pairs(
        "fanout",
        f"commits of {given.batch} published to {given.subscriptions} subscriptions, {given.size} bytes"
        + (", each consumed in commits of its own" if given.apart else ""),
        ("shared", "each"),
        pairs,
        None,
        unit="copies/s",
    )


if __name__ == "__main__":
    main()

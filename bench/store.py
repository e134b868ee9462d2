"""The store alone: messages per second through `commit` with a constant backlog, beside idle or busy Python.

Each commit stores a batch at the tail and consumes one at the head, with its log, and waits for the disk. The peer
is LMDB itself used plainly, a put and a delete a message and no log. `--busy` is the broker's case: another thread
runs Python and calls that release the interpreter lock, as the AMQP engine does; the table tells what it got done.
"""

import argparse
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import lmdb

from bench.figures import Goal, interleave
from bench.harness import finish_pairs, note, options, temporary_store
from legato.core.facts import AnyFact, MessageConsumed, MessageStored, QueueCreated
from legato.store.base import Batch
from legato.store.keys import place_key
from legato.store.lmdb import LmdbStore

FILL_BATCH = 5_000
Commit = Callable[[int, int, int], None]
"""Store the messages from the first up to the second sequence; consume those from the third on, as many."""


def legato_commit(path: Path, body: bytes, *, log_facts: bool) -> tuple[Commit, Callable[[], float]]:
    """Our store, and the seconds spent inside `commit`, without making the facts."""
    store = LmdbStore(path, log_facts=log_facts)
    epoch = store.begin_epoch("bench", 0).epoch
    store.commit(Batch(epoch, 0, [QueueCreated(1, "q")], []))
    spent = 0.0

    def commit(first: int, end: int, consumed: int) -> None:
        nonlocal spent
        facts: list[AnyFact] = [MessageStored(1, seq, len(body), f"ID:bench-{seq}") for seq in range(first, end)]
        if consumed:
            facts += [MessageConsumed(1, seq, 1, seq, 1) for seq in range(consumed, consumed + end - first)]
        batch = Batch(epoch, 0, facts, [body] * (end - first))
        begin = time.perf_counter()
        store.commit(batch)
        spent += time.perf_counter() - begin

    return commit, lambda: spent


def plain_commit(path: Path, body: bytes) -> tuple[Commit, Callable[[], float]]:
    """LMDB with a key a message."""
    environment = lmdb.open(str(path), map_size=1 << 40, readahead=False)
    spent = 0.0

    def commit(first: int, end: int, consumed: int) -> None:
        nonlocal spent
        begin = time.perf_counter()
        with environment.begin(write=True) as txn:
            for seq in range(first, end):
                txn.put(place_key(1, seq), body, append=True)
            if consumed:
                for seq in range(consumed, consumed + end - first):
                    txn.delete(place_key(1, seq))
        spent += time.perf_counter() - begin

    return commit, lambda: spent


class BusyThread:
    """Stands for the event loop: some Python, then a call of a few microseconds that releases the lock, and so on."""

    def __init__(self, busy: bool) -> None:
        self.rounds = 0
        self._go_on = busy
        self._data = bytes(4096)
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while self._go_on:
            sum(range(200))
            sha256(self._data)
            self.rounds += 1

    def __enter__(self) -> "BusyThread":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._go_on = False
        self._thread.join()


def measure(side: str, given: argparse.Namespace) -> float:
    """Messages a second of commit time."""
    body = bytes(given.size)
    with temporary_store() as path:
        commit, spent = (
            plain_commit(path, body) if side == "plain" else legato_commit(path, body, log_facts=side == "legato")
        )
        for first in range(1, given.backlog + 1, FILL_BATCH):
            commit(first, min(first + FILL_BATCH, given.backlog + 1), 0)
        before = spent()
        begin, begin_cpu = time.perf_counter(), time.thread_time()
        with BusyThread(given.busy) as busy:
            for done in range(0, given.count, given.batch):
                commit(given.backlog + 1 + done, given.backlog + 1 + done + given.batch, 1 + done)
        rate: float = given.count / (spent() - before)
        cpu_us = (time.thread_time() - begin_cpu) / given.count * 1e6
        beside = f", beside it {busy.rounds / (time.perf_counter() - begin):,.0f} rounds/s" if given.busy else ""
    note(f"{side}: {rate:,.0f} msg/s, {cpu_us:.2f} us of this thread's CPU a message{beside}")
    return rate


def main() -> None:
    """Command line."""
    parser = options(__doc__, count=200_000)
    parser.add_argument("--backlog", type=int, default=100_000, help="messages that wait all the time")
    parser.add_argument("--batch", type=int, default=500, help="messages stored, and consumed, by a commit")
    parser.add_argument("--busy", action="store_true", help="keep Python busy in another thread")
    parser.add_argument("--side", choices=["legato", "unlogged"], default="legato", help="what to compare")
    parser.add_argument("--peer", choices=["plain", "unlogged"], default="plain", help="what to compare with")
    given = parser.parse_args()
    pairs = interleave(lambda: measure(given.side, given), lambda: measure(given.peer, given), given.pairs)
    finish_pairs(
        "store",
        f"commits of {given.batch} stored and consumed, {given.size} bytes, {given.backlog:,} waiting"
        + (", Python busy beside" if given.busy else ""),
        (given.side, given.peer),
        pairs,
        Goal(0.85, at_least=True) if given.peer == "unlogged" else None,
        unit="msg/s",
    )


if __name__ == "__main__":
    main()

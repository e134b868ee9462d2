"""A process killed while it commits leaves whole commits only, and every one that had returned (promise 6)."""

import subprocess
import sys
from pathlib import Path

import pytest

from legato.core.facts import TransactionCommitted
from legato.core.records import ExpiryPlace
from legato.store.lmdb import LmdbStore
from tests.integration.store import committer


@pytest.mark.parametrize("commits", [1, 7, 30, *(pytest.param(many, marks=pytest.mark.slow) for many in (2, 100))])
@pytest.mark.parametrize("keeping", [(), (1000, 8 << 20), (0.003, 1 << 20), (1000, 300_000)])
def test_sigkill_between_and_during_commits_loses_nothing_and_tears_nothing(
    tmp_path: Path, commits: int, keeping: tuple[float, ...]
) -> None:
    """Without a journal; with one of which nothing, much and a little goes to the store's file meanwhile."""
    for _life in range(3):
        returned = run_until_killed(tmp_path, commits, keeping)
        store = LmdbStore(tmp_path)
        try:
            check(store, returned)
        finally:
            store.close()


def check(store: LmdbStore, returned: int) -> None:
    """The store holds all of every batch up to `returned`, or up to one more, which was not heard of any more."""
    last = committer.last_batch(store)
    assert last in (returned, returned + 1)
    for queue in (*committer.QUEUES, committer.KEEPS_HALF, committer.KEEPS_LAST):
        found = store.messages(queue, 0, 1 << 30, 1 << 30)
        assert [message.seq for message in found] == committer.expected(queue, last)
        assert all(int.from_bytes(m.body, "big") == (m.seq - 1) // committer.BATCH + 1 for m in found)
    assert [record.stored for record in store.queues()] == [last * committer.BATCH] * len(committer.CREATED)
    kept = len(committer.expected(committer.KEEPS_HALF, last))
    topic = store.queue("topic://t")
    if last:
        assert topic is not None
        assert (topic.stored - topic.consumed, topic.bytes) == (kept, kept * committer.SIZE)
    places = store.expired(ExpiryPlace(), 1 << 60, 1 << 30)
    assert [(place.seq, place.queue) for place in places] == sorted(
        (seq, queue)
        for queue in (committer.KEEPS_HALF, committer.KEEPS_LAST)
        for seq in committer.expected(queue, last)
    )
    records = store.log(0, 1 << 30)
    assert [position for position, _ in records] == list(range(1, store.meta().log_position + 1))
    txns = [fact.txn for _, record in records for fact in record.facts if isinstance(fact, TransactionCommitted)]
    assert len(txns) == last
    assert all(store.outcome(txn) for txn in txns)


def run_until_killed(directory: Path, commits: int, keeping: tuple[float, ...] = ()) -> int:
    """Kill a committer, with SIGKILL, once `commits` of its commits have returned; tells the last that had."""
    command = [sys.executable, "-m", committer.__name__, str(directory), *map(str, keeping)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    returned = 0
    try:
        for heard, line in enumerate(process.stdout, 1):
            returned = int(line)
            if heard == commits:
                process.kill()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    return returned

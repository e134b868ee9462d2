"""Commits larger than the replicated log takes: what was sent is refused, and the primary goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from legato import limits
from legato.bulk.stage_files import MessageRecord, path_of, write_stage
from legato.core.facts import QueueCreated
from legato.core.records import Batch
from legato.errors import CommitTooLargeError
from legato.ha.lease import Lease
from legato.replication.replica_status import ReplicaStatus
from legato.server.config.configuration import Config
from legato.server.management.staged_batches import Stages
from legato.server.process.primary_epoch import PrimaryEpoch
from legato.server.process.service import Replicated, Service
from legato.store.memory import MemoryStore
from tests.conformance.store import stored, waiting
from tests.integration.replication.test_arbiter import Brokers, commit
from tests.support.stopwatch import Watch
from tests.unit.server.test_service_time import Alone

RECORD_BYTES_MAX = 10_000


@pytest.fixture
def brokers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Brokers]:
    for module in ("chained_log", "chained_claim"):
        monkeypatch.setattr(f"legato.replication.{module}.RECORD_BYTES_MAX", RECORD_BYTES_MAX)
    brokers = Brokers(tmp_path)
    yield brokers
    brokers.close()


def test_a_commit_larger_than_the_log_takes_is_refused_and_the_next_one_succeeds(brokers: Brokers) -> None:
    """It ended the primary, and the next one when the sender came again."""
    primary, commits = brokers.primary("a", 30.0)
    commit(commits, QueueCreated(1, "q"))
    for _ in range(2):
        with pytest.raises(CommitTooLargeError, match=r"commit of 9\.\d+ KiB, and the replicated log takes 9\."):
            commit(commits, stored(1, size=5_000), stored(2, size=5_000))
    commit(commits, stored(1, size=5_000))
    assert not commits.lost
    assert waiting(primary.store) == [1]


class Small:
    """A store whose commits may have few bytes, as those of a replicated log."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self.jobs = None

    def commit(self, batch: Batch) -> int:
        if sum(map(len, batch.bodies)) > RECORD_BYTES_MAX:
            raise CommitTooLargeError("too much at once")
        return self._store.commit(batch)

    def make_room(self) -> bool:
        return False

    def checkpoint(self) -> None:
        """Each commit is one."""


def serving(directory: Path) -> Service:
    """A service whose commits may have `RECORD_BYTES_MAX` bytes, besides what others send meanwhile."""
    clock, store = Watch(), MemoryStore()
    config = Config()
    config.store.directory = str(directory)
    replicated = Replicated(
        Small(store),
        lambda: None,
        cast(Callable[[], ReplicaStatus], None),
        RECORD_BYTES_MAX + limits.BATCH_BYTES_MAX,
    )
    lease = Lease(lambda: True, None, clock.monotonic_ms())
    owner = cast(PrimaryEpoch, Alone())
    meta = store.begin_epoch("here", clock.now_us())
    service = Service(config, store, meta, clock, lease, owner, lambda: config, replicated=replicated)
    service.stop_timers()
    return service


def test_who_sends_less_at_once_is_not_refused_with_it(tmp_path: Path) -> None:
    async def story() -> None:
        service = serving(tmp_path)
        queue = service.broker.directory.queue("q")
        for size, depth in ((2 * RECORD_BYTES_MAX, 0), (10, 1)):
            service.broker.publisher.publish(queue, bytes(size), "", None)
            service._commits.idle.clear()
            service.advance()
            await service._commits.idle.wait()
            assert (queue.depth, service.upkeep.full, service.stopped) == (depth, "", False)
        service.abort()

    asyncio.run(story())


def test_a_sinks_batch_is_refused_before_it_is_committed(tmp_path: Path) -> None:
    """Nobody else's messages are refused with it."""

    async def story() -> list[object]:
        service = serving(tmp_path)
        links = service._links
        stages = Stages(
            service.broker,
            links.nodes,
            service.bulk,
            tmp_path,
            service.advance,
            service._names,
            service.fatal,
            RECORD_BYTES_MAX + limits.BATCH_BYTES_MAX,
        )
        told: list[object] = []
        for batch, size in enumerate((2 * RECORD_BYTES_MAX, 10)):
            record = MessageRecord("q", False, 4, 0, 0, b"", "", f"{batch}", bytes(size))
            write_stage(path_of(tmp_path, "sink", batch, "a"), iter([record]))
            pending = stages.perform("publish", {"name": "sink", "batch": batch, "stages": "a"})
            ended = asyncio.get_running_loop().create_future()
            pending.done = pending.failed = ended.set_result
            told.append(await ended)
        service.abort()
        return told

    refused, published = asyncio.run(story())
    assert "The batch has 19.5 KiB; brokers with a replicated log publish 9.8 KiB at once" in str(refused)
    assert published == {"name": "sink", "published": 1}

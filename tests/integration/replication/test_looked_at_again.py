"""What a replica and its log's clients do when something changes, or fails, where nobody looks as a rule."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from nats.aio.client import Client

from legato.core.facts import QueueCreated
from legato.core.records import Applied
from legato.errors import LogUnavailableError, StoreError, StoreFullError
from legato.replication.arbiter import LogArbiter
from legato.replication.beginning import Beginning
from legato.replication.log import Position, Reading, ReplicatedLog
from legato.replication.memory import MemoryEngine, MemoryWatch
from legato.replication.nats import NatsSettings
from legato.replication.nats.connection import Connection
from legato.replication.nats.watch import NatsWatch
from legato.replication.register import Registered
from legato.replication.seeding import look_at, newest_on, seed
from legato.server.process import standby
from legato.store.lmdb import LmdbStore
from tests.conformance.store import NOW_US
from tests.integration.replication.test_arbiter import LEASE_S, PATIENCE_S, Brokers, commit, eventually


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path)
    yield brokers
    brokers.close()


@contextmanager
def beginning(brokers: Brokers, directory: Path, name: str, **given: Any) -> Iterator[LogArbiter]:
    """A broker that comes with more than a store."""
    store = LmdbStore(directory / name, sync=False)
    arbiter = LogArbiter(lambda: brokers.servers.log("g"), store, f"{name}:5672", LEASE_S, lambda: NOW_US, **given)
    try:
        yield arbiter
    finally:
        arbiter.close()


def back_up(store: Path, to: Path) -> None:
    """As an administrator, while the broker serves."""
    subprocess.run([sys.executable, "-m", "legato.cli", "store", "backup", str(store), str(to)], check=True)


def test_who_hands_over_waits_for_a_backup_that_is_slow_to_claim(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows of its own last word before it has read that in the log."""
    former, _ = brokers.primary("a")
    backup = brokers.begin("b")
    watch = MemoryEngine.watch

    def vouch(self: MemoryEngine, timeout_s: float) -> None:
        if threading.current_thread() is backup._thread:
            time.sleep(1.0)

    def slow_watch(self: MemoryEngine, first: int) -> MemoryWatch:
        if threading.current_thread() is former._thread:
            time.sleep(0.2)
        return watch(self, first)

    monkeypatch.setattr(MemoryEngine, "vouch", vouch)
    monkeypatch.setattr(MemoryEngine, "watch", slow_watch)
    threading.Thread(target=backup.acquire_blocking, daemon=True).start()
    eventually(lambda: backup.replica.epoch == 1)
    former.describe(1, "a:5672")
    former.release("switchover")
    asyncio.run(standby.until_taken(former, asyncio.Event(), 10))
    threading.Thread(target=former.acquire_blocking, daemon=True).start()
    eventually(lambda: former.held or backup.held)
    assert backup.held
    assert not former.held


def test_a_beat_that_the_store_does_not_take_note_of_is_not_the_last(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The lease goes by what is in the log."""
    refused: list[Applied] = []

    def place(self: LmdbStore, applied: Applied) -> None:
        refused.append(applied)
        raise StoreFullError("no room")

    _, commits = brokers.primary("a")
    monkeypatch.setattr(LmdbStore, "place", place)
    monkeypatch.setattr("legato.replication.replica.PASSED_MAX", 2)
    eventually(lambda: len(refused) >= 3)
    assert commits.sure_for_s() > 0
    assert not commits.lost


def test_a_beat_that_is_answered_late_does_not_move_a_follower_back(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who has stepped down meanwhile reads it in the log, as any other record."""
    former, own = brokers.primary("a")
    append = MemoryEngine.append
    is_stored, may_answer = threading.Event(), threading.Event()

    def late(self: MemoryEngine, data: bytes, after: int, timeout_s: float) -> int:
        stored = append(self, data, after, timeout_s)
        if threading.current_thread() is own._beats:
            is_stored.set()
            assert may_answer.wait(PATIENCE_S)
        return stored

    monkeypatch.setattr(MemoryEngine, "append", late)
    assert is_stored.wait(PATIENCE_S)
    former.release()
    _, commits = brokers.primary("b")
    commit(commits, QueueCreated(1, "q"))
    commits.end("")
    eventually(lambda: former.replica.position.sequence == commits._claim.position.sequence)
    may_answer.set()
    own._beats.join(PATIENCE_S)
    assert former.replica.position == commits._claim.position


def test_a_replica_that_cannot_see_whether_to_begin_says_so_until_it_can(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That the log can be followed does not change it."""
    register = brokers.servers.register()
    asked: list[float] = []

    def entries(timeout_s: float) -> Sequence[Registered]:
        asked.append(timeout_s)
        raise LogUnavailableError("no permission")

    monkeypatch.setattr(register, "entries", entries)
    turns: list[list[str]] = []
    with beginning(brokers, tmp_path, "a", beginning=Beginning(register, "g", "a:5672")) as broker:
        broker.waiting.changed = lambda: turns.append(broker.waiting.why)
        threading.Thread(target=broker.acquire_blocking, daemon=True).start()
        eventually(lambda: len(asked) >= 5)
        assert len(turns) == 1
        assert "no permission" in turns[0][0]
        assert broker.status().state == "waits"
        monkeypatch.undo()
        eventually(lambda: broker.held)
        assert broker.status().trouble == []


def test_a_replica_that_takes_a_copy_says_so_and_a_log_without_leader_does_not_end_it(
    brokers: Brokers, tmp_path: Path
) -> None:
    """Meanwhile it could not take over."""
    _, commits = brokers.primary("a", 30.0)
    for number in range(1, 10):
        commit(commits, QueueCreated(number, f"q{number}"))
    brokers.servers.trim(8)
    back_up(tmp_path / "a", tmp_path / "copy")
    is_seeding, may_go_on = threading.Event(), threading.Event()
    tries: list[ReplicatedLog] = []

    def copy(replicated_log: ReplicatedLog, store: LmdbStore) -> LmdbStore:
        tries.append(replicated_log)
        if len(tries) == 1:
            raise LogUnavailableError("an election")
        is_seeding.set()
        assert may_go_on.wait(PATIENCE_S)
        store.close()
        seed(tmp_path / "b", look_at(tmp_path / "copy"))
        return LmdbStore(tmp_path / "b", sync=False)

    with beginning(brokers, tmp_path, "b", seed=copy) as backup:
        assert is_seeding.wait(PATIENCE_S)
        status = backup.status()
        may_go_on.set()
        assert status.state == "waits"
        assert "copy" in status.trouble[0]
        eventually(lambda: backup.replica.commits == 10)
        eventually(lambda: backup.status().state == "follows")


def test_no_backup_is_said_to_fit_or_not_while_the_log_does_not_answer(
    brokers: Brokers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is asked again."""
    _, commits = brokers.primary("a", 30.0)
    commit(commits, QueueCreated(1, "q"))
    (tmp_path / "backups").mkdir()
    back_up(tmp_path / "a", tmp_path / "backups" / "one")
    replicated_log = brokers.servers.log("g")

    def read(after: Position, limit_bytes: int) -> Reading:
        raise LogUnavailableError("an election")

    monkeypatch.setattr(replicated_log, "read", read)
    with pytest.raises(LogUnavailableError, match="an election"):
        newest_on(replicated_log, tmp_path / "backups")


def test_who_waits_for_a_primary_to_come_back_hears_that_its_own_replica_failed(brokers: Brokers) -> None:
    """Nothing tells it of a primary any more."""
    primary, _ = brokers.primary("a")
    backup = brokers.begin("b")
    primary.describe(1, "a:5672", "token")
    eventually(lambda: (holder := backup.holder()) is not None and holder.token == "token")
    primary.release("shutdown")
    eventually(lambda: (holder := backup.holder()) is not None and holder.left == "shutdown")
    backup._fail(StoreError("the disk is gone"))

    async def wait() -> None:
        async with asyncio.timeout(5):
            await standby._until_served(backup, asyncio.Event())

    asyncio.run(wait())
    with pytest.raises(StoreError, match="the disk is gone"):
        backup.acquire_blocking()


class Consumerless:
    """A connection to servers that do not answer who wants a consumer, and its own client."""

    def __init__(self) -> None:
        self.subscribed: set[str] = set()
        self.wanted = 0
        self.has_asked_often = asyncio.Event()

    def start(self, work: object) -> Callable[[], None]:
        return lambda: None

    async def client(self) -> Consumerless:
        return self

    async def lost(self, client: object) -> None:
        await asyncio.Event().wait()

    async def request(self, subject: str, payload: bytes, timeout_s: float) -> None:
        self.wanted += 1
        if self.wanted >= 10:
            self.has_asked_often.set()
        raise LogUnavailableError("no answer")

    settings = NatsSettings("nats://a", "g")

    def new_inbox(self) -> str:
        return f"inbox.{self.wanted}"

    async def subscribe(self, inbox: str, cb: object) -> Subscribed:
        self.subscribed.add(inbox)
        return Subscribed(self.subscribed, inbox)


@dataclass
class Subscribed:
    """A subscription of it."""

    subscribed: set[str]
    inbox: str

    async def unsubscribe(self) -> None:
        self.subscribed.discard(self.inbox)


def test_what_a_consumer_whose_making_was_not_answered_sends_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have been made all the same, and lives as long as somebody subscribes to what it sends."""
    monkeypatch.setattr("legato.replication.nats.watch.RETRY_S", 0.0)
    connection: Any = Consumerless()

    async def follow() -> None:
        following = asyncio.ensure_future(NatsWatch(connection, 1)._follow())
        async with asyncio.timeout(PATIENCE_S):
            await connection.has_asked_often.wait()
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)

    asyncio.run(follow())
    assert not connection.subscribed


def test_an_error_that_nobody_foresaw_does_not_end_the_way_to_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is asked of the log goes through one thread."""
    tries: list[str] = []

    async def connect(self: Client, servers: str, **given: object) -> None:
        tries.append(servers)
        if len(tries) == 1:
            raise AttributeError("no transport")
        raise ConnectionRefusedError

    monkeypatch.setattr(Client, "connect", connect)
    connection = Connection(NatsSettings("nats://a", "g"))
    try:
        eventually(lambda: len(tries) >= 3)
        with pytest.raises(LogUnavailableError, match="refuses connections"):
            connection.wait_for_first(PATIENCE_S, patient=False)
    finally:
        connection.close()

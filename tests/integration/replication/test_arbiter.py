"""Replicas, commits and takeovers over a log in memory: R1 to R8 of replication, as far as threads can show them."""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from legato.clock import elapsed_s
from legato.core.facts import AnyFact, EpochBegan, QueueCreated
from legato.core.records import Applied, Batch
from legato.errors import (
    FencedError,
    JMSError,
    JMSSecurityError,
    LogDivergedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
)
from legato.replication.arbiter import LogArbiter
from legato.replication.commits import ReplicatedCommits
from legato.replication.engine import Message
from legato.replication.log import BEGINNING, LogHealth, Record, ReplicaHealth, ReplicatedLog
from legato.replication.log_watch import LogWatch
from legato.replication.memory import MemoryServers, MemoryWatch
from legato.replication.replica import PASSED_MAX, Replica
from legato.store.commit_records import Beat, encode_beat, encode_commit, encode_epoch
from legato.store.lmdb import LmdbStore
from tests.conformance.store import NOW_US, batch_of, consumed, stored, waiting
from tests.support.stores import raw

LEASE_S = 0.3
PATIENCE_S = 60.0


def eventually(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.005)


class Brokers:
    """Brokers of one group, each with a directory of its own."""

    def __init__(self, directory: Path) -> None:
        self.servers = MemoryServers()
        self._directory = directory
        self._open: list[LogArbiter] = []

    def begin(self, name: str, lease_s: float = LEASE_S) -> LogArbiter:
        """A broker comes, and follows the log."""
        store = LmdbStore(self._directory / name, sync=False)
        arbiter = LogArbiter(lambda: self.servers.log("g"), store, f"{name}:5672", lease_s, lambda: NOW_US)
        self._open.append(arbiter)
        return arbiter

    def primary(self, name: str, lease_s: float = LEASE_S) -> tuple[LogArbiter, ReplicatedCommits]:
        """A broker comes and becomes the primary."""
        arbiter = self.begin(name, lease_s)
        assert arbiter.acquire_blocking()
        assert arbiter.commits is not None
        return arbiter, arbiter.commits

    def close(self) -> None:
        """All of them end."""
        for arbiter in self._open:
            arbiter.close()


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[Brokers]:
    brokers = Brokers(tmp_path)
    yield brokers
    brokers.close()


def commit(commits: ReplicatedCommits, *facts: AnyFact) -> int:
    return commits.commit(batch_of(commits.epoch, *facts))


def is_level(one: LogArbiter, other: LogArbiter) -> bool:
    return one.replica.commits == other.replica.commits and one.store.meta().epoch == other.store.meta().epoch


def test_a_backup_has_what_the_primary_committed(brokers: Brokers, tmp_path: Path) -> None:
    primary, commits = brokers.primary("a")
    backup = brokers.begin("b")
    assert commits.begin_epoch("a:5672", NOW_US).epoch == 1
    commit(commits, QueueCreated(1, "q"))
    assert commit(commits, stored(1), stored(2)) == 3
    assert waiting(primary.store) == [1, 2]
    eventually(lambda: is_level(primary, backup))
    assert waiting(backup.store) == [1, 2]
    brokers.close()
    one, other = raw(tmp_path / "a"), raw(tmp_path / "b")
    for databases in (one, other):
        # Beats change nothing, and the store may have heard of some of them.
        databases["meta"].pop(b"state")
    assert one == other


def test_the_first_broker_of_an_empty_log_is_the_primary_and_says_who_it_is(brokers: Brokers) -> None:
    primary, _ = brokers.primary("a")
    assert primary.predecessor is not None
    assert primary.predecessor.left == "start"
    primary.describe(1, "a:5672", "secret", 7)
    backup = brokers.begin("b")
    eventually(lambda: (holder := backup.holder()) is not None and holder.connections == 7)
    holder = backup.holder()
    assert holder is not None
    assert (holder.epoch, holder.listen, holder.token, holder.left) == (1, "a:5672", "secret", "")


def test_who_comes_while_the_primary_is_always_busy_hears_who_that_is(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its heartbeats a backup takes over when the log stands still."""
    monkeypatch.setattr("legato.replication.commits.SAID_EACH_S", 0.05)
    primary, commits = brokers.primary("a", 3600.0)
    backup = brokers.begin("b", 3600.0)
    eventually(lambda: is_level(primary, backup))
    backup.close()
    commit(commits, QueueCreated(1, "q"))
    primary.describe(1, "a:5672", "secret", 7)
    again = brokers.begin("b", 3600.0)
    eventually(lambda: (holder := again.holder()) is not None and holder.token == "secret")
    holder = again.holder()
    assert holder is not None
    assert (holder.epoch, holder.listen, holder.left) == (1, "a:5672", "")


def test_a_primary_that_lives_stays_the_primary(brokers: Brokers) -> None:
    """A lease that a busy machine does not miss."""
    lease_s = 2.0
    primary, commits = brokers.primary("a", lease_s)
    backup = brokers.begin("b", lease_s)
    waits = threading.Thread(target=backup.acquire_blocking)
    waits.start()
    deadline = time.monotonic() + 1.5 * lease_s
    while time.monotonic() < deadline:
        assert primary.sure_for_s() > 0, "beats renew the lease"
        assert not backup.held
        time.sleep(0.01)
    assert not commits.lost
    backup.cancel()
    waits.join()
    assert not backup.held


def test_a_backup_takes_over_from_a_primary_that_died_after_its_lease(brokers: Brokers) -> None:
    primary, commits = brokers.primary("a")
    commit(commits, QueueCreated(1, "q"), stored(1))
    backup = brokers.begin("b")
    eventually(lambda: is_level(primary, backup))
    commits.give_up()
    last_sent_s = commits._claim.held_s
    assert backup.acquire_blocking()
    assert elapsed_s() >= last_sent_s + LEASE_S, "R8: until then the primary may answer"
    assert backup.commits is not None
    assert backup.commits.epoch == 2
    commit(backup.commits, stored(2))
    assert waiting(backup.store) == [1, 2]


def test_a_backup_to_which_servers_send_nothing_asks_for_what_there_is_before_it_claims(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sends it may be lost with the primary's machine. Its claims were refused again and again."""
    primary, commits = brokers.primary("a")
    backup = brokers.begin("b")
    eventually(lambda: is_level(primary, backup))
    backup.close()

    def take_nothing(watch: MemoryWatch, timeout_s: float) -> Sequence[Message]:
        with watch._servers.changed:
            watch._servers.changed.wait_for(lambda: watch._closed, timeout_s)
        return ()

    monkeypatch.setattr(MemoryWatch, "take", take_nothing)
    commit(commits, QueueCreated(1, "q"), stored(1))
    commits.give_up()
    again = brokers.begin("b")
    claiming = threading.Thread(target=again.acquire_blocking, daemon=True)
    claiming.start()
    claiming.join(PATIENCE_S)
    assert again.held
    assert waiting(again.store) == [1]


def test_a_backup_takes_over_at_once_from_a_primary_that_left(brokers: Brokers) -> None:
    lease_s = 90.0
    primary, _ = brokers.primary("a", lease_s)
    backup = brokers.begin("b", lease_s)
    eventually(lambda: is_level(primary, backup))
    primary.release("switchover")
    began_s = time.monotonic()
    assert backup.acquire_blocking()
    assert time.monotonic() - began_s < lease_s, "it waited for the lease"
    assert backup.predecessor is not None
    assert backup.predecessor.left == "switchover"
    assert not primary.still_mine()


def test_who_hears_heartbeats_does_not_take_over_though_the_log_is_silent(brokers: Brokers) -> None:
    _, commits = brokers.primary("a")
    backup = brokers.begin("b")
    silence_ms = 0
    backup.listen_to(lambda: silence_ms)
    commits.give_up()
    waits = threading.Thread(target=backup.acquire_blocking)
    waits.start()
    time.sleep(4 * LEASE_S)
    assert not backup.held
    silence_ms = 1_000_000
    waits.join(PATIENCE_S)
    assert backup.held


def test_a_primary_that_was_stopped_confirms_nothing_after_a_takeover(brokers: Brokers) -> None:
    primary, commits = brokers.primary("a")
    commit(commits, QueueCreated(1, "q"))
    with commits._turn:  # It was stopped: not even beats go out.
        backup = brokers.begin("b")
        assert backup.acquire_blocking()
        assert primary.sure_for_s() <= 0, "R8: it answers nobody"
    for _ in range(3):
        with pytest.raises(FencedError):
            commit(commits, stored(1))
    assert commits.lost
    assert not primary.still_mine()
    assert waiting(primary.store) == []
    primary.release("lost")
    eventually(lambda: is_level(primary, backup))


def test_a_primary_whose_machine_was_suspended_answers_nobody_until_the_log_does(
    brokers: Brokers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R8: `time.monotonic` stands still then, and the lease of a primary that had long been replaced went on."""
    primary, commits = brokers.primary("a", 30.0)
    commit(commits, QueueCreated(1, "q"))
    read, suspended_s = time.clock_gettime, 0.0
    monkeypatch.setattr(
        time, "clock_gettime", lambda clock: read(clock) + (suspended_s if clock == time.CLOCK_BOOTTIME else 0.0)
    )
    with commits._turn:  # Nothing is appended meanwhile.
        assert primary.sure_for_s() > 0
        suspended_s = 3600.0
        assert primary.sure_for_s() <= 0
    commit(commits, stored(1))
    assert primary.sure_for_s() > 0


def test_an_append_in_doubt_is_stored_once_and_confirmed(brokers: Brokers) -> None:
    primary, commits = brokers.primary("a", 30.0)
    backup = brokers.begin("b", 30.0)
    commit(commits, QueueCreated(1, "q"))
    brokers.servers.lose_answers(1)
    commit(commits, stored(1))
    brokers.servers.lose_requests(2)
    commit(commits, stored(2))
    eventually(lambda: is_level(primary, backup))
    assert waiting(backup.store) == [1, 2]


def test_a_batch_is_confirmed_only_when_the_log_has_acknowledged_it(brokers: Brokers) -> None:
    """R1: and until then nobody reads it."""
    primary, commits = brokers.primary("a", 30.0)
    commit(commits, QueueCreated(1, "q"))
    done = threading.Event()

    def confirm() -> None:
        commit(commits, stored(1))
        done.set()

    committing = threading.Thread(target=confirm)
    with brokers.servers.outage():
        committing.start()
        assert not done.wait(LEASE_S)
        assert waiting(primary.store) == []
    assert done.wait(PATIENCE_S)
    committing.join()
    assert waiting(primary.store) == [1]


def test_a_primary_without_quorum_gives_up_when_it_is_told_to(brokers: Brokers) -> None:
    primary, commits = brokers.primary("a", 30.0)
    commit(commits, QueueCreated(1, "q"))
    with brokers.servers.outage():
        threading.Timer(0.1, commits.give_up).start()
        with pytest.raises(StoreError):
            commit(commits, stored(1))
    assert waiting(primary.store) == []
    primary.release("lapsed")
    eventually(lambda: primary.status().state == "follows")


def test_what_the_store_has_no_room_for_is_not_appended(brokers: Brokers, monkeypatch: pytest.MonkeyPatch) -> None:
    """R6: it is refused, and the next batch goes on."""
    primary, commits = brokers.primary("a", 30.0)
    commit(commits, QueueCreated(1, "q"))
    before = brokers.servers.bounds().last

    def refuse(*_: object) -> None:
        raise StoreFullError("no room, for once")

    with monkeypatch.context() as patching:
        patching.setattr(primary.store, "_refuse_to_fill", refuse)
        with pytest.raises(StoreFullError):
            commit(commits, stored(1))
    assert brokers.servers.bounds().last == before
    commit(commits, stored(2))
    assert waiting(primary.store) == [2]


def test_a_broker_goes_on_where_it_was_after_a_restart(brokers: Brokers) -> None:
    primary, commits = brokers.primary("a")
    commit(commits, QueueCreated(1, "q"), stored(1))
    primary.close()
    again, commits = brokers.primary("a")
    assert commits.epoch == 2
    assert [log.facts for _, log in again.store.log(2, 10)] == [[EpochBegan("a:5672")]]
    backup = brokers.begin("b")
    commit(commits, stored(2))
    eventually(lambda: is_level(again, backup))
    assert waiting(backup.store) == [1, 2]


def test_a_store_that_was_served_alone_begins_a_log_and_no_other_store_joins_it(
    brokers: Brokers, tmp_path: Path
) -> None:
    for name in ("a", "b"):
        store = LmdbStore(tmp_path / name, sync=False)
        epoch = store.begin_epoch(name, NOW_US).epoch
        store.commit(batch_of(epoch, QueueCreated(1, "q"), stored(1)))
        store.close()
    primary, commits = brokers.primary("a")
    commit(commits, stored(2))
    assert waiting(primary.store) == [1, 2]
    other = brokers.begin("b")
    with pytest.raises(StoreError, match="has 2 commits of its own"):
        other.acquire_blocking()
    empty = brokers.begin("c")
    with pytest.raises(StoreError, match="copy that store to this directory first"):
        empty.acquire_blocking()


def test_a_store_that_was_changed_outside_of_the_log_does_not_follow_it(brokers: Brokers, tmp_path: Path) -> None:
    primary, commits = brokers.primary("a")
    commit(commits, QueueCreated(1, "q"))
    primary.close()
    store = LmdbStore(tmp_path / "a", sync=False)
    store.commit(batch_of(store.begin_epoch("alone", NOW_US).epoch, stored(1)))
    store.close()
    again = brokers.begin("a")
    with pytest.raises(StoreError, match="commits of its own"):
        again.acquire_blocking()


def test_a_damaged_record_has_another_server_lead_the_log(brokers: Brokers) -> None:
    """R4: an intact server has it; nothing is passed over."""
    primary, commits = brokers.primary("a", 30.0)
    commit(commits, QueueCreated(1, "q"))
    commit(commits, stored(1))
    brokers.servers.alter(2, "a")
    backup = brokers.begin("b", 30.0)
    eventually(lambda: is_level(primary, backup))
    assert brokers.servers.leader != "a"
    assert waiting(backup.store) == [1]


def test_records_of_an_epoch_that_is_over_are_passed_over_and_counted(tmp_path: Path) -> None:
    """R3."""
    servers = MemoryServers()
    log = servers.log("g")
    store = LmdbStore(tmp_path / "store", sync=False)
    replica = Replica(store)
    _, epoch = encode_epoch(1, 1, "a", NOW_US)
    claim = log.claim(epoch, log.read(replica.position).end)
    for batch, position in (
        (batch_of(1, QueueCreated(1, "q")), 2),
        (Batch(0, NOW_US, [stored(1)], [b"of an old epoch" * 2]), 3),
    ):
        claim.append(encode_commit(batch, position)[1])
    for record in log.read(replica.position).records:
        replica.apply(record)
    assert (replica.voided, replica.commits, waiting(store)) == (1, 2, [])
    claim.append(encode_commit(batch_of(1, stored(1)), 5)[1])
    (record,) = log.read(replica.position).records
    with pytest.raises(StoreCorruptError, match="it is not the next one"):
        replica.apply(record)
    store.close()


def test_beats_do_not_change_a_store_but_for_its_place_now_and_then(brokers: Brokers) -> None:
    primary, _ = brokers.primary("a", 0.1)
    eventually(lambda: primary.replica.position.sequence > 5)
    meta = primary.store.meta()
    assert meta.applied == Applied(1, meta.applied.digest if meta.applied else b"")
    assert meta.log_position == 1


def test_a_log_of_another_group_is_refused(brokers: Brokers, tmp_path: Path) -> None:
    _, commits = brokers.primary("a")
    commit(commits, QueueCreated(1, "q"))
    store = LmdbStore(tmp_path / "elsewhere", sync=False)
    arbiter = LogArbiter(lambda: brokers.servers.log("h"), store, "x:1", LEASE_S, lambda: NOW_US)
    with pytest.raises(StoreError, match="another group") as refused:
        arbiter.acquire_blocking()
    assert not isinstance(refused.value.__cause__, LogDivergedError)
    arbiter.close()


def test_a_copy_of_a_store_is_a_replica_where_the_log_does_not_reach_back(brokers: Brokers, tmp_path: Path) -> None:
    """R12, by the commands of administrators: they copy while the broker serves."""
    primary, commits = brokers.primary("a", 30.0)
    commit(commits, QueueCreated(1, "q"), stored(1))
    commit(commits, stored(2))
    log = brokers.servers.log("g")
    log.trim(primary.replica.position)
    empty = brokers.begin("b", 30.0)
    with pytest.raises(StoreError, match="legato store backup there, legato replica seed here"):
        empty.acquire_blocking()
    for command, source, target in (("backup", "a", "copy"), ("restore", "copy", "c")):
        paths = str(tmp_path / source), str(tmp_path / target)
        subprocess.run([sys.executable, "-m", "legato.cli", "store", command, *paths], check=True)
    replica = brokers.begin("c", 30.0)
    commit(commits, stored(3))
    eventually(lambda: is_level(primary, replica))
    assert waiting(replica.store) == [1, 2, 3]


@pytest.mark.parametrize("refusal", [JMSSecurityError("no"), JMSError("It needs administer.", code="403")])
def test_a_broker_that_may_not_have_a_copy_ends(brokers: Brokers, tmp_path: Path, refusal: JMSError) -> None:
    """It asked again every five seconds, and the primary's audit trail had a denial each time."""
    primary, commits = brokers.primary("a", 30.0)
    commit(commits, QueueCreated(1, "q"), stored(1))
    brokers.servers.log("g").trim(primary.replica.position)

    def refuse(_log: ReplicatedLog, _store: LmdbStore) -> LmdbStore:
        raise refusal

    store = LmdbStore(tmp_path / "b", sync=False)
    arbiter = LogArbiter(lambda: brokers.servers.log("g"), store, "b:1", 30.0, lambda: NOW_US, seed=refuse)
    with pytest.raises(StoreError, match=f"legato replica seed here.*{refusal}"):
        arbiter.acquire_blocking()
    arbiter.close()


def test_the_log_forgets_what_is_beyond_its_bound_and_nothing_that_the_primary_lacks(brokers: Brokers) -> None:
    primary, commits = brokers.primary("a", 30.0)
    commit(commits, QueueCreated(1, "q"))
    for seq in range(1, 40):
        commit(commits, stored(seq, size=1_000))
    log = brokers.servers.log("g")
    watch = LogWatch(log, "", 20_000, lambda: False, lambda: primary.replica.kept)
    watch.close()
    watch.look()
    assert brokers.servers.bounds().first == 1, "a backup has nothing forgotten"
    watch = LogWatch(log, "", 20_000, lambda: True, lambda: primary.replica.kept)
    watch.close()
    eventually(lambda: brokers.servers.bounds().first > 1)
    assert brokers.servers.kept_bytes() < 30_000
    assert log.read(primary.replica.position).drained


def test_a_replica_whose_last_commit_a_power_cut_undid_goes_on_by_the_log(tmp_path: Path) -> None:
    """R10: the log is not trimmed behind what is on disk for certain, which is the last commit but one."""
    servers = MemoryServers()
    log = servers.log("g")
    store = LmdbStore(tmp_path / "store", metasync=False)
    replica = Replica(store)
    claim = log.claim(encode_epoch(1, 1, "a", NOW_US)[1], BEGINNING)
    claim.append(encode_commit(batch_of(1, QueueCreated(1, "q"), stored(1)), 2)[1])
    for record in log.read(replica.position).records:
        replica.apply(record)
    before = replica.position
    shutil.copytree(tmp_path / "store", tmp_path / "cut")
    for _ in range(3):
        claim.append(encode_beat(Beat(1, 2, NOW_US)))
    claim.append(encode_commit(batch_of(1, stored(2)), 3)[1])
    for record in log.read(replica.position).records:
        replica.apply(record)
    assert replica.kept == before
    watch = LogWatch(log, "", 1, lambda: True, lambda: replica.kept)
    watch.close()
    eventually(lambda: servers.bounds().first > 1)
    undone = LmdbStore(tmp_path / "cut", metasync=False)
    again = Replica(undone)
    assert again.position == before
    again.apply_all(log.read(again.position).records)
    assert waiting(undone) == [1, 2]
    for each in (store, undone):
        each.close()


def test_a_log_is_not_trimmed_by_a_replica_that_has_just_been_opened(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store", metasync=False)
    assert Replica(store).kept == BEGINNING
    store.close()


def test_the_log_is_led_by_another_machine_than_the_primarys(brokers: Brokers) -> None:
    watch = LogWatch(brokers.servers.log("g"), "a", 1 << 30, lambda: True, lambda: BEGINNING)
    eventually(lambda: brokers.servers.leader != "a")
    watch.close()
    assert watch.health is not None


def test_a_server_that_does_not_keep_the_log_is_not_beside_a_broker(brokers: Brokers) -> None:
    """A mistyped name had no effect, and nobody was told."""
    for beside, trouble in (("a", False), ("log-a", True)):
        watch = LogWatch(brokers.servers.log("g"), beside, 1 << 30, lambda: False, lambda: BEGINNING)
        watch.close()
        watch.look()
        assert watch.health is not None
        told = "replication.beside is log-a, and the log is kept by a, b, c"
        assert any(told in each for each in watch.health.trouble) is trouble


class LaggingLog:
    """A log one of whose servers is heard and lacks records, or is not heard; its servers say so as NATS does."""

    def __init__(self, log: ReplicatedLog) -> None:
        self._log = log
        self.lagging: ReplicaHealth | None = None

    def health(self, timeout_s: float) -> LogHealth:
        health = self._log.health(timeout_s)
        if self.lagging is None:
            return health
        return dataclasses.replace(
            health, replicas=[*health.replicas[:-1], self.lagging], trouble=(self.lagging.trouble,)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


def test_a_server_that_is_behind_for_a_moment_is_no_trouble_and_one_that_is_not_heard_is_at_once(
    brokers: Brokers, caplog: pytest.LogCaptureFixture
) -> None:
    """Any server that follows lacks a record now and then, as who looks just then sees; it was a warning."""
    log: Any = LaggingLog(brokers.servers.log("g"))
    watch = LogWatch(log, "", 1 << 30, lambda: False, lambda: BEGINNING)
    watch.close()
    eventually(lambda: watch.health is not None)

    def looked(lagging: ReplicaHealth | None) -> list[str]:
        log.lagging = lagging
        watch.look()
        assert watch.health is not None
        return list(watch.health.trouble)

    behind = [ReplicaHealth("c", False, False, lag, True) for lag in (1, 900, 400)]
    assert looked(behind[0]) == []
    assert looked(None) == []
    assert looked(behind[0]) == []
    assert (
        looked(behind[1])
        == looked(behind[2])
        == ["c does not have all records: it is getting them, or has just been lost"]
    )
    gone = ReplicaHealth("c", False, False, 3, True, heard=False)
    assert looked(gone) == looked(dataclasses.replace(gone, lag=70)) == ["c does not answer the leader"]
    assert [
        record.getMessage().count("c does not") for record in caplog.records if "c does" in record.getMessage()
    ] == [
        1,
        1,
    ], "each is logged once while it lasts"


def records_of_a_log(*more: bytes) -> list[Record]:
    """An epoch, commits, a beat, one of an epoch that is over, and more."""
    log = MemoryServers().log("g")
    claim = log.claim(encode_epoch(1, 1, "a", NOW_US)[1], BEGINNING)
    batches = [batch_of(1, QueueCreated(1, "q"), stored(1)), batch_of(1, stored(2)), batch_of(1, consumed(1))]
    for position, batch in enumerate(batches, 2):
        claim.append(encode_commit(batch, position)[1])
    claim.append(encode_beat(Beat(1, 4, NOW_US)))
    claim.append(encode_commit(batch_of(0, stored(9)), 5)[1])
    claim.append(encode_epoch(2, 5, "b", NOW_US)[1])
    claim.append(encode_commit(batch_of(2, stored(3)), 6)[1])
    for data in more:
        claim.append(data)
    return list(log.read(BEGINNING).records)


def test_records_applied_together_leave_what_they_leave_one_by_one(tmp_path: Path) -> None:
    records = records_of_a_log()
    stores = [LmdbStore(tmp_path / name, sync=False) for name in ("together", "singly")]
    together, singly = map(Replica, stores)
    decoded = together.apply_all(records)
    assert decoded == [singly.apply(record) for record in records]
    for replica in (together, singly):
        assert (replica.epoch, replica.commits, replica.voided, replica.position) == (2, 6, 1, records[-1].position)
        assert waiting(replica.store) == [2, 3]
    for store in stores:
        store.close()
    assert raw(tmp_path / "together") == raw(tmp_path / "singly")


def test_what_was_applied_is_not_applied_again_where_the_store_has_no_room_to_note_a_beat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup that should have waited for room ended with a sentence of damage."""
    beats = [encode_beat(Beat(2, 6, NOW_US))] * (PASSED_MAX + 1)
    records = records_of_a_log(*beats)
    store = LmdbStore(tmp_path / "store", sync=False)
    replica = Replica(store)
    with monkeypatch.context() as full:
        full.setattr(store, "place", lambda _applied: (_ for _ in ()).throw(StoreFullError("no room")))
        with pytest.raises(StoreFullError):
            replica.apply_all(records)
    assert (replica.commits, waiting(store)) == (6, [2, 3])
    replica.apply_all(records[-2:])
    assert store.meta().applied == Applied(records[-1].position.sequence, records[-1].position.digest)
    store.close()


def test_a_backup_waits_for_the_lease_of_its_primary_if_that_is_longer(brokers: Brokers) -> None:
    """R8, while leases differ: brokers are restarted one after the other with another one in their files."""
    primary, commits = brokers.primary("a", 2.0)
    backup = brokers.begin("b", 0.2)
    commit(commits, QueueCreated(1, "q"))
    eventually(lambda: is_level(primary, backup) and backup._lease_told_s == 2.0)
    log, heard_s = brokers.servers.log("g"), elapsed_s() - 1.0
    assert not backup._may_claim(log, heard_s)
    backup._lease_told_s = 0.0  # as a former version's beats leave it
    assert backup._may_claim(log, heard_s)


def test_a_record_that_cannot_be_applied_keeps_none_before_it_from_being(tmp_path: Path) -> None:
    records = records_of_a_log(encode_commit(batch_of(2, stored(1, queue=99)), 7)[1])
    store = LmdbStore(tmp_path / "store", sync=False)
    replica = Replica(store)
    with pytest.raises(StoreError, match="queue 99"):
        replica.apply_all(records)
    assert (replica.commits, replica.voided, replica.position) == (6, 1, records[-2].position)
    assert waiting(store) == [2, 3]
    store.close()

"""Points hold whoever comes there first, and nobody else."""

import os
import threading
from pathlib import Path

import pytest

from legato.clock import SystemClock
from legato.core.facts import MessageStored, QueueCreated, QueueMarked
from legato.core.records import Applied
from legato.failpoints import VARIABLE, AnyPoint, DrillOrders, Point, ReplicaPoint
from legato.server.config.configuration import StoreSection
from legato.server.storage.fault_injection import FaultyClock, FaultyStore, make_clock, open_store
from legato.store.base import Batch
from legato.store.commit_records import encode_commit, encode_epoch
from legato.store.lmdb import LmdbStore

WAIT_S = 60.0


def test_a_process_without_the_variable_has_no_rig(tmp_path: Path) -> None:
    assert DrillOrders.of_environment({}) is None
    assert DrillOrders.of_environment({VARIABLE: str(tmp_path)}) is not None


def test_a_broker_that_is_not_drilled_has_the_real_store_and_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    assert type(make_clock()) is SystemClock
    store = open_store(tmp_path / "store", StoreSection())
    assert type(store) is LmdbStore
    store.close()


def test_whoever_comes_to_the_armed_point_is_held_until_it_is_disarmed(tmp_path: Path) -> None:
    drill_orders = DrillOrders(tmp_path)
    drill_orders.arm(Point.BEFORE_COMMIT)
    drill_orders.hit(Point.DURING_TAKEOVER)
    passed = threading.Event()
    reached = threading.Event()

    def come() -> None:
        drill_orders.hit(Point.BEFORE_COMMIT)
        passed.set()

    def watch() -> None:
        while not drill_orders.reached:
            pass
        reached.set()

    threads = [threading.Thread(target=target) for target in (come, watch)]
    for thread in threads:
        thread.start()
    assert reached.wait(WAIT_S)
    assert not passed.is_set()
    drill_orders.hit(Point.BEFORE_COMMIT)  # the second one passes
    drill_orders.disarm()
    assert passed.wait(WAIT_S)
    for thread in threads:
        thread.join()


def test_a_point_that_nobody_armed_holds_nobody(tmp_path: Path) -> None:
    for point in Point:
        DrillOrders(tmp_path).hit(point)


def test_a_rigged_clock_is_wrong_by_what_the_drill_says(tmp_path: Path) -> None:
    drill_orders = DrillOrders(tmp_path)
    drill_orders.set_clock(3600)
    assert FaultyClock(drill_orders).now_us() - SystemClock().now_us() > 3_500_000_000


def test_a_rigged_store_commits_like_the_real_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, str(tmp_path / "drill_orders"))
    store = open_store(tmp_path / "store", StoreSection())
    assert type(store) is FaultyStore
    assert store.begin_epoch("here", 1).epoch == 1
    store.close()


class Passed(DrillOrders):
    """Holds nobody, and tells who came by."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self.points: list[AnyPoint] = []

    def hit(self, point: AnyPoint) -> None:
        self.points.append(point)


def test_only_what_a_client_waits_for_is_held_before_its_commit(tmp_path: Path) -> None:
    """Else a fault that is meant for a send could strike at marks, which the broker writes now and then."""
    drill_orders = Passed(tmp_path / "drill_orders")
    store = FaultyStore(drill_orders, tmp_path / "store", StoreSection())
    store.begin_epoch("here", 1)
    store.commit(Batch(1, 2, [QueueCreated(1, "q")], []))
    store.commit(Batch(1, 3, [QueueMarked(1, 0, 0, 0)], []))
    assert drill_orders.points == []
    store.commit(Batch(1, 4, [MessageStored(1, 1, 4, "ID:1")], [b"body"]))
    assert drill_orders.points == [Point.BEFORE_COMMIT, Point.BETWEEN_COMMIT_AND_CONFIRM]
    store.close()


def test_commits_of_a_replicated_log_are_held_between_their_steps(tmp_path: Path) -> None:
    drill_orders = Passed(tmp_path / "drill_orders")
    store = FaultyStore(drill_orders, tmp_path / "store", StoreSection(checkpoint_ms=0))
    store.prepare(encode_epoch(1, 1, "here", 1)[0], forced=True)
    store.finish(Applied(1, b"1" * 16))
    store.prepare(encode_commit(Batch(1, 2, [QueueCreated(1, "q")], []), 2)[0])
    store.finish(Applied(2, b"2" * 16))
    assert drill_orders.points == []
    store.prepare(encode_commit(Batch(1, 4, [MessageStored(1, 1, 4, "ID:1")], [b"body"]), 3)[0])
    before = [ReplicaPoint.BETWEEN_PREPARE_AND_APPEND, Point.BEFORE_COMMIT]
    assert drill_orders.points == before
    store.finish(Applied(3, b"3" * 16))
    after = [
        ReplicaPoint.BETWEEN_APPEND_AND_APPLY,
        ReplicaPoint.BETWEEN_APPLY_AND_CONFIRM,
        Point.BETWEEN_COMMIT_AND_CONFIRM,
    ]
    assert drill_orders.points == before + after
    store.prepare(encode_commit(Batch(1, 5, [MessageStored(1, 2, 4, "ID:2")], [b"body"]), 4)[0], forced=True)
    store.finish(Applied(4, b"4" * 16))
    assert drill_orders.points == [*before, *after, ReplicaPoint.DURING_REPLICA_APPLY]
    store.close()


def test_the_drill_knows_who_is_held(tmp_path: Path) -> None:
    drill_orders = DrillOrders(tmp_path)
    assert drill_orders.holder is None
    drill_orders.arm(Point.BEFORE_COMMIT)
    held = threading.Thread(target=drill_orders.hit, args=(Point.BEFORE_COMMIT,))
    held.start()
    while not drill_orders.reached:
        pass
    assert drill_orders.holder == os.getpid()
    drill_orders.disarm()
    held.join()

"""Fault injection: a store and a clock with the faults that `legato drill` orders.

Without `LEGATO_DRILL` in the environment of the process, which is looked for once, `open_store` and `make_clock` give
the real ones, and none of this runs.
"""

import functools
import time
from pathlib import Path
from typing import Any

from legato.clock import Clock, SystemClock
from legato.core.facts import (
    AnyFact,
    DuplicateDropped,
    DuplicateIdDropped,
    MessageConsumed,
    MessagePublished,
    MessagesConsumed,
    MessagesStored,
    MessageStored,
    TransactionCommitted,
)
from legato.core.records import Applied
from legato.failpoints import DrillOrders, Point, ReplicaPoint
from legato.server.config.configuration import StoreSection
from legato.store.base import Batch, Meta
from legato.store.commit_records import CommitRecord, EpochRecord
from legato.store.lmdb import LmdbStore
from legato.store.transactions import Keeping

CLOCK_READ_EVERY_S = 0.05
ASKED_FOR = (
    MessageStored,
    MessagesStored,
    MessagePublished,
    DuplicateDropped,
    DuplicateIdDropped,
    MessageConsumed,
    MessagesConsumed,
    TransactionCommitted,
)
"""What a client waits for; marks and the like are committed without anybody having asked."""


def open_store(directory: Path, section: StoreSection, *, metasync: bool = True) -> LmdbStore:
    """The store of a broker that begins to serve.

    Args:
        directory: where it is.
        section: its settings.
        metasync: see `LmdbStore`.

    Raises:
        StoreFormatError: it has another format; it is not migrated here, which would hold up the loop.
    """
    drill_orders = DrillOrders.of_environment()
    if drill_orders is not None:
        return FaultyStore(drill_orders, directory, section, metasync=metasync)
    return LmdbStore(directory, metasync=metasync, **_options(section))


def _options(section: StoreSection) -> dict[str, Any]:
    keeping = Keeping(section.checkpoint_ms / 1000, section.journal_bytes) if section.checkpoint_ms else None
    return {
        "map_bytes": section.map_bytes,
        "log_facts": section.log_facts,
        "migrates": False,
        "keeping": keeping,
    }


def make_clock() -> Clock:
    """The clock of a broker."""
    drill_orders = DrillOrders.of_environment()
    return SystemClock() if drill_orders is None else FaultyClock(drill_orders)


class FaultyStore(LmdbStore):
    """A store that can be slow, and that has the failpoints of commits."""

    def __init__(
        self, drill_orders: DrillOrders, directory: Path, section: StoreSection, *, metasync: bool = True
    ) -> None:
        super().__init__(directory, metasync=metasync, **_options(section))
        self._drill_orders = drill_orders
        self._appended: Batch | None = None
        """The commit that is prepared, if it is a primary's own, which goes to a replicated log."""

    def begin_epoch(self, broker: str, now_us: int) -> Meta:
        """See `Store.begin_epoch`."""
        meta = super().begin_epoch(broker, now_us)
        if meta.epoch > 1:
            self._drill_orders.hit(Point.DURING_TAKEOVER)
        return meta

    def commit(self, batch: Batch) -> int:
        """See `Store.commit`."""
        time.sleep(self._drill_orders.delay_s)
        self._pass_before(batch)
        position = super().commit(batch)
        self._pass_after(batch)
        return position

    def prepare(self, record: CommitRecord | EpochRecord, *, forced: bool = False) -> int:
        """See `Store.prepare`: of a commit that goes to a replicated log, or comes from it."""
        time.sleep(self._drill_orders.delay_s)
        position = super().prepare(record, forced=forced)
        batch = record.batch if isinstance(record, CommitRecord) else None
        self._appended = None if forced else batch
        if batch is not None and _has(batch.facts, *ASKED_FOR):
            point = ReplicaPoint.DURING_REPLICA_APPLY if forced else ReplicaPoint.BETWEEN_PREPARE_AND_APPEND
            self._drill_orders.hit(point)
        if self._appended is not None:
            self._pass_before(self._appended)
        return position

    def finish(self, applied: Applied) -> None:
        """See `Store.finish`."""
        batch, self._appended = self._appended, None
        asked_for = batch is not None and _has(batch.facts, *ASKED_FOR)
        if asked_for:
            self._drill_orders.hit(ReplicaPoint.BETWEEN_APPEND_AND_APPLY)
        super().finish(applied)
        if asked_for:
            self._drill_orders.hit(ReplicaPoint.BETWEEN_APPLY_AND_CONFIRM)
        if batch is not None:
            self._pass_after(batch)

    def _pass_before(self, batch: Batch) -> None:
        """Nothing of a primary's commit is durable yet."""
        hit, facts = self._drill_orders.hit, batch.facts
        if batch.chunks or _has(facts, *ASKED_FOR):
            hit(Point.BEFORE_COMMIT)
        if _has(facts, MessageConsumed, MessagesConsumed):
            hit(Point.BETWEEN_ACKNOWLEDGE_AND_COMMIT)
        if _has(facts, TransactionCommitted):
            hit(Point.BETWEEN_DISCHARGE_AND_COMMIT)

    def _pass_after(self, batch: Batch) -> None:
        """A primary's commit is durable, and nobody has been told."""
        hit, facts = self._drill_orders.hit, batch.facts
        if batch.chunks:
            hit(Point.DURING_LARGE_MESSAGE)
        if _has(facts, MessageStored, MessagesStored, MessagePublished):
            hit(Point.BETWEEN_COMMIT_AND_CONFIRM)
        if _has(facts, MessageConsumed, MessagesConsumed):
            hit(Point.BETWEEN_ACKNOWLEDGED_AND_CONFIRM)
        if _has(facts, TransactionCommitted):
            hit(Point.BETWEEN_COMMIT_AND_OUTCOME)

    def trim_log(self, through: int, limit: int) -> int:
        """See `Store.trim_log`: the ledger has what is to be deleted."""
        self._drill_orders.hit(Point.DURING_LEDGER_EXPORT)
        return super().trim_log(through, limit)


def pass_claim() -> None:
    """A client that comes back claims messages that it holds: the drill may want the broker held here."""
    drill_orders = _drill_orders()
    if drill_orders is not None:
        drill_orders.hit(Point.DURING_CLAIM)


def pass_turn() -> None:
    """The loop of a primary turns: the drill may want that it does not any more."""
    drill_orders = _drill_orders()
    if drill_orders is not None:
        drill_orders.may_stick()


@functools.cache
def _drill_orders() -> DrillOrders | None:
    return DrillOrders.of_environment()


def _has(facts: list[AnyFact], *kinds: type[AnyFact]) -> bool:
    return any(isinstance(fact, kinds) for fact in facts)


class FaultyClock(SystemClock):
    """A clock that a drill can set wrong."""

    def __init__(self, drill_orders: DrillOrders) -> None:
        self._drill_orders = drill_orders
        self._offset_us = 0
        self._read_at_s = 0.0

    def now_us(self) -> int:
        """See `Clock.now_us`."""
        now_s = time.monotonic()
        if now_s - self._read_at_s > CLOCK_READ_EVERY_S:
            self._offset_us, self._read_at_s = self._drill_orders.clock_offset_us, now_s
        return super().now_us() + self._offset_us

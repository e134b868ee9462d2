"""Mistakes to plant where brokers have a replicated log: each breaks one of the rules of decisions 89 and 90."""

from __future__ import annotations

from functools import partial
from typing import Any

import msgspec

from legato.core.records import Applied, Batch, CommitRecord, EpochRecord
from legato.errors import FencedError, LegatoError, LogUnavailableError, StoreFullError
from legato.replication.arbiter import LogArbiter
from legato.replication.chain import Chain
from legato.replication.chained_claim import ChainedClaim
from legato.replication.chained_log import ChainedLog
from legato.replication.commits import BEATS_PER_LEASE, ReplicatedCommits
from legato.replication.engine import AppendRefused, Message
from legato.replication.envelopes import seal, unseal
from legato.replication.log import BEGINNING, Appended, Position, Record, ReplicatedLog
from legato.replication.patience import Patience
from legato.replication.replica import Replica
from legato.store.commit_records import AnyRecord, decode, encode_beat, encode_commit
from legato.store.memory import MemoryStore
from simulator.replicas.log_server import LogServer, Request
from simulator.replicas.log_servers import SimulatedEngine
from simulator.replicas.threads import Thread

_prune = MemoryStore.prune
_apply = Replica.apply
_append = ChainedClaim._append


def _now_s() -> float:
    return Thread.kernel.now_us / 1_000_000


def acknowledge_before_quorum(self: LogServer, index: int, request: Request) -> None:
    """The log's leader acknowledges what it alone has."""
    self._answer_append(request, self.log[index - 1].sequence)


def take_an_error_for_success(self: SimulatedEngine, data: bytes, after: int, timeout_s: float) -> int:
    """A refusal has a sequence, too; who looks at that first takes it for an acknowledgement."""
    answer = msgspec.json.decode(self._ask(timeout_s, "append", data, after))
    if "seq" in answer:
        return after + 1
    raise LogUnavailableError("no answer")


def append_again_behind_what_is_there(self: ChainedClaim, record: bytes, patience: Patience) -> Appended:
    """R5: an append in doubt is repeated as a new one, behind what the log has by now."""
    if self._ended is not None:
        raise self._ended
    while True:
        (message, digest), *_ = seal(self._key, self._id, record, self._digest, 1 << 30)
        sent_s = _now_s()
        try:
            self._last = self._engine.append(message, self._last, patience.attempt_s())
        except (LogUnavailableError, AppendRefused):
            patience.pause()
            self._last = patience.insist(self._engine.bounds).last
            there = patience.insist(partial(self._engine.get, self._last))
            self._digest = unseal(self._key, there).digest if there else self._digest
            continue
        self._digest, self._held_s = digest, sent_s
        self._position = Position(self._last, self._digest)
        return Appended(self._position, self._held_s)


def append_without_waiting(self: ChainedClaim, record: bytes, patience: Patience) -> Appended:
    """R2: the place of the next append is taken before this one is acknowledged, so that several are in flight."""
    if self._ended is not None:
        raise self._ended
    sent_s, after = _now_s(), self._last
    (message, digest), *_ = seal(self._key, self._id, record, self._digest, 1 << 30)
    self._last, self._digest = self._last + 1, digest
    position = Position(self._last, digest)
    while True:
        try:
            self._engine.append(message, after, patience.attempt_s())
        except LogUnavailableError as reason:
            patience.spent_by(reason)
            patience.pause()
        except AppendRefused:
            there = patience.insist(partial(self._engine.get, after + 1))
            if there is None:
                patience.pause()
            elif there == message:
                break
            else:
                raise FencedError("another broker claimed the log") from None
        else:
            break
    self._position, self._held_s = max(self._position, position, key=lambda each: each.sequence), sent_s
    return Appended(position, sent_s)


def take_no_turn(self: ChainedClaim) -> None:
    """R2, too: nobody waits for the append before."""
    del self


def append_in_turn(self: ChainedClaim, record: bytes) -> Appended:
    """As `ChainedClaim._append_in_turn`, of which nobody has a turn."""
    return self._append(record, Patience(None, self._closed, self._left))


def beat_beside_commits(self: ReplicatedCommits) -> None:
    """R2, too: a beat does not wait for the commit that is on its way."""
    pause_s = self._lease_s / BEATS_PER_LEASE
    while not self._ended.wait(pause_s):
        try:
            self._claim.append(encode_beat(self._say(self.epoch, self._replica.commits, "")))
        except LegatoError:
            return


def apply_whatever_comes(self: Chain, messages: list[Message]) -> list[Record]:
    """R3: what a fenced writer appended counts, if only it is intact."""
    records: list[Record] = []
    for sequence, data in messages:
        envelope = unseal(self._key, data)
        self.tip = Position(sequence, envelope.digest)
        if (record := self._join(envelope)) is not None:
            records.append(record)
        self.looked_at = sequence
    return records


def refuse_nothing(record: CommitRecord | EpochRecord, meta: object) -> None:
    """R3, too: neither the epoch nor the number of a record is looked at."""


def claim_undrained(
    self: ChainedLog, record: bytes, after: Position, timeout_s: float, seen: int | None = None
) -> ChainedClaim:
    """R3: a log is claimed behind whatever is there, read or not."""
    patience = self._patience(timeout_s)
    last = patience.insist(self._engine.bounds).last
    tip = after
    if last > after.sequence and (there := patience.insist(partial(self._engine.get, last))) is not None:
        tip = Position(last, unseal(self._key, there).digest)
    claim = ChainedClaim(self._engine, self._key, last, tip, self._closed)
    claim.begin(record, timeout_s)
    return claim


def lease_from_receipt(self: ChainedClaim, record: bytes, patience: Patience) -> Appended:
    """R8: the lease counts from the acknowledgement, not from when what it acknowledges was sent."""
    appended = _append(self, record, patience)
    self._held_s = _now_s()
    return appended


def claim_at_once(self: LogArbiter, replicated_log: ReplicatedLog, heard_s: float) -> bool:
    """R8: a backup claims as soon as it has everything, whether or not the former primary's lease is over."""
    del self, replicated_log, heard_s
    return True


def commit_before_the_log(self: ReplicatedCommits, batch: Batch) -> int:
    """R1: the own store first, then the log."""
    with self._turn:
        self._refuse_ended()
        store = self._replica.store
        if batch.epoch != self.epoch:
            raise FencedError("the epoch is over")
        record, data = encode_commit(batch, self._replica.commits + 1)
        store.prepare(record)
        self._replica.finish(record, self._claim.position)
        self._replica.passed(self._append(data))
        return record.position


def prune_by_the_own_clock(self: MemoryStore, now_us: int) -> int:
    """R7: a replica forgets producers when its own clock says so."""
    end_us = now_us - 2_000_000
    for record in [record for record in self._state.producers.values() if 0 < record.seen_us < end_us]:
        del self._state.producers[record.producer]
    return _prune(self, now_us)


def finish_with_the_place_before(self: Replica, record: CommitRecord | EpochRecord, position: Position) -> None:
    """R3: where a replica is in the log is kept with the next commit: after a restart the last one is replayed."""
    before = self.position if self.position != BEGINNING else position
    self.store.finish(Applied(before.sequence, before.digest))
    self._note(record, position)


def pass_over_what_has_no_room(self: Replica, record: Record) -> AnyRecord:
    """R6: a replica that has no room for a record goes on with the next one."""
    try:
        return _apply(self, record)
    except StoreFullError:
        self.passed(record.position)
        return decode(record.data)


def always_sure(self: Any) -> float:
    """R8: a primary whose log does not answer goes on answering."""
    del self
    return 1.0

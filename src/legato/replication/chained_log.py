"""A `ReplicatedLog` over an engine: the chain, positions, readers, claims."""

from functools import partial
from threading import Event
from typing import Final

from legato.errors import FencedError, LogTrimmedError
from legato.replication.chain import Chain, diverged
from legato.replication.chained_claim import RECORD_BYTES_MAX, ChainedClaim
from legato.replication.chained_following import FILL_BYTES, ChainedFollowing
from legato.replication.engine import Engine
from legato.replication.envelopes import group_key, unseal
from legato.replication.gapless import CHECK_PAUSE_S, altered, read_on, unsettled
from legato.replication.group_names import check_group
from legato.replication.log import PATIENCE_S, SILENCE_S, LogHealth, Position, Reading, Record
from legato.replication.patience import Patience

SHORT_ANSWERS = 10
"""So often a leader has to say, over some seconds, that it ends before a position: one that has just been elected may
not have applied yet all that it has."""


class ChainedLog:
    """A log whose messages an engine keeps.

    Args:
        group: the group whose log it is.
        engine: its servers; closed with the log.
    """

    def __init__(self, group: str, engine: Engine) -> None:
        self.group: Final = check_group(group)
        self.record_bytes_max: Final = RECORD_BYTES_MAX
        self._key = group_key(group)
        self._engine = engine
        self._closed = Event()
        self._voided = 0

    def last(self, timeout_s: float = PATIENCE_S) -> int:
        """As `ReplicatedLog.last`."""
        return self._patience(timeout_s).insist(self._engine.bounds).last

    def read(self, after: Position, limit_bytes: int = 1 << 22, timeout_s: float = PATIENCE_S) -> Reading:
        """As `ReplicatedLog.read`."""
        records, chain, drained = self._read(after, limit_bytes, self._patience(timeout_s))
        return Reading(records, chain.end if drained else records[-1].position, drained)

    def follow(self, after: Position, timeout_s: float = PATIENCE_S, silence_s: float = SILENCE_S) -> ChainedFollowing:
        """As `ReplicatedLog.follow`."""
        chain = self._chain(after, self._patience(timeout_s))
        return ChainedFollowing(self._engine, chain, self._count_voided, silence_s)

    def claim(
        self, record: bytes, after: Position, timeout_s: float = PATIENCE_S, seen: int | None = None
    ) -> ChainedClaim:
        """As `ReplicatedLog.claim`."""
        patience = self._patience(timeout_s)
        patience.insist(self._engine.vouch)
        chain = self._chain(after, patience)
        last = patience.insist(self._engine.bounds).last
        records: list[Record] = []
        while chain.looked_at < last and not records:
            # Parts of a commit that nobody completed may be hundreds of MiB: the time is for each piece.
            piece = self._patience(timeout_s)
            records = chain.feed(read_on(self._engine, chain.looked_at + 1, last, FILL_BYTES, piece))
        self._count_voided(chain)
        if records or (seen is not None and chain.looked_at > seen):
            raise FencedError(f"the log of the group {self.group} goes on behind record {after.sequence}")
        claim = ChainedClaim(self._engine, self._key, chain.looked_at, chain.tip, self._closed)
        claim.begin(record, timeout_s)
        return claim

    def trim(self, through: Position, timeout_s: float = PATIENCE_S) -> None:
        """As `ReplicatedLog.trim`."""
        if through.sequence > 1:
            self._patience(timeout_s).insist(partial(self._engine.trim, through.sequence))

    def health(self, timeout_s: float = PATIENCE_S) -> LogHealth:
        """As `ReplicatedLog.health`."""
        health = self._patience(timeout_s).insist(self._engine.health)
        trouble, stops = tuple(health.trouble), tuple(health.stops)
        return LogHealth(health.replicas, *health.bounds.kept(), health.kept_bytes, self._voided, trouble, stops)

    def move_leader(self, away_from: str, timeout_s: float = PATIENCE_S) -> str:
        """As `ReplicatedLog.move_leader`."""
        return self._patience(timeout_s).insist(partial(self._engine.move_leader, away_from))

    def close(self) -> None:
        """As `ReplicatedLog.close`."""
        self._closed.set()
        self._engine.close()

    def _patience(self, timeout_s: float) -> Patience:
        return Patience(timeout_s, self._closed)

    def _read(self, after: Position, limit_bytes: int, patience: Patience) -> tuple[list[Record], Chain, bool]:
        """Records behind a position, the chain behind what was looked at, and whether there was no more."""
        chain = self._chain(after, patience)
        last = patience.insist(self._engine.bounds).last
        records: list[Record] = []
        size = 0
        while chain.looked_at < last and (size < limit_bytes or not records):
            room = max(limit_bytes - size, 1)
            found = chain.feed(read_on(self._engine, chain.looked_at + 1, last, room, patience))
            records.extend(found)
            size += sum(len(record.data) for record in found)
        self._count_voided(chain)
        return records, chain, chain.looked_at >= last

    def _chain(self, after: Position, patience: Patience) -> Chain:
        """The chain from a position on, which has to be on this log."""
        bounds = patience.insist(self._engine.bounds)
        short_answers = 0
        while after.sequence > bounds.last:
            short_answers += bounds.settled
            if short_answers == SHORT_ANSWERS:
                raise diverged(after)
            patience.spent_by(unsettled())
            patience.pause(CHECK_PAUSE_S)
            bounds = patience.insist(self._engine.bounds)
        if after.sequence < bounds.first:
            if after.sequence < bounds.first - 1:
                raise LogTrimmedError(
                    f"the log keeps records from {bounds.first} on, and this replica ends with {after.sequence}: "
                    "seed it anew"
                )
            return Chain(self._engine, self._key, after, anchored=after.sequence == 0)
        self._anchor(after, patience)
        return Chain(self._engine, self._key, after, anchored=True)

    def _anchor(self, after: Position, patience: Patience) -> None:
        """See that the message at a position has its digest."""
        (_, message), *_ = read_on(self._engine, after.sequence, after.sequence, 1, patience)
        envelope = unseal(self._key, message)
        if not envelope.intact:
            raise altered(self._engine, after.sequence)
        if envelope.digest != after.digest:
            raise diverged(after)

    def _count_voided(self, chain: Chain) -> None:
        self._voided += chain.voided
        chain.voided = 0

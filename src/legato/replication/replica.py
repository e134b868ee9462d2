"""A replica: a store that applies the records of a replicated log, each once, in their order.

What it has applied is in the store with its effects, so that it goes on behind that after any crash.
"""

from __future__ import annotations

from collections.abc import Sequence

from legato.core.records import Applied, CommitRecord, EpochRecord
from legato.errors import FencedError, LogDivergedError, StoreCorruptError, StoreError, StoreFullError
from legato.replication.log import BEGINNING, Position, Record
from legato.replication.versions import EpochVersion, EpochVersions, read_record, refuse_other_version, version_of
from legato.sizes import counted
from legato.store.base import Store
from legato.store.commit_records import AnyRecord, Beat

PASSED_MAX = 256
"""So many records that change nothing are read again after a restart."""
NO_EPOCH = -1
ORIGIN_NUMBER = 0
"""`Applied.number` of a store that is to begin a log."""


class Replica:
    """The replica in one store. For one thread at a time.

    Args:
        store: what it keeps; nobody else commits to it.
        versions: of the primaries of the last epochs, as they are kept beside the store.

    Attributes:
        position: behind the last record that it has, also of records that change nothing.
        kept: the same, as the store has it on disk for certain: after a power cut its last commit may be undone.
        epoch: of the last record.
        commits: the number of the store's last commit.
        voided: records that it passed over, as every replica does: their epoch was over.

    Raises:
        LogDivergedError: it has commits that came from no log.
    """

    def __init__(self, store: Store, versions: EpochVersions | None = None) -> None:
        self.store = store
        self.versions = versions or EpochVersions()
        self.voided = 0
        self._agreed_epoch = NO_EPOCH
        """Its primary applies records as this version does, or nothing is known of that."""
        meta = store.meta()
        self.epoch, self.commits = meta.epoch, meta.log_position
        self.origin = b""
        """Digest of the store with which a log begins, if it was not empty."""
        applied = meta.applied
        if applied is None and meta.log_position:
            self.origin = _NOT_OF_A_LOG
        elif applied is not None and applied.number == ORIGIN_NUMBER:
            self.origin = applied.digest
        is_on_log = applied is not None and applied.number != ORIGIN_NUMBER
        self.position = Position(applied.number, applied.digest) if applied is not None and is_on_log else BEGINNING
        self.kept = BEGINNING
        self._stored = self.position
        """As the store's last commit has it."""

    @property
    def is_of_no_log(self) -> bool:
        """Whether its last commit came from no log, so that only a log that is empty can begin with it."""
        return self.origin == _NOT_OF_A_LOG

    def begin_log(self, identity: bytes) -> None:
        """A log is to begin with this store, whose last commit came from no log.

        Args:
            identity: 16 random bytes, by which it is told from other stores.
        """
        self.store.place(Applied(ORIGIN_NUMBER, identity))
        self.origin = identity

    def apply(self, record: Record) -> AnyRecord:
        """Apply the next record of the log, durably.

        Raises:
            StoreFullError: no room; the record is to be applied again.
            StoreFormatError: it was written by a version that applies records in another way, or that this one cannot
                read.
            LogDivergedError: the log did not begin with this store.
            StoreError: the store cannot be used, or the record does not fit; it must not serve.
        """
        decoded = read_record(record, self.version)
        if isinstance(decoded, Beat):
            self.passed(record.position)
            return decoded
        if isinstance(decoded, EpochRecord):
            self._refuse_foreign(decoded)
        self._refuse_other_version(decoded, self.epoch)
        try:
            self.store.prepare(decoded, forced=True)
        except FencedError:
            self.voided += 1
            self.passed(record.position)
            return decoded
        self.finish(decoded, record.position)
        return decoded

    def apply_all(self, records: Sequence[Record]) -> list[AnyRecord]:
        """Apply records that follow each other, durably when this returns: as `apply` of each, with one write.

        Raises:
            As `apply`; those before the one that could not be applied are.
        """
        if len(records) < 2:
            return [self.apply(record) for record in records]
        before = self.position, self.voided
        try:
            applied = self._apply_together(records)
        except StoreError:
            self.store.abandon()
            self.position, self.voided = before
            return [self.apply(record) for record in records]
        self.passed(records[-1].position)  # If the store has no room for that, what was applied is not applied again.
        return applied

    def _apply_together(self, records: Sequence[Record]) -> list[AnyRecord]:
        applied: list[AnyRecord] = []
        last: tuple[CommitRecord | EpochRecord, Position] | None = None
        for record in records:
            decoded = read_record(record, self.version)
            applied.append(decoded)
            if isinstance(decoded, Beat):
                continue
            if isinstance(decoded, EpochRecord) and last is None:
                self._refuse_foreign(decoded)
            self._refuse_other_version(decoded, self.epoch if last is None else last[0].epoch)
            try:
                self.store.prepare(decoded, forced=True)
                last = decoded, record.position
            except FencedError:
                self.voided += 1
        if last is not None:
            self.store.finish(Applied(last[1].sequence, last[1].digest))
            self._note(*last)
        return applied

    def finish(self, record: CommitRecord | EpochRecord, position: Position) -> None:
        """The record that is prepared is in the log, before `position`: commit it, with the reserve if need be.

        Raises:
            StoreError: it could not be committed.
        """
        applied = Applied(position.sequence, position.digest)
        try:
            self.store.finish(applied)
        except StoreFullError:
            self.store.prepare(record, forced=True)
            self.store.finish(applied)
        self._note(record, position)

    def _note(self, record: CommitRecord | EpochRecord, position: Position) -> None:
        """It is committed."""
        self.position = position
        self.kept, self._stored = self._stored, position
        self.epoch, self.commits = record.epoch, record.position
        self.origin = b""

    def passed(self, position: Position) -> None:
        """The last record changed nothing. The store hears of that now and then: a log is not kept for ever."""
        self.position = position
        if position.sequence - self._stored.sequence >= PASSED_MAX and self.origin == b"":
            self.store.place(Applied(position.sequence, position.digest))
            self.kept, self._stored = self._stored, position

    @property
    def version(self) -> EpochVersion | None:
        """What is known of the primary's version in the epoch of the last record."""
        return self.versions.of(self.epoch)

    def _refuse_other_version(self, record: CommitRecord | EpochRecord, epoch: int) -> None:
        """See that its writer applies it as this version does, which the record that begins an epoch says.

        Args:
            record: to be applied.
            epoch: of the record before it.
        """
        if isinstance(record, EpochRecord) and record.epoch == epoch + 1:
            refuse_other_version(version_of(record))
            self.versions.note(record)
            self._agreed_epoch = record.epoch
        elif record.epoch == epoch != self._agreed_epoch:
            # Another version may have applied what came before, on this store.
            if (version := self.versions.of(epoch)) is not None:
                refuse_other_version(version)
            self._agreed_epoch = epoch

    def _refuse_foreign(self, record: EpochRecord) -> None:
        if self.position != BEGINNING:
            return
        if self.is_of_no_log or record.origin != self.origin:
            raise LogDivergedError(
                f"the store in this directory has {counted(self.commits, 'commit')} of its own, and the log began with "
                "another store: serve a new directory, which is filled from the log, or remove this store"
                if self.commits
                else "the log began with a store that was not empty: copy that store to this directory first "
                "(legato store backup, legato store restore)"
            )
        if record.epoch != self.epoch + 1 or record.position != self.commits + 1:
            raise StoreCorruptError("the log's first record does not follow the store with which it began")


_NOT_OF_A_LOG = b"not of a log"


def refusal(error: StoreError) -> StoreError:
    """What a broker ends with whose store lacks what is in the log already."""
    failure = StoreError(f"a commit is in the replicated log and not in this broker's store: {error}")
    failure.__cause__ = error
    return failure

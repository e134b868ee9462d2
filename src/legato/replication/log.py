"""The interface of the replicated log, on which primary and backups of different machines agree.

A log is one sequence of records, kept by several servers. It is the lock, too: whoever appends the first record of an
epoch behind the last record of all is the primary, and what a former primary appends after that is refused.

1. An acknowledged record is on the disks of a majority. It is never lost, altered or moved.
2. A record is appended behind a known position or not at all. One append of a claim is in flight at a time: with
   several, those behind a refused one could be accepted.
3. Readers see each record whole, once, in order; a record that is missing or altered is an error, never skipped.
4. What a writer appended that was fenced is never delivered.

All calls block, and any thread may make them: a writer thread appends and waits, a replica's thread takes what follows.
An event loop calls them in a thread (`asyncio.to_thread`). Connections, elections and repetitions are the log's own
work. Each record is chained: a position has a digest of everything up to it, so that two logs are told apart by it.
"""

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Protocol

__all__ = [
    "BEGINNING",
    "DIGEST_BYTES",
    "PATIENCE_S",
    "SILENCE_S",
    "Appended",
    "Claim",
    "Following",
    "LogHealth",
    "Position",
    "Reading",
    "Record",
    "ReplicaHealth",
    "ReplicatedLog",
]

DIGEST_BYTES = 16
PATIENCE_S = 30.0
"""A call waits this long by default, which is longer than two elections of JetStream (4 to 9 s each)."""
SILENCE_S = 1.0
"""After so long a silence a follower asks, by default, whether the log goes on where it was sent nothing."""


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a log, behind a record.

    A replica stores the position of the last record it applied, in the transaction that applied it.

    Args:
        sequence: the log's own number, which grows but may skip some; 0 is before the first record.
        digest: of all records up to here.
    """

    sequence: int
    digest: bytes


BEGINNING = Position(0, bytes(DIGEST_BYTES))
"""Before the first record of any log."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record, and the position behind it."""

    position: Position
    data: bytes


@dataclass(frozen=True, slots=True)
class Reading:
    """What one call of `read` found.

    Args:
        records: whole records, in order.
        end: behind the last of them: where to read on, and behind which to claim if `drained`.
        drained: no whole record was behind `end` when the log was looked at.
    """

    records: Sequence[Record]
    end: Position
    drained: bool


@dataclass(frozen=True, slots=True)
class Appended:
    """An acknowledged record.

    Args:
        position: the position behind it.
        sent_s: when it, or its last part, was first sent, by `legato.clock.elapsed_s`.
    """

    position: Position
    sent_s: float


@dataclass(frozen=True, slots=True)
class ReplicaHealth:
    """One server's copy of the log.

    Args:
        server: the server's name.
        leads: it orders and acknowledges appends now.
        current: it has heard of the leader, and has what the leader has.
        lag: records that it lacks, as the leader knows.
        synced: it writes each record to disk before it acknowledges it; None if that could not be found out.
        heard: the leader has heard of it lately; one that is heard and not current gets what it lacks.
    """

    server: str
    leads: bool
    current: bool
    lag: int
    synced: bool | None
    heard: bool = True

    @property
    def trouble(self) -> str:
        """What is wrong with it, in a sentence that stays the same while it is so; empty if nothing is."""
        if self.current:
            return ""
        if self.heard:
            return f"{self.server} does not have all records: it is getting them, or has just been lost"
        return f"{self.server} does not answer the leader"


@dataclass(frozen=True, slots=True)
class LogHealth:
    """The state of a log.

    Args:
        replicas: of all servers that keep the log.
        first: the sequence of the first record that is kept, if there is one.
        last: the sequence of the last record; 0 if there never was one.
        kept_bytes: the size of the records kept.
        voided: how often readers of this object passed over a record of a writer that had been fenced: a fault of the
            log's servers, though harmless.
        trouble: what is wrong, in sentences for an operator; empty if nothing is.
        stops: those of `trouble` for which servers that are well may take no record.
    """

    replicas: Sequence[ReplicaHealth]
    first: int
    last: int
    kept_bytes: int
    voided: int
    trouble: Sequence[str]
    stops: Sequence[str] = ()

    @property
    def leader(self) -> str | None:
        """The name of the server that leads; None while there is none."""
        return next((replica.server for replica in self.replicas if replica.leads), None)

    @property
    def quorum(self) -> bool:
        """Whether an append can be acknowledged now."""
        return self.leader is not None and 2 * sum(each.current for each in self.replicas) > len(self.replicas)

    @property
    def sync_proved(self) -> bool:
        """Whether each server has been seen to write to disk before it acknowledges."""
        return bool(self.replicas) and all(each.synced for each in self.replicas)


class Following(Protocol):
    """The records behind a position, as they come. For one thread."""

    @property
    def end(self) -> Position:
        """The position behind the last record taken: where to follow on after a restart."""

    @property
    def seen(self) -> int:
        """The sequence of the last record or part of one that came, taken or not."""

    @property
    def heard_s(self) -> float:
        """When that came, by `legato.clock.elapsed_s`; when the following began, if nothing has come yet."""

    def take(self, timeout_s: float, limit_bytes: int = 1 << 22) -> Sequence[Record]:
        """The records that have come, in order; waits for the first of them.

        A log that is unavailable is silent: `take` returns nothing, and what follows when it is back.

        Args:
            timeout_s: wait about so long, half a second more while servers are silent; nothing is returned then.
            limit_bytes: stop at this size, but not before one record.

        Raises:
            LogDamagedError: a record is missing or altered. Follow again, from `end`, once another server leads.
            LogFormatError: a record is of another group or of an unknown format.
            LogTrimmedError: records were trimmed before they were taken.
        """

    def close(self) -> None:
        """Follow no longer. A `take` in another thread returns nothing."""


class Claim(Protocol):
    """The right to append, until somebody else claims the log. For one thread, except `close`."""

    @property
    def began(self) -> Appended:
        """The record with which the claim began."""

    @property
    def position(self) -> Position:
        """The position behind the last acknowledged record."""

    @property
    def held_s(self) -> float:
        """When the last acknowledged record, or part of one, was first sent, by `legato.clock.elapsed_s`.

        The claim was nobody else's then: a lease counts from here, also while a large record is on its way.
        """

    def append(self, record: bytes) -> Appended:
        """Append a record behind the last, and wait until it is acknowledged.

        Elections and lost answers are waited through: the same bytes are sent again under the same condition, and if
        something is there already, it is read. So the outcome is known, unless the claim is closed meanwhile.

        Args:
            record: at most `record_bytes_max` of the log.

        Raises:
            FencedError: somebody else claimed the log. This claim never appends again.
            LogUnavailableError: `close` was called; whether the record is stored is not known.
            LogDamagedError: the log lost what decides; this claim never appends again.
        """

    def submit(self, record: bytes) -> "Future[Appended]":
        """Begin what `append` does, and return while it is on its way.

        The record before has to be acknowledged first (`LogError`): only one is ever in flight.
        """

    def close(self) -> None:
        """Append no more. Any thread may call it; an append that is waiting gives up (`LogUnavailableError`)."""


class ReplicatedLog(Protocol):
    """A log of one group of brokers. Each broker has an object of its own.

    Every call that waits for servers raises `LogUnavailableError` when its time is over: as `LogAccessError`, if what
    it waited for was that the servers take the credentials.
    """

    @property
    def group(self) -> str:
        """The name of the group whose log it is."""

    @property
    def record_bytes_max(self) -> int:
        """The size of the largest record. Large ones are split and joined by the log."""

    def last(self, timeout_s: float = PATIENCE_S) -> int:
        """The sequence of the last record or part of one; 0 if there never was one.

        It may be old when it returns. Only a claim knows that nothing was behind.
        """

    def read(self, after: Position, limit_bytes: int = 1 << 22, timeout_s: float = PATIENCE_S) -> Reading:
        """The records behind a position, as far as they go now.

        Args:
            after: where this reader is.
            limit_bytes: stop at this size, but not before one record.
            timeout_s: how long to wait for servers.

        Raises:
            LogDamagedError: a record is missing or altered.
            LogTrimmedError: what follows the position is no longer kept.
            LogDivergedError: the position is not on this log.
            LogFormatError: a record is of another group or of an unknown format.
        """

    def follow(self, after: Position, timeout_s: float = PATIENCE_S, silence_s: float = SILENCE_S) -> Following:
        """The records behind a position, and those to come.

        Args:
            after: where to begin.
            timeout_s: how long to wait for servers.
            silence_s: after so long a silence the servers are asked whether the log goes on where they sent nothing.

        Raises:
            LogTrimmedError, LogDivergedError, LogDamagedError, LogFormatError: as `read`.
        """

    def claim(self, record: bytes, after: Position, timeout_s: float = PATIENCE_S, seen: int | None = None) -> Claim:
        """Append the first record of an epoch behind everything, and with it the right to append more.

        Args:
            record: says whose epoch begins.
            after: the `end` of a reading that was drained.
            timeout_s: how long to wait for servers. Whether the record is stored is not known when it is over: read on.
            seen: what a following has seen. Parts of a record that is not whole yet are behind `after`, too, and each
                says that its writer lives; None: such parts do not matter.

        Raises:
            FencedError: there is something behind `after`, or parts behind `seen`: read it, and claim again or stay a
                backup.
            LogUnsafeError: the servers do not write to disk before they acknowledge, or do not let it be proved.
            LogTrimmedError, LogDivergedError, LogDamagedError, LogFormatError: as `read`.
        """

    def trim(self, through: Position, timeout_s: float = PATIENCE_S) -> None:
        """Forget what is before the record that ends at a position. It does not matter how often that is done.

        The end of that record is kept, so that readers at the position see that it is on this log.
        """

    def health(self, timeout_s: float = PATIENCE_S) -> LogHealth:
        """How the servers are."""

    def move_leader(self, away_from: str, timeout_s: float = PATIENCE_S) -> str:
        """Let another server lead, if the named one does; return who leads then.

        An append in flight may be delayed by about a second.

        Args:
            away_from: the name of a server: the one beside the primary, or one whose records are damaged.

        Raises:
            LogUnavailableError: no other server is current, so that none may lead.
        """

    def close(self) -> None:
        """Leave the log: followings end, claims append no more."""

"""A replica and its log, for people."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Activity(StrEnum):
    """What a replica is doing."""

    FOLLOWS = "follows"
    LEADS = "leads"
    WAITS = "waits"


class LogServerStatus(msgspec.Struct, frozen=True):
    """One server of the log; fields as of `ReplicaHealth`."""

    server: str
    leads: bool
    current: bool
    lag: int
    synced: bool | None
    heard: bool = True


class BackupStatus(msgspec.Struct, frozen=True):
    """Another broker of the group, as its primary knows it.

    Args:
        listen: where it would serve.
        state: whether it follows the log or waits, as it said last.
        version: of Legato.
        commits: of its store, as it said last.
        sequence: of the last record that it had then.
        behind: records of the log that it lacks.
        heard_s: so long ago it said that.
        away: it has not said anything for longer than brokers are silent.
        trouble: what is wrong with it, in a sentence; empty if nothing is.
    """

    listen: str
    state: str
    version: str
    commits: int
    sequence: int
    behind: int
    heard_s: float
    away: bool
    trouble: str


class ReplicaStatus(msgspec.Struct, frozen=True):
    """A replica and its log, for people.

    Args:
        state: whether it follows the log, leads, or waits for the log or for room.
        group: whose log it is.
        sequence: of the last record that it has.
        behind: records of the log that it lacks; None if the log does not say.
        commits: of its store.
        voided: records that it passed over.
        lease_ms: for so long a primary answers without the log.
        sure: whether a primary may answer now.
        quorum: whether the log can acknowledge anything; None if that is not known.
        log_bytes: that the log keeps.
        servers: of the log.
        trouble: what is wrong, in sentences; empty if nothing is.
        backups: the other brokers of the group, if this one is the primary.
        since_us: since when it waits, microseconds since 1970; None if it does not.
        epoch: of its store's last commit.
        looked_s: so long ago the log's servers were asked; None if they have not answered.
    """

    state: str
    group: str
    sequence: int
    behind: int | None
    commits: int
    voided: int
    lease_ms: int
    sure: bool
    quorum: bool | None
    log_bytes: int
    servers: list[LogServerStatus]
    trouble: list[str]
    backups: list[BackupStatus] = []
    since_us: int | None = None
    epoch: int = 0
    looked_s: float | None = None

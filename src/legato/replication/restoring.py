"""Restoring a log: a new one that begins with a replica's store, after all servers of the former one were lost.

What was confirmed is on a majority of the log's servers and in the store of the primary that confirmed it. With the
servers gone, the furthest of all stores has all of it, and no other store may begin the new log.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from legato.errors import ConfigError, LogError, StoreError
from legato.replication.arbiter import CLAIM_PATIENCE_S, IDENTITY_BYTES
from legato.replication.log import BEGINNING
from legato.replication.nats import NatsSettings, open_log, open_register
from legato.replication.replica import Replica
from legato.replication.seeding import look_at
from legato.replication.versions import EpochVersions
from legato.sizes import counted
from legato.store.commit_records import encode_epoch
from legato.store.lmdb import LmdbStore

BY = "legato log restore"
"""In the first record, instead of a broker."""


class Evidence(msgspec.Struct, frozen=True):
    """How far another broker's store is.

    Args:
        store: where it is, or was.
        epoch: of its last commit.
        commit: the number of its last commit.
    """

    store: str
    epoch: int
    commit: int


@dataclass(frozen=True, slots=True)
class Restored:
    """The new log.

    Args:
        epoch: with which it begins.
        commit: the last one of the store before that.
        sequence: of its last record.
    """

    epoch: int
    commit: int
    sequence: int


def evidence(path: Path) -> Evidence:
    """How far a store is, by itself or by what `legato replica status --json` said of it.

    Raises:
        ConfigError: the file has something else in it.
        StoreError: the store cannot be read.
    """
    if path.is_dir():
        snapshot = look_at(path)
        return Evidence(str(path), snapshot.epoch, snapshot.commit)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Evidence)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path} is not what legato replica status --json prints: {error}") from None
    return found


def restore_log(
    directory: Path,
    settings: NatsSettings,
    others: Sequence[Evidence],
    *,
    brokers: int,
    accept_loss: bool,
    timeout_s: float,
) -> Restored:
    """Begin the log of a group with a store, on which no broker runs.

    Args:
        directory: of the store.
        settings: the new servers.
        others: how far the stores of the group's other brokers are.
        brokers: how many the group has.
        accept_loss: whether commits may be lost that another broker has or may have.
        timeout_s: how long to wait for the servers.

    Raises:
        StoreError: the store is not of a replica, or commits could be lost.
        LogError: the servers cannot be used, or there is a log.
    """
    store = LmdbStore(directory)
    try:
        replica = Replica(store, EpochVersions(directory))
        registered = _registered(settings, timeout_s)
        _refuse_loss(directory, replica, others, registered, brokers, accept_loss)
        log = open_log(settings, timeout_s)
        try:
            if last := log.last(timeout_s):
                raise LogError(
                    f"the group {settings.group} has a log, with {counted(last, 'record')}: it is not lost. A "
                    "broker whose store is not on it needs a copy of one that is (legato replica seed)"
                )
            commit, epoch = replica.commits, replica.epoch + 1
            if not replica.origin or replica.is_of_no_log:
                replica.begin_log(secrets.token_bytes(IDENTITY_BYTES))
            record, data = encode_epoch(epoch, commit + 1, BY, time.time_ns() // 1000, replica.origin)
            replica.versions.note(record)
            store.prepare(record, forced=True)
            try:
                claim = log.claim(data, BEGINNING, max(timeout_s, CLAIM_PATIENCE_S))
            except BaseException:
                store.abandon()
                raise
            replica.finish(record, claim.began.position)
            claim.close()
            return Restored(epoch, commit, claim.began.position.sequence)
        finally:
            log.close()
    finally:
        store.close()


def _registered(settings: NatsSettings, timeout_s: float) -> list[Evidence]:
    """How far the group's brokers are, as they say in the register. Those that did not come since may be further."""
    register = open_register(settings, timeout_s)
    try:
        entries = [each.entry for each in register.entries(timeout_s)]
    finally:
        register.close()
    return [Evidence(f"the broker at {each.listen}", each.epoch, each.commits) for each in entries]


def _refuse_loss(
    directory: Path,
    replica: Replica,
    others: Sequence[Evidence],
    registered: Sequence[Evidence],
    brokers: int,
    accept_loss: bool,
) -> None:
    if not replica.commits:
        raise StoreError(f"the store in {directory} is empty: a new log begins with the one that is furthest")
    if accept_loss:
        return
    consent = "--accept-loss goes on all the same"
    further = max([*others, *registered], key=lambda each: each.commit, default=None)
    if further is not None and further.commit > replica.commits:
        raise StoreError(
            f"{further.store} has commit {further.commit:,}, and {directory} ends with {replica.commits:,}: "
            f"run this there, or what was confirmed is lost; {consent}"
        )
    if len(others) < brokers - 1:
        raise StoreError(
            f"of the {brokers} brokers of the group {len(others) + 1} {'are' if others else 'is'} compared: each of "
            f"the others may have commits that {directory} lacks. Name their stores with --other, or give --brokers; "
            f"{consent}"
        )

"""Opens what a broker of a group has: its own store, and the group's replicated log."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from legato.clock import Clock
from legato.errors import ConfigError, StoreFormatError, StoreLockedError
from legato.ha.lock import StoreLock
from legato.replication.arbiter import LogArbiter
from legato.replication.beginning import Beginning
from legato.replication.seeding import remove_replaced, seed
from legato.server.config.configuration import Config, ReplicationSection
from legato.server.storage.fault_injection import open_store
from legato.server.storage.seed_source import snapshot_on
from legato.store.environment import DATA_NAME
from legato.store.former_store import what_a_ledger_tells, what_is_left
from legato.store.lmdb import LmdbStore
from legato.store.migration import migrate

if TYPE_CHECKING:
    from legato.replication.log import ReplicatedLog
    from legato.replication.nats import NatsGroupMaps, NatsSettings

log = logging.getLogger("legato.replication")


def hold_directory(directory: Path) -> StoreLock:
    """The lock of a directory that one broker has for itself.

    Raises:
        StoreLockedError: another process has it.
    """
    lock = StoreLock(directory)
    if not lock.try_acquire():
        holder = lock.holder()
        who = f"process {holder.pid}" if holder is not None else "another process"
        raise StoreLockedError(
            f"{who} serves the store in {directory}: with a replicated log each broker has a directory of its own"
        )
    return lock


def begin_replica(config: Config, clock: Clock) -> LogArbiter:
    """This broker's replica, which follows the group's log from now on. Takes as long as a migration of the store.

    Raises:
        ConfigError: what is said of the log's servers cannot be used.
        StoreError: the store cannot be opened.
    """
    from legato.replication.nats import NatsRegister, Opening

    settings = log_settings(config.replication)
    # The log has a record of each commit: a journal beside it would be a second one, and what a power cut undoes of the
    # last commit is applied again.
    store_section = msgspec.structs.replace(config.store, checkpoint_ms=0)
    if told := what_is_left(config.store_directory, config.ledger_directory):
        file = config.store_directory / DATA_NAME
        log.warning("! %s is lost, or empty, though there was a store (%s): its content comes from the log", file, told)
    try:
        store: LmdbStore = open_store(config.store_directory, store_section, metasync=False)
    except StoreFormatError as error:
        if not error.former:
            raise
        migrate(config.store_directory, map_bytes=config.store.map_bytes)
        store = open_store(config.store_directory, store_section, metasync=False)
    section = config.replication
    former = "" if store.meta().log_position else what_a_ledger_tells(config.ledger_directory)

    def seed_store(replicated_log: ReplicatedLog, old: LmdbStore) -> LmdbStore:
        with snapshot_on(replicated_log, section.seed_from, config.store_directory) as snapshot:
            old.close()
            before = seed(config.store_directory, snapshot)
        seeded: LmdbStore = open_store(config.store_directory, store_section, metasync=False)
        if before is not None:
            # Nobody is there to do it, and each is as large as a store.
            remove_replaced(config.store_directory, before)
        return seeded

    opening = Opening(settings)
    register = NatsRegister(opening.connection, settings)
    return LogArbiter(
        opening,
        store,
        config.advertised,
        section.lease_s,
        clock.now_us,
        beside=section.beside,
        log_bytes_max=section.log_bytes,
        stop_opening=opening.close,
        seed=seed_store if section.seed_from else None,
        directory=config.store_directory,
        register=register,
        beginning=Beginning(
            register, section.group, config.advertised, list(dict.fromkeys(config.ha.addresses)), former
        ),
    )


def open_group_maps(config: Config) -> NatsGroupMaps:
    """The map of groups on the log's servers.

    Raises:
        ConfigError: what is said of these cannot be used.
    """
    from legato.replication.nats import NatsGroupMaps

    return NatsGroupMaps(log_settings(config.replication))


def log_settings(section: ReplicationSection) -> NatsSettings:
    """What is said of the log's servers.

    Raises:
        ConfigError: it cannot be used.
    """
    from legato.replication.nats import NatsSettings

    return NatsSettings(
        section.servers,
        section.group,
        user=section.user or None,
        password_file=_secret("password_file", section.password_file),
        token_file=_secret("token_file", section.token_file),
        credentials_file=_path(section.credentials_file),
        ca_file=_path(section.tls_ca),
        certificate_file=_path(section.tls_certificate),
        key_file=_path(section.tls_key),
        replicas=section.replicas,
    )


def _path(setting: str) -> Path | None:
    return Path(setting) if setting else None


def _secret(setting: str, file: str) -> Path | None:
    """The file with a secret, which can be read."""
    if not file:
        return None
    try:
        Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"Cannot read replication.{setting} {file}: {error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigError(f"replication.{setting} {file} is not text in UTF-8.") from None
    return Path(file)

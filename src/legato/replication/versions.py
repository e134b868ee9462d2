"""Versions of Legato beside each other: whose records a replica applies, and which version it needs for others.

The record that begins an epoch says which version the primary runs, and by which rules that one applies records. A
replica whose rules are others stops before it applies any record of the epoch. What was said is kept beside the
store: a broker that is started with another version in the middle of an epoch is to know it, too.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from legato import __version__
from legato.core.records import Batch, CommitRecord, EpochRecord
from legato.errors import StoreCorruptError, StoreFormatError
from legato.quoting import quoted, sentence
from legato.replication.log import Record
from legato.store.backup_files import OWNERS_ONLY, VERSIONS_NAME
from legato.store.commit_records import (
    AnyRecord,
    Beat,
    decode,
    encode_commit,
    encode_epoch,
    refuse_other_rules,
    rules,
)
from legato.store.directories import sync_directory

log = logging.getLogger("legato.replication")

EPOCHS_KEPT = 8
"""A power cut may undo the store's last commit, and with it the beginning of an epoch."""
_FACTS, _FORMAT = "facts known", "format"
"""Rules that grow from version to version. Who knows more facts can apply those of former versions."""
_SHORT_ARRAY, _LENGTH = 0x90, 0x0F
"""The first byte of an array of up to 15 elements in msgpack, and the bits of it that count them."""


class EpochVersion(msgspec.Struct, frozen=True):
    """What the record that began an epoch said of its primary.

    Args:
        epoch: its number.
        version: of Legato.
        rules: of that version: see `store.commit_records.rules`.
    """

    epoch: int
    version: str
    rules: dict[str, int]


class EpochVersions:
    """The versions of the last epochs' primaries, kept in a file beside a store.

    Args:
        directory: of the store; None for one that has none, which remembers them only while it is open.
    """

    def __init__(self, directory: Path | None = None) -> None:
        self._directory = directory
        self._versions = [] if directory is None else _read(directory / VERSIONS_NAME)

    def of(self, epoch: int) -> EpochVersion | None:
        """What is known of an epoch."""
        return next((each for each in self._versions if each.epoch == epoch), None)

    def note(self, record: EpochRecord) -> None:
        """Keep what a record says, before it is applied. What cannot be written is told, and no reason to stop."""
        said = EpochVersion(record.epoch, record.version, record.rules)
        if self.of(record.epoch) == said:
            return
        others = [each for each in self._versions if each.epoch != record.epoch]
        self._versions = [*others, said][-EPOCHS_KEPT:]
        if self._directory is not None:
            try:
                _write(self._directory, self._versions)
            except OSError as error:
                log.warning("! %s cannot be written: %s", quoted(self._directory / VERSIONS_NAME), sentence(error))


def read_record(record: Record, version: EpochVersion | None) -> AnyRecord:
    """A record of the log, decoded.

    Args:
        record: whole and as it was written: the log has compared its digest.
        version: of the primary of the epoch, if it is known.

    Raises:
        StoreFormatError: it is of a later version, which wrote what this one does not know.
    """
    try:
        decoded = decode(record.data)
    except StoreCorruptError as error:
        raise _of_later_version(record, version) from error
    # What comes behind the fields that this version knows is skipped by who decodes it.
    if not isinstance(decoded, Beat) and _length(record.data) > _LENGTHS[type(decoded)]:
        raise _of_later_version(record, version)
    return decoded


def refuse_other_version(said: EpochVersion) -> None:
    """See that this version applies records as the primary of an epoch does.

    Raises:
        StoreFormatError: it would make something else of them. The sentence says what to do.
    """
    there = dict(said.rules)
    here = rules()
    if there and there.get(_FACTS, 0) < here[_FACTS]:
        there[_FACTS] = here[_FACTS]
    if _is_former(said) and (unlike := _unlike(there, here)):
        raise StoreFormatError(
            f"the commits of epoch {said.epoch} are those of Legato {said.version}, and this version ({__version__}) "
            f"would apply them in another way ({unlike}: {there.get(unlike)} there, {here.get(unlike)} here): start "
            f"this broker with Legato {said.version}, and stop all brokers of the group before you upgrade them"
        )
    refuse_other_rules(EpochRecord(said.epoch, 0, "", 0, b"", said.version, there))


def version_of(record: EpochRecord) -> EpochVersion:
    """What a record says of the version of its primary."""
    return EpochVersion(record.epoch, record.version, record.rules)


def _unlike(there: dict[str, int], here: dict[str, int]) -> str:
    """The first rule that differs; empty if none does, or if none are known."""
    names = sorted(here.keys() | there.keys()) if there else ()
    return next((name for name in names if here.get(name) != there.get(name)), "")


def _is_former(said: EpochVersion) -> bool:
    """Whether it is of an earlier version than this one."""
    there, here = _numbers(said.version), _numbers(__version__)
    if there != here:
        return there < here
    known = rules()
    return (said.rules.get(_FORMAT, 0), said.rules.get(_FACTS, 0)) < (known[_FORMAT], known[_FACTS])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".") if part.isdigit())


def _of_later_version(record: Record, version: EpochVersion | None) -> StoreFormatError:
    is_known = version is not None and _numbers(version.version) > _numbers(__version__)
    by = f"Legato {version.version}" if version is not None and is_known else "a later version of Legato"
    return StoreFormatError(
        f"record {record.position.sequence} of the log was written by {by}, and this version ({__version__}) cannot "
        "read it: upgrade this broker, which goes on there, and upgrade the primary last"
    )


def _length(data: bytes) -> int:
    """How many elements a record has; more than any may have if they are not counted in its first byte."""
    return data[0] & _LENGTH if data[0] & ~_LENGTH == _SHORT_ARRAY else _LENGTH + 1


_LENGTHS: dict[type[AnyRecord], int] = {
    CommitRecord: _length(encode_commit(Batch(0, 0, [], []), 1)[1]),
    EpochRecord: _length(encode_epoch(1, 1, "", 0)[1]),
}


def _read(file: Path) -> list[EpochVersion]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=list[EpochVersion])
    except FileNotFoundError:
        return []
    except (OSError, msgspec.DecodeError) as error:
        log.warning("! %s cannot be read: %s", quoted(file), sentence(error))
        return []


def _write(directory: Path, versions: Sequence[EpochVersion]) -> None:
    """The new file in the place of the old one, durably.

    Raises:
        OSError: it cannot be written; the old one is as it was.
    """
    coming = directory / f"{VERSIONS_NAME}.new"
    with coming.open("wb") as file:
        os.fchmod(file.fileno(), OWNERS_ONLY)
        file.write(msgspec.json.format(msgspec.json.encode(versions)) + b"\n")
        file.flush()
        os.fsync(file.fileno())
    coming.replace(directory / VERSIONS_NAME)
    sync_directory(directory)

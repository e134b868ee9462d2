"""A former store: what is left in a directory of one whose file was lost.

A broker that finds no file makes a new store. Where another one has been, that would be served empty, and what was
confirmed would be missing without a word. A first start that ends early leaves nothing of what is looked for here: all
of it is made after the file has content. An empty file (0 bytes) is what such a start may leave, as LMDB makes the file
before it writes to it; so that alone tells of no store.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from legato.errors import ConfigError, StoreCorruptError
from legato.store.backup_files import VERSIONS_NAME
from legato.store.environment import DATA_NAME, KEPT_NAME
from legato.store.journal_state import JOURNAL_NAME
from legato.store.reserve import RESERVE_NAME
from legato.store.segment_names import exported_through, spans


def refuse_lost_store(directory: Path, ledger: Path, epoch: int = 0, known: int = 0) -> None:
    """See that no new store is begun where a former one has lost its file.

    Args:
        directory: of the store.
        ledger: where its ledger is written.
        epoch: the last one that the lock's file tells of; 0 if none.
        known: the last one that this broker knows of, as of when the store's directory was there; 0 if none.

    Raises:
        StoreCorruptError: the file is missing, or empty; the message says what tells of it, and what to do.
    """
    told = what_is_left(directory, ledger, epoch, known)
    if not told:
        return
    data = directory / DATA_NAME
    state = "is empty (0 bytes)" if data.exists() else "is missing"
    elsewhere = "" if ledger.is_relative_to(directory) or not any(spans(ledger)) else f" and {ledger}"
    raise StoreCorruptError(
        f"{data} {state}, though there was a store: {told}. Nothing is served, as what was confirmed would be missing. "
        f"Put the file back; or move {directory}{elsewhere} away and restore a backup (legato store restore BACKUP "
        f"{directory}). To begin anew without what was in it, move {directory}{elsewhere} away and start the broker "
        "again"
    )


def what_is_left(directory: Path, ledger: Path, epoch: int = 0, known: int = 0) -> str:
    """What tells of a former store where there is no file of one, for people; empty if nothing does, or there is one.

    Args:
        directory: of the store.
        ledger: where its ledger is written.
        epoch: the last one that the lock's file tells of; 0 if none.
        known: see `refuse_lost_store`.
    """
    data = directory / DATA_NAME
    if data.exists() and (not data.is_file() or data.stat().st_size):
        return ""
    return ", ".join(_traces(directory, ledger, epoch, known))


def what_a_ledger_tells(ledger: Path) -> str:
    """What tells of a store in the directory of its ledger, for people; empty if nothing does."""
    segments = list(spans(ledger))
    if not segments:
        return ""
    last = max(span.last for span in segments)
    what = "1 segment" if len(segments) == 1 else f"{len(segments):,} segments"
    return f"{what} of a ledger, up to commit {last:,}, in {ledger}"


def refuse_ledger_ahead(directory: Path, last: int, ledger: Path) -> None:
    """See that a ledger is not that of a later store, as where a backup was restored and its ledger was not.

    Its segments would pass for the facts of commits that are still to come: those would be trimmed, and be nowhere.

    Args:
        directory: of the store.
        last: commit of the store.

    Raises:
        ConfigError: it tells of commits that the store never made.
    """
    exported = exported_through(ledger)
    if exported > last:
        raise ConfigError(
            f"The ledger in {ledger} goes up to commit {exported:,}, and the store in {directory} to {last:,}: a "
            "backup was restored, or the ledger is another store's. Name another directory in [ledger] directory, or "
            "move this one away, and audit it where it is"
        )


def _traces(directory: Path, ledger: Path, epoch: int, known: int) -> Iterator[str]:
    if told := what_a_ledger_tells(ledger):
        yield told
    if (journal := directory / JOURNAL_NAME).is_dir() and any(journal.iterdir()):
        yield f"the journal in {journal}"
    for name in (RESERVE_NAME, VERSIONS_NAME):
        if (directory / name).exists():
            yield f"the file {name}"
    for kept in sorted(directory.glob(KEPT_NAME.format("*"))):
        yield f"the copy {kept.name}"
    if epoch:
        yield f"a note of its epoch {epoch} in the file of its lock"
    elif known:
        yield f"its epoch {known}, known since before it was removed"

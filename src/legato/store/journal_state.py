"""The store's file and its journal belong together: what the file says of the journal, and what the journal has more.

The key `journal` of the database `meta` has the identity of the journal and the place of the last commit that the file
holds. It is written by the transaction that holds that commit, so a record is applied once and no more. While the
journal is open, it may have records behind that place: whoever changes the store applies them first (`settle`).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from legato.errors import StoreCorruptError
from legato.store.environment import FORMAT_KEY, encode_format
from legato.store.journal import Journal, Place, create_journal, remove_journal
from legato.store.journal_records import IDENTITY_BYTES, NO_DIGEST, Layout, needed_records, read_header, segment_path

JOURNAL_KEY = b"journal"
JOURNAL_NAME = "journal"
"""The directory of the journal's files, in the store's."""


class JournalState(msgspec.Struct):
    """What a store's file says of its journal."""

    identity: bytes = b""
    epoch: int = 0
    number: int = 0
    digest: bytes = NO_DIGEST
    """Epoch, number and digest are those of the last commit with a record that the file holds."""
    is_open: bool = False
    """Whether there may be records behind that."""

    @property
    def place(self) -> Place:
        """The place of the last commit with a record that the file holds."""
        return Place(self.epoch, self.number, self.digest)

    def move(self, place: Place) -> None:
        """The file holds everything up to `place`."""
        self.epoch, self.number, self.digest = place


_encode = msgspec.msgpack.encode
_decoder = msgspec.msgpack.Decoder(JournalState)


def read_journal_state(txn: Any, meta: Any) -> JournalState:
    """What the store's file says of its journal; of a store that never had one, that there is none.

    Raises:
        StoreCorruptError: it cannot be read.
    """
    value = txn.get(JOURNAL_KEY, db=meta)
    try:
        return JournalState() if value is None else _decoder.decode(value)
    except msgspec.DecodeError as error:
        raise StoreCorruptError(f"what the store says of its journal cannot be read: {error}") from error


def write_journal_state(txn: Any, meta: Any, state: JournalState) -> None:
    """Have the store's file say that of its journal."""
    txn.put(JOURNAL_KEY, _encode(state), db=meta)


def settle(txn: Any, meta: Any, store: Path, apply: Callable[[Any, bytes], object]) -> int:
    """Apply what the journal has more than the store's file; returns how many commits that were.

    Args:
        txn: a transaction that may write.
        meta: the database.
        store: the directory of the store.
        apply: does again, in that transaction, what the bytes of a record say.

    Raises:
        StoreCorruptError: the journal is missing, damaged, or another store's; the message says what is lost.
        OSError: it cannot be read.
    """
    state = read_journal_state(txn, meta)
    if not state.is_open:
        return 0
    found = needed_records(store / JOURNAL_NAME, state.identity, state.place)
    for record in found:
        apply(txn, record.payload)
    if found:
        state.move(found[-1].place)
        write_journal_state(txn, meta, state)
    return len(found)


def open_journal(txn: Any, meta: Any, store: Path, segment_bytes: int, *, sync: bool) -> Journal:
    """The journal of a store that is settled, to be written to when the transaction is committed.

    One of another size is replaced, once the file says that it is not needed (`close_journal`).

    Raises:
        OSError: there is no room for it, or it cannot be written.
        StoreCorruptError: it is damaged; not if it is not needed.
    """
    state, directory = read_journal_state(txn, meta), store / JOURNAL_NAME
    journal: Journal | None = None
    try:
        if state.identity:
            journal = Journal(directory, state.identity, state.place, sync=sync)
    except (StoreCorruptError, OSError):
        if state.is_open:
            raise
    if journal is not None and not state.is_open and journal.layout.segment_bytes != segment_bytes:
        journal.close()
        journal = None
    if journal is None:
        remove_journal(directory)
        state.identity = os.urandom(IDENTITY_BYTES)
        create_journal(directory, state.identity, segment_bytes, sync=sync)
        journal = Journal(directory, state.identity, state.place, sync=sync)
    state.is_open = True
    write_journal_state(txn, meta, state)
    txn.put(FORMAT_KEY, encode_format(with_journal=True), db=meta)
    return journal


def journal_layout(store: Path, state: JournalState) -> Layout:
    """How large the journal of a store is.

    Raises:
        StoreCorruptError: it is missing, damaged, or another store's.
    """
    return read_header(segment_path(store / JOURNAL_NAME, 1), 1, state.identity)


def close_journal(txn: Any, meta: Any) -> None:
    """The store's file holds everything: the journal is not needed, until it is opened again.

    A version of Legato that knows of no journal can serve the store then.
    """
    state = read_journal_state(txn, meta)
    if state.is_open:
        state.is_open = False
        write_journal_state(txn, meta, state)
        txn.put(FORMAT_KEY, encode_format(), db=meta)

"""Identities shared by several packages."""

import hashlib
import struct
import uuid
from typing import NewType

Epoch = NewType("Epoch", int)
"""The epoch of one primary: 1, 2, 3 ... Every commit carries it."""

TxnId = NewType("TxnId", bytes)
"""A transaction's identity: the epoch that declared it and a counter, 12 bytes; of a group, what tells of it too."""

_TXN = struct.Struct(">IQ")
TXN_ID_BYTES = _TXN.size
GROUP_DIGEST_BYTES = 8
"""What an id has of the name of a group."""


def make_txn_id(epoch: int, counter: int, group: bytes = b"") -> TxnId:
    """The id of a transaction declared in `epoch`, unique for the life of a store.

    Args:
        counter: grows from one transaction of an epoch to the next, and is at least the time on the steady
            clock (`core.steady`), in microseconds.
        group: digest of the name of the group of brokers that declares it; with it no other group has the same id.
    """
    return TxnId(_TXN.pack(epoch, counter) + group)


def group_digest(name: str) -> bytes:
    """What the ids of a group's transactions end with; empty for brokers that are of no group."""
    return hashlib.sha256(name.encode()).digest()[:GROUP_DIGEST_BYTES] if name else b""


def txn_epoch(txn_id: bytes) -> int | None:
    """The epoch that declared `txn_id`, or None if no Legato broker can have made it."""
    if len(txn_id) not in (TXN_ID_BYTES, TXN_ID_BYTES + GROUP_DIGEST_BYTES):
        return None
    epoch: int = _TXN.unpack_from(txn_id)[0]
    return epoch


def txn_counter(txn_id: bytes) -> int:
    """The counter in an id that a Legato broker made."""
    counter: int = _TXN.unpack_from(txn_id)[1]
    return counter


def txn_group(txn_id: bytes) -> bytes:
    """The digest of a group's name in an id that a Legato broker made; empty if it was of none."""
    return txn_id[TXN_ID_BYTES:]


def new_unique_name(prefix: str) -> str:
    """A name no other process makes, for containers, producers and message ids."""
    return f"{prefix}{uuid.uuid4()}"

"""Identities shared by several packages."""

import struct
import uuid
from typing import NewType

Epoch = NewType("Epoch", int)
"""The epoch of one primary: 1, 2, 3 ... Every commit carries it."""

TxnId = NewType("TxnId", bytes)
"""A transaction's identity: the epoch that declared it and a counter, 12 bytes."""

_TXN = struct.Struct(">IQ")
TXN_ID_BYTES = _TXN.size


def make_txn_id(epoch: int, counter: int) -> TxnId:
    """The id of a transaction declared in `epoch`, unique for the life of a store.

    Args:
        counter: grows from one transaction of an epoch to the next, and is at least the time on the steady
            clock (`core.steady`), in microseconds.
    """
    return TxnId(_TXN.pack(epoch, counter))


def txn_epoch(txn_id: bytes) -> int | None:
    """The epoch that declared `txn_id`, or None if no Legato broker can have made it."""
    if len(txn_id) != TXN_ID_BYTES:
        return None
    epoch: int = _TXN.unpack(txn_id)[0]
    return epoch


def txn_counter(txn_id: bytes) -> int:
    """The counter in an id that a Legato broker made."""
    counter: int = _TXN.unpack(txn_id)[1]
    return counter


def new_unique_name(prefix: str) -> str:
    """A name no other process makes, for containers, producers and message ids."""
    return f"{prefix}{uuid.uuid4()}"

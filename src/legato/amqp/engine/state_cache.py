"""States of transactions, read and written without a tree: an id, and an outcome of which there are few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from cproton import ffi, lib

from legato.amqp.codec.values import encode_value
from legato.amqp.engine import batch
from legato.amqp.engine.outcomes import Outcome, Transactional

_BYTES_MAX = 128
"""Longer ones are rare: each is read by itself."""
_KEPT_MAX = 1024
_LIST = 0xD0
_BINARY = 0xA0
_ID_SIZE = 10
"""Where the size of the id is, behind the constructor, size and count of the list and the id's constructor."""
_ID = _ID_SIZE + 1

_new_uncleared = ffi.new_allocator(should_clear_after_alloc=False)
_encode = lib.pn_data_encode
_decode = lib.pn_data_decode
_clear = lib.pn_data_clear
_unpack = ffi.unpack


class TransactionalStates:
    """The outcomes in transactional states, by their encoding and back; thread-safe."""

    def __init__(self) -> None:
        self._read: dict[bytes, Outcome | None] = {b"": None}
        self._written: dict[Outcome | None, bytes] = {None: b""}

    def read(self, data: Any, decode: Callable[[Any], Transactional]) -> Transactional:
        """The state whose fields are in `data`.

        Args:
            decode: reads what was not read before.
        """
        # Calls of the engine let other threads run: the buffer is of this call alone.
        buffer = _new_uncleared("char[]", _BYTES_MAX)
        size = _encode(data, buffer, _BYTES_MAX)
        raw: bytes = _unpack(buffer, size) if size > _ID else b""
        if not raw or raw[0] != _LIST or raw[_ID_SIZE - 1] != _BINARY:
            return decode(data)
        end = _ID + raw[_ID_SIZE]
        rest = raw[end:]
        if rest in self._read:
            return Transactional(raw[_ID:end], self._read[rest])
        state = decode(data)
        if len(self._read) >= _KEPT_MAX:
            self._read = {b"": None}
        self._read[rest] = state.outcome
        return state

    def fields_of(self, state: Transactional, describe: Callable[[Outcome], Any]) -> bytes:
        """The fields of `state`, encoded.

        Args:
            describe: makes a value to be encoded of what was not written before.
        """
        outcome = state.outcome
        rest = self._written.get(outcome)
        if rest is None:
            assert outcome is not None
            if len(self._written) >= _KEPT_MAX:
                self._written = {None: b""}
            rest = self._written[outcome] = encode_value(describe(outcome))
        return encode_fields(state.txn_id, rest, 1 if outcome is None else 2)


def encode_fields(txn_id: bytes, rest: bytes = b"", count: int = 1) -> bytes:
    """A list of `count` fields, the first an id, the others encoded in `rest`."""
    id_size = len(txn_id)
    size = id_size + len(rest) + 3
    if size < 256:
        return b"\xc0%c%c\xa0%c%b%b" % (size, count, id_size, txn_id, rest)
    value = encode_value(txn_id) + rest
    return b"\xd0%b%b%b" % ((len(value) + 4).to_bytes(4, "big"), count.to_bytes(4, "big"), value)


def write_fields(delivery: Any, state: int, fields: bytes) -> None:
    """State `state`, whose fields are encoded in `fields`."""
    if batch.knows_transactions:
        batch.state_fields(delivery, state, fields)
        return
    data = lib.pn_disposition_data(lib.pn_delivery_local(delivery))
    _clear(data)
    _decode(data, fields, len(fields))
    lib.pn_delivery_update(delivery, state)

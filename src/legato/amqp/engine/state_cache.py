"""Cache of delivery states that many deliveries share, as those of a transaction do."""

from __future__ import annotations

from typing import Any

from cproton import ffi, lib

from legato.amqp.codec.values import encode_value
from legato.amqp.engine.outcomes import Outcome

_BYTES_MAX = 128
"""Longer ones are rare: each is read by itself."""
_KEPT_MAX = 1024

_new_uncleared = ffi.new_allocator(should_clear_after_alloc=False)
_encode = lib.pn_data_encode
_decode = lib.pn_data_decode
_clear = lib.pn_data_clear
_unpack = ffi.unpack


class RepeatedStates:
    """The states read and written last; thread-safe."""

    def __init__(self) -> None:
        self._read: dict[bytes, Outcome] = {}
        self._written: dict[Outcome, bytes] = {}

    def bytes_of(self, data: Any) -> bytes:
        """The fields in `data`, encoded; none if there are none, or if they are too long to be kept."""
        # Calls of the engine let other threads run: the buffer is of this call alone.
        buffer = _new_uncleared("char[]", _BYTES_MAX)
        size = _encode(data, buffer, _BYTES_MAX)
        raw: bytes = _unpack(buffer, size) if size > 0 else b""
        return raw

    def find(self, raw: bytes) -> Outcome | None:
        """The state that these bytes encode, if they were read recently."""
        return self._read.get(raw)

    def keep(self, raw: bytes, outcome: Outcome) -> None:
        """These bytes mean `outcome`."""
        if raw:
            if len(self._read) >= _KEPT_MAX:
                self._read.clear()
            self._read[raw] = outcome

    def write(self, data: Any, outcome: Outcome, fields: list[Any]) -> None:
        """Replace `data` by the fields of `outcome`."""
        raw = self._written.get(outcome)
        if raw is None:
            if len(self._written) >= _KEPT_MAX:
                self._written.clear()
            raw = self._written[outcome] = encode_value(fields)
        _clear(data)
        _decode(data, raw, len(raw))

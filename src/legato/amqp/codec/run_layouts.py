"""Layouts of messages for the compiled module, which compares a run of messages with a shape in one call."""

from __future__ import annotations

from array import array

from legato.amqp.codec.delivery_options import DUPLICATE_ID_KEY
from legato.amqp.codec.flow_calls import FLOW_KEY
from legato.amqp.codec.map_entries import LONG_MAP_BYTES
from legato.amqp.codec.shapes import Shape
from legato.amqp.codec.stubs import STUB_MARK

try:
    from legato.amqp import _batch
except ImportError:
    _batch = None  # type: ignore[assignment]

available = _batch is not None and hasattr(_batch.lib, "match_layout")
"""Whether the module can do it."""


def is_plain(shape: Shape) -> bool:
    """Whether messages of the shape ask for nothing: what they have besides is in their application properties."""
    return shape.special is None and not shape.expiry_at and not shape.group_at


class Layout:
    """A plain shape, as the module takes it."""

    __slots__ = ("_id_bytes", "_kept", "_layout", "shape")

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self._id_bytes = shape.id_end - shape.id_at
        self._layout = layout = _batch.ffi.new("layout *")
        pieces = {
            "prefix": shape.prefix,
            "correlated": shape.correlated,
            "middle": shape.middle,
            "tail": shape.tail,
            "forbidden": DUPLICATE_ID_KEY,
            "forbidden_too": FLOW_KEY,
            "last_bytes": STUB_MARK,
        }
        self._kept = {name: _batch.ffi.from_buffer(piece) for name, piece in pieces.items()}
        for name, piece in pieces.items():
            setattr(layout, name, self._kept[name])
            setattr(layout, f"{name}_size", len(piece))
        layout.id_at, layout.id_end = shape.id_at, shape.id_end
        layout.middle_at, layout.tail_at, layout.tail_end = shape.middle_at, shape.tail_at, shape.tail_end
        layout.map_bytes_max = LONG_MAP_BYTES
        layout.last = shape.last
        layout.has_properties = shape.has_properties

    def match(self, data: bytes, ends: array[int], first: int) -> tuple[int, bytes]:
        """How many messages from `first` on are of the layout, and their ids, one behind the other.

        None of these ends as no message may, nor has it a duplicate id or a call of a flow.
        """
        ffi = _batch.ffi
        ids = ffi.new("char[]", max(self._id_bytes * (len(ends) - first), 1))
        count = _batch.lib.match_layout(
            ffi.from_buffer(data), ffi.from_buffer("uint32_t[]", ends), first, len(ends), self._layout, ids
        )
        return count, ffi.buffer(ids)[: count * self._id_bytes]

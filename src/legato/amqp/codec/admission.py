"""Admission of messages: the bytes that the broker stores. It runs for every message and reads as little as it can."""

from __future__ import annotations

from array import array
from hashlib import blake2b

from msgspec.structs import replace

from legato import limits
from legato.amqp.codec import run_layouts
from legato.amqp.codec.delivery_options import DUPLICATE_ID_KEY, PLAIN, DeliveryOptions, delivery_options_of
from legato.amqp.codec.fields import USER_ID, field_places, has_field
from legato.amqp.codec.map_entries import check_entries
from legato.amqp.codec.run_layouts import Layout
from legato.amqp.codec.sections import Sections, normalise, scan
from legato.amqp.codec.shapes import Shape, UnusualError, shape_of
from legato.amqp.codec.values import decode_value, malformed, skip_value
from legato.errors import ProtocolError

_SHAPES_MAX = 12


class Admission:
    """Admits one producer's messages; what was found in one holds for the others of its shape.

    Args:
        user: who sends them, if a message may not say that it is somebody else's (AMQP 3.2.4, user-id).
    """

    __slots__ = ("_layouts", "_shapes", "_user")

    def __init__(self, user: str | None = None) -> None:
        self._user = None if user is None else user.encode()
        self._shapes: list[Shape] = []
        """The last ones found, latest first: a producer may have several kinds of messages, or priorities."""
        self._layouts: list[Layout] = []
        """Those of the plain ones among them."""

    def admit(self, data: bytes) -> tuple[bytes, str, DeliveryOptions | None]:
        """The bytes to store, the message id as text (empty if there is none), and what else the message asks for.

        Raises:
            ProtocolError: `data` is no AMQP message, or another user's.
        """
        try:
            for shape in self._shapes:
                if (
                    data.startswith(shape.prefix)
                    and data.startswith(shape.tail, shape.tail_at)
                    and data.startswith(shape.middle, shape.middle_at)
                    and (not shape.correlated or data.startswith(shape.correlated, shape.id_end))
                    and (
                        shape.tail_end + 4 + int.from_bytes(data[shape.tail_end : shape.tail_end + 4], "big")
                        == len(data)
                        if shape.is_long
                        else shape.ends_well(data)
                    )
                ):
                    special = shape.special
                    if shape.expiry_at or shape.group_at:
                        special = shape.special_in(data)
                    if shape.has_properties:
                        special = shape.with_properties(data, special)
                    return data, data[shape.id_at : shape.id_end].decode(), special
        except (IndexError, UnicodeDecodeError, UnusualError):
            pass
        return self._carefully(data)

    def admit_run(self, data: bytes, ends: array[int], first: int) -> tuple[int, bytes]:
        """How many messages of a run, from `first` on, are stored as they are and ask for nothing; and their ids.

        The ids are ASCII, of equal length, one behind the other. If there are none, `admit` says what the first is.

        Args:
            ends: where each message ends in `data`.
        """
        for layout in self._layouts:
            count, ids = layout.match(data, ends, first)
            if count:
                return count, ids
        return 0, b""

    def _carefully(self, data: bytes) -> tuple[bytes, str, DeliveryOptions | None]:
        if not data:
            raise malformed("a message has no section")
        sections = scan(data)
        if sections.application_properties_at >= 0:
            check_entries(data, sections.application_properties_at)
        places = field_places(data, sections.properties_at)
        # Of all messages of a shape it is the same.
        if self._user is not None and has_field(data, places, USER_ID):
            self._check_user(data, places[USER_ID])
        special = delivery_options_of(sections, places)
        stored = normalise(data, sections)
        if stored is data and (special is None or special.delivery_ms is None) and not _is_annotated(sections):
            # A delivery time is another one in every message, and so is a duplicate id among the annotations.
            common = special
            if special is not None and (special.duplicate_id or special.flows):
                common = replace(special, duplicate_id=b"", flows=())
            shape = shape_of(sections, places, None if common == PLAIN else common)
            if shape is not None and len(sections.message_id) <= limits.ID_CHARACTERS_MAX:
                shapes = self._shapes
                if len(shapes) == _SHAPES_MAX:
                    gone = shapes.pop()
                    self._layouts = [layout for layout in self._layouts if layout.shape is not gone]
                shapes.insert(0, shape)
                if run_layouts.available and run_layouts.is_plain(shape):
                    self._layouts.insert(0, Layout(shape))
        return stored, _bounded(sections.message_id), special

    def _check_user(self, data: bytes, at: int) -> None:
        said, _ = decode_value(data, at)
        if said != self._user:
            raise ProtocolError("The message says that it is another user's (user-id).", "amqp:unauthorized-access")


def _bounded(message_id: str) -> str:
    """An id as facts have it, in which others repeat it: of a long one its beginning and a digest."""
    if len(message_id) <= limits.ID_CHARACTERS_MAX:
        return message_id
    digest = blake2b(message_id.encode(), digest_size=16).hexdigest()
    return f"{message_id[: limits.ID_CHARACTERS_MAX // 2]}...{digest}"


def _is_annotated(sections: Sections) -> bool:
    """Whether the message annotations have a duplicate id."""
    at = sections.message_annotations_at
    return at >= 0 and sections.data.find(DUPLICATE_ID_KEY, at, skip_value(sections.data, at)) >= 0

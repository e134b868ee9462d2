"""Cached prefix of messages: header and annotations, which a producer's messages share."""

from __future__ import annotations

from typing import Any

from legato.amqp.codec.header import Header
from legato.client.messages.message import Message

SHORT_PROPERTIES = b"\x00\x53\x73\xc0"
"""What properties of less than 256 bytes begin with."""


class MessagePrefix:
    """The sections before the properties, decoded once, since a producer repeats them."""

    __slots__ = ("again", "annotations", "beginning", "fields_at", "flagged", "header", "kind", "raw")

    def __init__(self, raw: bytes, kind: type[Message], again: bool = False) -> None:
        self.raw = raw
        self.beginning = raw + SHORT_PROPERTIES
        """Of a message that has short properties then."""
        self.fields_at = len(self.beginning) + 1
        """Where these have their fields, behind a byte that says how many bytes they are."""
        self.again = again
        """Whether it says anything of earlier deliveries."""
        self.kind = kind
        self.header: Header | None = None
        """None until somebody asks for a header; the next two come with it."""
        self.annotations: dict[Any, Any] = {}
        self.flagged = False
        """Whether it may have been delivered before."""

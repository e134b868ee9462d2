"""Reader of message bytes on behalf of the core, which does not read them itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from legato import limits
from legato.amqp.codec.dead_letter import annotate
from legato.amqp.codec.expiry_removal import without_expiry
from legato.amqp.codec.message_view import flow_calls_of, group_of, read_properties
from legato.amqp.codec.selection import matcher
from legato.core.traits import FlowCall
from legato.errors import ProtocolError


class MessageBodies:
    """`core.records.Bodies` for AMQP messages; what cannot be read has no group and no properties."""

    def group(self, body: bytes) -> tuple[str, bool]:
        """The group id, empty if there is none, and whether the message closes its group."""
        try:
            return group_of(body)
        except (ProtocolError, IndexError):
            return "", False

    def matcher(self, selector: str) -> Callable[[bytes], bool]:
        """A function that tells whether a message matches a selector that was accepted before."""
        return matcher(selector, limits.STORED_SELECTOR_CHARACTERS_MAX)

    def annotate(self, body: bytes, properties: Mapping[str, str | int]) -> bytes:
        """The message with further application properties, and without an expiry."""
        return without_expiry(annotate(body, properties))

    def read(self, body: bytes, name: str) -> object:
        """An application property; None if there is none."""
        try:
            return read_properties(body, (name,)).get(name)
        except (ProtocolError, IndexError):
            return None

    def flows(self, body: bytes) -> tuple[FlowCall, ...]:
        """The calls of flows that the message carries."""
        try:
            return flow_calls_of(body)
        except (ProtocolError, IndexError):
            return ()

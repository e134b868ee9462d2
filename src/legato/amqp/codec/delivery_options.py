"""Delivery options of a message: priority, time to live, delivery time, group (amqp.md A9)."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.amqp.codec.fields import EXPIRY, GROUP, GROUP_SEQUENCE, has_field
from legato.amqp.codec.flow_calls import FLOW_KEY, FlowCall, flow_calls
from legato.amqp.codec.map_entries import map_entries
from legato.amqp.codec.sections import Sections, id_text
from legato.amqp.codec.values import decode_value, malformed, skip_value
from legato.amqp.names import DUPLICATE_ID
from legato.errors import ProtocolError

DUPLICATE_ID_KEY = DUPLICATE_ID.encode()
DELIVERY_TIME = "x-opt-delivery-time"
DELIVERY_DELAY = "x-opt-delivery-delay"
_NOT_VALID_BEFORE = "x-qpid-not-valid-before"
_DELIVERY, _VALID = b"x-opt-delivery-", b"x-qpid-not-valid-before"
_PRIORITY = 4
PRIORITY_MAX = 9
CLOSING_SEQUENCE = 0xFFFFFFFF
"""The group sequence of the last message of a group, -1 in JMS."""


class DeliveryOptions(msgspec.Struct, frozen=True, gc=False):
    """Times are milliseconds since the epoch; None where the sender says nothing."""

    priority: int = _PRIORITY
    """0 to 9."""
    ttl_ms: int | None = None
    """How long it may live from its arrival, if it has no `expiry_ms`."""
    expiry_ms: int | None = None
    """The time after which it is not to be delivered (`absolute-expiry-time`)."""
    delivery_ms: int | None = None
    """The time before which it is not to be delivered."""
    delay_ms: int | None = None
    """How long it is to be kept back from its arrival, if it has no `delivery_ms`."""
    group: str = ""
    closes_group: bool = False
    duplicate_id: bytes = b""
    """Its sender's name for it (`names.DUPLICATE_ID`); empty if it has none."""
    flows: tuple[FlowCall, ...] = ()
    """The calls of flows that it carries."""


PLAIN = DeliveryOptions()
"""What nearly all messages are."""


def delivery_options_of(sections: Sections, places: list[int]) -> DeliveryOptions | None:
    """Delivery options of a message, None if it has none.

    Args:
        places: of the fields of its properties, as `field_places` finds them.

    Raises:
        ProtocolError: the properties or message annotations that say so are malformed.
    """
    data, header = sections.data, sections.header
    expiry_ms, group, closes = None, "", False
    if len(places) > EXPIRY + 1:
        if has_field(data, places, EXPIRY):
            expiry_ms = _milliseconds(decode_value(data, places[EXPIRY])[0])
        group, closes = group_at(data, places)
    delivery_ms, delay_ms = _delivery(sections)
    priority, ttl_ms = min(header.priority, PRIORITY_MAX), header.ttl_ms or None
    duplicate_id = _duplicate_id(sections)
    flows = _flows(sections)
    if (
        priority == _PRIORITY
        and ttl_ms is expiry_ms is delivery_ms is delay_ms is None
        and not group
        and not duplicate_id
        and not flows
    ):
        return None
    return DeliveryOptions(priority, ttl_ms, expiry_ms, delivery_ms, delay_ms, group, closes, duplicate_id, flows)


def group_at(data: bytes, places: list[int]) -> tuple[str, bool]:
    """The message's group, empty if it is of none, and whether it is the last of it (JMSXGroupSeq -1)."""
    if not has_field(data, places, GROUP):
        return "", False
    group, _ = decode_value(data, places[GROUP])
    if not isinstance(group, str) or not group:
        return "", False
    sequence = decode_value(data, places[GROUP_SEQUENCE])[0] if has_field(data, places, GROUP_SEQUENCE) else 0
    return str(group), isinstance(sequence, int) and sequence in (CLOSING_SEQUENCE, -1)


def _duplicate_id(sections: Sections) -> bytes:
    """The duplicate id in the application properties, or else in the message annotations."""
    if sections.data.find(DUPLICATE_ID_KEY, 0, sections.body_at) < 0:
        return b""
    for items in (sections.application_properties(), sections.message_annotations()):
        value = items.get(DUPLICATE_ID)
        if isinstance(value, bytes):
            return value
        if value is not None and value != "":
            return id_text(value).encode()
    return b""


def _flows(sections: Sections) -> tuple[FlowCall, ...]:
    """Those of a message whose properties cannot be read are none: it is not refused for the ledger's sake."""
    at = sections.application_properties_at
    if at < 0 or sections.data.find(FLOW_KEY, at, sections.body_at) < 0:
        return ()
    try:
        return flow_calls(sections.data, *map_entries(sections.data, at))
    except (ProtocolError, IndexError):
        return ()


def _delivery(sections: Sections) -> tuple[int | None, int | None]:
    """Delivery time and delay, from whichever annotation says it."""
    at = sections.message_annotations_at
    if at < 0:
        return None, None
    data = sections.data
    end = skip_value(data, at)
    if data.find(_DELIVERY, at, end) < 0 and data.find(_VALID, at, end) < 0:
        return None, None
    annotations, _ = decode_value(data, at)
    if not isinstance(annotations, dict):
        raise malformed("the message annotations are no map")
    time = annotations.get(DELIVERY_TIME, annotations.get(_NOT_VALID_BEFORE))
    return _milliseconds(time), _milliseconds(annotations.get(DELIVERY_DELAY))


def _milliseconds(value: Any) -> int | None:
    """A number above zero; senders write 0 for none."""
    return int(value) if isinstance(value, int) and value is not True and value > 0 else None

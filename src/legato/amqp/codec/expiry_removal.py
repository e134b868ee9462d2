"""Removal of the expiry from a message that is moved to a dead-letter or expiry queue."""

from __future__ import annotations

from itertools import pairwise

from legato.amqp.codec.fields import EXPIRY, field_places, has_field
from legato.amqp.codec.header import Header, encode_header
from legato.amqp.codec.sections import scan
from legato.amqp.codec.values import encode_compound
from legato.errors import ProtocolError

_NULL = b"\x40"
_LIST = 0xC0


def without_expiry(body: bytes) -> bytes:
    """A stored message without time to live and expiry time; all else stays as it is, byte by byte.

    A message that cannot be read is returned unchanged.
    """
    try:
        sections = scan(body)
        places = field_places(body, sections.properties_at)
    except (ProtocolError, IndexError):
        return body
    if has_field(body, places, EXPIRY):
        fields = [body[start:end] for start, end in pairwise(places)]
        fields[EXPIRY] = _NULL
        body = body[: sections.properties_at] + encode_compound(_LIST, fields) + body[places[-1] :]
    header = sections.header
    if header.ttl_ms is None:
        return body
    kept = Header(header.durable, header.priority, None, header.first_acquirer, header.delivery_count)
    return encode_header(kept) + body[sections.header_end :]

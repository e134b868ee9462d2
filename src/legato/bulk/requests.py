"""Requests to the bulk process other than reads of ranges, and what it says beside frames."""

from __future__ import annotations

import msgspec

TICKET_HEADER = b"x-legato-ticket-bin"
"""Header of each call: the sealed ticket. What has none is refused before its body is read, where there are users."""
HOLDER_HEADER = b"x-legato-holder-bin"
"""The holder's secret: see `tickets`."""
PLAN = "plan"
"""The action that cuts a ticket's range into parts of about the same size."""


class PlanRequest(msgspec.Struct):
    """The body of `PLAN`: the sealed ticket and the number of parts."""

    ticket: bytes
    parts: int


class PlannedPart(msgspec.Struct):
    """A part of a range, with a ticket for it."""

    after: int
    through: int
    rows: int
    ticket: bytes


class StageOptions(msgspec.Struct, frozen=True):
    """A sink's options for all its rows."""

    destination: str = ""
    """Of rows that name none."""
    topic: bool = False
    """Whether destinations are topics."""


class PutRequest(msgspec.Struct):
    """The header of staged rows: the sealed ticket and the sink's options."""

    ticket: bytes
    options: StageOptions


def omitted_of(metadata: bytes) -> dict[int, int]:
    """Of which rows of a frame the body is left out, and how many bytes it has."""
    return msgspec.msgpack.decode(metadata, type=dict[int, int])

"""Requests to the bulk process other than reads of ranges."""

from __future__ import annotations

import msgspec

from legato.bulk.stage_encoder import StageOptions

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


class PutRequest(msgspec.Struct):
    """The header of staged rows: the sealed ticket and the sink's options."""

    ticket: bytes
    options: StageOptions

"""What is asked of the process for reading in bulk, beside ranges themselves."""

from __future__ import annotations

import msgspec

from legato.bulk.staging import StageOptions

PLAN = "plan"
"""The action that cuts a ticket's range into parts of about the same size."""


class PlanRequest(msgspec.Struct):
    """What `PLAN` is asked: the ticket, sealed, and how many parts are wanted."""

    ticket: bytes
    parts: int


class PlannedPart(msgspec.Struct):
    """A part of a range, with a ticket for it."""

    after: int
    through: int
    rows: int
    ticket: bytes


class PutRequest(msgspec.Struct):
    """What comes before staged rows: the ticket, sealed, and what the sink says of all rows."""

    ticket: bytes
    options: StageOptions

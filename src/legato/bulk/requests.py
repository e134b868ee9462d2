"""Requests to the bulk process other than reads of ranges."""

from __future__ import annotations

import msgspec

from legato.bulk.stage_encoder import StageOptions

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

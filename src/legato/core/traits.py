"""Delivery options of a message: priority, expiry, delivery time, group."""

from __future__ import annotations

import msgspec

from legato import limits

FlowCall = tuple[str, str, str, str, int, int]
"""A call of a flow: flow id, trace id, the stage that is called, the kind of call, its number in the flow; and how many
calls it stands for, of which only the stage is known if they are several."""


class Traits(msgspec.Struct, frozen=True, gc=False):
    """Priority (0-9), absolute expiry and delivery times (0: none), group (empty: none)."""

    priority: int = 4
    expires_us: int = 0
    deliver_us: int = 0
    group: str = ""
    closes_group: bool = False
    """It is the last of its group: JMSXGroupSeq is negative."""
    duplicate_id: bytes = b""
    """Its sender's name for it; empty if it has none."""
    flows: tuple[FlowCall, ...] = ()
    """The calls of flows that it carries."""


def kept_expiry_us(expires_us: int) -> int:
    """The expiry of a message that is stored already, as it can be stored again.

    Former versions kept some that they had not added up right: what was to live for ever does.
    """
    return expires_us if 0 <= expires_us <= limits.TIME_MS_MAX * 1000 else 0


PLAIN = Traits()
"""Of nearly all messages."""

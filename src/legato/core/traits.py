"""Delivery options of a message: priority, expiry, delivery time, group."""

from __future__ import annotations

import msgspec

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


PLAIN = Traits()
"""Of nearly all messages."""

"""What a message says about its own delivery, as far as the broker must act on it."""

from __future__ import annotations

import msgspec


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


PLAIN = Traits()
"""Of nearly all messages."""

"""A message on its way into a queue or topic."""

from __future__ import annotations

from typing import Any

import msgspec

from legato.core.traits import PLAIN, Traits


class Outgoing(msgspec.Struct, gc=False):
    """A message on its way into a queue or topic; `container` is its publisher's, `origin` where it was before."""

    body: bytes
    message_id: str = ""
    token: Any = None
    traits: Traits = PLAIN
    container: str = ""
    producer: int = 0
    number: int = 0
    txn: bytes = b""
    origin: tuple[int, int] | None = None
    count: int = 0

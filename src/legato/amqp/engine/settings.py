"""Settings of a connection: the fields of our Open, and the limits of the peer."""

from __future__ import annotations

from typing import Any

import msgspec

from legato import limits


class Settings(msgspec.Struct, kw_only=True):
    """The fields of our Open, and the limits of the peer."""

    container_id: str
    hostname: str | None = None
    max_frame_bytes: int = limits.MAX_FRAME_BYTES
    idle_timeout_ms: int = limits.IDLE_TIMEOUT_MS
    session_window_bytes: int = limits.SESSION_WINDOW_BYTES
    max_message_bytes: int = limits.MAX_MESSAGE_BYTES_DEFAULT
    properties: dict[str, Any] = {}
    offered_capabilities: list[str] = []
    desired_capabilities: list[str] = []

"""The loss of a connection: how it was detected, and the broker's reason."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from legato import limits
from legato.amqp import names
from legato.amqp.engine.events import Closed
from legato.client.failover.uri import Host
from legato.client.mapping.conditions import error_of
from legato.errors import JMSError


class Detection(StrEnum):
    """The ways in which a client detects a loss."""

    LOST = "lost"
    """The connection was reset, or ended: the broker died, or the network failed."""
    SILENT = "silent"
    """Nothing was heard for `client_failure_check_period_s` (CONTRACT E4)."""
    SHUTDOWN = "shutdown"
    """The broker said that it was told to stop (CONTRACT E7)."""
    SWITCHOVER = "switchover"
    """The broker said that another one serves from now on."""


_FAREWELLS = {
    Detection.SHUTDOWN: "the broker was told to stop",
    Detection.SWITCHOVER: "the broker handed over to another one",
}
_NO_REASON = "it ended without a reason, as it does if the broker dies or the network fails"


class Loss(msgspec.Struct, frozen=True):
    """The end of a connection that nobody asked for."""

    host: Host
    detection: Detection
    cause: JMSError
    return_window_s: float = 0.0
    """The broker asks its clients to spread their return over so long (CONTRACT B23)."""
    reason: str = ""
    """How the connection ended, for a log; empty if the cause says all."""


def loss_of(host: Host, closed: Closed, *, silent: bool, return_window_s: float) -> Loss:
    """The loss that the last event of a connection to `host` reports.

    Args:
        silent: whether it came of nothing having been heard.
        return_window_s: what the broker said at open; its last word on it counts.
    """
    if silent:
        silence = JMSError(f"{host} was silent for too long.")
        reason = "nothing was heard from it for client_failure_check_period_s"
        return Loss(host, Detection.SILENT, silence, return_window_s, reason)
    reason = closed.description if closed.condition or closed.clean else _NO_REASON
    error = error_of(closed.condition, reason, f"The connection to {host} was lost")
    farewell = closed.info.get(names.FAREWELL)
    known = farewell in (Detection.SHUTDOWN, Detection.SWITCHOVER)
    detection = Detection(str(farewell)) if known else Detection.LOST
    window_s = return_window_s_of(closed.info)
    reason = _FAREWELLS.get(detection) or reason or closed.condition
    return Loss(host, detection, error, return_window_s if window_s is None else window_s, reason)


def return_window_s_of(properties: dict[str, Any]) -> float | None:
    """A broker's window for reconnections, None if it gives none that is usable."""
    window_ms = properties.get(names.RETURN_WINDOW)
    if not isinstance(window_ms, int) or not 0 <= window_ms <= limits.RETURN_WINDOW_MS_MAX:
        return None
    return window_ms / 1000

"""Redirects of links: another group of brokers serves the address."""

from __future__ import annotations

from typing import Any

from legato.amqp.engine.events import Detached
from legato.errors import InvalidDestinationError

LINK_REDIRECT = "amqp:link:redirect"
"""Condition of a Detach; its info says where the address is (AMQP 2.8.17)."""


class RedirectedLinkError(InvalidDestinationError):
    """The address is another group's. A session follows by itself; who sees this could not be taken there.

    Attributes:
        info: what the broker says of where it is.
    """

    info: dict[str, Any]


def redirection(event: Detached, what: str) -> RedirectedLinkError | None:
    """The error of a link that was refused because its address is elsewhere; None if that is not why."""
    if event.condition != LINK_REDIRECT:
        return None
    error = RedirectedLinkError(f"{what}: {event.description}", code=event.condition)
    error.info = event.info
    return error

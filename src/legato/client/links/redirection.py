"""Redirects of links: another group of brokers serves the address."""

from __future__ import annotations

from typing import Any

from legato.amqp import names
from legato.amqp.engine.events import Detached
from legato.amqp.engine.outcomes import Rejected
from legato.client.failover.discovery import FAILOVER_SERVER_LIST
from legato.errors import InvalidDestinationError

_PORT_DIGITS = 5


class RedirectedLinkError(InvalidDestinationError):
    """The address is another group's. A session follows by itself; who sees this could not be taken there.

    Attributes:
        info: what the broker says of where it is.
    """

    info: dict[str, Any]


def redirection(event: Detached, what: str) -> RedirectedLinkError | None:
    """The error of a link that was refused because its address is elsewhere; None if that is not why."""
    if event.condition != names.LINK_REDIRECT:
        return None
    error = RedirectedLinkError(f"{what}: {event.description}", code=event.condition)
    error.info = event.info
    return error


def whose_transaction(outcome: Rejected) -> RedirectedLinkError | None:
    """Where to ask for the outcome of a transaction that another group has made; None if the coordinator does not say.

    Args:
        outcome: its answer; what in it makes no sense is passed over.
    """
    said = dict(outcome.info)
    group, brokers = said.get("hostname"), said.get(names.BROKERS)
    if not isinstance(group, str) or not isinstance(brokers, str):
        return None
    entries = []
    for broker in brokers.split(","):
        name, _, port = broker.rpartition(":")
        if len(port) <= _PORT_DIGITS and port.isascii() and port.isdecimal():
            entries.append({"network-host": name.strip("[]"), "port": int(port)})
    error = RedirectedLinkError(f"The transaction is of the group {group!r}.", code=outcome.condition)
    error.info = {"hostname": group, FAILOVER_SERVER_LIST: entries}
    return error

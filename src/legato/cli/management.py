"""Client of a broker's management address; commands import the client package only when they need it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import islice
from typing import TYPE_CHECKING, Any

from legato.cli.output import say
from legato.core.address_prefixes import QUEUE_PREFIX, TOPIC_PREFIX
from legato.errors import JMSError
from legato.likeness import meant
from legato.quoting import quoted

if TYPE_CHECKING:
    from legato.client import Connection

_NAMES_COMPARED_MAX = 5000
_OF_ANOTHER_GROUP = "is an address of the group"
"""In the sentence of a broker that does not serve an address."""


def request(url: str, operation: str, type: str, name: str = "", **arguments: str | float) -> Any:
    """See `legato.client.management.request`.

    Raises:
        JMSError: as there; that there is no such queue, topic or subscription comes with the group of brokers that has
            it, or the names that are like it.
    """
    from legato.administration.other_groups import where_to_ask
    from legato.client import management

    try:
        return management.request(url, operation, type, name, **arguments)
    except JMSError as error:
        if operation == "create" and _OF_ANOTHER_GROUP in str(error):
            raise JMSError(f"{error} {where_to_ask(url, name)}".strip(), code=error.code) from None
        if str(error) != f"There is no {type} {name!r}.":
            raise
        hint = where_to_ask(url, name) or _like(url, type, name)
        raise JMSError(f"{error} {hint}", code=error.code) from None


def node(url: str, type: str, name: str, *, changes: bool = True) -> dict[str, Any]:
    """What is known of a queue, topic or subscription; what a move left behind is told to be that.

    Args:
        changes: it is to be changed: what was left behind is changed only if the URL names its group.

    Raises:
        JMSError: as `request`, or it is not to be changed.
    """
    from legato.administration.other_groups import left_behind, what_is_left
    from legato.client.failover.uri import parse_uri

    found: dict[str, Any] = request(url, "read", type, name)
    address = str(found.get("address") or name).removeprefix(QUEUE_PREFIX).removeprefix(TOPIC_PREFIX)
    here, elsewhere = left_behind(lambda *asked, **more: request(url, *asked, **more), [address])
    if group := elsewhere.get(address):
        told = what_is_left(address, here, group)
        if changes and not parse_uri(url).options.vhost:
            raise JMSError(f"{told} To change that, give the URL the option vhost={here}.")
        say(told, err=True)
    return found


def rows(url: str, type: str, match: str = "") -> Iterator[dict[str, Any]]:
    """See `legato.client.management.rows`."""
    from legato.client import management

    return management.rows(url, type, match)


def missing_queue(connection: Connection, url: str, name: str) -> str | None:
    """What may have been meant if there is no such queue, in any group of brokers; None if there is one, if it is a
    topic, or if this user may not ask."""
    from legato.client import management

    if name.startswith(TOPIC_PREFIX):
        return None
    name = name.removeprefix(QUEUE_PREFIX)
    try:
        with closing(management.Requester(connection, "the broker")) as asking:
            asking.request("read", "queue", name, {})
    except JMSError as error:
        if not _is_missing(error, name):
            return None
    else:
        return None
    if group := management.group_elsewhere(url, name):
        url = management.url_of_group(url, group)
        try:
            management.request(url, "read", "queue", name)
        except JMSError as error:
            if not _is_missing(error, name):
                return None
        else:
            return None
    return _like(url, "queue", name)


def _is_missing(error: JMSError, queue: str) -> bool:
    return str(error) == f"There is no queue {queue!r}."


def _like(url: str, type: str, name: str) -> str:
    """Which names may have been meant, or how to find them."""
    try:
        there = [str(row["name"]) for row in islice(rows(url, type), _NAMES_COMPARED_MAX)]
    except JMSError:
        # Who may use a queue may not be allowed to look at others.
        there = []
    if found := meant(name, there):
        return f"Did you mean {' or '.join(map(quoted, found))}?"
    return f"legato {type}s lists those that there are."

"""Other groups of brokers than the one that a URL leads to: management is asked at the group that has an address."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from legato.client.management import group_elsewhere
from legato.core.address_prefixes import QUEUE_PREFIX, TOPIC_PREFIX
from legato.errors import JMSError
from legato.quoting import quoted

ADDRESSES_MAX = 1000
"""Of one request."""


def where_to_ask(url: str, address: str) -> str:
    """A sentence that says which group to ask about an address, if it is another one; else nothing."""
    group = group_elsewhere(url, address.removeprefix(QUEUE_PREFIX).removeprefix(TOPIC_PREFIX))
    return _where_to_ask(address, group) if group else ""


def _where_to_ask(address: str, group: str) -> str:
    there = f"give the URL the option vhost={group} to ask there"
    return f"{quoted(address)} is an address of the group {group!r}: {there}."


def left_behind(ask: Callable[..., Any], addresses: Sequence[str]) -> tuple[str, dict[str, str]]:
    """Which of these addresses another group serves: what is here of them is what a move left behind.

    Args:
        ask: makes requests to the brokers, as `legato.client.management.request` does without its URL.

    Returns:
        The name of the group that was asked, and by address that of the one that serves it.
    """
    names = [address for address in dict.fromkeys(addresses) if "://" not in address]
    elsewhere: dict[str, str] = {}
    here = ""
    for first in range(0, len(names), ADDRESSES_MAX):
        try:
            told = ask("read", "group", addresses=json.dumps(names[first : first + ADDRESSES_MAX]))
        except JMSError:
            break  # A broker that knows of no groups.
        here = str(told["name"])
        elsewhere |= told["elsewhere"]
    return here, elsewhere


def what_is_left(address: str, here: str, group: str) -> str:
    """Sentences that say that another group serves an address, and what is here therefore."""
    return f"{_where_to_ask(address, group)} What the group {here!r} has of it was left behind by a move."


def refuse_left_behind(ask: Callable[..., Any], address: str) -> None:
    """See that links to a queue lead to the messages that are here.

    Raises:
        JMSError: another group serves it, so that nobody can receive or browse what is here.
    """
    here, elsewhere = left_behind(ask, [address])
    if group := elsewhere.get(address):
        raise JMSError(
            f"{what_is_left(address, here, group)} Nobody can read it here as long as the map says so: pin it back to "
            f"{here!r} for that."
        )

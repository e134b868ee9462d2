"""Other groups of brokers than the one that a URL leads to: management is asked at the group that has an address."""

from __future__ import annotations

from legato.client.management import group_elsewhere
from legato.core.address_prefixes import QUEUE_PREFIX, TOPIC_PREFIX
from legato.quoting import quoted


def where_to_ask(url: str, address: str) -> str:
    """A sentence that says which group to ask about an address, if it is another one; else nothing."""
    group = group_elsewhere(url, address.removeprefix(QUEUE_PREFIX).removeprefix(TOPIC_PREFIX))
    if not group:
        return ""
    there = f"give the URL the option vhost={group} to ask there"
    return f"{quoted(address)} is an address of the group {group!r}: {there}."

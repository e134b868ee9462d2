"""Other groups of brokers than the one that a URL leads to: management is asked at the group that has an address."""

from __future__ import annotations

import json
from urllib.parse import quote

from legato.client.management import request
from legato.core.address_prefixes import QUEUE_PREFIX, TOPIC_PREFIX
from legato.errors import JMSError
from legato.quoting import quoted


def group_elsewhere(url: str, address: str) -> str:
    """The group that serves an address, if it is another one than that of the URL's brokers; else nothing."""
    plain = address.removeprefix(QUEUE_PREFIX).removeprefix(TOPIC_PREFIX)
    try:
        told = request(url, "read", "group", addresses=json.dumps([plain]))
    except JMSError:
        # A broker that knows of no groups, or has gone: what there was to say is said without.
        return ""
    return str(told["elsewhere"].get(plain, ""))


def where_to_ask(url: str, address: str) -> str:
    """A sentence that says which group to ask about an address, if it is another one; else nothing."""
    group = group_elsewhere(url, address)
    if not group:
        return ""
    return (
        f"{quoted(address)} is an address of the group {group!r}: give the URL the option vhost={group} to ask there."
    )


def url_of_group(url: str, group: str) -> str:
    """The URL with which any broker sends a client to a group."""
    return f"{url}{'&' if '?' in url else '?'}vhost={quote(group, safe='')}"

"""Names of subscriptions, from link names, containers and capabilities as JMS clients set them."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from legato.amqp.engine.terminus import Terminus
from legato.core.address_prefixes import ASSIGNMENT_PREFIX, DURABLE_PREFIX, VOLATILE_PREFIX

_SUFFIX = "|"
"""What follows it in a link's name tells apart the links of one subscription (amqp.md A3)."""
_GLOBAL = "global"


class SubscriptionName(msgspec.Struct, frozen=True):
    """A subscription as its client asks for it."""

    stored: str
    durable: bool
    shared: bool


def subscription_name(link_name: str, source: Terminus, container: str) -> SubscriptionName:
    """Subscription that a receiver's attach to a topic names (Jakarta Messaging 4.2).

    A shared subscription is its client's, or everybody's if the client has no id: then the source's capabilities
    have `global`. An unshared one that is not durable is the link's alone.
    """
    durable = source.durable > 0 or source.expiry_policy == "never"
    shared = "shared" in source.capabilities
    client = "" if shared and _GLOBAL in source.capabilities else container
    if durable or shared:
        name = plain_name(link_name, shared=shared)
        prefix = DURABLE_PREFIX if durable else VOLATILE_PREFIX
        return SubscriptionName(f"{prefix}{_quoted(client)}/{_quoted(name)}", durable, shared)
    return SubscriptionName(f"{VOLATILE_PREFIX}{_quoted(container)}//{_quoted(link_name)}", False, False)


def plain_name(link_name: str, *, shared: bool) -> str:
    """The name of a subscription as its client gave it."""
    return link_name.partition(_SUFFIX)[0] if shared else link_name


def durable_name(link_name: str, container: str) -> str:
    """The durable subscription that a link without source asks for (amqp.md A4): the engine cannot read the
    capabilities that such a link desires, so the name's suffix must tell."""
    name, _, suffix = link_name.partition(_SUFFIX)
    client = "" if suffix.startswith(_GLOBAL) else container
    return f"{DURABLE_PREFIX}{_quoted(client)}/{_quoted(name)}"


def durable_of_all(name: str) -> str:
    """The durable subscription of that name that is shared by all clients, whoever they are."""
    return f"{DURABLE_PREFIX}/{_quoted(name)}"


def assignment_name(subscription: str, source: str) -> str:
    """The name of a subscription's assignment to a queue, or to the subscription of a topic."""
    return f"{ASSIGNMENT_PREFIX}{_quoted(subscription)}/{_quoted(source)}"


def assignment_of(stored: str) -> str:
    """The name of the assignment by which a stream reads a durable subscription of all."""
    return f"{ASSIGNMENT_PREFIX}{stored.rpartition('/')[2]}/{_quoted(stored)}"


def is_of_all(stored: str) -> bool:
    """Whether a subscription is no client's own: then it is no user's own either."""
    return stored.startswith((f"{DURABLE_PREFIX}/", f"{VOLATILE_PREFIX}/"))


def _quoted(part: str) -> str:
    return quote(part, safe="")

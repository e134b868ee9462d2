"""Views of connections: who is connected, and what each connection has attached."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Any

import msgspec

from legato.server.links.link_roles import PublisherLink
from legato.server.shell import Peer


class ConnectionStatus(msgspec.Struct):
    """One connection; what a client says of itself is empty or 0 if it says nothing."""

    client_id: str
    address: str
    user: str
    product: str
    version: str
    hostname: str
    pid: int
    since_us: int
    consumers: int
    producers: int
    slow_consumers: int = 0
    """Of the consumers, those that have not settled their oldest delivery for `limits.slow_consumer_s`."""


def steps(peers: Set[Peer], offset: int, count: int, found: Callable[[list[Any], bool], None]) -> Iterator[None]:
    """Some connections in the order in which they were accepted, in steps; the last one calls `found`."""
    opened = sorted((peer for peer in peers if peer.opened), key=lambda peer: (peer.since_us, peer.name))
    rows: list[Any] = []
    for peer in opened[offset : offset + count]:
        yield
        rows.append(
            ConnectionStatus(
                client_id=peer.container,
                address=peer.name,
                user=peer.user or "",
                product=peer.client.product,
                version=peer.client.version,
                hostname=peer.client.hostname,
                pid=peer.client.pid,
                since_us=peer.since_us,
                consumers=len(peer.receivers),
                slow_consumers=peer.slow_consumers,
                producers=sum(isinstance(link.context, PublisherLink) for link in peer.links),
            )
        )
    yield
    found(rows, len(opened) > offset + count)

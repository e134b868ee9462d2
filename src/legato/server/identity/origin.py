"""Origin of a connection: where it comes from, and what its transport says of it."""

from __future__ import annotations

import asyncio
import ipaddress
from typing import Any

import msgspec


class Origin(msgspec.Struct, frozen=True):
    """Where a connection comes from.

    Attributes:
        address: the peer's, without its port; empty if it has none.
        loopback: whether the peer is on this machine.
        secure: whether it speaks TLS.
        certificate: what the peer's certificate says, as `ssl.SSLSocket.getpeercert` has it; None if it showed none.
    """

    address: str = ""
    loopback: bool = False
    secure: bool = False
    certificate: dict[str, Any] | None = None

    @classmethod
    def of(cls, transport: asyncio.BaseTransport) -> Origin:
        """The origin of an accepted connection."""
        peername = transport.get_extra_info("peername")
        address = str(peername[0]) if isinstance(peername, tuple) and peername else ""
        secured = transport.get_extra_info("ssl_object")
        certificate = secured.getpeercert() if secured is not None else None
        return cls(address, is_loopback(address), secured is not None, certificate or None)


def is_loopback(host: str) -> bool:
    """Whether an address, or `localhost`, is this machine's and nobody else can reach it."""
    if host == "localhost":
        return True
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback

"""The broker list in a connection's open, for clients that know only one broker (CONTRACT E5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legato.amqp.codec.types import Symbol, UInt
from legato.errors import ConfigError
from legato.hosts import wrong_host

FAILOVER_SERVER_LIST = "failover-server-list"
"""Property of the broker's open, as Qpid JMS reads it (amqp.md A11)."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; IPv6 hosts in brackets.

    Raises:
        ConfigError: it is not of that form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise ConfigError(f"ha.addresses has {address!r}: give HOST:PORT, such as one.example:5672.")
    if wrong := wrong_host(host):
        raise ConfigError(f"ha.addresses has {address!r}: {wrong}.")
    return host.strip("[]"), int(port)


def server_list(addresses: Sequence[str], *, secure: bool) -> list[dict[str, Any]]:
    """The addresses of all brokers, as maps with symbols for keys."""
    scheme = "amqps" if secure else "amqp"
    return [
        {Symbol("network-host"): host, Symbol("port"): UInt(port), Symbol("scheme"): scheme}
        for host, port in map(split_address, addresses)
    ]

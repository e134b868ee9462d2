"""The broker list in a connection's open, for clients that know only one broker (CONTRACT E5)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from legato.amqp.codec.types import Symbol, UInt
from legato.errors import ConfigError
from legato.hosts import PORT_MAX, port_of, wrong_host

FAILOVER_SERVER_LIST = "failover-server-list"
"""Property of the broker's open, as Qpid JMS reads it (amqp.md A11)."""


def split_address(address: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`; IPv6 hosts in brackets.

    Raises:
        ConfigError: it is not of that form.
    """
    host, _, digits = address.rpartition(":")
    port = port_of(digits)
    if not host or not port or port > PORT_MAX:
        raise ConfigError(f"ha.addresses has {address!r:.255}: give HOST:PORT, such as one.example:5672.")
    if wrong := wrong_host(host):
        raise ConfigError(f"ha.addresses has {address!r:.255}: {wrong}.")
    return host.strip("[]"), port


def server_list(addresses: Sequence[str], *, secure: bool) -> list[dict[str, Any]]:
    """The addresses of all brokers, as maps with symbols for keys."""
    scheme = "amqps" if secure else "amqp"
    return [
        {Symbol("network-host"): host, Symbol("port"): UInt(port), Symbol("scheme"): scheme}
        for host, port in map(split_address, addresses)
    ]

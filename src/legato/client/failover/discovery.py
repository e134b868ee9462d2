"""Broker discovery: the list in a broker's open, and redirects."""

from __future__ import annotations

from typing import Any

from legato.client.failover.uri import PORT_DEFAULT, TLS_PORT_DEFAULT, Host

FAILOVER_SERVER_LIST = "failover-server-list"
"""Property of a broker's open: maps with `network-host`, `port` and `scheme`, as Qpid JMS reads them (amqp.md A11)."""
REDIRECT = "amqp:connection:redirect"
"""Condition of a Close; its info says where to go instead (AMQP 2.8.16)."""
HOSTS_MAX = 64


def offered_hosts(properties: dict[str, Any], *, tls: bool) -> tuple[Host, ...]:
    """The brokers of a list that can be reached in the way in which we reach others (CONTRACT E5).

    Args:
        properties: of the broker's open; what in them makes no sense is passed over.
    """
    offered = properties.get(FAILOVER_SERVER_LIST)
    if not isinstance(offered, list):
        return ()
    found = (host_of(entry, tls=tls) for entry in offered[:HOSTS_MAX] if isinstance(entry, dict))
    return tuple(dict.fromkeys(host for host in found if host is not None))


def hosts_of(info: dict[str, Any], *, tls: bool) -> tuple[Host, ...]:
    """The brokers that the info of a redirect names: one, as AMQP has it, and all of its group, as ours say.

    Args:
        info: of the redirect; what in it makes no sense is passed over.
    """
    first = host_of(info, tls=tls)
    return tuple(dict.fromkeys((*(() if first is None else (first,)), *offered_hosts(info, tls=tls))))


def host_of(entry: dict[Any, Any], *, tls: bool) -> Host | None:
    """The broker that a map with `network-host`, `port` and `scheme` means; None if it is none for us."""
    named = {str(key): value for key, value in entry.items()}
    name, port = named.get("network-host"), named.get("port", TLS_PORT_DEFAULT if tls else PORT_DEFAULT)
    scheme = named.get("scheme", "amqps" if tls else "amqp")
    if not isinstance(name, str) or not name or not isinstance(port, int) or not 0 < port < 65536:
        return None
    return Host(str(name), int(port)) if scheme == ("amqps" if tls else "amqp") else None

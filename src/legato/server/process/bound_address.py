"""Bound address: the sockets on which a primary serves, and a look at whether a backup could have them."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import time

from legato.errors import ListenError
from legato.ha.arbiter import Arbiter
from legato.ha.members import list_members
from legato.quoting import quoted
from legato.server.config.configuration import Config

log = logging.getLogger("legato.listening")

PREDECESSOR_PATIENCE_S = 2.0
"""How long a predecessor on the same address may take to close its sockets: the system frees its lock first."""
PREDECESSOR_POLL_S = 0.005

_EXPLANATIONS = {
    errno.EADDRINUSE: "another program listens there (`ss -ltnp` names it). End it, or choose another address",
    errno.EADDRNOTAVAIL: "this machine has no such address. Choose another",
    errno.EACCES: "this user may not use that port. Choose one from 1024 on",
}


async def bind(config: Config) -> asyncio.Server:
    """Sockets at `server.listen`, which do not listen yet.

    Raises:
        ListenError: the address is another's, or no address of this machine.
    """
    host, port = config.host_and_port
    try:
        return await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as error:
        raise listen_error(config, error) from None


def listen_error(config: Config, error: OSError) -> ListenError:
    """The sentence for an address that cannot be had."""
    where = config.server.listen
    if explanation := _EXPLANATIONS.get(error.errno or 0):
        return ListenError(f"Cannot listen on {where}: {explanation}, with --listen or server.listen.")
    return ListenError(f"Cannot listen on {where}: {error.strerror or error}.")


async def bind_as_primary(config: Config, lock: Arbiter) -> asyncio.Server:
    """As `bind`, for who has just won the lock: a predecessor on the same address may not have closed its sockets yet.

    Raises:
        ListenError: the address is another's, or no address of this machine.
    """
    predecessor = lock.predecessor
    ports = config.host_and_port[1], _port_of(config.advertised)
    shares = predecessor is not None and _port_of(predecessor.listen) in ports
    deadline_s = time.monotonic() + (PREDECESSOR_PATIENCE_S if shares else 0.0)
    while True:
        try:
            return await bind(config)
        except ListenError:
            if time.monotonic() >= deadline_s:
                raise
        await asyncio.sleep(PREDECESSOR_POLL_S)


async def see_bindable(config: Config) -> None:
    """See that a backup could serve at its address, while its primary lives: later would be too late.

    Another process of the same store may have the address. It is free when that one is gone.

    Raises:
        ListenError: somebody else has the address.
    """
    try:
        (await bind(config)).close()
    except ListenError:
        pid = _owner_of_port(config)
        if pid is None:
            raise
        log.warning(
            "! process %d of this store listens on %s too: this backup can serve only after that process has "
            "ended or handed over. If clients should know both brokers, give this one an address of its own, "
            "with --listen or server.listen",
            pid,
            quoted(config.server.listen),
        )


async def why_not_bindable(config: Config) -> str:
    """Why a backup that waits could not serve at its address, as somebody else has it by now; empty if it could."""
    try:
        (await bind(config)).close()
    except ListenError as error:
        return str(error) if _owner_of_port(config) is None else ""
    return ""


def _owner_of_port(config: Config) -> int | None:
    """The other process of this store that has the same port; None if none has."""
    for member in list_members(config.store_directory):
        if member.pid != os.getpid() and _port_of(member.listen) == config.host_and_port[1]:
            return member.pid
    return None


def _port_of(listen: str) -> int:
    """The port of `HOST:PORT`; -1 if there is none."""
    port = listen.rpartition(":")[2]
    return int(port) if port.isdecimal() else -1

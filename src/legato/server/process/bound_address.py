"""Bound address: the sockets on which a primary serves, and a look at whether a backup could have them."""

from __future__ import annotations

import asyncio
import logging
import os

from legato.errors import ListenError
from legato.ha.members import list_members
from legato.quoting import quoted
from legato.server.config.configuration import Config

log = logging.getLogger("legato.listening")


async def bind(config: Config) -> asyncio.Server:
    """Sockets at `server.listen`, which do not listen yet.

    Raises:
        ListenError: the address is another's, or no address of this machine.
    """
    host, port = config.host_and_port
    try:
        return await asyncio.get_running_loop().create_server(asyncio.Protocol, host, port, start_serving=False)
    except OSError as error:
        raise ListenError(f"Cannot listen on {config.server.listen}: {error.strerror or error}.") from None


async def see_bindable(config: Config) -> None:
    """See that a backup could serve at its address, while its primary lives: later would be too late.

    Another process of the same store may have the address. It is free when that one is gone.

    Raises:
        ListenError: somebody else has the address.
    """
    try:
        (await bind(config)).close()
    except ListenError:
        port = config.host_and_port[1]
        for member in list_members(config.store_directory):
            if member.pid != os.getpid() and member.listen.rpartition(":")[2] == str(port):
                log.info("= process %d of this store listens on %s too", member.pid, quoted(config.server.listen))
                return
        raise

"""Listener: few connections are accepted in a turn of the loop; each counts before anything is read from it."""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import resource
import socket
import ssl
from collections.abc import Callable, Iterable

from legato.quoting import sentence
from legato.server.connections.client_connection import Host, Peer
from legato.server.limits.accounts import Holdings, LimitExceeded

log = logging.getLogger("legato.peer")

BACKLOG = 1024
ACCEPTED_AT_ONCE = 10
"""More than that wait for the loop's next turn, and those who are there already are served meanwhile."""
TELL_AGAIN_S = 60.0
ACCEPT_AGAIN_S = 1.0
"""Pause after an accept that failed for want of file descriptors or memory."""


class Listener:
    """Accepts connections and, if it has settings for it, has them speak TLS.

    The event loop's own servers tell nobody of a connection before its TLS handshake is done: who connects and says
    nothing would take descriptors and memory that no limit counts (SECURITY 21). And they accept all who wait in one
    turn: when two thousand return at once, a client that is there already would wait for all of them.

    Args:
        host: whose connections they become.
        sockets: bound ones; they are duplicated.
        context: the settings of TLS, None for plain TCP; may be replaced, for connections that come from then on.
        handshake_timeout_s: how long the handshake of TLS may take.

    Raises:
        OSError: nobody can listen there.
    """

    def __init__(
        self,
        host: Host,
        sockets: Iterable[socket.socket],
        context: ssl.SSLContext | None,
        handshake_timeout_s: Callable[[], float],
    ) -> None:
        self.context = context
        self._host = host
        self._handshake_timeout_s = handshake_timeout_s
        self._loop = asyncio.get_running_loop()
        self._handshakes: dict[asyncio.Task[None], Peer] = {}
        """Of TLS; a plain connection begins in a turn of the loop."""
        self._beginnings: set[asyncio.Task[None]] = set()
        self._pauses: set[asyncio.TimerHandle] = set()
        self._tell_again_s = 0.0
        self._sockets: list[socket.socket] = []
        for bound in sockets:
            listening = socket.socket(fileno=os.dup(bound.fileno()))
            self._sockets.append(listening)
            listening.setblocking(False)
            listening.listen(BACKLOG)
            self._loop.add_reader(listening, self._accept, listening)

    def close(self) -> None:
        """Accept nobody any more; handshakes under way end."""
        for pause in self._pauses:
            pause.cancel()
        for listening in self._sockets:
            self._loop.remove_reader(listening)
            listening.close()
        self._sockets.clear()
        for handshake, peer in self._handshakes.items():
            # The loop closes a connection whose beginning is cancelled, and tells nobody.
            if peer not in self._host.peers:
                handshake.cancel()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTED_AT_ONCE):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionError:
                # It was gone before it was accepted.
                continue
            except OSError as error:
                self._tell(error)
                self._pause(listening)
                return
            accepted.setblocking(False)
            try:
                holdings = self._host.accounts.arrive(str(address[0]))
            except LimitExceeded:
                accepted.close()
                continue
            peer = Peer(self._host, holdings)
            beginning = self._loop.create_task(self._begin(peer, accepted, holdings))
            self._beginnings.add(beginning)
            beginning.add_done_callback(self._beginnings.discard)
            if self.context is not None:
                self._handshakes[beginning] = peer
                beginning.add_done_callback(self._handshakes.pop)

    def _tell(self, error: OSError) -> None:
        """It is tried again each second, and told once a minute."""
        now_s = self._loop.time()
        if now_s < self._tell_again_s:
            return
        self._tell_again_s = now_s + TELL_AGAIN_S
        if error.errno == errno.EMFILE:
            most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
            why = (
                f"this process has {most} open files, and may have no more: LimitNOFILE in the unit of systemd, or "
                "ulimit -n, gives it more. Who is connected goes on"
            )
        else:
            why = sentence(error)
        log.error("! no more connections are accepted for now: %s", why)

    def _pause(self, listening: socket.socket) -> None:
        self._loop.remove_reader(listening)

        def go_on() -> None:
            self._pauses.discard(pause)
            self._loop.add_reader(listening, self._accept, listening)

        pause = self._loop.call_later(ACCEPT_AGAIN_S, go_on)
        self._pauses.add(pause)

    async def _begin(self, peer: Peer, accepted: socket.socket, holdings: Holdings) -> None:
        timeout_s = None if self.context is None else self._handshake_timeout_s()
        try:
            await self._loop.connect_accepted_socket(
                lambda: peer, accepted, ssl=self.context, ssl_handshake_timeout=timeout_s
            )
        except Exception as error:
            log.debug("- a connection ended before it began: %s", sentence(error))
        finally:
            if peer not in self._host.peers:
                holdings.end()

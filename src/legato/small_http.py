"""A small HTTP server of threads, for a few pages beside other work: what one peer can hold of it is bounded.

It answers `GET`, and hangs up then. A peer that says nothing, or a byte now and then, or reads nothing, has a few
seconds; and if all threads are busy, the one that has let it wait longest makes room for who comes.
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import socket
import threading
import time
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from legato.quoting import quoted

log = logging.getLogger("legato.http")

REQUESTS_MAX = 16
"""Answered at the same time."""
PEER_TIMEOUT_S = 5.0
"""A peer has so long to send its request, and as long again to take the answer."""
ROOM_WAIT_S = 0.5
"""Who comes waits so long at most for the thread of one that was hung up on."""
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer. Nothing in it is a script, and no page of others shows it in a frame."""


class _Turn:
    """Whose turn it is in a conversation.

    Attributes:
        since_s: when the peer's began; None: it is ours.
    """

    __slots__ = ("since_s",)

    def __init__(self) -> None:
        self.since_s: float | None = time.monotonic()


class SmallServer(ThreadingHTTPServer):
    """Serves with the handlers of a `SmallHandler`.

    Args:
        address: as a socket takes it.
        name: of the host where it listens, as it was given.

    Raises:
        OSError: it cannot listen there.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, family: int, address: Any, handler: type[SmallHandler], name: str = "") -> None:
        self.address_family = family
        self._name = name.lower()
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)
        self._guard = threading.Lock()
        self._turns: dict[socket.socket, _Turn] = {}
        super().__init__(address, handler)

    def server_bind(self) -> None:
        """As a TCP server does; that of `http.server` asks for a host's name, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    # -- room ----------------------------------------------------------------------------------------------------

    def process_request(self, request: Any, client_address: Any) -> None:
        """See `socketserver`."""
        if not self._free.acquire(blocking=False) and not (
            self._hang_up_on_slowest() and self._free.acquire(timeout=ROOM_WAIT_S)
        ):
            self.shutdown_request(request)
            return
        with self._guard:
            self._turns[request] = _Turn()
        try:
            super().process_request(request, client_address)
        except BaseException:
            # There is no thread for it.
            self._forget(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """See `socketserver`."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._forget(request)

    def _forget(self, request: Any) -> None:
        """A conversation is over."""
        with self._guard:
            self._turns.pop(request, None)
        self._free.release()

    def turn(self, request: Any, *, of_peer: bool) -> None:
        """From now on it is the peer's turn, or ours."""
        with self._guard:
            turn = self._turns.get(request)
            if turn is not None:
                turn.since_s = time.monotonic() if of_peer else None

    def service_actions(self) -> None:
        """See `socketserver`: called again and again."""
        until_s = time.monotonic() - PEER_TIMEOUT_S
        with self._guard:
            for request, turn in self._turns.items():
                if turn.since_s is not None and turn.since_s < until_s:
                    _hang_up(request)

    def _hang_up_on_slowest(self) -> bool:
        """Make room; returns whether anybody was waited for."""
        with self._guard:
            slow = [(turn.since_s, request) for request, turn in self._turns.items() if turn.since_s is not None]
            if not slow:
                return False
            _hang_up(min(slow, key=lambda each: each[0])[1])
        return True

    # -- names ---------------------------------------------------------------------------------------------------

    def is_rebound(self, host: str) -> bool:
        """Whether a browser came by a name of somebody else's that leads to this machine (DNS rebinding).

        Where only this machine listens, such a name comes with our port; what a proxy passes on has the proxy's.
        """
        try:
            parts = urlsplit(f"//{host}")
            name, port = (parts.hostname or "").rstrip("."), parts.port or 80
        except ValueError:
            return True
        if port != self.server_port or not _is_loopback(str(self.server_address[0])):
            return False
        known = ("", "localhost", self._name, socket.gethostname().lower())
        return not (name in known or name.endswith(".localhost") or _is_address(name))

    def handle_error(self, request: Any, client_address: Any) -> None:
        """See `socketserver`."""
        log.debug("! a request was not answered", exc_info=True)


class SmallHandler(BaseHTTPRequestHandler):
    """Answers requests; `answer` is for who inherits from it."""

    server: SmallServer
    timeout = PEER_TIMEOUT_S
    server_version = "legato"
    sys_version = ""

    def answer(self, path: str, query: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        """The status, the content type and the body.

        Args:
            accept: which formats the client takes; empty if it does not say.
        """
        raise NotImplementedError

    def do_GET(self) -> None:
        """See `http.server`."""
        self.server.turn(self.request, of_peer=False)
        parts = urlsplit(self.path)
        if self.server.is_rebound(self.headers.get("Host", "")):
            status, kind, body = HTTPStatus.FORBIDDEN, "text/plain; charset=utf-8", b"This is not its name.\n"
        else:
            try:
                status, kind, body = self.answer(parts.path, parts.query, self.headers.get("Accept", ""))
            except Exception:
                log.exception("! %s could not be shown", quoted(parts.path))
                status, kind, body = HTTPStatus.INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", b"It failed.\n"
        self.server.turn(self.request, of_peer=True)
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        """See `http.server`."""
        log.debug("< %s %s", self.client_address[0], quoted(format % args))


def _hang_up(request: socket.socket) -> None:
    """Its thread finds the connection ended."""
    with contextlib.suppress(OSError):  # It has just ended.
        request.shutdown(socket.SHUT_RDWR)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return ipaddress.ip_address(host.partition("%")[0]).is_loopback

"""HTTP endpoint: a few threads beside the event loop that answer `GET` for fixed paths.

A probe must have an answer while the loop is stuck, and a scraper that reads slowly must not hold the loop.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from legato.errors import ListenError
from legato.quoting import quoted
from legato.server.monitoring.answers import Answer, Page, Request

log = logging.getLogger("legato.http")

REQUESTS_MAX = 16
"""Answered at the same time; who comes beyond that is hung up on."""
REQUEST_TIMEOUT_S = 5.0


class Endpoint:
    """Serves `pages` by their paths from construction until `close`.

    Raises:
        ListenError: it cannot listen there.
    """

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._server = _Server(family, address, pages)
        except OSError as error:
            raise ListenError(f"Cannot listen on http.listen {host}:{port}: {error.strerror or error}.") from None
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.1}, name="legato-http", daemon=True
        )
        self._thread.start()
        log.info("= HTTP at %s:%s: %s", host, self._server.server_address[1], " ".join(pages))

    def close(self) -> None:
        """Answer nobody any more."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, family: int, address: Any, pages: Mapping[str, Page]) -> None:
        self.address_family = family
        self.pages = pages
        self._free = threading.BoundedSemaphore(REQUESTS_MAX)
        super().__init__(address, _Handler)

    def server_bind(self) -> None:
        """As a TCP server does; that of `http.server` asks for a host's name, which may take long."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("! a request was not answered", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = REQUEST_TIMEOUT_S
    server_version = "legato"
    sys_version = ""

    def do_GET(self) -> None:
        """See `http.server`."""
        parts = urlsplit(self.path)
        page = self.server.pages.get(parts.path)
        if page is None:
            there = ", ".join(self.server.pages)
            answer = Answer(HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", f"There are {there}.\n".encode())
        else:
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            answer = page(Request(query, self.headers.get("Accept", "")))
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: Any) -> None:
        log.debug("< %s %s", self.client_address[0], quoted(format % args))

"""HTTP endpoint: a few threads beside the event loop that answer `GET` for fixed paths.

A probe must have an answer while the loop is stuck, and a scraper that reads slowly must not hold the loop.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from legato.errors import ListenError
from legato.server.monitoring.answers import Answer, Page, Request
from legato.small_http import SmallHandler, SmallServer

log = logging.getLogger("legato.http")


class Endpoint:
    """Serves `pages` by their paths from construction until `close`.

    Raises:
        ListenError: it cannot listen there.
    """

    def __init__(self, host: str, port: int, pages: Mapping[str, Page]) -> None:
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
            self._server = _Server(family, address, pages, host)
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


class _Server(SmallServer):
    def __init__(self, family: int, address: Any, pages: Mapping[str, Page], name: str) -> None:
        self.pages = pages
        super().__init__(family, address, _Handler, name)


class _Handler(SmallHandler):
    server: _Server

    def answer(self, path: str, query: str, accept: str) -> tuple[HTTPStatus, str, bytes]:
        page = self.server.pages.get(path)
        if page is None:
            there = ", ".join(self.server.pages)
            return HTTPStatus.NOT_FOUND, "text/plain; charset=utf-8", f"There are {there}.\n".encode()
        given = {name: values[-1] for name, values in parse_qs(query).items()}
        answer: Answer = page(Request(given, accept))
        return answer.status, answer.content_type, answer.body

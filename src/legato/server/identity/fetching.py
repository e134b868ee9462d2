"""Documents over HTTP from servers that may be slow, broken or hostile: a fetch as a whole has bounds in time and in
bytes."""

from __future__ import annotations

import http.client
import socket
import ssl
import time
import urllib.request
from typing import Any


class Budget:
    """What fetches may take together.

    Args:
        seconds: from now on.
        bytes_max: read, headers included.
    """

    def __init__(self, seconds: float, bytes_max: int) -> None:
        self._deadline_s = time.monotonic() + seconds
        self._bytes_left = bytes_max

    def left_s(self) -> float:
        """The seconds that are left.

        Raises:
            TimeoutError: none are.
        """
        left_s = self._deadline_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("it takes too long")
        return left_s

    def spend(self, count: int) -> int:
        """So many bytes were read; returns the number.

        Raises:
            ValueError: that is too many.
        """
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise ValueError("the document is too large")
        return count


def fetch(url: str, budget: Budget, authorities: str = "") -> bytes:
    """The document at an address; a redirection is an error.

    The time-outs of `urllib` are those of each read: a server that sends a byte now and then, of its headers or of the
    document, would never reach them. Here each read has what is left of the budget. The lookup of the server's name
    has the bounds of the system's resolver.

    Args:
        url: https or http.
        authorities: a file of those for TLS; the system's if empty.

    Raises:
        OSError: the server is not there, too slow, or answers with an error.
        ValueError: it sends too much.
        http.client.HTTPException: it speaks no HTTP.
    """
    plain, secure = _sockets(budget)

    def connected(address: tuple[str, int], *_: Any) -> socket.socket:
        failure: OSError | None = None
        for family, kind, protocol, _name, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
            made: socket.socket = plain(family, kind, protocol)
            try:
                made.settimeout(budget.left_s())
                made.connect(place)
            except OSError as error:
                made.close()
                failure = error
            else:
                # The handshake of TLS has it as a whole.
                made.settimeout(budget.left_s())
                return made
        raise failure or OSError("it has no address")

    class Plain(http.client.HTTPConnection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._create_connection = connected

    class Secure(http.client.HTTPSConnection):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            self._create_connection = connected

    class PlainHandler(urllib.request.HTTPHandler):
        def http_open(self, request: urllib.request.Request) -> Any:
            return self.do_open(Plain, request)

    class SecureHandler(urllib.request.HTTPSHandler):
        def https_open(self, request: urllib.request.Request) -> Any:
            context = ssl.create_default_context(cafile=authorities or None)
            context.sslsocket_class = secure
            return self.do_open(Secure, request, context=context)

    opener = urllib.request.build_opener(PlainHandler, SecureHandler, _NoRedirects)
    with opener.open(url, timeout=budget.left_s()) as answer:
        document: bytes = answer.read()
    return document


def _sockets(budget: Budget) -> tuple[Any, Any]:
    """Classes of sockets, plain and of TLS, each read of which is the budget's."""

    class Plain(socket.socket):
        def recv_into(self, *arguments: Any, **options: Any) -> int:
            self.settimeout(budget.left_s())
            return budget.spend(super().recv_into(*arguments, **options))

    class Secure(ssl.SSLSocket):
        def recv_into(self, *arguments: Any, **options: Any) -> int:
            self.settimeout(budget.left_s())
            return budget.spend(super().recv_into(*arguments, **options))

    return Plain, Secure


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """The document comes from where it was asked for."""

    def redirect_request(self, *arguments: Any) -> None:
        return None

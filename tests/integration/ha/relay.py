"""A relay between a client and a broker that tests can cut and freeze."""

from __future__ import annotations

import contextlib
import socket
import threading
from types import TracebackType

READ_BYTES = 1 << 16


class Relay:
    """Listens on `port` of 127.0.0.1 and relays every connection to `target`, unless told otherwise."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: set[socket.socket] = set()
        self._flows = threading.Event()
        self._flows.set()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Relay:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._flows.set()
        self._listener.close()
        self.cut()

    def cut(self) -> None:
        """End all connections; new ones are possible."""
        for sock in list(self._sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    def freeze(self) -> None:
        """Let nothing through, although connections are accepted: a host that does not answer."""
        self._flows.clear()

    def thaw(self) -> None:
        """Let everything through that waited, and go on."""
        self._flows.set()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                near.close()
                continue
            self._sockets |= {near, far}
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._relay, args=(one, other), daemon=True).start()

    def _relay(self, one: socket.socket, other: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := one.recv(READ_BYTES):
                self._flows.wait()
                other.sendall(data)
        for sock in (one, other):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

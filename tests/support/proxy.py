"""A TCP proxy between client and broker, whose connections a test can break."""

from __future__ import annotations

import contextlib
import socket
import threading

PIECE_BYTES = 1 << 16


class Proxy:
    """Forwards connections to a port; `cut` loses them at the client's end only, so that the broker notices nothing."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._clients: list[socket.socket] = []
        self._servers: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._target))
                self._clients.append(client)
                self._servers.append(server)
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(PIECE_BYTES):
                target.sendall(data)

    def cut(self) -> None:
        """The clients lose their connections; the broker's side stays as it is, silent."""
        clients, self._clients = self._clients, []
        for client in clients:
            with contextlib.suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
            client.close()

    def close(self) -> None:
        """End everything."""
        self._listener.close()
        self.cut()
        for server in self._servers:
            server.close()

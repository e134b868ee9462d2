"""Peers of the console, logged in or not: how many connections one may have, and how long it may keep them waiting."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from legato.server.identity.back_off import origin_of

CONNECTIONS_MAX = 400
"""In all; a process has 1,024 files as a rule, and the links to the brokers need some."""
CONNECTIONS_OF_ONE_MAX = 200
"""Of one address of origin. A browser has six; a proxy brings those of many."""
REQUEST_S = 10.0
"""A peer has so long to send a request, up to its body."""
BODY_S = 60.0
"""And so long for the body."""
UNREAD_S, READ_BYTES_MIN = 30.0, 4096
"""Who has not read so much in that time, of what it asked for, is cut off."""


class Listening(socket.socket):
    """A socket that listens, and hangs up on who has connections enough: from the accept on, before TLS."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.open: Counter[str] = Counter()
        """Connections by their origins."""

    def accept(self) -> tuple[socket.socket, Any]:
        """See `socket`.

        Raises:
            ConnectionAbortedError: who came was hung up on.
        """
        accepted, address = super().accept()
        origin = origin_of(str(address[0]))
        if self.open.total() >= CONNECTIONS_MAX or self.open[origin] >= CONNECTIONS_OF_ONE_MAX:
            accepted.close()
            raise ConnectionAbortedError
        self.open[origin] += 1
        counted = _Counted(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        counted.begin(self.open, origin)
        return counted, address


class _Counted(socket.socket):
    """One of a peer's connections."""

    _counted: Counter[str] | None = None
    _origin = ""

    def begin(self, counted: Counter[str], origin: str) -> None:
        """It counts until it is closed."""
        self._counted = counted
        self._origin = origin

    def close(self) -> None:
        """See `socket`."""
        super().close()
        counted, self._counted = self._counted, None
        if counted is not None:
            counted[self._origin] -= 1
            if not counted[self._origin]:
                del counted[self._origin]


class PatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, to peers that must not be waited for without end.

    uvicorn itself waits for ever for the first request, for the rest of one that has begun, and for who does not read.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._awaited = 0.0
        """For how many seconds the peer is waited for; 0: it is our turn."""
        self._until: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._unread_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See asyncio."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """See asyncio."""
        super().data_received(data)
        self._wait()

    def on_response_complete(self) -> None:
        """See uvicorn."""
        super().on_response_complete()
        self._wait()

    def _wait(self) -> None:
        """Give the peer its time, if it has not begun."""
        cycle: Any = self.cycle
        awaited = REQUEST_S if cycle is None or cycle.response_complete else BODY_S if cycle.more_body else 0.0
        if awaited == self._awaited and self._until is not None:
            return
        self._awaited = awaited
        if self._until is not None:
            self._until.cancel()
            self._until = None
        if self.transport.is_closing():
            self._see_read()
        elif awaited:
            self._until = self.loop.call_later(awaited, self._give_up)

    def _give_up(self) -> None:
        """Wait for nothing more; what was answered before may still be read."""
        self.transport.close()
        self._see_read()

    def timeout_keep_alive_handler(self) -> None:
        """See uvicorn."""
        super().timeout_keep_alive_handler()
        self._see_read()

    def pause_writing(self) -> None:
        """See asyncio."""
        super().pause_writing()
        self._see_read()

    def resume_writing(self) -> None:
        """See asyncio."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._read_again()

    def _see_read(self) -> None:
        """From now on it is seen whether the peer reads."""
        if self._unread is None:
            self._unread_bytes = self.transport.get_write_buffer_size()
            self._unread = self.loop.call_later(UNREAD_S, self._look_at_unread)

    def _look_at_unread(self) -> None:
        before, self._unread = self._unread_bytes, None
        if self.transport.get_write_buffer_size() > before - READ_BYTES_MIN:
            self.transport.abort()
        else:
            self._see_read()

    def _read_again(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio."""
        self._read_again()
        if self._until is not None:
            self._until.cancel()
            self._until = None
        super().connection_lost(exc)

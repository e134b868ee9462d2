"""The network between clients and brokers: TCP relays that can cut, freeze, delay and half-close connections."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from types import TracebackType
from typing import Self

READ_BYTES = 1 << 16
Dial = Callable[[str, int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
_NO_LINGER = struct.pack("ii", 1, 0)


class Network:
    """One relay for each broker, on ports of 127.0.0.1, in an event loop of its own thread.

    Args:
        targets: hosts and ports of the brokers.
        dial: connects to one of them, with plain TCP if None.
        doors: sockets that listen elsewhere, one for each broker: who connects there is relayed likewise.
    """

    def __init__(
        self,
        targets: Sequence[tuple[str, int]],
        dial: Dial | None = None,
        doors: Sequence[socket.socket] = (),
    ) -> None:
        self._doors = doors
        self._dial: Dial = dial or asyncio.open_connection
        self.ports: list[int] = []
        self.relayed_bytes = 0
        self.held_bytes = 0
        """What was held back, since the beginning."""
        self._targets = targets
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._links: set[_Link] = set()
        self._servers: list[asyncio.Server] = []
        self._open = True
        self._flows = [(asyncio.Event(), asyncio.Event()) for _ in targets]
        """Of each broker: what clients send it, and what it sends."""

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self._listen())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Break all connections, and those that are tried from now on."""
        self._call(self._set(is_open=False))

    def freeze(self, place: int | None = None) -> None:
        """Let nothing through to one broker, or to all; connections are accepted all the same."""
        self._call(self._set(is_open=True, frozen=range(len(self._targets)) if place is None else (place,)))

    def freeze_one_way(self, places: Sequence[int], *, towards_brokers: bool) -> None:
        """Let nothing through in one direction of the connections to some brokers, besides what is frozen already."""
        self._call(self._freeze_one_way(places, towards_brokers))

    def hold(self) -> None:
        """Hold back what is under way on the connections that there are; new ones are as ever. So clients that give a
        connection up come back on another one, and what they had said comes after that, with `deliver`."""
        self._call(self._hold())

    def deliver(self) -> None:
        """Let what is held back arrive, although nobody may wait for it any more."""
        self._call(self._deliver())

    def half_close(self, *, towards_brokers: bool) -> None:
        """End one direction of each connection in good order; the other goes on. New ones are as ever."""
        self._call(self._half_close(towards_brokers))

    def heal(self) -> None:
        """Everything goes through; what was held back too."""
        self._call(self._set(is_open=True))

    def _call(self, what: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result()

    async def _listen(self) -> None:
        for place, flows in enumerate(self._flows):
            for way in flows:
                way.set()
            server = await asyncio.start_server(self._accept_for(place), "127.0.0.1", 0)
            self._servers.append(server)
            self.ports.append(server.sockets[0].getsockname()[1])
        for place, door in enumerate(self._doors):
            self._servers.append(await asyncio.start_server(self._accept_for(place), sock=door))

    async def _end(self) -> None:
        for server in self._servers:
            server.close()
        await self._set(is_open=False)
        # Whoever relays has ended once it has seen that its connection is gone.
        mine = asyncio.current_task()
        await asyncio.gather(*(task for task in asyncio.all_tasks() if task is not mine), return_exceptions=True)

    async def _set(self, *, is_open: bool, frozen: Sequence[int] = ()) -> None:
        self._open = is_open
        for place, flows in enumerate(self._flows):
            for way in flows:
                if place in frozen:
                    way.clear()
                else:
                    way.set()
        if not is_open:
            for link in list(self._links):
                link.reset()

    async def _freeze_one_way(self, places: Sequence[int], towards_brokers: bool) -> None:
        for place in places:
            self._flows[place][0 if towards_brokers else 1].clear()

    async def _hold(self) -> None:
        for link in self._links:
            link.held = True

    async def _deliver(self) -> None:
        for link in list(self._links):
            link.deliver()

    async def _half_close(self, towards_brokers: bool) -> None:
        for link in list(self._links):
            (link.to_broker if towards_brokers else link.to_client).end()

    def _accept_for(self, place: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
        async def accept(near_reader: asyncio.StreamReader, near: asyncio.StreamWriter) -> None:
            if not self._open:
                _reset(near)
                return
            try:
                far_reader, far = await self._dial(*self._targets[place])
            except OSError:
                _reset(near)
                return
            link = _Link(near, far)
            self._links.add(link)
            if not self._open:
                link.reset()
            try:
                to_broker, to_client = self._flows[place]
                await asyncio.gather(
                    self._relay(near_reader, link, link.to_broker, to_broker),
                    self._relay(far_reader, link, link.to_client, to_client),
                )
            finally:
                self._links.discard(link)

        return accept

    async def _relay(self, reader: asyncio.StreamReader, link: _Link, way: _Way, flows: asyncio.Event) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(READ_BYTES):
                if link.held:
                    # Read on: whoever gives up and resets the connection must not take back what it had sent.
                    way.late.append(data)
                    self.held_bytes += len(data)
                    continue
                await flows.wait()
                await way.send(data)
                self.relayed_bytes += len(data)
        if link.held:
            await link.delivered.wait()
        way.writer.close()


class _Way:
    """One direction of a connection."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.late: list[bytes] = []
        self._ended = False

    async def send(self, data: bytes) -> None:
        if not (self._ended or self.writer.is_closing()):
            self.writer.write(data)
            await self.writer.drain()

    def deliver(self) -> None:
        if self.late and not (self._ended or self.writer.is_closing()):
            self.writer.write(b"".join(self.late))
        self.late.clear()

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            # With TLS a direction cannot be ended by itself.
            with contextlib.suppress(OSError, NotImplementedError):
                self.writer.write_eof()


class _Link:
    """A connection of a client, and ours to its broker."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.to_client = _Way(near)
        self.to_broker = _Way(far)
        self.held = False
        self.delivered = asyncio.Event()

    def deliver(self) -> None:
        if self.held:
            self.held = False
            self.to_broker.deliver()
            self.to_client.deliver()
            self.delivered.set()

    def reset(self) -> None:
        self.held = False
        self.delivered.set()
        _reset(self.to_client.writer)
        _reset(self.to_broker.writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    """End a connection as a network does that loses its memory: with a reset, not in good order."""
    connected = writer.get_extra_info("socket")
    # It may have ended by itself.
    if connected is not None:
        with contextlib.suppress(OSError):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    writer.transport.abort()

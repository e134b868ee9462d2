"""A backup's heartbeat connection to its primary."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque

import msgspec

from legato.amqp import names
from legato.amqp.codec.message import DataBody, decode_message
from legato.amqp.engine.connection import Connection
from legato.amqp.engine.events import Closed, Detached, Event, Transfer
from legato.amqp.engine.link import Receiver
from legato.amqp.engine.sasl import SaslClient
from legato.amqp.engine.settings import Settings
from legato.amqp.engine.terminus import Terminus
from legato.errors import ProtocolError

BACKUP_USER = "$backup"
"""Whom a backup logs in as where peers need a password; it may listen to heartbeats and do nothing else."""
_READ_BYTES = 1 << 16
_CREDIT = 2


class Heartbeat(msgspec.Struct):
    """One heartbeat of a primary."""

    pid: int
    epoch: int
    heartbeat_interval_s: float = 0.0
    """0: it does not say."""
    activation_interval_s: float = 0.0


class LoginRefused(OSError):
    """The primary did not take the login."""


class HeartbeatConnection:
    """An open connection; `next` waits for heartbeats, `close` drops it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str) -> None:
        self._reader = reader
        self._writer = writer
        self._engine = Connection(server=False, settings=Settings(container_id=name))
        self._link: Receiver | None = None
        self._heartbeats: deque[Heartbeat] = deque()

    @classmethod
    async def open(
        cls, host: str, port: int, *, name: str, token: str | None, tls: ssl.SSLContext | None, listen: str = ""
    ) -> HeartbeatConnection:
        """Connect, log in, and ask for heartbeats.

        Args:
            name: our container id.
            token: the password of `BACKUP_USER`; None: log in as nobody in particular.
            listen: see `names.UNRECORDED`; empty: the primary knows it.

        Raises:
            OSError: there is no primary there, or it does not let us in.
        """
        connection = cls(*await asyncio.open_connection(host, port, ssl=tls), name)
        try:
            connection._begin(await connection._log_in(token), listen)
        except ProtocolError as error:
            connection.close()
            raise OSError(str(error)) from error
        except BaseException:
            connection.close()
            raise
        return connection

    async def _log_in(self, token: str | None) -> bytes:
        sasl = SaslClient(None if token is None else BACKUP_USER, token, or_anonymous=True)
        while not sasl.done:
            self._writer.write(sasl.data_to_send())
            sasl.receive_data(await self._read())
            if sasl.failed is not None:
                raise LoginRefused(sasl.failed)
        self._writer.write(sasl.data_to_send())
        return sasl.leftover

    def _begin(self, leftover: bytes, listen: str) -> None:
        self._engine.open()
        source = Terminus(address=names.HEARTBEAT_ADDRESS, kind="source")
        properties = {names.UNRECORDED: listen} if listen else None
        session = self._engine.begin_session()
        self._link = session.receiver(names.HEARTBEAT_ADDRESS, source=source, properties=properties)
        self._link.add_credit(_CREDIT)
        self._flush()
        self._take(leftover)

    async def next(self) -> Heartbeat:
        """Wait for a heartbeat.

        Raises:
            OSError: the connection is lost, or the primary ended it.
        """
        while not self._heartbeats:
            self._take(await self._read())
        return self._heartbeats.popleft()

    async def _read(self) -> bytes:
        data = await self._reader.read(_READ_BYTES)
        if not data:
            raise ConnectionResetError("the primary hung up")
        return data

    def _take(self, data: bytes) -> None:
        for event in self._engine.receive_data(data):
            self._handle(event)
        self._engine.tick(time.monotonic_ns() // 1_000_000)
        self._flush()

    def _handle(self, event: Event) -> None:
        match event:
            case Transfer(data=data):
                body = decode_message(data).body
                assert isinstance(body, DataBody)
                self._heartbeats.append(msgspec.json.decode(body.data, type=Heartbeat))
                event.link.add_credit(1)
            case (
                Detached(condition=condition, description=description)
                | Closed(condition=condition, description=description)
            ):
                raise ConnectionResetError(f"the primary ended the connection: {condition} {description}".rstrip())

    def _flush(self) -> None:
        if data := self._engine.data_to_send():
            self._writer.write(data)

    def close(self) -> None:
        """Drop the connection, at once."""
        self._writer.transport.abort()
        self._engine.free()

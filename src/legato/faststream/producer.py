"""Publication and requests: a few sessions that take turns, and a temporary queue for the replies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException, IncorrectState

from legato.client import DeliveryMode, Destination, Message
from legato.client.aio import Connection, MessageProducer, Session
from legato.errors import JMSError
from legato.faststream.address import destination_of
from legato.faststream.message import Delivery, build, decode, parse
from legato.faststream.response import PRIORITY_DEFAULT, LegatoPublishCommand

SESSIONS_MAX = 16
"""Publications at once; each session has one in flight."""


def no_reply(cmd: LegatoPublishCommand) -> TimeoutError:
    """What a request without an answer raises."""
    return TimeoutError(f"No reply from {cmd.destination} came within {cmd.timeout_s:g} s.")


class LegatoProducer(ProducerProto[LegatoPublishCommand]):
    """Sends; each `publish()` returns once the broker has stored the message, over a failover too."""

    def __init__(self, parser: Any, decoder: Any) -> None:
        self._parser = ParserComposition(parser, parse)
        self._decoder = ParserComposition(decoder, decode)
        self.codec: CodecProto = DefaultCodec()
        self.serializer: Any = None
        self._connection: Connection | None = None
        self._idle: list[tuple[Session, MessageProducer]] = []
        self._room = asyncio.Semaphore(SESSIONS_MAX)
        self._replies: Destination | None = None
        self._waiting: dict[str, asyncio.Future[Message]] = {}
        self._listening: asyncio.Task[None] | None = None
        self._preparing = asyncio.Lock()

    def connect(self, connection: Connection, serializer: Any, codec: CodecProto | None) -> None:
        """Send by a connection from now on."""
        self._connection, self.serializer = connection, serializer
        self.codec = codec or DefaultCodec()
        self._room, self._preparing = asyncio.Semaphore(SESSIONS_MAX), asyncio.Lock()

    async def disconnect(self) -> None:
        """Send no more."""
        if self._listening is not None:
            self._listening.cancel()
            with contextlib.suppress(asyncio.CancelledError, JMSError):
                await self._listening
        self._listening = self._replies = self._connection = None
        self._idle.clear()

    async def publish(self, cmd: LegatoPublishCommand) -> None:
        """Send a message; returns once the broker has stored it."""
        await self._send(cmd, None)

    async def request(self, cmd: LegatoPublishCommand) -> Delivery:
        """Send a message, and wait for the reply.

        Raises:
            TimeoutError: there was none in time.
        """
        reply_to = await self._reply_queue()
        name = cmd.correlation_id
        assert name is not None
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[name] = reply
        try:
            async with asyncio.timeout(cmd.timeout_s) as limit:
                await self._send(cmd, reply_to)
                return Delivery(await reply, reply_to.name)
        except TimeoutError:
            if not limit.expired():
                raise
            raise no_reply(cmd) from None
        finally:
            self._waiting.pop(name, None)

    async def publish_batch(self, cmd: LegatoPublishCommand) -> None:
        """Not available: publish one message after the other, or several at once with `asyncio.gather`."""
        raise FeatureNotSupportedException("Legato's broker publishes no batches: publish each message by itself.")

    async def _send(self, cmd: LegatoPublishCommand, reply_to: Destination | None) -> None:
        body, content_type = await self.codec.encode(cmd.body, self.serializer)
        message = build(body, content_type, headers=cmd.headers, correlation_id=cmd.correlation_id)
        message.reply_to = reply_to or (destination_of(cmd.reply_to) if cmd.reply_to else None)
        async with self._producer() as producer:
            await producer.send(
                message,
                destination=destination_of(cmd.destination),
                delivery_mode=DeliveryMode.PERSISTENT if cmd.persistent else DeliveryMode.NON_PERSISTENT,
                priority=PRIORITY_DEFAULT if cmd.priority is None else cmd.priority,
                time_to_live_ms=round(cmd.time_to_live_s * 1000),
                delivery_delay_ms=round(cmd.delivery_delay_s * 1000),
                duplicate_id=cmd.duplicate_id,
            )

    @property
    def _connected(self) -> Connection:
        if self._connection is None:
            raise IncorrectState("The broker is not connected: call connect() or start() first.")
        return self._connection

    @asynccontextmanager
    async def _producer(self) -> AsyncIterator[MessageProducer]:
        connection = self._connected
        async with self._room:
            if self._idle:
                session, producer = self._idle.pop()
            else:
                session = connection.create_session()
                producer = await session.create_producer()
            try:
                yield producer
            finally:
                if connection is self._connection:
                    self._idle.append((session, producer))

    async def _reply_queue(self) -> Destination:
        async with self._preparing:
            if self._replies is None:
                session = self._connected.create_session()
                replies = await session.create_temporary_queue()
                consumer = await session.create_consumer(replies)
                self._listening = asyncio.create_task(self._listen(consumer))
                self._replies = replies
        return self._replies

    async def _listen(self, consumer: Any) -> None:
        async for message in consumer:
            waiting = self._waiting.get(str(message.correlation_id))
            if waiting is not None and not waiting.done():
                waiting.set_result(message)

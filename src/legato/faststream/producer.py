"""Publication and requests: a few sessions that take turns, and a temporary queue for the replies."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import CodecProto, DefaultCodec
from faststream._internal.producer import ProducerProto
from faststream.exceptions import FeatureNotSupportedException, IncorrectState

from legato.client import DeliveryMode, Destination, Message
from legato.client.aio import Connection, MessageConsumer, MessageProducer, Session
from legato.errors import JMSError
from legato.faststream.address import destination_of
from legato.faststream.message import Delivery, build, decode, parse
from legato.faststream.response import PRIORITY_DEFAULT, LegatoPublishCommand

SESSIONS_MAX = 16
"""Publications at once; each session has one in flight."""


def no_reply(cmd: LegatoPublishCommand) -> TimeoutError:
    """What a request without an answer raises."""
    return TimeoutError(f"No reply from {cmd.destination} came within {cmd.timeout_s:g} s.")


class _Replies:
    """A temporary queue for the replies to requests; of those that wait, each has a correlation id of its own."""

    def __init__(self, queue: Destination) -> None:
        self.queue = queue
        self.waiting: dict[str, asyncio.Future[Message]] = {}

    async def listen(self, consumer: MessageConsumer) -> None:
        """Give each reply to who waits for it; when none can come any more, all are told."""
        failure: Exception = IncorrectState("The broker was stopped: no reply comes any more.")
        try:
            async for message in consumer:
                waiting = self.waiting.get(str(message.correlation_id))
                if waiting is not None and not waiting.done():
                    waiting.set_result(message)
        except JMSError as error:
            failure = error
        finally:
            for waiting in self.waiting.values():
                if not waiting.done():
                    waiting.set_exception(failure)
                    waiting.exception()  # Who waits may have another error by now; asyncio is not to complain.


class LegatoProducer(ProducerProto[LegatoPublishCommand]):
    """Sends; each `publish()` returns once the broker has stored the message, over a failover too."""

    def __init__(self, parser: Any, decoder: Any) -> None:
        self._parser = ParserComposition(parser, parse)
        self._decoder = ParserComposition(decoder, decode)
        self.codec: CodecProto = DefaultCodec()
        self.serializer: Any = None
        self.renew: Callable[[], Awaitable[None]] | None = None
        """Has the connection made anew; it is called if that is gone for good."""
        self._connection: Connection | None = None
        self._idle: list[tuple[Session, MessageProducer]] = []
        self._room = asyncio.Semaphore(SESSIONS_MAX)
        self._replies: list[_Replies] = []
        """More than one if requests with the same correlation id wait at once."""
        self._listening: set[asyncio.Task[None]] = set()
        self._preparing: asyncio.Task[None] | None = None

    def connect(self, connection: Connection, serializer: Any, codec: CodecProto | None) -> None:
        """Send by a connection from now on."""
        self._connection, self.serializer = connection, serializer
        self._idle.clear()
        self.codec = codec or DefaultCodec()
        self._room = asyncio.Semaphore(SESSIONS_MAX)

    async def disconnect(self) -> None:
        """Send no more; who waits for a reply is told that none comes."""
        self._connection = None
        tasks = self._listening | ({self._preparing} if self._preparing is not None else set())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._listening.clear()
        self._replies.clear()
        self._idle.clear()

    async def publish(self, cmd: LegatoPublishCommand) -> None:
        """Send a message; returns once the broker has stored it."""
        await self._send(cmd, None)

    async def request(self, cmd: LegatoPublishCommand) -> Delivery:
        """Send a message, and wait for the reply.

        Raises:
            TimeoutError: there was none in time.
            IncorrectState: the broker was stopped meanwhile.
        """
        name = cmd.correlation_id
        assert name is not None
        replies: _Replies | None = None
        try:
            async with asyncio.timeout(cmd.timeout_s) as limit:
                replies = await self._replies_without(name)
                reply = replies.waiting[name] = asyncio.get_running_loop().create_future()
                await self._send(cmd, replies.queue)
                return Delivery(await reply, replies.queue.name)
        except TimeoutError:
            if not limit.expired():
                raise
            raise no_reply(cmd) from None
        finally:
            if replies is not None:
                del replies.waiting[name]

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

    async def _usable(self) -> Connection:
        """The connection, which is another one if that before is gone for good.

        Raises:
            JMSError: then no broker lets us in.
        """
        if self._connected.lost is not None and self.renew is not None:
            await self.renew()
        return self._connected

    @asynccontextmanager
    async def _producer(self) -> AsyncIterator[MessageProducer]:
        connection = await self._usable()
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

    async def _replies_without(self, name: str) -> _Replies:
        """A queue for replies where nobody waits for one with this correlation id."""
        while True:
            await self._usable()
            for replies in self._replies:
                if name not in replies.waiting:
                    return replies
            preparing = self._preparing
            if preparing is None:
                preparing = self._preparing = asyncio.create_task(self._prepare(self._connected))
                preparing.add_done_callback(lambda done: done.cancelled() or done.exception())
            # Whose time is over waits no longer; the queue is for the next one then.
            await asyncio.wait([preparing])
            if preparing.cancelled():
                raise IncorrectState("The broker was stopped.")
            preparing.result()

    async def _prepare(self, connection: Connection) -> None:
        try:
            session = connection.create_session()
            try:
                queue = await session.create_temporary_queue()
                consumer = await session.create_consumer(queue)
            except JMSError:
                with contextlib.suppress(JMSError):
                    await session.close()
                raise
        finally:
            self._preparing = None
        replies = _Replies(queue)
        self._replies.append(replies)
        listening = asyncio.create_task(self._listen(replies, consumer))
        self._listening.add(listening)
        listening.add_done_callback(self._listening.discard)

    async def _listen(self, replies: _Replies, consumer: MessageConsumer) -> None:
        try:
            await replies.listen(consumer)
        finally:
            if replies in self._replies:
                self._replies.remove(replies)

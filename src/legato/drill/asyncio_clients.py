"""Asyncio clients of a drill: one that sends, one that receives, like those with threads."""

import asyncio
import threading
from functools import partial

from legato.client import Message, TextMessage, aio
from legato.drill.client_history import (
    FIRST_WAIT_S,
    MESSAGES_AT_ONCE,
    MODES,
    NEXT_WAIT_S,
    ROLLBACK_PAUSE_S,
    ClientHistory,
)
from legato.drill.load import Client, Work
from legato.drill.messages import text_of
from legato.drill.producers import MESSAGES_PER_COMMIT, Letters
from legato.drill.records import REFUSED, SENDING, STORED, UNSURE, Identity, RecordWriter
from legato.errors import IllegalStateError, JMSError, TransactionRolledBackError
from legato.failpoints import Point


async def send(client: Client, connection: aio.Connection, letters: Letters, stop: threading.Event) -> None:
    """Send until `stop` is set, then wait for what is not confirmed yet."""
    transacted = client.work is Work.SEND_TRANSACTED
    async with connection.create_session(transacted=transacted) as session:
        producer = await session.create_producer(session.create_queue(client.flow))
        while not stop.is_set():
            if transacted:
                await _send_transaction(session, producer, letters)
            else:
                await asyncio.sleep(letters.interval_s)
                await _send_one(client, producer, letters)
        await producer.flush()


async def _send_one(client: Client, producer: aio.MessageProducer, letters: Letters) -> None:
    number, message, how = letters.next()
    if client.work is Work.SEND_ASYNC:
        await producer.send(message, completion_listener=partial(letters.completed, number), **how)
        letters.hit(Point.BETWEEN_SEND_AND_CONFIRM)
        return
    try:
        await producer.send(message, **how)
    except JMSError as error:
        letters.told([number], error)
    else:
        letters.told([number])


async def _send_transaction(session: aio.Session, producer: aio.MessageProducer, letters: Letters) -> None:
    await asyncio.sleep(letters.interval_s * MESSAGES_PER_COMMIT)
    numbers: list[int] = []
    for _ in range(MESSAGES_PER_COMMIT):
        number, message, how = letters.next()
        numbers.append(number)
        await producer.send(message, **how)
    while True:
        try:
            await session.commit()
            letters.told(numbers)
            return
        except JMSError as error:
            if letters.given_up(numbers, error):
                return
            session.replay()


class TaskGetter:
    """One consuming client; `run` is its task."""

    def __init__(
        self,
        client: Client,
        session: aio.Session,
        consumer: aio.MessageConsumer,
        account: ClientHistory,
        *,
        producer: aio.MessageProducer | None = None,
        forwarded: RecordWriter | None = None,
        lenient: bool = False,
    ) -> None:
        self._client = client
        self._session = session
        self._consumer = consumer
        self._account = account
        self._producer = producer
        self._forwarded = forwarded
        self._lenient = lenient
        self._number = forwarded.last_number if forwarded else 0

    @classmethod
    async def create(
        cls,
        client: Client,
        connection: aio.Connection,
        account: ClientHistory,
        *,
        forwarded: RecordWriter | None = None,
        lenient: bool = False,
    ) -> "TaskGetter":
        """Make what the client needs, so that others may begin to send."""
        session = connection.create_session(client.work is Work.FORWARD, MODES[client.work])
        consumer = await session.create_consumer(session.create_queue(client.flow))
        producer = await session.create_producer(session.create_queue(client.to)) if client.to else None
        connection.start()
        return cls(client, session, consumer, account, producer=producer, forwarded=forwarded, lenient=lenient)

    async def run(self, stop: threading.Event) -> None:
        """Receive until all producers have ended (`stop`) and nothing more can come."""
        while not (stop.is_set() and self._account.complete):
            received = await self._receive_some()
            if not received:
                continue
            if self._client.work is Work.CLIENT:
                await self._acknowledge(received)
            elif self._client.work is Work.FORWARD:
                await self._forward([identity for identity, _ in received])
        await self._session.close()

    async def _receive_some(self) -> list[tuple[Identity, Message]]:
        received: list[tuple[Identity, Message]] = []
        while len(received) < MESSAGES_AT_ONCE:
            try:
                message = await self._consumer.receive(timeout_s=NEXT_WAIT_S if received else FIRST_WAIT_S)
            except JMSError as error:
                self._check(error)
                break
            if message is None:
                break
            received.append((self._account.see(message), message))
        return received

    async def _acknowledge(self, received: list[tuple[Identity, Message]]) -> None:
        identities = [identity for identity, _ in received]
        self._account.hit(Point.BETWEEN_RECEIVE_AND_ACKNOWLEDGE)
        self._account.trying(identities)
        try:
            await received[-1][1].acknowledge()
        except JMSError as error:
            self._check(error, IllegalStateError)
            self._account.done(identities, surely=False)
            await self._session.recover()
        else:
            self._account.done(identities)

    async def _forward(self, identities: list[Identity]) -> None:
        assert self._producer is not None
        assert self._forwarded is not None
        numbers: list[int] = []
        for source in identities:
            self._number += 1
            numbers.append(self._number)
            self._forwarded.sent(SENDING, [self._number])
            await self._producer.send(TextMessage(text_of(Identity(self._client.name, self._number), source=source)))
        self._account.hit(Point.BETWEEN_SEND_AND_COMMIT)
        self._account.trying(identities)
        try:
            await self._session.commit()
        except JMSError as error:
            self._check(error, TransactionRolledBackError)
            self._forwarded.sent(UNSURE if self._lenient else REFUSED, numbers)
            if self._lenient:
                self._account.done(identities, surely=False)
            else:
                self._account.undone(identities)
            await asyncio.sleep(ROLLBACK_PAUSE_S)
        else:
            self._forwarded.sent(STORED, numbers)
            self._account.done(identities)

    def _check(self, error: JMSError, *expected: type[JMSError]) -> None:
        if not self._lenient and not isinstance(error, expected):
            raise error

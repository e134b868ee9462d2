"""An asyncio client of a drill whose calls are cancelled at any instant; its session goes on."""

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from legato.client import Message, TextMessage, aio
from legato.drill.client_history import FIRST_WAIT_S, NEXT_WAIT_S, ROLLBACK_PAUSE_S, ClientHistory
from legato.drill.load import Client
from legato.drill.messages import text_of
from legato.drill.records import REFUSED, SENDING, STORED, UNSURE, Identity, RecordWriter
from legato.errors import JMSError, TransactionRolledBackError

T = TypeVar("T")

MESSAGES_PER_COMMIT_MAX = 5
CANCELLED_ONE_IN = 3
ROLLED_BACK_ONE_IN = 5
CANCELLED_AFTER_MAX_S = 0.004
"""Calls take about so long, so that a cancellation may hit any part of one."""


class CancellingForwarder:
    """Receives, sends on and commits, as forwarders do; every third call is cancelled.

    A cancelled `receive()` loses nothing. After a cancelled `send()` nobody knows whether the message is part of the
    transaction, so that is rolled back. A cancelled `commit()` is called again, which tells its outcome. What has come
    back too often is not rolled back by chance any more: it would become a dead letter.
    """

    def __init__(
        self,
        client: Client,
        session: aio.Session,
        consumer: aio.MessageConsumer,
        producer: aio.MessageProducer,
        account: ClientHistory,
        forwarded: RecordWriter,
        *,
        lenient: bool = False,
    ) -> None:
        self._client = client
        self._session = session
        self._consumer = consumer
        self._producer = producer
        self._account = account
        self._forwarded = forwarded
        self._lenient = lenient
        self._number = forwarded.last_number
        self._chance = random.Random()
        self._in_earnest = False
        """Whether nothing is cancelled or rolled back for now."""

    @classmethod
    async def create(
        cls,
        client: Client,
        connection: aio.Connection,
        account: ClientHistory,
        *,
        forwarded: RecordWriter,
        lenient: bool = False,
    ) -> "CancellingForwarder":
        """Make what the client needs, so that others may begin to send."""
        session = connection.create_session(transacted=True)
        consumer = await session.create_consumer(session.create_queue(client.flow))
        producer = await session.create_producer(session.create_queue(client.to))
        connection.start()
        return cls(client, session, consumer, producer, account, forwarded, lenient=lenient)

    async def run(self, stop: threading.Event) -> None:
        """Receive until all producers have ended (`stop`) and nothing more can come."""
        while not (stop.is_set() and self._account.complete):
            received = await self._receive_some()
            if received and not self._in_earnest and self._one_in(ROLLED_BACK_ONE_IN):
                await self._roll_back(received, [])
            elif received:
                await self._forward(received)
        await self._session.close()

    async def _receive_some(self) -> list[Identity]:
        received: list[Identity] = []
        self._in_earnest = False
        while len(received) < MESSAGES_PER_COMMIT_MAX:
            wait_s = NEXT_WAIT_S if received else FIRST_WAIT_S
            try:
                message = await self._impatiently(partial(self._consumer.receive, wait_s))
            except asyncio.CancelledError:
                continue
            except JMSError as error:
                self._check(error)
                break
            if message is None:
                break
            assert isinstance(message, Message)
            self._in_earnest |= self._account.spares(message)
            received.append(self._account.see(message))
        return received

    async def _forward(self, identities: list[Identity]) -> None:
        numbers: list[int] = []
        for source in identities:
            self._number += 1
            numbers.append(self._number)
            self._forwarded.sent(SENDING, [self._number])
            letter = TextMessage(text_of(Identity(self._client.name, self._number), source=source))
            try:
                await self._impatiently(partial(self._producer.send, letter))
            except asyncio.CancelledError:
                await self._roll_back(identities, numbers)
                return
        self._account.trying(identities)
        try:
            await self._until_it_is_told(self._session.commit)
        except JMSError as error:
            self._check(error, TransactionRolledBackError)
            self._rolled_back(identities, numbers)
            await asyncio.sleep(ROLLBACK_PAUSE_S)
        else:
            self._forwarded.sent(STORED, numbers)
            self._account.done(identities)

    async def _roll_back(self, identities: list[Identity], numbers: list[int]) -> None:
        """Cancelled as often as not, and never called again: the next call waits for its end (CONTRACT A4)."""
        try:
            await self._impatiently(self._session.rollback)
        except asyncio.CancelledError:
            pass
        except JMSError as error:
            self._check(error, TransactionRolledBackError)
        self._rolled_back(identities, numbers)

    def _rolled_back(self, identities: list[Identity], numbers: list[int]) -> None:
        self._forwarded.sent(UNSURE if self._lenient else REFUSED, numbers)
        if self._lenient:
            self._account.done(identities, surely=False)
        else:
            self._account.undone(identities)

    async def _until_it_is_told(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Call again what is cancelled."""
        while True:
            try:
                return await self._impatiently(call)
            except asyncio.CancelledError:
                continue

    async def _impatiently(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Result of a call; every third one is cancelled, as soon as it waits or an instant later.

        Raises:
            asyncio.CancelledError: it was cancelled.
        """
        if self._in_earnest or not self._one_in(CANCELLED_ONE_IN):
            return await call()
        task = asyncio.ensure_future(call())
        if self._one_in(2):
            await asyncio.sleep(0)
        else:
            await asyncio.wait([task], timeout=self._chance.uniform(0, CANCELLED_AFTER_MAX_S))
        task.cancel()
        return await task

    def _one_in(self, many: int) -> bool:
        return self._chance.random() * many < 1

    def _check(self, error: JMSError, *expected: type[JMSError]) -> None:
        if not self._lenient and not isinstance(error, expected):
            raise error

"""Subscribers: workers that receive, have the handler called, and settle."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from faststream._internal.configs import SubscriberSpecificationConfig, SubscriberUsecaseConfig
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber import SubscriberSpecification, SubscriberUsecase
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream._internal.endpoint.subscriber.mixins import TasksMixin
from faststream._internal.endpoint.utils import process_msg
from faststream.exceptions import StopConsume, SubscriberNotFound
from faststream.message import StreamMessage
from faststream.middlewares import AckPolicy
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSchema
from faststream.specification.schema import Operation, SubscriberSpec

from legato.client import AcknowledgeMode, Message, Topic
from legato.client.aio import Connection, MessageConsumer, Session
from legato.errors import InvalidDestinationError, JMSError
from legato.faststream.address import TOPIC, destination_of, with_prefix
from legato.faststream.asked_session import AskedSession
from legato.faststream.config import LegatoBrokerConfig
from legato.faststream.message import Delivery, LegatoMessage, decode, parse
from legato.faststream.publisher import ReplyPublisher

log = logging.getLogger("legato.faststream")

T = TypeVar("T")

PAUSES_MAX = 100
"""Failed messages of a subscriber that wait, each with a session, for their next delivery."""
CLOSE_S = 5.0
"""The longest that `stop()` waits for a broker to take back what workers had that were given up."""


def _is_cancelled() -> bool:
    """Whether the current task is to end."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """The pauses before a failed message is delivered again."""

    first_s: float = 0.2
    factor: float = 2.0
    max_s: float = 60.0
    jitter: float = 0.2

    def pause_s(self, deliveries: int) -> float:
        """The pause after so many deliveries, the failed one included."""
        pause_s: float = min(self.first_s * self.factor ** min(deliveries - 1, 60), self.max_s)
        return pause_s * (1 + self.jitter * (2 * random.random() - 1))


@dataclass(kw_only=True)
class LegatoSubscriberConfig(SubscriberUsecaseConfig):
    """What a subscriber is declared with."""

    _outer_config: LegatoBrokerConfig = field(default_factory=LegatoBrokerConfig)
    address: str
    subscription: str | None = None
    selector: str | None = None
    max_workers: int = 1
    backoff: Backoff = field(default_factory=Backoff)

    @property
    def ack_policy(self) -> AckPolicy:
        """What becomes of a message whose handler raised: by default it is delivered again."""
        for policy in (self._ack_policy, self._outer_config.ack_policy):
            if policy is not EMPTY:
                return policy
        return AckPolicy.NACK_ON_ERROR


@dataclass(kw_only=True)
class LegatoSubscriberSpecificationConfig(SubscriberSpecificationConfig):
    """What the AsyncAPI page shows of a subscriber."""

    address: str
    subscription: str | None = None


class LegatoSubscriberSpecification(SubscriberSpecification[LegatoBrokerConfig, LegatoSubscriberSpecificationConfig]):
    """A subscriber on the AsyncAPI page."""

    @property
    def address(self) -> str:
        """With the prefixes of its routers."""
        return with_prefix(self._outer_config.prefix, self.config.address)

    @property
    def channel_labels(self) -> list[str]:
        """The one channel."""
        subscription = self.config.subscription
        return [self.address if subscription is None else f"{self.address}:{subscription}"]

    def get_schema(self) -> dict[str, SubscriberSpec]:
        """The channel with what its messages look like."""
        return {
            self.name: SubscriberSpec(
                address=self.address,
                description=self.description,
                operation=Operation(
                    message=MessageSchema(title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads())),
                    bindings=None,
                ),
                bindings=None,
            )
        }


class LegatoSubscriber(TasksMixin, SubscriberUsecase[Delivery]):
    """Receives from a queue or topic with one or more workers.

    Each worker has a session of its own and asks the broker for one message at a time, so that no message waits here
    that another process could have. A message whose handler raised keeps its session until its pause is over; the
    worker goes on with a new one.
    """

    _outer_config: LegatoBrokerConfig

    def __init__(
        self,
        config: LegatoSubscriberConfig,
        specification: SubscriberSpecification[Any, Any],
        calls: CallsCollection[Delivery],
    ) -> None:
        config.parser = parse
        config.decoder = decode
        super().__init__(config, specification, calls)
        self._address = config.address
        self._subscription = config.subscription
        self._selector = config.selector
        self._max_workers = config.max_workers
        self._backoff = config.backoff
        self._passing_name = f"faststream-{uuid.uuid4()}"
        self._pauses: set[asyncio.Task[None]] = set()
        self._given_up: list[Session] = []
        """Of workers that were cancelled."""
        self._closing: set[asyncio.Task[None]] = set()
        self._asked: AskedSession | None = None
        self._asking = asyncio.Lock()
        """Held by who opens it."""
        self._stopping = asyncio.Event()

    @property
    def address(self) -> str:
        """With the prefixes of its routers."""
        return with_prefix(self._outer_config.prefix, self._address)

    @property
    def subscription(self) -> str:
        """Of a topic: the one that it receives from; empty for a queue."""
        return (self._subscription or self._passing_name) if self.address.startswith(TOPIC) else ""

    def get_log_context(self, message: StreamMessage[Delivery] | None) -> dict[str, str]:
        """What the log says beside each line."""
        return {"address": self.address, "message_id": getattr(message, "message_id", "")}

    def _make_response_publisher(self, message: StreamMessage[Delivery]) -> Sequence[ReplyPublisher]:
        def tell(sentence: str) -> None:
            self._log(logging.WARNING, sentence, extra=self.get_log_context(message))

        return (ReplyPublisher(producer=self._outer_config.producer, address=message.reply_to, tell=tell),)

    # -- its life ----------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Begin to receive, if it does not."""
        if any(not task.done() for task in self.tasks):
            return
        self._stopping = asyncio.Event()
        self._asking = asyncio.Lock()
        await super().start()
        self._post_start()
        if self.calls:
            # Whoever has started the broker may publish: a topic's subscription is there by then.
            connection = self._outer_config.connection
            opened = [await self._open(connection) for _ in range(self._max_workers)]
            for session, consumer in opened:
                self.tasks.append(asyncio.create_task(self._work(connection, session, consumer)))

    async def stop(self) -> None:
        """Receive no more, let handlers end as long as the broker's `graceful_timeout` says, and settle."""
        self._stopping.set()
        self.running = False
        workers = [task for task in self.tasks if task is not asyncio.current_task()]
        if workers:
            _, late = await asyncio.wait(workers, timeout=self._outer_config.graceful_timeout)
            await self._give_up(late)
        if self._pauses:
            await asyncio.wait(self._pauses)
        if self._asked is not None:
            asked, self._asked = self._asked, None
            await asked.session.close()
        if asyncio.current_task() in self.tasks:
            # A handler stops its own subscriber: it goes on, is not waited for, and its message is settled.
            self.tasks.clear()
            return
        await super().stop()

    async def _give_up(self, late: set[asyncio.Task[None]]) -> None:
        """End workers whose handlers take too long, or wait for a broker that does not answer."""
        if not late:
            return
        away = " There is no broker at the moment." if self._outer_config.connection.host is None else ""
        self._log(
            logging.WARNING,
            f"{self.address}: {len(late)} messages were not done, or not confirmed, within the "
            f"{self._outer_config.graceful_timeout:g} s of graceful_timeout; they are delivered again.{away}",
        )
        for task in late:
            task.cancel()
        # A handler may take no cancellation; then its session ends with the connection.
        await asyncio.wait(late, timeout=CLOSE_S)
        # The broker may go on without this subscriber: others are to have what it had.
        closing = {asyncio.ensure_future(self._close(session)) for session in self._given_up}
        self._given_up.clear()
        for closed in closing:
            self._closing.add(closed)
            closed.add_done_callback(self._closing.discard)
        if closing and self._outer_config.connection.host is not None:
            await asyncio.wait(closing, timeout=CLOSE_S)

    async def _close(self, session: Session) -> None:
        with contextlib.suppress(JMSError):
            await session.close()

    async def _open(self, connection: Connection) -> tuple[Session, MessageConsumer]:
        session = connection.create_session(acknowledge_mode=AcknowledgeMode.INDIVIDUAL)
        try:
            return session, await self._consumer_of(session)
        except BaseException:
            await self._close(session)
            raise

    async def _consumer_of(self, session: Session) -> MessageConsumer:
        destination = destination_of(self.address)
        if not isinstance(destination, Topic):
            return await session.create_consumer(destination, self._selector, prefetch=0)
        if self._subscription is None:
            # The workers of this process share what the topic gets while it listens.
            return await session.create_shared_consumer(destination, self._passing_name, self._selector, prefetch=0)
        return await session.create_shared_durable_consumer(destination, self._subscription, self._selector, prefetch=0)

    def _delivery(self, message: Message, session: Session) -> Delivery:
        return Delivery(message, self.address, session, subscription=self.subscription)

    # -- its work ----------------------------------------------------------------------------------------

    async def _work(self, connection: Connection, session: Session, consumer: MessageConsumer) -> None:
        """One worker: one message after the other."""
        given_up = False
        try:
            while self.running and not self._stopping.is_set():
                try:
                    message = await self._next(consumer)
                except InvalidDestinationError as error:
                    # Its queue was deleted, by anyone: there may be another one of its name, or it is made.
                    self._log(logging.WARNING, f"{error} It is received from anew.")
                    await self._close(session)
                    session, consumer = await self._open(connection)
                    continue
                if message is None:
                    continue
                delivery = self._delivery(message, session)
                await self._consume(delivery)
                if delivery.settled.is_set() and not delivery.nacked:
                    continue
                # The message needs its session until it is settled. A topic's subscription that is not durable
                # lives as long as it has a consumer: the next one is there before this one goes.
                consumer_before = consumer
                session, consumer = await self._open(connection)
                await consumer_before.close()
                if len(self._pauses) < PAUSES_MAX:
                    self._keep(self._end(delivery))
                else:
                    await self._end(delivery)
        except JMSError as error:
            if not self._stopping.is_set():
                lost = f"The application ends, for {self.address} is lost"
                if not self._outer_config.context.get("app"):
                    lost = f"{self.address} is lost, and nothing is received from it any more"
                self._log(logging.CRITICAL, f"{lost}: {error}", exc_info=error)
                self._end_application()
        except asyncio.CancelledError:
            given_up = True  # Who cancelled it closes the session.
            self._given_up.append(session)
            raise
        finally:
            if not given_up:
                with contextlib.suppress(JMSError):
                    await session.close()

    async def _next(self, consumer: MessageConsumer) -> Any:
        """The next message, or None when the subscriber stops."""
        # Cancelled it has had no message: it stays the broker's.
        receiving = await self._unless_stopping(consumer.receive())
        return None if receiving.cancelled() else receiving.result()

    async def _unless_stopping(self, steps: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Do something that is cancelled when the subscriber stops; returns the task, which is done."""
        doing = asyncio.ensure_future(steps)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait([doing, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopping.cancel()
            if not doing.done():
                doing.cancel()
                await asyncio.wait([doing])
        return doing

    async def _consume(self, delivery: Delivery) -> None:
        """Have the handler called; FastStream settles the message as the acknowledgement policy says."""
        try:
            await self.process_message(delivery)
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except SystemExit:
            self._stopping.set()
            self._end_application()
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and _is_cancelled():
                raise
            # What the handler awaited was cancelled, not this worker: the message failed, as with any other error.
            delivery.why = repr(error)
            if isinstance(error, StopConsume):
                self._stopping.set()
            elif not delivery.settled.is_set():
                self._settle_failed(delivery, error)

    def _settle_failed(self, delivery: Delivery, error: BaseException) -> None:
        """Settle what FastStream did not: of a message that cannot be parsed it has nothing to settle."""
        policy = self.ack_policy
        had_by_handler = delivery.readable and not isinstance(error, SubscriberNotFound)
        if policy is AckPolicy.MANUAL and had_by_handler:
            return  # It may have been kept, to be settled later.
        if policy in (AckPolicy.NACK_ON_ERROR, AckPolicy.MANUAL):
            delivery.nack()
        else:
            # The policy wants no second attempt, but acknowledged it would be lost unread.
            delivery.reject()

    def _end_application(self) -> None:
        app = self._outer_config.context.get("app")
        if app:
            app.exit()

    def _keep(self, steps: Any) -> None:
        task = asyncio.ensure_future(steps)
        self._pauses.add(task)
        task.add_done_callback(self._pauses.discard)

    async def _end(self, delivery: Delivery) -> None:
        """Settle a message after its pause, or wait until the application has; then close the session.

        When the subscriber stops, also if it did so before the pause began, the message comes again at once.
        """
        session = delivery.session
        assert session is not None
        try:
            await self._unless_stopping(delivery.settled.wait())
            if delivery.nacked:
                await self._give_back(delivery, session)
        finally:
            with contextlib.suppress(JMSError):
                await session.close()

    async def _give_back(self, delivery: Delivery, session: Session) -> None:
        """Have a message delivered again after its pause."""
        pause_s = delivery.delay_s
        if pause_s is None:
            pause_s = self._backoff.pause_s(delivery.message.delivery_count)
        try:
            await self._unless_stopping(asyncio.sleep(pause_s))
        finally:
            with contextlib.suppress(JMSError):
                async with delivery.turn():
                    session.give_back(delivery.message, failed=True, why=delivery.why)

    # -- without handlers --------------------------------------------------------------------------------

    async def get_one(self, *, timeout: float = 5.0) -> LegatoMessage | None:
        """The next message, for a subscriber without a handler; acknowledge it."""
        assert not self.calls, "A subscriber that has handlers has no get_one()."
        message, asked = await self._received(timeout)
        return None if message is None else await self._processed(message, asked)

    async def __aiter__(self) -> AsyncIterator[LegatoMessage]:
        """Messages for ever, for a subscriber without a handler; acknowledge each before the next."""
        while True:
            message, asked = await self._received()
            if message is None:
                return
            yield await self._processed(message, asked)

    async def _received(self, timeout_s: float | None = None) -> tuple[Message | None, AskedSession]:
        async with self._asking:
            if self._asked is None:
                self._asked = AskedSession(*await self._open(self._outer_config.connection))
            asked = self._asked
        try:
            return await asked.receive(timeout_s), asked
        except JMSError:
            # Its consumer is gone for good, as with a queue that was deleted: who asks again has another one.
            if self._asked is asked:
                self._asked = None
            await self._close(asked.session)
            raise

    async def _processed(self, message: Message, asked: AskedSession) -> LegatoMessage:
        session = asked.session
        delivery = self._delivery(message, session)
        delivery.turn = asked.settling
        delivery.give_back = lambda: self._keep(self._give_back(delivery, session))
        parser, decoder = self._get_parser_and_decoder()
        context = self._outer_config.context
        try:
            processed = await process_msg(
                msg=delivery,
                middlewares=(middleware(delivery, context=context) for middleware in self._broker_middlewares),
                parser=parser,
                decoder=decoder,
            )
        except Exception as error:
            if not delivery.readable:
                # The caller has nothing to settle.
                async with asked.settling():
                    session.give_back(message, failed=True, why=repr(error))
            raise
        return cast(LegatoMessage, processed)

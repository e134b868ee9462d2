"""A broker for tests, in memory: published messages are given to the handlers at once."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast, overload
from unittest.mock import AsyncMock

import anyio
from faststream._internal.endpoint.utils import ParserComposition
from faststream._internal.parser import DefaultCodec
from faststream._internal.testing.broker import EnterType, TestBroker, change_producer
from faststream.exceptions import SubscriberNotFound

from legato.client import Destination, Message
from legato.faststream.address import TOPIC, destination_of
from legato.faststream.broker import LegatoBroker
from legato.faststream.message import Delivery, build, decode, parse
from legato.faststream.producer import LegatoProducer, no_reply
from legato.faststream.publisher import LegatoPublisher
from legato.faststream.response import LegatoPublishCommand
from legato.faststream.subscriber import LegatoSubscriber

_numbers = itertools.count(1)


class TestLegatoBroker(TestBroker[LegatoBroker, EnterType], broker=LegatoBroker):
    """Tests handlers without a broker: `async with TestLegatoBroker(broker): await broker.publish(...)`.

    A handler that raises raises where the test publishes. Selectors are not looked at. With `with_real=True` it needs
    a broker, such as that of `legato.testing`, and only watches.
    """

    @overload
    def __init__(
        self: TestLegatoBroker[LegatoBroker],
        broker: LegatoBroker,
        /,
        *,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...

    @overload
    def __init__(
        self: TestLegatoBroker[tuple[LegatoBroker, ...]],
        *brokers: LegatoBroker,
        with_real: bool = False,
        connect_only: bool | None = None,
    ) -> None: ...

    def __init__(self, *brokers: LegatoBroker, with_real: bool = False, connect_only: bool | None = None) -> None:
        # Its base looks into the file of our caller, and warns if there is none: of a notebook, for example.
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            super().__init__(*brokers, with_real=with_real, connect_only=connect_only)

    def create_publisher_fake_subscriber(
        self, broker: LegatoBroker, publisher: LegatoPublisher
    ) -> tuple[LegatoSubscriber, bool]:
        """A subscriber that stands at the end of a publisher."""
        for subscriber in (cast(LegatoSubscriber, each) for b in self.brokers for each in b.subscribers):
            if subscriber.address == publisher.address:
                return subscriber, True
        address = publisher.address
        if address.startswith(TOPIC):
            return broker.subscriber(topic=address.removeprefix(TOPIC), persistent=False), False
        return broker.subscriber(address, persistent=False), False

    @contextmanager
    def _patch_producer(self, broker: LegatoBroker) -> Iterator[None]:
        with change_producer(broker.config.broker_config, MemoryProducer(broker, self.brokers)):
            yield

    async def _fake_connect(self, broker: LegatoBroker, *args: Any, **kwargs: Any) -> Any:
        return AsyncMock()


class MemoryProducer(LegatoProducer):
    """Gives messages to the handlers of some brokers."""

    def __init__(self, broker: LegatoBroker, brokers: Sequence[LegatoBroker]) -> None:
        super().__init__(None, None)
        self._parser = ParserComposition(broker._parser, parse)
        self._decoder = ParserComposition(broker._decoder, decode)
        self.codec = broker.config.broker_codec or DefaultCodec()
        self.serializer = broker.config.fd_config._serializer
        self._brokers = brokers
        self._stored: set[tuple[str, str]] = set()

    async def publish(self, cmd: LegatoPublishCommand) -> None:
        """Call the handlers: all of a topic's subscriptions, one of a queue's subscribers."""
        if cmd.duplicate_id is not None:
            name = (cmd.destination, cmd.duplicate_id)
            if name in self._stored:
                return
            self._stored.add(name)
        message = await self._encode(cmd)
        seen: set[str] = set()
        for subscriber in self._subscribers(cmd.destination):
            subscription = subscriber.subscription
            if subscription not in seen:
                seen.add(subscription)
                await subscriber.process_message(Delivery(message, cmd.destination, subscription=subscription))

    async def request(self, cmd: LegatoPublishCommand) -> Delivery:
        """Call the handler, and return what it returned.

        Raises:
            SubscriberNotFound: there is none.
        """
        message = await self._encode(cmd)
        for subscriber in self._subscribers(cmd.destination):
            with anyio.move_on_after(cmd.timeout_s) as scope:
                result = await subscriber.process_message(Delivery(message, cmd.destination))
            if scope.cancelled_caught:
                raise no_reply(cmd)
            body, content_type = await self.codec.encode(result.body, self.serializer)
            reply = build(body, content_type, headers=result.headers, correlation_id=result.correlation_id)
            return Delivery(reply, "")
        raise SubscriberNotFound(f"No subscriber receives from {cmd.destination!r}.")

    def _subscribers(self, address: str) -> Iterator[LegatoSubscriber]:
        for broker in self._brokers:
            for subscriber in broker.subscribers:
                if cast(LegatoSubscriber, subscriber).address == address:
                    yield cast(LegatoSubscriber, subscriber)

    async def _encode(self, cmd: LegatoPublishCommand) -> Message:
        body, content_type = await self.codec.encode(cmd.body, self.serializer)
        message = build(body, content_type, headers=cmd.headers, correlation_id=cmd.correlation_id)
        message.message_id = f"ID:test-{next(_numbers)}"
        reply_to: Destination | None = destination_of(cmd.reply_to) if cmd.reply_to else None
        message.reply_to = reply_to
        return message

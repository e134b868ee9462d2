"""The broker object of a FastStream application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, cast

from fast_depends import dependency_provider
from faststream._internal.broker import BrokerUsecase
from faststream._internal.constants import EMPTY
from faststream._internal.context.repository import ContextRepo
from faststream._internal.di import FastDependsConfig
from faststream._internal.types import IdGenerator
from faststream.message import gen_cor_id
from faststream.middlewares import AckPolicy
from faststream.response.publish_type import PublishType
from faststream.security import BaseSecurity, SASLPlaintext
from faststream.specification.schema import BrokerSpec

from legato.client import ConnectionOptions
from legato.client.aio import Connection, ConnectionFactory
from legato.errors import ConfigError, JMSError, JMSSecurityError
from legato.faststream.address import address_of
from legato.faststream.config import LegatoBrokerConfig, make_legato_logger_state
from legato.faststream.message import Delivery, LegatoMessage
from legato.faststream.producer import LegatoProducer
from legato.faststream.registrator import LegatoRegistrator
from legato.faststream.response import REQUEST_TIMEOUT_S, LegatoPublishCommand
from legato.quoting import quoted, sentence

URL_DEFAULT = "amqp://localhost:5672"
PING_S = 5.0
CLOSE_TIMEOUT_S = 5.0
"""Without an option of that name: the longest that `stop()` waits for a broker after the `graceful_timeout`."""


class LegatoBroker(LegatoRegistrator, BrokerUsecase[Delivery, Connection, LegatoBrokerConfig]):
    """A FastStream broker on Legato; it fails over by itself.

    Args:
        url: `amqp://user:password@one:5672,two:5672?option=value`, for all brokers of a group.
        options: further options of the connection, as `legato.client.ConnectionFactory` takes them.
        security: a user with a password, or TLS; the URL can say both.
        graceful_timeout: seconds for which `stop()` waits for handlers. Then it waits for a broker to confirm what it
            was sent, for the option `close_timeout_s` (5 s here), and the log says what was not confirmed.
        ack_policy: of subscribers that do not say otherwise; by default `NACK_ON_ERROR`.
        decoder, parser, codec, dependencies, middlewares, routers, id_generator: as FastStream's brokers have them.
        logger, log_level: FastStream's log.
        apply_types, serializer, provider, context: FastDepends'.
        specification_url, protocol, protocol_version, description, tags: for the AsyncAPI page.
    """

    def __init__(
        self,
        url: str = URL_DEFAULT,
        *,
        options: ConnectionOptions | None = None,
        security: BaseSecurity | None = None,
        graceful_timeout: float | None = 15.0,
        ack_policy: AckPolicy = EMPTY,
        decoder: Any = None,
        parser: Any = None,
        codec: Any = None,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[LegatoRegistrator] = (),
        id_generator: IdGenerator = gen_cor_id,
        logger: Any = EMPTY,
        log_level: int = logging.INFO,
        apply_types: bool = True,
        serializer: Any = EMPTY,
        provider: Any = None,
        context: ContextRepo | None = None,
        specification_url: str | None = None,
        protocol: str | None = None,
        protocol_version: str | None = "1.0.0",
        description: str | None = None,
        tags: Iterable[Any] = (),
    ) -> None:
        uri, secure = _secured(url, security)
        super().__init__(
            routers=routers,
            config=LegatoBrokerConfig(
                producer=LegatoProducer(parser, decoder),
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                broker_codec=codec,
                logger=make_legato_logger_state(logger=logger, log_level=log_level),
                fd_config=FastDependsConfig(
                    use_fastdepends=apply_types,
                    serializer=serializer,
                    provider=provider or dependency_provider,
                    context=context or ContextRepo(),
                ),
                broker_dependencies=dependencies,
                graceful_timeout=graceful_timeout,
                ack_policy=ack_policy,
                id_generator=id_generator,
                extra_context={"broker": self},
            ),
            specification=BrokerSpec(
                description=description,
                url=[specification_url or _shown(uri)],
                protocol=protocol or uri.partition(":")[0],
                protocol_version=protocol_version,
                tags=tags,
                security=security,
            ),
        )
        # Mistakes in the URL are told here, not when the application starts.
        given: ConnectionOptions = {**options} if options else {}
        if "close_timeout_s=" not in uri:
            given.setdefault("close_timeout_s", CLOSE_TIMEOUT_S)
        self._factory = ConnectionFactory(uri, **given)
        # A connection that is gone for good was tried again for as long as the URL says: its successor is tried once.
        once: ConnectionOptions = {**given, "connect_attempts": 1}
        self._successors = ConnectionFactory(uri, **once)
        self._renewing = asyncio.Lock()
        self._login = secure
        self._stopped = False

    def __repr__(self) -> str:
        state = "not connected" if self._connection is None else repr(self._connection)
        return f"<{type(self).__name__} {self._factory!r}, subscribers: {len(self.subscribers)}, {state}>"

    async def _connect(self) -> Connection:
        user, password = self._login
        connection = await self._factory.create_connection(user, password)
        connection.start()
        self.config.broker_config.connect(connection)
        self._renewing = asyncio.Lock()
        cast(LegatoProducer, self.config.broker_config.producer).renew = self._renew
        return connection

    async def _renew(self) -> None:
        """Connect anew if the connection is gone for good: who publishes is not told of that for ever.

        Raises:
            JMSError: no broker lets us in; the next call tries again.
        """
        async with self._renewing:
            former = self._connection
            if former is None or former.lost is None:
                return
            user, password = self._login
            connection = await self._successors.create_connection(user, password)
            connection.start()
            if self._connection is not former:
                await connection.close()  # The broker was stopped meanwhile.
                return
            self._connection = connection
            self.config.broker_config.connect(connection)
            with suppress(JMSError):
                await former.close()

    async def start(self) -> None:
        """Connect, and begin to receive; returns early if it is stopped meanwhile.

        Raises:
            JMSError: a subscriber is refused, or the connection is gone for good.
        """
        self._stopped = False
        await self.connect()
        assert self._connection is not None
        self.config.logger.log(
            f"Connected to {quoted(self._connection.host)}", logging.INFO, {"address": "", "message_id": ""}
        )
        try:
            await super().start()
        except JMSError:
            # An application that is told to end stops us although it still waits here for a broker to come back.
            if not self._stopped:
                raise

    async def stop(
        self,
        exc_type: type[BaseException] | None = None,
        exc_val: BaseException | None = None,
        exc_tb: TracebackType | None = None,
    ) -> None:
        """Receive no more, wait for handlers, and close the connection."""
        self._stopped = True
        await super().stop(exc_type, exc_val, exc_tb)
        connection, self._connection = self._connection, None
        await self.config.broker_config.disconnect()
        if connection is not None:
            try:
                await connection.close()
            except JMSError as error:
                context = {"address": "", "message_id": ""}
                self.config.logger.log(f"Not confirmed: {sentence(error)}", logging.WARNING, context)

    async def ping(self, timeout: float | None = PING_S) -> bool:
        """Whether a broker answers within `timeout` seconds."""
        if self._connection is None:
            return False
        try:
            async with asyncio.timeout(timeout):
                if not self.subscribers:
                    await self._renew()  # Subscribers have ended with their connection, which is to be seen.
                async with self._connection.create_session() as session:
                    await (await session.create_temporary_queue()).delete()
        except JMSSecurityError:
            return True  # To refuse it is an answer.
        except (JMSError, TimeoutError):
            return False
        return True

    async def publish(
        self,
        message: Any = None,
        queue: str = "",
        *,
        topic: str = "",
        headers: dict[str, Any] | None = None,
        reply_to: str = "",
        correlation_id: str | None = None,
        priority: int | None = None,
        delivery_delay_s: float = 0.0,
        time_to_live_s: float = 0.0,
        persistent: bool = True,
        duplicate_id: str | None = None,
    ) -> None:
        """Publish a message; returns once the broker has stored it.

        Args:
            message: the body: anything that FastStream can make JSON of, a text, or bytes.
            queue: or `topic`: where it goes.
            headers: properties of the message.
            reply_to: where a reply should go: a queue, or `topic://` and a topic.
            correlation_id: links it with others.
            priority: 0 to 9, higher first.
            delivery_delay_s: seconds before which it is not delivered.
            time_to_live_s: seconds until it expires; 0: never.
            persistent: whether it survives its broker.
            duplicate_id: a name of which the address stores one message (`docs/howto/exactly-once.md`).

        Raises:
            JMSError: the broker refused it, or the connection is gone for good.
        """
        await self._basic_publish(
            LegatoPublishCommand(
                message,
                address=address_of(queue, topic),
                headers=headers,
                reply_to=reply_to,
                correlation_id=correlation_id or self.config.id_generator(),
                priority=priority,
                delivery_delay_s=delivery_delay_s,
                time_to_live_s=time_to_live_s,
                persistent=persistent,
                duplicate_id=duplicate_id,
            ),
            producer=self.config.producer,
        )

    async def request(  # type: ignore[override]
        self,
        message: Any = None,
        queue: str = "",
        *,
        topic: str = "",
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        priority: int | None = None,
        time_to_live_s: float = 0.0,
        persistent: bool = True,
        timeout: float | None = REQUEST_TIMEOUT_S,
    ) -> LegatoMessage:
        """Publish a message, and wait for the reply.

        Args:
            time_to_live_s: seconds until the request expires if no handler has had it; 0: never, so that its work is
                done although nobody waits for the reply any more.
            timeout: seconds to wait; None: for ever.
            message, queue, topic, headers, correlation_id, priority, persistent: as of `publish()`.

        Raises:
            TimeoutError: there was none within `timeout` seconds.
        """
        reply: LegatoMessage = await self._basic_request(
            LegatoPublishCommand(
                message,
                address=address_of(queue, topic),
                headers=headers,
                correlation_id=correlation_id or self.config.id_generator(),
                priority=priority,
                time_to_live_s=time_to_live_s,
                persistent=persistent,
                timeout_s=timeout,
                _publish_type=PublishType.REQUEST,
            ),
            producer=self.config.producer,
        )
        return reply


def _secured(url: str, security: BaseSecurity | None) -> tuple[str, tuple[str | None, str | None]]:
    if security is None:
        return url, (None, None)
    if security.ssl_context is not None:
        raise ConfigError(
            "Legato makes the SSL context by itself: use_ssl=True, and its files as options of the connection, such as "
            'LegatoBroker(url, options={"tls_ca_file": "ca.pem"}).'
        )
    if security.use_ssl and url.startswith("amqp://"):
        url = "amqps://" + url.removeprefix("amqp://")
    if isinstance(security, SASLPlaintext):
        return url, (security.username, security.password)
    if type(security) is not BaseSecurity:
        raise ConfigError(f"Legato knows SASLPlaintext and BaseSecurity, not {type(security).__name__}.")
    return url, (None, None)


def _shown(uri: str) -> str:
    """The URL without its login."""
    scheme, _, rest = uri.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"

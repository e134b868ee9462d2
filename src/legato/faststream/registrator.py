"""The decorators of brokers and routers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from faststream._internal.broker.registrator import Registrator
from faststream._internal.constants import EMPTY
from faststream._internal.endpoint.subscriber.call_item import CallsCollection
from faststream.exceptions import SetupError
from faststream.middlewares import AckPolicy

from legato.faststream.address import TOPIC, address_of
from legato.faststream.config import LegatoBrokerConfig
from legato.faststream.message import Delivery
from legato.faststream.publisher import (
    LegatoPublisher,
    LegatoPublisherConfig,
    LegatoPublisherSpecification,
    LegatoPublisherSpecificationConfig,
)
from legato.faststream.subscriber import (
    Backoff,
    LegatoSubscriber,
    LegatoSubscriberConfig,
    LegatoSubscriberSpecification,
    LegatoSubscriberSpecificationConfig,
)

BACKOFF = Backoff()


class LegatoRegistrator(Registrator[Delivery, LegatoBrokerConfig]):
    """Has subscribers and publishers."""

    def subscriber(  # type: ignore[override]
        self,
        queue: str = "",
        *,
        topic: str = "",
        subscription: str | None = None,
        selector: str | None = None,
        max_workers: int = 1,
        retry_delay_s: float = BACKOFF.first_s,
        retry_multiplier: float = BACKOFF.factor,
        retry_delay_max_s: float = BACKOFF.max_s,
        ack_policy: AckPolicy = EMPTY,
        no_reply: bool = False,
        dependencies: Sequence[Any] = (),
        parser: Any = None,
        decoder: Any = None,
        codec: Any = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        include_in_schema: bool = True,
    ) -> LegatoSubscriber:
        """A decorator: the function is called with each message of a queue or topic.

        Args:
            queue: or `topic`: what it receives from.
            subscription: of a topic: the name of a durable subscription, which its processes share. Without a name
                each process gets what is sent while it runs.
            selector: receive only messages whose headers and properties match it (Jakarta Messaging 3.8.1).
            max_workers: messages that are handled at once.
            retry_delay_s: seconds before a message whose handler raised is delivered again; each further pause is
                `retry_multiplier` times as long, up to `retry_delay_max_s`. How often, the broker's configuration says
                (`maximum_deliveries`); then it is a dead letter.
            ack_policy: by default `NACK_ON_ERROR`: acknowledged when the handler returns, delivered again when it
                raises.
            no_reply: whether what it returns is no reply, even if the message wants one.
            dependencies, parser, decoder, codec, persistent: as FastStream's brokers have them.
            title, description, include_in_schema: for the AsyncAPI page.

        Raises:
            SetupError: the address is missing, or a queue has a `subscription`.
        """
        address = address_of(queue, topic)
        if not address:
            raise SetupError("A subscriber needs a queue or a topic.")
        if subscription is not None and not address.startswith(TOPIC):
            raise SetupError(f"{address!r} is a queue; only topics have subscriptions.")
        if max_workers < 1:
            raise SetupError(f"max_workers is at least 1, not {max_workers}.")
        config = LegatoSubscriberConfig(
            address=address,
            subscription=subscription,
            selector=selector,
            max_workers=max_workers,
            backoff=Backoff(first_s=retry_delay_s, factor=retry_multiplier, max_s=retry_delay_max_s),
            no_reply=no_reply,
            _outer_config=cast(LegatoBrokerConfig, self.config),
            _ack_policy=ack_policy,
        )
        calls = CallsCollection[Delivery]()
        specification = LegatoSubscriberSpecification(
            cast(LegatoBrokerConfig, self.config),
            LegatoSubscriberSpecificationConfig(
                address=address,
                subscription=subscription,
                title_=title,
                description_=description,
                include_in_schema=include_in_schema,
            ),
            calls,
        )
        subscriber = LegatoSubscriber(config, specification, calls)
        super().subscriber(subscriber, persistent=persistent)
        return subscriber.add_call(
            parser_=parser or self._parser,
            decoder_=decoder or self._decoder,
            codec_=codec,
            dependencies_=dependencies,
        )

    def publisher(  # type: ignore[override]
        self,
        queue: str = "",
        *,
        topic: str = "",
        headers: dict[str, Any] | None = None,
        reply_to: str = "",
        priority: int | None = None,
        persistent: bool = True,
        title: str | None = None,
        description: str | None = None,
        schema: Any = None,
        include_in_schema: bool = True,
    ) -> LegatoPublisher:
        """What publishes to a queue or topic; as a decorator it publishes what the handler returns, once.

        Args:
            queue: or `topic`: where messages go.
            headers: in each message.
            reply_to: where replies should go.
            priority: 0 to 9, higher first.
            persistent: as FastStream's brokers have it.
            title, description, schema, include_in_schema: for the AsyncAPI page.

        Raises:
            SetupError: the address is missing.
        """
        address = address_of(queue, topic)
        if not address:
            raise SetupError("A publisher needs a queue or a topic.")
        publisher = LegatoPublisher(
            LegatoPublisherConfig(
                address=address,
                headers=headers,
                reply_to=reply_to,
                priority=priority,
                _outer_config=cast(LegatoBrokerConfig, self.config),
            ),
            LegatoPublisherSpecification(
                cast(LegatoBrokerConfig, self.config),
                LegatoPublisherSpecificationConfig(
                    address=address,
                    schema_=schema,
                    title_=title,
                    description_=description,
                    include_in_schema=include_in_schema,
                ),
            ),
        )
        super().publisher(publisher, persistent=persistent)
        return publisher

"""Routers: subscribers and publishers of a module, to be included in a broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from faststream._internal.broker.router import BrokerRouter
from faststream._internal.constants import EMPTY
from faststream.middlewares import AckPolicy

from legato.faststream.config import LegatoBrokerConfig
from legato.faststream.message import Delivery
from legato.faststream.registrator import LegatoRegistrator


class LegatoRouter(LegatoRegistrator, BrokerRouter[Delivery, LegatoBrokerConfig]):
    """Declares subscribers and publishers before there is a broker: `broker.include_router(router)`.

    Args:
        prefix: before the name of each of its queues and topics.
        dependencies, middlewares, routers, parser, decoder, include_in_schema, ack_policy: as FastStream's routers
            have them.
    """

    def __init__(
        self,
        prefix: str = "",
        *,
        dependencies: Sequence[Any] = (),
        middlewares: Sequence[Any] = (),
        routers: Iterable[LegatoRegistrator] = (),
        parser: Any = None,
        decoder: Any = None,
        include_in_schema: bool | None = None,
        ack_policy: AckPolicy = EMPTY,
    ) -> None:
        super().__init__(
            handlers=(),
            config=LegatoBrokerConfig(
                prefix=prefix,
                ack_policy=ack_policy,
                broker_dependencies=dependencies,
                broker_middlewares=middlewares,
                broker_parser=parser,
                broker_decoder=decoder,
                include_in_schema=include_in_schema,
            ),
            routers=routers,
        )

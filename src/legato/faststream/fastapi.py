"""FastStream's FastAPI plug-in: `app.include_router(LegatoRouter(url))`."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi.datastructures import Default
from faststream._internal.fastapi.context import Context, ContextRepo, Logger
from faststream._internal.fastapi.router import StreamRouter

from legato.faststream.broker import URL_DEFAULT
from legato.faststream.broker import LegatoBroker as Broker
from legato.faststream.message import Delivery
from legato.faststream.message import LegatoMessage as Received
from legato.faststream.publisher import LegatoPublisher
from legato.faststream.subscriber import LegatoSubscriber

LegatoMessage = Annotated[Received, Context("message")]
LegatoBroker = Annotated[Broker, Context("broker")]

__all__ = ["Context", "ContextRepo", "LegatoBroker", "LegatoMessage", "LegatoRouter", "Logger"]

_HANDLER_OPTIONS: dict[str, Any] = {
    "dependencies": (),
    "response_model": Default(None),
    "response_model_include": None,
    "response_model_exclude": None,
    "response_model_by_alias": True,
    "response_model_exclude_unset": False,
    "response_model_exclude_defaults": False,
    "response_model_exclude_none": False,
}
"""FastAPI's options of a handler, as it has them by default."""


class LegatoRouter(StreamRouter[Delivery]):
    """A FastAPI router with a broker that starts and stops with the application.

    Args:
        url: of the brokers, as `legato.faststream.LegatoBroker` takes it.
        options: the arguments of `LegatoBroker`, those of FastAPI's `APIRouter`, and `schema_url`, where the AsyncAPI
            page is (`/asyncapi`; None: nowhere).
    """

    broker_class = Broker
    broker: Broker

    def __init__(self, url: str = URL_DEFAULT, **options: Any) -> None:
        super().__init__(url, **{"context": None, **options})

    def subscriber(self, queue: str = "", **options: Any) -> LegatoSubscriber:  # type: ignore[override]
        """A decorator for handlers, which may have FastAPI's dependencies; see `LegatoBroker.subscriber`."""
        return cast(LegatoSubscriber, super().subscriber(queue, **(_HANDLER_OPTIONS | options)))

    def publisher(self, queue: str = "", **options: Any) -> LegatoPublisher:
        """See `LegatoBroker.publisher`."""
        return self.broker.publisher(queue, **options)

"""Publishers: where the results of handlers go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from faststream._internal.configs import PublisherSpecificationConfig, PublisherUsecaseConfig
from faststream._internal.endpoint.publisher import PublisherSpecification, PublisherUsecase
from faststream._internal.endpoint.publisher.fake import FakePublisher
from faststream.response import PublishCommand
from faststream.response.publish_type import PublishType
from faststream.specification.asyncapi.utils import resolve_payloads
from faststream.specification.schema import Message as MessageSchema
from faststream.specification.schema import Operation, PublisherSpec

from legato.errors import InvalidDestinationError
from legato.faststream.address import address_of, is_temporary, with_prefix
from legato.faststream.config import LegatoBrokerConfig
from legato.faststream.message import LegatoMessage
from legato.faststream.response import REQUEST_TIMEOUT_S, LegatoPublishCommand


@dataclass(kw_only=True)
class LegatoPublisherConfig(PublisherUsecaseConfig):
    """What a publisher is declared with."""

    _outer_config: LegatoBrokerConfig = field(default_factory=LegatoBrokerConfig)
    address: str
    headers: dict[str, Any] | None = None
    reply_to: str = ""
    priority: int | None = None


@dataclass(kw_only=True)
class LegatoPublisherSpecificationConfig(PublisherSpecificationConfig):
    """What the AsyncAPI page shows of a publisher."""

    address: str


class LegatoPublisherSpecification(PublisherSpecification[LegatoBrokerConfig, LegatoPublisherSpecificationConfig]):
    """A publisher on the AsyncAPI page."""

    @property
    def address(self) -> str:
        """With the prefixes of its routers."""
        return with_prefix(self._outer_config.prefix, self.config.address)

    @property
    def name(self) -> str:
        """Of the channel."""
        return self.config.title_ or f"{self.address}:Publisher"

    def get_schema(self) -> dict[str, PublisherSpec]:
        """The channel with what its messages look like."""
        return {
            self.name: PublisherSpec(
                address=self.address,
                description=self.config.description_,
                operation=Operation(
                    message=MessageSchema(
                        title=f"{self.name}:Message", payload=resolve_payloads(self.get_payloads(), "Publisher")
                    ),
                    bindings=None,
                ),
                bindings=None,
            )
        }


class LegatoPublisher(PublisherUsecase):
    """Publishes to one queue or topic; as a decorator, what the handler returns.

    The result of a handler has a duplicate id, made of the message's id, the subscription that had it and the address:
    if the handler runs again because its process died before the acknowledgement, the address still stores one result.
    """

    _outer_config: LegatoBrokerConfig

    def __init__(self, config: LegatoPublisherConfig, specification: PublisherSpecification[Any, Any]) -> None:
        super().__init__(config, specification)
        self._address = config.address
        self.headers = config.headers or {}
        self.reply_to = config.reply_to
        self.priority = config.priority

    @property
    def address(self) -> str:
        """With the prefixes of its routers."""
        return with_prefix(self._outer_config.prefix, self._address)

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
        """Publish a message; see `LegatoBroker.publish`."""
        command = LegatoPublishCommand(
            message,
            address=address_of(queue, topic) or self.address,
            headers=self.headers | (headers or {}),
            reply_to=reply_to or self.reply_to,
            correlation_id=correlation_id or self._outer_config.id_generator(),
            priority=self.priority if priority is None else priority,
            delivery_delay_s=delivery_delay_s,
            time_to_live_s=time_to_live_s,
            persistent=persistent,
            duplicate_id=duplicate_id,
        )
        await self._basic_publish(command, producer=self._outer_config.producer, _extra_middlewares=())

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> None:
        """Publish what a handler returned."""
        command = LegatoPublishCommand.from_cmd(cmd)
        command.destination = self.address
        command.add_headers(self.headers, override=False)
        command.reply_to = command.reply_to or self.reply_to
        if command.priority is None:
            command.priority = self.priority
        received = self._outer_config.context.get("message")
        if command.duplicate_id is None and isinstance(received, LegatoMessage):
            command.duplicate_id = received.raw_message.next_result_id(self.address)
        await self._basic_publish(command, producer=self._outer_config.producer, _extra_middlewares=_extra_middlewares)

    async def request(
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
        """Publish a message, and wait for the reply; see `LegatoBroker.request`."""
        command = LegatoPublishCommand(
            message,
            address=address_of(queue, topic) or self.address,
            headers=self.headers | (headers or {}),
            correlation_id=correlation_id or self._outer_config.id_generator(),
            priority=self.priority if priority is None else priority,
            time_to_live_s=time_to_live_s,
            persistent=persistent,
            timeout_s=timeout,
            _publish_type=PublishType.REQUEST,
        )
        reply: LegatoMessage = await self._basic_request(command, producer=self._outer_config.producer)
        return reply


class ReplyPublisher(FakePublisher):
    """Publishes what a handler returned to whoever asked.

    Args:
        producer: publishes.
        address: where the reply is to go.
        tell: is called with a sentence if nobody waits for the reply any more: the program that asked has ended.
    """

    def __init__(self, *, producer: Any, address: str, tell: Callable[[str], None]) -> None:
        super().__init__(producer=producer)
        self.address = address
        self._tell = tell

    async def _publish(self, cmd: PublishCommand, *, _extra_middlewares: Iterable[Any]) -> None:
        try:
            await super()._publish(cmd, _extra_middlewares=_extra_middlewares)
        except InvalidDestinationError:
            if not is_temporary(self.address):
                raise
            # The work is done: to do it again, for the same nobody, would not help.
            self._tell(f"Nobody waits for the reply any more: {self.address} is gone.")

    def patch_command(self, cmd: PublishCommand) -> LegatoPublishCommand:
        """Send it to where the message wants the reply."""
        command = LegatoPublishCommand.from_cmd(super().patch_command(cmd))
        command.destination = self.address
        return command

"""Steps of the simplified API's producer (Jakarta Messaging 7.10)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from legato.client.calls.attributes import check_attribute
from legato.client.calls.described import described
from legato.client.links.completion import CompletionCallable, CompletionListener
from legato.client.messages import Message, Properties
from legato.client.messages.destinations import Destination
from legato.client.messages.message import PRIORITY_DEFAULT, DeliveryMode
from legato.client.messages.properties import PropertyValue
from legato.client.messages.sendable import jakarta_message_of
from legato.client.steps import Steps
from legato.errors import MessageFormatError

if TYPE_CHECKING:
    from legato.client.calls.context_steps import ContextSteps


class JMSProducerSteps:
    """How messages are to be sent; every `set_` method returns the producer, so that calls can be chained.

    Attributes:
        delivery_mode, priority, time_to_live_ms, delivery_delay_ms: for each message; see `MessageProducer`.
        disable_message_id, disable_message_timestamp: whether messages go without these.
        duplicate_listener: hears of messages that were dropped as duplicates; see `MessageProducer`.
        async_listener: if there is one, sends do not wait, and it is told what became of them.
        correlation_id, reply_to, type: set in each message, unless None.
        properties: set in each message.
    """

    # Of the class too, for who asks the class what its objects have: mocks, for example.
    delivery_mode: DeliveryMode = DeliveryMode.PERSISTENT
    priority: int = PRIORITY_DEFAULT
    time_to_live_ms: int = 0
    delivery_delay_ms: int = 0
    disable_message_id: bool = False
    disable_message_timestamp: bool = False
    duplicate_listener: Callable[[Message], object] | None = None
    async_listener: CompletionListener | CompletionCallable | None = None
    correlation_id: str | bytes | None = None
    reply_to: Destination | None = None
    type: str | None = None
    properties: Properties = Properties()

    def __init__(self, context: ContextSteps[Any, Any, Any]) -> None:
        self.properties = Properties()
        self._context = context

    def __setattr__(self, name: str, value: Any) -> None:
        check_attribute(self, name)
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return described(self, f"of {self._context!r}")

    def _interrupted(self, interruption: BaseException) -> None:
        self._context._interrupted(interruption)

    def _send(
        self, destination: Destination, body: Any = None, *, duplicate_id: str | bytes | None = None
    ) -> Steps[Self]:
        """Send a message.

        Args:
            body: a `Message`, or the body of a new one: a `str`, `bytes`, a flat `dict` for a `MapMessage`, None for a
                message without a body; a dataclass, a Struct of msgspec or a model of pydantic, which goes as JSON; or
                another object that an `ObjectMessage` can carry. `JMSContext.create_json_message()` makes JSON of any
                `dict` or `list`.
            duplicate_id: the application's name for the message; see `MessageProducer.send`.

        Raises:
            InvalidDestinationError: the destination cannot be sent to.
            MessageFormatError: a header, property or body cannot be sent.
            JMSError: see `MessageProducer.send`.
        """
        if isinstance(body, Destination):
            raise MessageFormatError(
                "A destination cannot be sent: send(destination, body) takes the destination first."
            )
        message = jakarta_message_of(body)
        for name, value in self.properties.items():
            message.set_property(name, value)
        for header in ("correlation_id", "reply_to", "type"):
            if (given := getattr(self, header)) is not None:
                setattr(message, header, given)
        producer = yield from self._context._sender()
        producer.disable_message_id = self.disable_message_id
        producer.disable_message_timestamp = self.disable_message_timestamp
        producer.duplicate_listener = self.duplicate_listener
        yield from producer._send(
            message,
            destination=destination,
            delivery_mode=self.delivery_mode,
            priority=self.priority,
            time_to_live_ms=self.time_to_live_ms,
            delivery_delay_ms=self.delivery_delay_ms,
            completion_listener=self.async_listener,
            duplicate_id=duplicate_id,
        )
        return self

    def set_delivery_mode(self, delivery_mode: DeliveryMode) -> Self:
        """Set `delivery_mode`."""
        self.delivery_mode = delivery_mode
        return self

    def set_priority(self, priority: int) -> Self:
        """Set `priority`."""
        self.priority = priority
        return self

    def set_time_to_live_ms(self, time_to_live_ms: int) -> Self:
        """Set `time_to_live_ms`."""
        self.time_to_live_ms = time_to_live_ms
        return self

    def set_delivery_delay_ms(self, delivery_delay_ms: int) -> Self:
        """Set `delivery_delay_ms`."""
        self.delivery_delay_ms = delivery_delay_ms
        return self

    def set_disable_message_id(self, disable: bool) -> Self:
        """Set `disable_message_id`."""
        self.disable_message_id = disable
        return self

    def set_disable_message_timestamp(self, disable: bool) -> Self:
        """Set `disable_message_timestamp`."""
        self.disable_message_timestamp = disable
        return self

    def set_async(self, listener: CompletionListener | CompletionCallable | None) -> Self:
        """Set `async_listener`."""
        self.async_listener = listener
        return self

    def set_duplicate_listener(self, listener: Callable[[Message], object] | None) -> Self:
        """Set `duplicate_listener`."""
        self.duplicate_listener = listener
        return self

    def set_correlation_id(self, correlation_id: str | bytes | None) -> Self:
        """Set `correlation_id`."""
        self.correlation_id = correlation_id
        return self

    def set_reply_to(self, destination: Destination | None) -> Self:
        """Set `reply_to`."""
        self.reply_to = destination
        return self

    def set_type(self, kind: str | None) -> Self:
        """Set `type`."""
        self.type = kind
        return self

    def set_property(self, name: str, value: PropertyValue) -> Self:
        """Set a property that each message gets, in place of one of that name which it has.

        Raises:
            MessageFormatError: the name or the value is not one that Jakarta Messaging 3.5 allows.
        """
        self.properties[name] = value
        return self

    def clear_properties(self) -> Self:
        """Forget all properties."""
        self.properties = Properties()
        return self

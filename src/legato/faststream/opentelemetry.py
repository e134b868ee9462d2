"""FastStream's traces and metrics of handlers and publications (`pip install 'faststream[otel]'`).

```python
broker = LegatoBroker(url, middlewares=(LegatoTelemetryMiddleware(tracer_provider=provider),))
```
"""

from __future__ import annotations

from typing import Any

from faststream.message import StreamMessage
from faststream.opentelemetry.consts import MESSAGING_DESTINATION_PUBLISH_NAME
from faststream.opentelemetry.middleware import TelemetryMiddleware
from opentelemetry.metrics import Meter, MeterProvider
from opentelemetry.semconv.trace import SpanAttributes
from opentelemetry.trace import TracerProvider

from legato.faststream.message import Delivery
from legato.faststream.response import LegatoPublishCommand

__all__ = ["LegatoTelemetryMiddleware"]


class _Settings:
    """What spans and metrics say of a message."""

    messaging_system = "legato"

    def get_consume_attrs_from_message(self, msg: StreamMessage[Delivery]) -> dict[str, Any]:
        """Of one that was received; an attribute that is not known is left out."""
        attributes = {
            SpanAttributes.MESSAGING_SYSTEM: self.messaging_system,
            SpanAttributes.MESSAGING_MESSAGE_ID: msg.message_id,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: msg.correlation_id,
            SpanAttributes.MESSAGING_MESSAGE_PAYLOAD_SIZE_BYTES: len(msg.body),
            MESSAGING_DESTINATION_PUBLISH_NAME: msg.raw_message.address,
        }
        return {name: value for name, value in attributes.items() if value is not None}

    def get_consume_destination_name(self, msg: StreamMessage[Delivery]) -> str:
        """Where it was received."""
        return msg.raw_message.address

    def get_publish_attrs_from_cmd(self, cmd: LegatoPublishCommand) -> dict[str, Any]:
        """Of one that is published."""
        attributes = {
            SpanAttributes.MESSAGING_SYSTEM: self.messaging_system,
            SpanAttributes.MESSAGING_DESTINATION_NAME: cmd.destination,
            SpanAttributes.MESSAGING_MESSAGE_CONVERSATION_ID: cmd.correlation_id,
        }
        return {name: value for name, value in attributes.items() if value is not None}

    def get_publish_destination_name(self, cmd: LegatoPublishCommand) -> str:
        """Where it goes."""
        return cmd.destination


class LegatoTelemetryMiddleware(TelemetryMiddleware[LegatoPublishCommand]):
    """Makes a span of each call of a handler and of each publication; the trace context travels in the headers.

    Do not use it together with `tracing.instrument()`, which makes spans of the same sends.

    Args:
        tracer_provider, meter_provider, meter: of OpenTelemetry; by default the program's.
        include_messages_counters: whether messages are counted as well.
    """

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        meter: Meter | None = None,
        include_messages_counters: bool = True,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: _Settings(),
            tracer_provider=tracer_provider,
            meter_provider=meter_provider,
            meter=meter,
            include_messages_counters=include_messages_counters,
        )

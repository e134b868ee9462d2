"""FastStream's metrics of handlers and publications (`pip install 'faststream[prometheus]'`).

```python
broker = LegatoBroker(url, middlewares=(LegatoPrometheusMiddleware(registry=CollectorRegistry()),))
```
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from faststream._internal.constants import EMPTY
from faststream.message import StreamMessage
from faststream.prometheus import ConsumeAttrs
from faststream.prometheus.middleware import PrometheusMiddleware
from prometheus_client import CollectorRegistry

from legato.faststream.message import Delivery
from legato.faststream.response import LegatoPublishCommand

__all__ = ["LegatoPrometheusMiddleware"]


class _Settings:
    """What the metrics say of a message."""

    messaging_system = "legato"

    def get_consume_attrs_from_message(self, msg: StreamMessage[Delivery]) -> ConsumeAttrs:
        """Of one that was received."""
        return {
            "message_size": len(msg.body),
            "destination_name": msg.raw_message.address,
            "messages_count": 1,
        }

    def get_publish_destination_name_from_cmd(self, cmd: LegatoPublishCommand) -> str:
        """Of one that is published."""
        return cmd.destination


class LegatoPrometheusMiddleware(PrometheusMiddleware[Delivery, LegatoPublishCommand]):
    """Counts and times what handlers get and what is published; handlers and destinations go by their address.

    Args:
        registry: of `prometheus_client`, to which the metrics belong.
        app_name, metrics_prefix, received_messages_size_buckets, custom_labels: as FastStream's middlewares have them.
    """

    def __init__(
        self,
        *,
        registry: CollectorRegistry,
        app_name: str = EMPTY,
        metrics_prefix: str = "faststream",
        received_messages_size_buckets: Sequence[float] | None = None,
        custom_labels: dict[str, str | Callable[[Any], str]] | None = None,
    ) -> None:
        super().__init__(
            settings_provider_factory=lambda _: _Settings(),
            registry=registry,
            app_name=app_name,
            metrics_prefix=metrics_prefix,
            received_messages_size_buckets=received_messages_size_buckets,
            custom_labels=custom_labels,
        )

"""Responses of handlers that say how they are sent, and commands to publish."""

from __future__ import annotations

from typing import Any

from faststream.response import PublishCommand, Response
from faststream.response.publish_type import PublishType

PRIORITY_DEFAULT = 4
REQUEST_TIMEOUT_S = 30.0


class LegatoResponse(Response):
    """A body with how it is to be sent.

    Args:
        priority: 0 to 9, higher first.
        delivery_delay_s: seconds before which it is not delivered.
        time_to_live_s: seconds until it expires; 0: never.
        duplicate_id: a name of which the address stores one message.
    """

    def __init__(
        self,
        body: Any,
        *,
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        priority: int | None = None,
        delivery_delay_s: float = 0.0,
        time_to_live_s: float = 0.0,
        duplicate_id: str | None = None,
    ) -> None:
        super().__init__(body, headers=headers, correlation_id=correlation_id)
        self.priority = priority
        self.delivery_delay_s = delivery_delay_s
        self.time_to_live_s = time_to_live_s
        self.duplicate_id = duplicate_id

    def as_publish_command(self) -> LegatoPublishCommand:
        """The command that publishes it."""
        return LegatoPublishCommand(
            self.body,
            headers=self.headers,
            correlation_id=self.correlation_id,
            priority=self.priority,
            delivery_delay_s=self.delivery_delay_s,
            time_to_live_s=self.time_to_live_s,
            duplicate_id=self.duplicate_id,
        )


class LegatoPublishCommand(PublishCommand):
    """A message to be published, before it is encoded."""

    def __init__(
        self,
        body: Any,
        *,
        address: str = "",
        reply_to: str = "",
        headers: dict[str, Any] | None = None,
        correlation_id: str | None = None,
        priority: int | None = None,
        delivery_delay_s: float = 0.0,
        time_to_live_s: float = 0.0,
        persistent: bool = True,
        duplicate_id: str | None = None,
        timeout_s: float | None = REQUEST_TIMEOUT_S,
        _publish_type: PublishType = PublishType.PUBLISH,
    ) -> None:
        super().__init__(
            body,
            destination=address,
            reply_to=reply_to,
            headers=headers,
            # Who has no type checker gives a UUID as it is.
            correlation_id=correlation_id if correlation_id is None else str(correlation_id),
            _publish_type=_publish_type,
        )
        self.priority = priority
        self.delivery_delay_s = delivery_delay_s
        self.time_to_live_s = time_to_live_s
        self.persistent = persistent
        self.duplicate_id = duplicate_id
        self.timeout_s = timeout_s

    @classmethod
    def from_cmd(cls, cmd: PublishCommand) -> LegatoPublishCommand:
        """The same command with what Legato can do besides."""
        if isinstance(cmd, LegatoPublishCommand):
            return cmd
        return cls(
            cmd.body,
            address=cmd.destination,
            reply_to=cmd.reply_to,
            headers=cmd.headers,
            correlation_id=cmd.correlation_id,
            _publish_type=cmd.publish_type,
        )

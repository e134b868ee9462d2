"""Temporary destinations for asyncio; all other destinations are the blocking client's."""

from __future__ import annotations

from legato.client.aio.steps import drive
from legato.client.messages import destinations


class TemporaryQueue(destinations.TemporaryQueue):
    """A queue that lives as long as the connection that made it."""

    __slots__ = ()

    async def delete(self) -> None:  # type: ignore[override]
        """Delete it before its connection closes (Jakarta Messaging 6.2.2).

        Returns when the broker has durably deleted it; after a loss of the connection, when the next one has. If the
        call is interrupted the deletion goes on; called again, it waits for its end.

        Raises:
            IllegalStateError: a consumer receives from it, or another connection made it.
        """
        await drive(self._delete())


class TemporaryTopic(destinations.TemporaryTopic):
    """A topic that lives as long as the connection that made it."""

    __slots__ = ()

    async def delete(self) -> None:  # type: ignore[override]
        """Delete it before its connection closes (Jakarta Messaging 6.2.2).

        Returns when the broker has durably deleted it; after a loss of the connection, when the next one has. If the
        call is interrupted the deletion goes on; called again, it waits for its end.

        Raises:
            IllegalStateError: a consumer receives from it, or another connection made it.
        """
        await drive(self._delete())

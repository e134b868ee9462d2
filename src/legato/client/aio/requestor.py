"""Asking and being answered over a temporary destination, with asyncio."""

from __future__ import annotations

from legato.client.aio.steps import awaiting
from legato.client.requestor_steps import QueueRequestorSteps, TopicRequestorSteps


class QueueRequestor(QueueRequestorSteps):
    __doc__ = QueueRequestorSteps.__doc__

    request = awaiting(QueueRequestorSteps._request)
    close = awaiting(QueueRequestorSteps._close)

    async def __aenter__(self) -> QueueRequestor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class TopicRequestor(TopicRequestorSteps):
    __doc__ = TopicRequestorSteps.__doc__

    request = awaiting(TopicRequestorSteps._request)
    close = awaiting(TopicRequestorSteps._close)

    async def __aenter__(self) -> TopicRequestor:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

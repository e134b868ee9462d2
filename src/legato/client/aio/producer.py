"""Sending messages with asyncio: one by one, each confirmed, or many in flight with a completion listener."""

from __future__ import annotations

from legato.client.aio.steps import awaiting
from legato.client.producer_steps import ProducerSteps


class MessageProducer(ProducerSteps):
    __doc__ = ProducerSteps.__doc__

    send = awaiting(ProducerSteps._send)
    flush = awaiting(ProducerSteps._flush)
    close = awaiting(ProducerSteps._close)

    async def __aenter__(self) -> MessageProducer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

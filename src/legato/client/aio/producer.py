"""Sending messages with asyncio: one by one, each confirmed, or many in flight with a completion listener."""

from __future__ import annotations

from legato.client.aio.steps import awaiting, drive
from legato.client.completion import CompletionCallable, CompletionListener
from legato.client.destinations import Destination
from legato.client.messages import DeliveryMode, Message
from legato.client.producer_steps import ProducerSteps


class MessageProducer(ProducerSteps):
    __doc__ = ProducerSteps.__doc__

    async def send(
        self,
        message: Message,
        *,
        destination: Destination | None = None,
        delivery_mode: DeliveryMode | None = None,
        priority: int | None = None,
        time_to_live_ms: int | None = None,
        completion_listener: CompletionListener | CompletionCallable | None = None,
    ) -> None:
        """Send a message; see `legato.client.MessageProducer.send`.

        Cancelled while it waits for the confirmation, the message is on its way all the same; if the broker refuses
        it the exception listener hears so. Cancelled before, it is not sent.
        """
        session = self._session
        turn = session._turn
        if not turn.acquire(False):
            raise session._misused()
        try:
            route = self._route
            if route is None or destination is not None or len(route.end.outgoing.waiting) >= self._window:
                route = await drive(self._ready_route(destination))
            send = self._submit(route, message, delivery_mode, priority, time_to_live_ms, completion_listener)
            if send.awaited:
                await drive(self._confirmed(send))
        finally:
            turn.release()

    flush = awaiting(ProducerSteps._flush)
    close = awaiting(ProducerSteps._close)

    async def __aenter__(self) -> MessageProducer:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

"""Sending messages: one by one, each confirmed, or many in flight with a completion listener."""

from __future__ import annotations

from legato.client.completion import CompletionCallable, CompletionListener
from legato.client.destinations import Destination
from legato.client.messages import DeliveryMode, Message
from legato.client.producer_steps import ProducerSteps
from legato.client.steps import blocking, drive


class MessageProducer(ProducerSteps):
    __doc__ = ProducerSteps.__doc__

    def send(
        self,
        message: Message,
        *,
        destination: Destination | None = None,
        delivery_mode: DeliveryMode | None = None,
        priority: int | None = None,
        time_to_live_ms: int | None = None,
        completion_listener: CompletionListener | CompletionCallable | None = None,
    ) -> None:
        """Send a message.

        Returns when the broker has stored it; at once in a transacted session, with a completion listener, or for a
        non-persistent message. Waits while the producer's window is full. Sets the message's headers.

        Args:
            destination: for a producer that was created without one.
            delivery_mode: this and the next two override the producer's.
            priority: 0 to 9, higher first.
            time_to_live_ms: milliseconds until it expires, 0 for never.
            completion_listener: called in another thread once the broker has stored the message or refused it. It may
                not use the session while another thread does.

        Raises:
            IllegalStateError: the producer is closed, or another thread uses the session.
            InvalidDestinationError: there is no destination, or two.
            MessageFormatError: a header, property or body cannot be sent.
            ResourceAllocationError: the broker has no room.
            JMSError: the broker refused it for another reason, or the connection is gone for good.
        """
        session = self._session
        turn = session._turn
        if not turn.acquire(False):
            raise session._misused()
        try:
            route = self._route
            if route is None or destination is not None or len(route.end.outgoing.waiting) >= self._window:
                route = drive(self._ready_route(destination))
            send = self._submit(route, message, delivery_mode, priority, time_to_live_ms, completion_listener)
            if send.awaited:
                drive(self._confirmed(send))
        finally:
            turn.release()

    flush = blocking(ProducerSteps._flush)
    close = blocking(ProducerSteps._close)

    def __enter__(self) -> MessageProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

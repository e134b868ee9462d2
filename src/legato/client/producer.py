"""Producers: send messages one by one, each confirmed, or many in flight with a completion listener.

Do not edit: `tools/make_faces.py` writes this from `calls/producer_steps.py`.
"""

from __future__ import annotations

from threading import get_ident
from types import TracebackType

from legato.client.calls.leaving import in_flight
from legato.client.calls.producer_steps import ProducerSteps
from legato.client.calls.turn import ThreadTurn
from legato.client.links.completion import CompletionCallable, CompletionListener
from legato.client.messages.destinations import Destination
from legato.client.messages.message import DeliveryMode
from legato.client.messages.sendable import Sendable
from legato.client.steps import drive, leave_block, mend


class MessageProducer(ProducerSteps):
    """Sends messages to a destination, or, created without one, to that which each `send()` names (7).

    A send survives a failover: what is not confirmed is sent again, and the broker stores it once.

    Attributes:
        delivery_mode, priority, time_to_live_ms, delivery_delay_ms: for sends that do not say otherwise; a time to
            live of 0 is for ever.
        disable_message_id, disable_message_timestamp: whether messages go without these (7.2.2).
        duplicate_listener: is called with each message that the broker dropped because it remembers its duplicate id,
            before the call returns that heard of it: `send()`, `flush()`, `commit()` or `close()`. In asyncio it may
            be a coroutine function.
    """

    def send(
        self,
        message: Sendable,
        *,
        destination: Destination | None = None,
        delivery_mode: DeliveryMode | None = None,
        priority: int | None = None,
        time_to_live_ms: int | None = None,
        delivery_delay_ms: int | None = None,
        completion_listener: CompletionListener | CompletionCallable | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> None:
        """Send a message, or a body.

        Returns when the broker has stored it; at once in a transacted session, with a completion listener, or for a
        non-persistent message. Waits while the producer's window is full. Sets the message's headers. Interrupted
        while it waits for the confirmation (in asyncio: cancelled), the message is on its way all the same, and if the
        broker refuses it the exception listener hears so; interrupted before, it is not sent.

        Args:
            message: a `Message`, or the body of a new one: text, bytes, or an object that goes as JSON: a dict,
                a list, a dataclass, a Struct of msgspec or a model of pydantic. To set headers of such a message make
                it with `Session.create_json_message()`.
            destination: for a producer that was created without one.
            delivery_mode: this and the next three override the producer's.
            priority: 0 to 9, higher first.
            time_to_live_ms: milliseconds until it expires, 0 for never.
            delivery_delay_ms: milliseconds before which it is not delivered (Jakarta Messaging 7.9).
            completion_listener: called in another thread, in asyncio by another task, once the broker has stored the
                message or refused it. It may not use the session while somebody else does (7.3).
            duplicate_id: the application's name for the message. If the address remembers a message of that name, the
                broker drops this one; that is a success, and sets `message.duplicate` (CONTRACT E15). The property
                `_AMQ_DUPL_ID` does the same.

        Raises:
            IllegalStateError: the producer is closed, or somebody else uses the session.
            InvalidDestinationError: there is no destination, or two.
            MessageFormatError: a header, property or body cannot be sent.
            ResourceAllocationError: the broker has no room.
            JMSError: the broker refused it for another reason, or the connection is gone for good.
        """
        # `_send` without its steps, and its turn without calls: most sends wait for nothing, and pay for nothing else.
        turn: ThreadTurn = self._turn  # type: ignore[assignment]
        holder = turn.holder
        thread = get_ident()
        try:
            if holder.setdefault("thread", thread) != thread:
                raise self._guard.misused()
            try:
                route = self._route
                if (
                    route is None
                    or destination is not None
                    or self._undertakings.current is not None
                    or len(route.end.outgoing.waiting) >= self._window
                ):
                    route = drive(self._ready_route(destination))
                send = self._submit(
                    route,
                    message,
                    delivery_mode,
                    priority,
                    time_to_live_ms,
                    delivery_delay_ms,
                    completion_listener,
                    duplicate_id,
                )
                if send.awaited:
                    drive(self._confirmed(send))
            finally:
                if turn.keeper != thread:
                    holder.pop("thread", None)
            if turn.bells:
                turn.gate.open()
            if route.end.duplicates:
                drive(self._tell_duplicates())
        except BaseException as interruption:
            mend(self, interruption)
            if turn.bells:
                turn.gate.open()
            raise

    def flush(self, timeout_s: float | None = None) -> None:
        """Wait until every asynchronous send is confirmed or refused, and its completion listener has returned.

        An exception or failover listener that calls it waits for the confirmations only: completion listeners are
        called after it.

        Raises:
            IllegalStateError: one of the session's own completion listeners asks, which would wait for itself (7.3.4);
                or somebody else uses the session.
            JMSError: that took longer than `timeout_s` seconds, or the connection is gone for good.
        """
        try:
            drive(self._flush(timeout_s))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def close(self) -> None:
        """Wait for what is not confirmed yet, then close (Jakarta Messaging 7.3.4). May be called again.

        Waits at most for the connection's option `close_timeout_s`, be there a broker or not.

        Raises:
            JMSError: so many messages were not confirmed by then, and are given up (code `TIMEOUT`). Their completion
                listeners have heard so.
        """
        try:
            drive(self._leave(in_flight()))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def __enter__(self) -> MessageProducer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leave_block(self, error)

"""Sending messages: one by one, each confirmed, or many in flight with a completion listener."""

from __future__ import annotations

from threading import get_ident

from legato.client.completion import CompletionCallable, CompletionListener
from legato.client.destinations import Destination
from legato.client.message import DeliveryMode, Message
from legato.client.producer_steps import ProducerSteps
from legato.client.steps import blocking, drive, mend
from legato.client.turn import ThreadTurn


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
        delivery_delay_ms: int | None = None,
        completion_listener: CompletionListener | CompletionCallable | None = None,
        duplicate_id: str | bytes | None = None,
    ) -> None:
        # `_send` without its steps, and its turn without calls: most sends wait for nothing, and pay for nothing else.
        session = self._session
        turn: ThreadTurn = session._turn  # type: ignore[assignment]
        holder = turn.holder
        thread = get_ident()
        try:
            if holder.setdefault("thread", thread) != thread:
                raise session._misused()
            try:
                route = self._route
                if (
                    route is None
                    or destination is not None
                    or session._undertaking is not None
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

    send.__doc__ = ProducerSteps._send.__doc__
    flush = blocking(ProducerSteps._flush)
    close = blocking(ProducerSteps._close)

    def __enter__(self) -> MessageProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

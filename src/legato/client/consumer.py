"""Receiving messages: one by one, by iteration, or by a listener."""

from __future__ import annotations

from collections.abc import Iterator
from threading import get_ident
from typing import cast

from legato.client.consumer_steps import ConsumerSteps, MessageListener
from legato.client.handing import handing
from legato.client.message import Message
from legato.client.steps import blocking, drive, mend
from legato.client.turn import ThreadTurn

__all__ = ["MessageConsumer", "MessageListener"]


class MessageConsumer(ConsumerSteps):
    __doc__ = ConsumerSteps.__doc__

    def receive(self, timeout_s: float | None = None) -> Message | None:
        # `_receive` without its steps, and its turn without calls: a message that is here pays for nothing else.
        session = self._session
        turn: ThreadTurn = session._turn  # type: ignore[assignment]
        holder = turn.holder
        thread = get_ident()
        message: Message | None
        try:
            if holder.setdefault("thread", thread) != thread:
                raise session._misused()
            try:
                if self._listener is not None or session._undertaking is not None or (message := self._take()) is None:
                    message = drive(self._receiving(timeout_s))
            finally:
                if turn.keeper != thread:
                    holder.pop("thread", None)
            if turn.bells:
                turn.gate.open()
            # One step: no signal handler runs between its halves.
            self._end.handing = None; return message  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            if turn.bells:
                turn.gate.open()
            raise

    receive.__doc__ = ConsumerSteps._receive.__doc__
    receive_no_wait = handing(ConsumerSteps._getting_now, ConsumerSteps._receive_no_wait)
    close = blocking(ConsumerSteps._close)

    def __iter__(self) -> Iterator[Message]:
        # No line of Python's lies between `receive()` and who iterates, where a message could be lost.
        return cast(Iterator[Message], iter(self.receive, None))

    def __enter__(self) -> MessageConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

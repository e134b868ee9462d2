"""Receiving messages: one by one, by iteration, or by a listener."""

from __future__ import annotations

from collections.abc import Iterator

from legato.client.consumer_steps import ConsumerSteps, MessageListener
from legato.client.message import Message
from legato.client.steps import blocking, drive

__all__ = ["MessageConsumer", "MessageListener"]


class MessageConsumer(ConsumerSteps):
    __doc__ = ConsumerSteps.__doc__

    def receive(self, timeout_s: float | None = None) -> Message | None:
        # `_receive` without its steps: a message that is here pays for nothing else.
        session = self._session
        turn = session._turn
        if not turn.acquire(False):
            raise session._misused()
        try:
            if self._listener is None and session._undertaking is None and (message := self._take()) is not None:
                return message
            return drive(self._receiving(timeout_s))
        finally:
            turn.release()

    receive.__doc__ = ConsumerSteps._receive.__doc__
    receive_no_wait = blocking(ConsumerSteps._receive_no_wait)
    close = blocking(ConsumerSteps._close)

    def __iter__(self) -> Iterator[Message]:
        while (message := self.receive()) is not None:
            yield message

    def __enter__(self) -> MessageConsumer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

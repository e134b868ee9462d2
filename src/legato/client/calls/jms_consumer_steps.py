"""Steps of the simplified API's consumer (Jakarta Messaging 8.5)."""

from __future__ import annotations

from typing import Any, TypeVar

from legato.client.calls.consumer_steps import ConsumerSteps, MessageListener
from legato.client.calls.described import described
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.messages.message import Message
from legato.client.steps import Steps

_T = TypeVar("_T")


class JMSConsumerSteps:
    """Receives messages, or their bodies."""

    def __init__(self, consumer: Any) -> None:
        self._consumer: ConsumerSteps = consumer

    def __repr__(self) -> str:
        return described(self, repr(self._consumer))

    def _interrupted(self, interruption: BaseException) -> None:
        self._consumer._interrupted(interruption)

    @property
    def message_selector(self) -> str | None:
        """What messages have to match; None for all."""
        return self._consumer.message_selector

    @property
    def message_listener(self) -> MessageListener | None:
        """A function called with each message, one at a time for all consumers of a context."""
        return self._consumer.message_listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        self._consumer.message_listener = listener

    @property
    def _end(self) -> ReceiverEnd:
        return self._consumer._end

    def _getting(
        self, kind: type[Message] | float | None = None, timeout_s: float | None = None
    ) -> Steps[Message | None]:
        return (yield from self._consumer._getting(kind, timeout_s))

    def _getting_now(self, kind: type[Message] | None = None) -> Steps[Message | None]:
        return (yield from self._consumer._getting_now(kind))

    def _getting_body(self, kind: type[_T], timeout_s: float | None = None) -> Steps[_T | None]:
        return (yield from self._consumer._getting_body(kind, timeout_s))

    def _getting_body_now(self, kind: type[_T]) -> Steps[_T | None]:
        return (yield from self._consumer._getting_body_now(kind))

    def _receive(
        self, kind: type[Message] | float | None = None, timeout_s: float | None = None
    ) -> Steps[Message | None]:
        """The next message; waits for one at most `timeout_s` seconds, for ever if None.

        Args:
            kind: the class of message that is expected, such as `TextMessage`; see `MessageConsumer.receive`.

        Raises:
            MessageFormatError: the message is not of that `kind`. In AUTO and DUPS_OK it stays the next message.
        """
        return (yield from self._consumer._receive(kind, timeout_s))

    def _receive_no_wait(self, kind: type[Message] | None = None) -> Steps[Message | None]:
        """The next message if the broker has one now; of `kind`, as `receive()` says."""
        return (yield from self._consumer._receive_no_wait(kind))

    def _receive_body(self, kind: type[_T], timeout_s: float | None = None) -> Steps[_T | None]:
        """The next message's body, of type `kind`; waits for one as `receive()` does (Jakarta Messaging 8.6).

        Args:
            kind: `str`, `bytes`, `dict`, or the type of an object; or a dataclass, a Struct of msgspec, a model of
                pydantic, a TypedDict or `list[Order]`, for which the body is read as `Message.json()` does.

        Returns:
            None if no message came in time, or if it has an empty body.

        Raises:
            MessageFormatError: the message has no body of that type. In AUTO and DUPS_OK it stays the next message.
        """
        return (yield from self._consumer._receive_body(kind, timeout_s))

    def _receive_body_no_wait(self, kind: type[_T]) -> Steps[_T | None]:
        """The next message's body if the broker has one now; see `receive_body`."""
        return (yield from self._consumer._receive_body_no_wait(kind))

    def _close(self) -> Steps[None]:
        """Close; see `MessageConsumer.close`."""
        yield from self._consumer._close()

    def _leave(self, error: BaseException | None) -> Steps[None]:
        return self._consumer._leave(error)

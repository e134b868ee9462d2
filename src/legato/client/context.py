"""The simplified API (Jakarta Messaging 2.8).

Do not edit: `tools/make_faces.py` writes this from `calls/jms_producer_steps.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, cast, overload

from legato.client.browser import QueueBrowser
from legato.client.calls.consumer_steps import wrong_timeout
from legato.client.calls.context_steps import ContextSteps
from legato.client.calls.jms_consumer_steps import _T, JMSConsumerSteps
from legato.client.calls.jms_producer_steps import JMSProducerSteps
from legato.client.calls.leaving import in_flight
from legato.client.links.session_state import AcknowledgementOutcome
from legato.client.messages.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from legato.client.messages.message import Message
from legato.client.steps import drive, leave_block, mend

_Message = TypeVar("_Message", bound=Message)


class JMSProducer(JMSProducerSteps):
    """How messages are to be sent; every `set_` method returns the producer, so that calls can be chained.

    Attributes:
        delivery_mode, priority, time_to_live_ms, delivery_delay_ms: for each message; see `MessageProducer`.
        disable_message_id, disable_message_timestamp: whether messages go without these.
        duplicate_listener: hears of messages that were dropped as duplicates; see `MessageProducer`.
        async_listener: if there is one, sends do not wait, and it is told what became of them.
        correlation_id, reply_to, type: set in each message, unless None.
        properties: set in each message.
    """

    def send(self, destination: Destination, body: Any = None, *, duplicate_id: str | bytes | None = None) -> Self:
        """Send a message.

        Args:
            body: a `Message`, or the body of a new one: a `str`, `bytes`, a flat `dict` for a `MapMessage`, None for a
                message without a body; a dataclass, a Struct of msgspec or a model of pydantic, which goes as JSON; or
                another object that an `ObjectMessage` can carry. `JMSContext.create_json_message()` makes JSON of any
                `dict` or `list`.
            duplicate_id: the application's name for the message; see `MessageProducer.send`.

        Raises:
            InvalidDestinationError: the destination cannot be sent to.
            MessageFormatError: a header, property or body cannot be sent.
            JMSError: see `MessageProducer.send`.
        """
        try:
            return drive(self._send(destination, body, duplicate_id=duplicate_id))
        except BaseException as interruption:
            mend(self, interruption)
            raise


class JMSConsumer(JMSConsumerSteps):
    """Receives messages, or their bodies."""

    @overload
    def receive(self, *, timeout_s: float | None = None) -> Message | None: ...
    @overload
    def receive(self, timeout_s: float | None, /) -> Message | None: ...
    @overload
    def receive(self, kind: type[_Message], timeout_s: float | None = None) -> _Message | None: ...
    def receive(
        self, kind: type[Message] | float | None = None, timeout_s: float | None = None, *, timeout: None = None
    ) -> Message | None:
        """The next message; waits for one at most `timeout_s` seconds, for ever if None.

        Args:
            kind: the class of message that is expected, such as `TextMessage`; see `MessageConsumer.receive`.

        Raises:
            MessageFormatError: the message is not of that `kind`. In AUTO and DUPS_OK it stays the next message.
        """
        if timeout is not None:
            raise wrong_timeout("receive", timeout)
        try:
            end = self._end
            value = drive(self._getting(kind, timeout_s))
            # One step: no signal handler runs between its halves.
            end.handing = None; return value  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    @overload
    def receive_no_wait(self) -> Message | None: ...
    @overload
    def receive_no_wait(self, kind: type[_Message]) -> _Message | None: ...
    def receive_no_wait(self, kind: type[Message] | None = None) -> Message | None:
        """The next message if the broker has one now; of `kind`, as `receive()` says."""
        try:
            end = self._end
            value = drive(self._getting_now(kind))
            # One step: no signal handler runs between its halves.
            end.handing = None; return value  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def receive_body(self, kind: type[_T], timeout_s: float | None = None, *, timeout: None = None) -> _T | None:
        """The next message's body, of type `kind`; waits for one as `receive()` does (Jakarta Messaging 8.6).

        Args:
            kind: `str`, `bytes`, `dict`, or the type of an object; or a dataclass, a Struct of msgspec, a model of
                pydantic, a TypedDict or `list[Order]`, for which the body is read as `Message.json()` does.

        Returns:
            None if no message came in time, or if it has an empty body.

        Raises:
            MessageFormatError: the message has no body of that type. In AUTO and DUPS_OK it stays the next message.
        """
        if timeout is not None:
            raise wrong_timeout("receive_body", timeout)
        try:
            end = self._end
            value = drive(self._getting_body(kind, timeout_s))
            # One step: no signal handler runs between its halves.
            end.handing = None; return value  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def receive_body_no_wait(self, kind: type[_T]) -> _T | None:
        """The next message's body if the broker has one now; see `receive_body`."""
        try:
            end = self._end
            value = drive(self._getting_body_now(kind))
            # One step: no signal handler runs between its halves.
            end.handing = None; return value  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def close(self) -> None:
        """Close; see `MessageConsumer.close`."""
        try:
            drive(self._leave(in_flight()))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def __iter__(self) -> Iterator[Message]:
        # No line of Python's lies between `receive()` and who iterates, where a message could be lost.
        return cast(Iterator[Message], iter(self.receive, None))

    def __enter__(self) -> JMSConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leave_block(self, error)


class JMSContext(ContextSteps[JMSProducer, JMSConsumer, QueueBrowser]):
    """A connection and a session (Jakarta Messaging 2.8); creating a consumer starts the connection.

    Attributes:
        auto_start: whether creating a consumer or browser starts the connection.
    """

    _producer_type = JMSProducer
    _consumer_type = JMSConsumer

    def create_producer(self) -> JMSProducer:
        """What sends messages to the destinations that each `send()` names (Jakarta Messaging 2.8)."""
        return super().create_producer()

    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        prefetch: int | None = None,
        priority: int = 0,
    ) -> JMSConsumer:
        """A consumer of a queue or topic; see `Session.create_consumer`."""
        try:
            consumer = drive(
                self._create_consumer(destination, selector, no_local, prefetch=prefetch, priority=priority)
            )
            # One step: no signal handler runs between its halves.
            self._making = None; return consumer  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        no_local: bool = False,
        *,
        prefetch: int | None = None,
    ) -> JMSConsumer:
        """A consumer of a durable subscription; see `Session.create_durable_consumer`."""
        try:
            consumer = drive(self._create_durable_consumer(topic, name, selector, no_local, prefetch=prefetch))
            # One step: no signal handler runs between its halves.
            self._making = None; return consumer  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_shared_consumer(
        self, topic: Topic, name: str, selector: str | None = None, *, prefetch: int | None = None
    ) -> JMSConsumer:
        """One of several consumers that share a subscription; see `Session.create_shared_consumer`."""
        try:
            consumer = drive(self._create_shared_consumer(topic, name, selector, prefetch=prefetch))
            # One step: no signal handler runs between its halves.
            self._making = None; return consumer  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_shared_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, *, prefetch: int | None = None
    ) -> JMSConsumer:
        """One of several consumers that share a durable subscription; see `Session.create_shared_durable_consumer`."""
        try:
            consumer = drive(self._create_shared_durable_consumer(topic, name, selector, prefetch=prefetch))
            # One step: no signal handler runs between its halves.
            self._making = None; return consumer  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_browser(self, destination: Queue, selector: str | None = None) -> QueueBrowser:
        """A look at the messages of a queue, without consuming them."""
        return super().create_browser(destination, selector)

    def create_temporary_queue(self) -> TemporaryQueue:
        """A queue that only this connection receives from, and that ends with it or by its `delete()`."""
        try:
            return drive(self._create_temporary_queue())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_temporary_topic(self) -> TemporaryTopic:
        """A topic that only this connection receives from, and that ends with it or by its `delete()`."""
        try:
            return drive(self._create_temporary_topic())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def unsubscribe(self, name: str) -> None:
        """End a durable subscription; see `Session.unsubscribe`."""
        try:
            drive(self._unsubscribe(name))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def set_client_id(self, client_id: str) -> None:
        """Give the client a name, before anything else is done with the context (Jakarta Messaging 6.1.2).

        Raises:
            InvalidClientIDError: the name is in use by another connection, or empty.
            IllegalStateError: there is one already, or the context was used.
        """
        try:
            drive(self._set_client_id(client_id))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def stop(self) -> None:
        """Hold messages back; waits for listeners that run now."""
        try:
            drive(self._stop())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def commit(self) -> None:
        """Commit; see `Session.commit`."""
        try:
            drive(self._commit())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def commit_outcome(self, transaction_id: bytes) -> bool | None:
        """What became of a transaction; see `Session.commit_outcome`."""
        try:
            return drive(self._commit_outcome(transaction_id))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def rollback(self) -> None:
        """Roll back; see `Session.rollback`."""
        try:
            drive(self._rollback())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def recover(self) -> None:
        """Give back what was received and not acknowledged; see `Session.recover`."""
        try:
            drive(self._recover())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def acknowledge(self) -> None:
        """In CLIENT_ACKNOWLEDGE: acknowledge all messages the context has received; else harmless (10.2.8)."""
        try:
            drive(self._acknowledge())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def acknowledge_all(self) -> Mapping[str, AcknowledgementOutcome]:
        """Acknowledge all, and say what became of each message; see `Session.acknowledge_all`."""
        try:
            return drive(self._acknowledge_all())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def close(self) -> None:
        """Close the session, and the connection with its last context. May be called again.

        What the broker has not confirmed is waited for as long as the option `close_timeout_s`.

        Raises:
            IllegalStateError: one of the context's own listeners asks.
            JMSError: so many messages were not confirmed by then, and are given up (code `TIMEOUT`); the context is
                closed.
        """
        try:
            drive(self._leave(in_flight()))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def __enter__(self) -> JMSContext:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leave_block(self, error)

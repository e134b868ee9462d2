"""Steps of the simplified API: a connection and a session in one object (Jakarta Messaging 2.8)."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, BinaryIO, Generic, Self, TypeVar

from legato.client.calls.browser_steps import BrowserSteps
from legato.client.calls.connection_steps import ConnectionSteps, ExceptionListener
from legato.client.calls.consumer_steps import ConsumerSteps
from legato.client.calls.described import described
from legato.client.calls.jms_consumer_steps import JMSConsumerSteps
from legato.client.calls.jms_producer_steps import JMSProducerSteps
from legato.client.calls.leaving import leaving
from legato.client.calls.metadata import ConnectionMetaData
from legato.client.calls.patience import Patience
from legato.client.calls.producer_steps import ProducerSteps
from legato.client.calls.session_steps import SessionSteps
from legato.client.links.session_state import AcknowledgementOutcome, AcknowledgeMode, checked_mode
from legato.client.messages import BytesMessage, MapMessage, Message, ObjectMessage, StreamMessage, TextMessage
from legato.client.messages.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from legato.client.steps import Steps
from legato.errors import IllegalStateError

_Producer = TypeVar("_Producer", bound=JMSProducerSteps)
_Consumer = TypeVar("_Consumer", bound=JMSConsumerSteps)
_Browser = TypeVar("_Browser", bound=BrowserSteps)


class ContextSteps(Generic[_Producer, _Consumer, _Browser]):
    """A connection and a session (Jakarta Messaging 2.8); creating a consumer starts the connection.

    Attributes:
        auto_start: whether creating a consumer or browser starts the connection.
    """

    _producer_type: type[_Producer]
    _consumer_type: type[_Consumer]

    def __init__(
        self, connection: ConnectionSteps[Any], session_mode: AcknowledgeMode, family: list[Any] | None = None
    ) -> None:
        self.auto_start = True
        self._connection = connection
        connection._check_open()
        self._mode = checked_mode(session_mode)
        self._made: SessionSteps[Any, Any, _Browser] | None = None
        """Made when it is first needed: before that the client id may be set."""
        self._family: list[Any] = [] if family is None else family
        """The open contexts of the connection, which ends with the last of them."""
        self._family.append(self)
        self._anonymous: ProducerSteps | None = None
        self._closed = False

    def __repr__(self) -> str:
        return described(self, self._mode.name, "closed" if self._closed else f"of {self._connection!r}")

    # -- what it is --------------------------------------------------------------------------------------

    @property
    def session_mode(self) -> AcknowledgeMode:
        """How received messages count as consumed."""
        return self._mode

    @property
    def transacted(self) -> bool:
        """Whether its session is transacted."""
        return self._mode is AcknowledgeMode.SESSION_TRANSACTED

    @property
    def metadata(self) -> ConnectionMetaData:
        """Versions of the specification and of Legato."""
        return self._connection.metadata

    @property
    def client_id(self) -> str | None:
        """The client's own name, under which its durable subscriptions are kept; None if it has none."""
        return self._connection.client_id

    def _set_client_id(self, client_id: str) -> Steps[None]:
        """Give the client a name, before anything else is done with the context (Jakarta Messaging 6.1.2).

        Raises:
            InvalidClientIDError: the name is in use by another connection, or empty.
            IllegalStateError: there is one already, or the context was used.
        """
        yield from self._connection._set_client_id(client_id)

    @property
    def exception_listener(self) -> ExceptionListener | None:
        """Called with a `JMSError`; see `Connection.exception_listener`."""
        return self._connection.exception_listener

    @exception_listener.setter
    def exception_listener(self, listener: ExceptionListener | None) -> None:
        self._connection.exception_listener = listener

    # -- its connection ----------------------------------------------------------------------------------

    def create_context(self, session_mode: AcknowledgeMode) -> Self:
        """Another context over the same connection, for another thread or task."""
        return type(self)(self._connection, session_mode, self._family)

    def start(self) -> None:
        """Let messages come; needed only if `auto_start` is off."""
        self._connection.start()

    def _stop(self) -> Steps[None]:
        """Hold messages back; waits for listeners that run now."""
        yield from self._connection._stop()

    def _close(self) -> Steps[None]:
        """Close the session, and the connection with its last context. May be called again.

        What the broker has not confirmed is waited for as long as the option `close_timeout_s`.

        Raises:
            IllegalStateError: one of the context's own listeners asks.
            JMSError: so many messages were not confirmed by then, and are given up (code `TIMEOUT`); the context is
                closed.
        """
        if self._connection._transport.disowned:
            return
        self._connection._check_not_in_listener("close")
        # Called again all of it is done again, which changes nothing: the first call may have been interrupted.
        self._closed = True
        connection = self._connection
        patience = Patience("context", connection._options.close_timeout_s, connection._transport)
        if self._made is not None:
            yield from self._made._close_within(patience)
        with contextlib.suppress(ValueError):
            self._family.remove(self)
        if not self._family:
            yield from connection._close_within(patience)
        patience.check()

    def _leave(self, error: BaseException | None) -> Steps[None]:
        return leaving(self._close(), self._connection._transport, error)

    @property
    def _making(self) -> ConsumerSteps | None:
        return None if self._made is None else self._made._members.making

    @_making.setter
    def _making(self, consumer: None) -> None:
        if self._made is not None:
            self._made._members.making = consumer

    def _interrupted(self, interruption: BaseException) -> None:
        if self._made is not None:
            self._made._interrupted(interruption)

    # -- its session -------------------------------------------------------------------------------------

    @property
    def _session(self) -> SessionSteps[Any, Any, _Browser]:
        if self._made is None:
            if self._closed:
                raise IllegalStateError("The context is closed.")
            self._made = self._connection.create_session(self.transacted, self._mode)
        return self._made

    def _commit(self) -> Steps[None]:
        """Commit; see `Session.commit`."""
        yield from self._session._transactions.commit()

    def _commit_outcome(self, transaction_id: bytes) -> Steps[bool | None]:
        """What became of a transaction; see `Session.commit_outcome`."""
        return (yield from self._session._transactions.commit_outcome(transaction_id))

    def _rollback(self) -> Steps[None]:
        """Roll back; see `Session.rollback`."""
        yield from self._session._transactions.rollback()

    def replay(self) -> int:
        """Send again what the last transaction had sent whose `commit()` raised; see `Session.replay`."""
        return self._session._transactions.replay()

    def _recover(self) -> Steps[None]:
        """Give back what was received and not acknowledged; see `Session.recover`."""
        yield from self._session._acknowledgements.recover()

    def _acknowledge(self) -> Steps[None]:
        """In CLIENT_ACKNOWLEDGE: acknowledge all messages the context has received; else harmless (10.2.8)."""
        yield from self._session._acknowledgements.acknowledge(None)

    def _acknowledge_all(self) -> Steps[Mapping[str, AcknowledgementOutcome]]:
        """Acknowledge all, and say what became of each message; see `Session.acknowledge_all`."""
        return (yield from self._session._acknowledgements.acknowledge_all())

    def _unsubscribe(self, name: str) -> Steps[None]:
        """End a durable subscription; see `Session.unsubscribe`."""
        yield from self._session._factory.unsubscribe(name)

    # -- what it makes -----------------------------------------------------------------------------------

    def create_queue(self, name: str) -> Queue:
        """The queue of that name."""
        return self._session._messages.create_queue(name)

    def create_topic(self, name: str) -> Topic:
        """The topic of that name."""
        return self._session._messages.create_topic(name)

    def _create_temporary_queue(self) -> Steps[TemporaryQueue]:
        """A queue that only this connection receives from, and that ends with it or by its `delete()`."""
        return (yield from self._session._factory.create_temporary_queue())

    def _create_temporary_topic(self) -> Steps[TemporaryTopic]:
        """A topic that only this connection receives from, and that ends with it or by its `delete()`."""
        return (yield from self._session._factory.create_temporary_topic())

    def create_message(self) -> Message:
        """A message without a body."""
        return self._session._messages.create_message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """A message whose body is `text`."""
        return self._session._messages.create_text_message(text)

    def create_bytes_message(self, body: bytes = b"", *, stream: BinaryIO | None = None) -> BytesMessage:
        """A message whose body is `body`, or what is in the binary file `stream`, sent without being held in memory."""
        return self._session._messages.create_bytes_message(body, stream=stream)

    def create_json_message(self, body: Any) -> TextMessage:
        """A text message whose body is an object as JSON; see `Session.create_json_message`."""
        return self._session._messages.create_json_message(body)

    def create_map_message(self) -> MapMessage:
        """A message whose body has names with values."""
        return self._session._messages.create_map_message()

    def create_stream_message(self) -> StreamMessage:
        """A message whose body is a stream of values."""
        return self._session._messages.create_stream_message()

    def create_object_message(self, body: Any = None) -> ObjectMessage:
        """A message whose body is an object that AMQP can carry."""
        return self._session._messages.create_object_message(body)

    def create_producer(self) -> _Producer:
        """What sends messages to the destinations that each `send()` names (Jakarta Messaging 2.8)."""
        self._session._guard.check_open()
        return self._producer_type(self)

    def _create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        prefetch: int | None = None,
        priority: int = 0,
    ) -> Steps[_Consumer]:
        """A consumer of a queue or topic; see `Session.create_consumer`."""
        consumer = yield from self._session._factory.create_consumer(
            destination, selector, no_local, prefetch=prefetch, priority=priority
        )
        return self._begun(consumer)

    def _create_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        no_local: bool = False,
        *,
        prefetch: int | None = None,
    ) -> Steps[_Consumer]:
        """A consumer of a durable subscription; see `Session.create_durable_consumer`."""
        consumer = yield from self._session._factory.create_durable_consumer(
            topic, name, selector, no_local, prefetch=prefetch
        )
        return self._begun(consumer)

    def _create_shared_consumer(
        self, topic: Topic, name: str, selector: str | None = None, *, prefetch: int | None = None
    ) -> Steps[_Consumer]:
        """One of several consumers that share a subscription; see `Session.create_shared_consumer`."""
        return self._begun(
            (yield from self._session._factory.create_shared_consumer(topic, name, selector, prefetch=prefetch))
        )

    def _create_shared_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, *, prefetch: int | None = None
    ) -> Steps[_Consumer]:
        """One of several consumers that share a durable subscription; see `Session.create_shared_durable_consumer`."""
        consumer = yield from self._session._factory.create_shared_durable_consumer(
            topic, name, selector, prefetch=prefetch
        )
        return self._begun(consumer)

    def create_browser(self, destination: Queue, selector: str | None = None) -> _Browser:
        """A look at the messages of a queue, without consuming them."""
        browser = self._session._factory.create_browser(destination, selector)
        self._begin()
        return browser

    def _begun(self, consumer: Any) -> _Consumer:
        self._begin()
        return self._consumer_type(consumer)

    def _begin(self) -> None:
        if self.auto_start:
            self._connection.start()

    def _sender(self) -> Steps[ProducerSteps]:
        """The one producer over which all of the context's send."""
        if self._anonymous is None:
            self._anonymous = yield from self._session._factory.create_producer()
        return self._anonymous

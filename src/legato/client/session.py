"""Sessions: send and receive in one thread at a time; acknowledgement, transactions, recovery.

Do not edit: `tools/make_faces.py` writes this from `calls/session_steps.py` and the parts of a session.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, BinaryIO

from legato.client.browser import QueueBrowser
from legato.client.calls.leaving import in_flight
from legato.client.calls.session_steps import SessionSteps
from legato.client.consumer import MessageConsumer
from legato.client.links.session_state import AcknowledgementOutcome
from legato.client.messages import BytesMessage, MapMessage, ObjectMessage, StreamMessage, TextMessage
from legato.client.messages.destinations import Destination, Queue, TemporaryQueue, TemporaryTopic, Topic
from legato.client.messages.message import Message
from legato.client.producer import MessageProducer
from legato.client.steps import drive, leave_block, mend


class Session(SessionSteps[MessageProducer, MessageConsumer, QueueBrowser]):
    """What one thread, or one task, at a time works with (Jakarta Messaging 6.2); anyone may call `close()`.

    A failover does not end a session: its producers, consumers and listeners go on. In a transacted session it dooms a
    transaction that has done work: until its end that transaction absorbs what is sent and received, `commit()` then
    raises `TransactionRolledBackError` once, and what it had received comes again, flagged (CONTRACT B18, E13).
    """

    _producer_type = MessageProducer
    _consumer_type = MessageConsumer
    _browser_type = QueueBrowser

    def create_queue(self, name: str) -> Queue:
        """The queue of that name; the broker creates it when it is first used."""
        return self._messages.create_queue(name)

    def create_topic(self, name: str) -> Topic:
        """The topic of that name; the broker creates it when it is first used."""
        return self._messages.create_topic(name)

    def create_producer(self, destination: Destination | None = None) -> MessageProducer:
        """A producer for a queue or topic, or for those that each `send()` names.

        Raises:
            InvalidDestinationError: the destination cannot be sent to.
            IllegalStateError: the session is closed.
        """
        try:
            return drive(self._factory.create_producer(destination))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        prefetch: int | None = None,
        priority: int = 0,
    ) -> MessageConsumer:
        """A consumer of a queue or of a topic; of a topic it receives what is sent while it exists.

        Args:
            selector: receive only messages that match it (Jakarta Messaging 3.8.1).
            no_local: of a topic, do not receive what this connection sent.
            prefetch: messages kept ready ahead of `receive()`; with 0 each one is asked for when it is wanted.
                Default: the connection's option.
            priority: consumers of a higher one get messages before those of a lower one.

        Raises:
            InvalidDestinationError: the destination cannot be received from.
            InvalidSelectorError: the selector is none.
            JMSSecurityError: it is a temporary destination of another connection (CONTRACT A23).
            IllegalStateError: the session is closed.
        """
        try:
            consumer = drive(
                self._factory.create_consumer(destination, selector, no_local, prefetch=prefetch, priority=priority)
            )
            # One step: no signal handler runs between its halves.
            self._members.making = None; return consumer  # fmt: skip  # noqa: E702
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
    ) -> MessageConsumer:
        """A consumer of a durable subscription that it has for itself (Jakarta Messaging 8.3.3).

        The subscription is made if there is none, made anew if it had another topic, selector or no-local, and
        stays until `unsubscribe()`.

        Args:
            name: of the subscription, unique among those of the client id.

        Raises:
            IllegalStateError: the connection has no client id, or the subscription has an active consumer.
            InvalidDestinationError: this is no topic.
            InvalidSelectorError: the selector is none.
        """
        try:
            consumer = drive(self._factory.create_durable_consumer(topic, name, selector, no_local, prefetch=prefetch))
            # One step: no signal handler runs between its halves.
            self._members.making = None; return consumer  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_durable_subscriber(
        self, topic: Topic, name: str, selector: str | None = None, no_local: bool = False
    ) -> MessageConsumer:
        """The older name of `create_durable_consumer`."""
        try:
            consumer = drive(self._factory.create_durable_subscriber(topic, name, selector, no_local))
            # One step: no signal handler runs between its halves.
            self._members.making = None; return consumer  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_shared_consumer(
        self, topic: Topic, name: str, selector: str | None = None, *, prefetch: int | None = None
    ) -> MessageConsumer:
        """One of several consumers that share a subscription, which ends with the last one (Jakarta Messaging 8.3.2).

        Raises:
            IllegalStateError: the subscription has consumers, and another topic or selector.
            InvalidDestinationError: this is no topic.
            InvalidSelectorError: the selector is none.
        """
        try:
            consumer = drive(self._factory.create_shared_consumer(topic, name, selector, prefetch=prefetch))
            # One step: no signal handler runs between its halves.
            self._members.making = None; return consumer  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_shared_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, *, prefetch: int | None = None
    ) -> MessageConsumer:
        """One of several consumers that share a subscription, which stays until `unsubscribe()` (8.3.4).

        Raises:
            IllegalStateError: the subscription has consumers, and another topic or selector, or is not shared.
            InvalidDestinationError: this is no topic.
            InvalidSelectorError: the selector is none.
        """
        try:
            consumer = drive(self._factory.create_shared_durable_consumer(topic, name, selector, prefetch=prefetch))
            # One step: no signal handler runs between its halves.
            self._members.making = None; return consumer  # fmt: skip  # noqa: E702
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_browser(self, destination: Queue, selector: str | None = None) -> QueueBrowser:
        """A look at the messages of a queue, without consuming them (Jakarta Messaging 4.1.6).

        Args:
            selector: show only messages that match it.
        """
        return self._factory.create_browser(destination, selector)

    def create_message(self) -> Message:
        """A message without a body."""
        return self._messages.create_message()

    def create_text_message(self, text: str | None = None) -> TextMessage:
        """A message whose body is `text`."""
        return self._messages.create_text_message(text)

    def create_json_message(self, body: Any) -> TextMessage:
        """A text message whose body is an object as JSON; its content type is `application/json`.

        Args:
            body: a dict, a list, a dataclass, a Struct of msgspec or a model of pydantic; dates, UUIDs, decimals,
                enumerations and bytes in it go as text. Not-a-number and infinities go as `null`.

        Raises:
            MessageFormatError: it cannot be said in JSON.
        """
        return self._messages.create_json_message(body)

    def create_bytes_message(self, body: bytes = b"", *, stream: BinaryIO | None = None) -> BytesMessage:
        """A message whose body is `body`, or what is in the binary file `stream`, sent without being held in memory."""
        return self._messages.create_bytes_message(body, stream=stream)

    def create_map_message(self) -> MapMessage:
        """A message whose body has names with values."""
        return self._messages.create_map_message()

    def create_stream_message(self) -> StreamMessage:
        """A message whose body is a stream of values."""
        return self._messages.create_stream_message()

    def create_object_message(self, body: Any = None) -> ObjectMessage:
        """A message whose body is an object that AMQP can carry."""
        return self._messages.create_object_message(body)

    def unsubscribe(self, name: str) -> None:
        """End a durable subscription, with the messages in it (Jakarta Messaging 8.3.3).

        If it is interrupted (in asyncio: cancelled) it goes on, as long as the session is open; called again it waits
        for the same end.

        Raises:
            IllegalStateError: it has an active consumer, or a stream of Spark's reads it.
            InvalidDestinationError: there is none of that name.
        """
        try:
            drive(self._factory.unsubscribe(name))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_temporary_queue(self) -> TemporaryQueue:
        """A queue that only this connection receives from, and that ends with it or by its `delete()`."""
        try:
            return drive(self._factory.create_temporary_queue())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def create_temporary_topic(self) -> TemporaryTopic:
        """A topic that only this connection receives from, and that ends with it or by its `delete()`."""
        try:
            return drive(self._factory.create_temporary_topic())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def commit(self) -> None:
        """Commit: what was received is consumed, what was sent becomes visible, both or neither.

        A commit that is cut off by a failover returns its true outcome (promise 2); under the contracts `hornetq` and
        `gigaspaces` it raises, and `commit_outcome()` tells (CONTRACT E12, A10). One without work succeeds
        (CONTRACT B17).

        If the call is interrupted (in asyncio: cancelled) the commit goes on; only an interruption before its first
        step leaves the transaction as it was. The session's next call waits for the outcome first, whatever it is to
        do. Call `commit()` again to learn it: it returns if the transaction was committed, and raises if it was
        rolled back, unless messages were received since, which then come again.

        Raises:
            TransactionRolledBackError: the transaction was rolled back. What it received comes again; `replay()`
                sends again what it sent. The session can be used on (CONTRACT E13).
            IllegalStateError: the session is not transacted, or closed.
            JMSError: whether it is committed cannot be had: the connection is gone for good (code `IN_DOUBT`).
        """
        try:
            drive(self._transactions.commit())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def commit_outcome(self, transaction_id: bytes) -> bool | None:
        """What became of a transaction, of this client or another one (CONTRACT E14).

        One that another connection has open is rolled back thereby, so that the answer stays true.

        Args:
            transaction_id: that of the `TransactionRolledBackError`, or of the `JMSError` with code `IN_DOUBT`.

        Returns:
            True if it was committed, False if it was rolled back, None if nobody knows: it is of another store, or of
            more than a day ago. One of another group of brokers is asked for there.

        Raises:
            IllegalStateError: the session is not transacted, or closed; or the transaction is one that is open here.
            JMSError: the connection is gone for good, or no transaction can have that id.
        """
        try:
            return drive(self._transactions.commit_outcome(transaction_id))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def rollback(self) -> None:
        """Roll back: what was received comes again, in order and counted, what was sent is gone (CONTRACT A4).

        If the call is interrupted (in asyncio: cancelled) the rollback goes on, and the session's next call waits for
        its end first; only an interruption before its first step leaves the transaction as it was. Called again, it
        makes sure.

        Raises:
            IllegalStateError: the session is not transacted, or closed.
        """
        try:
            drive(self._transactions.rollback())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def replay(self) -> int:
        """Send again, in the current transaction, what the last one had sent that a failover aborted (promise 3).

        What turns out to have been committed after all is not sent again (see `commit_outcome()`). For applications
        that do not compute their sends anew from what they receive again. If the call is interrupted, the next one
        sends the rest: call it before `commit()`.

        Returns:
            How many messages this call has sent.

        Raises:
            IllegalStateError: the session is not transacted, one of the producers is closed, or it is not known yet
                what became of a `commit()` that was interrupted: call it again first.
        """
        return self._transactions.replay()

    def reject(self, message: Message, reason: str, properties: Mapping[str, str | int] | None = None) -> None:
        """Send a received message to the dead letters.

        In a transacted session the commit does it: the other messages that the transaction received are consumed, and
        what it sent is sent, in the same step (AMQP 4.4.2). In INDIVIDUAL mode it is done at once, and does not wait
        for the broker: if the connection is lost at that moment, the message may be delivered again.

        Args:
            reason: what the dead letter shows as its exception; its first 4,000 characters.
            properties: further ones for the dead letter, 8,000 bytes at most.

        Raises:
            MessageFormatError: the properties are none of the wire's.
            IllegalStateError: the session is neither transacted nor of INDIVIDUAL mode, or the message is not of its
                current transaction, or is acknowledged, or its consumer was closed in the transaction.
        """
        self._transactions.reject(message, reason, properties)

    def give_back(self, message: Message, *, failed: bool = False, why: str = "") -> None:
        """Have a received message come again, here or elsewhere.

        In a transacted session that happens once it commits (AMQP 4.4.2), in INDIVIDUAL mode at once. After
        `rollback()` the message comes again too, and what is not to be counted is not; that comes again already when
        its consumer is closed.

        Args:
            failed: whether this delivery counts as failed (CONTRACT D15).
            why: then, what is told of it should the message become a dead letter.

        Raises:
            IllegalStateError: the session is neither transacted nor of INDIVIDUAL mode, or the message is not of its
                current transaction, or is acknowledged, or its consumer was closed in the transaction.
        """
        self._transactions.give_back(message, failed=failed, why=why)

    def recover(self) -> None:
        """Give back what was received and not acknowledged; it comes again, flagged and counted (CONTRACT C8).

        If the call is interrupted (in asyncio: cancelled) the recovery goes on, and the session's next call waits for
        its end first; only an interruption before its first step leaves all as it was. Called again, it makes sure.

        Raises:
            IllegalStateError: the session is transacted, or closed.
        """
        try:
            drive(self._acknowledgements.recover())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def acknowledge_all(self) -> Mapping[str, AcknowledgementOutcome]:
        """Acknowledge all that the session has received, and say what became of each message (promise 5).

        Under every failover contract it waits for the truth, over failovers too, and late acknowledgements are not
        errors. With INDIVIDUAL mode it acknowledges all as well.

        Returns:
            Outcomes by message id; messages without one have numbered names in angle brackets.

        Raises:
            IllegalStateError: the session acknowledges by itself, or is closed.
            JMSError: the connection is gone for good.
        """
        try:
            return drive(self._acknowledgements.acknowledge_all())
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def close(self) -> None:
        """Roll back or give back what is open, close producers and consumers, then the session. May be called again.

        Waits for the listener that runs now, and for completion listeners (Jakarta Messaging 6.2.15). What the broker
        has not confirmed is waited for as long as the connection's option `close_timeout_s`; without a connection
        there is nothing else to wait for.

        Raises:
            IllegalStateError: one of the session's own listeners asks, which would wait for itself (8.8, 7.3.6).
            JMSError: so many messages were not confirmed by then, and are given up (code `TIMEOUT`); the session is
                closed.
        """
        try:
            drive(self._leave(in_flight()))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leave_block(self, error)

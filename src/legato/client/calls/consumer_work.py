"""Base of consumers: take a message, report its presentation, call listeners."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from legato.amqp.engine.outcomes import Rejected
from legato.client.calls.described import described
from legato.client.calls.ports import SessionPort
from legato.client.links.deliveries import GONE, Delivery
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.links.session_state import AcknowledgeMode
from legato.client.mapping.received import Received, read_message
from legato.client.messages.destinations import Destination
from legato.client.messages.message import Message
from legato.client.steps import Steps
from legato.errors import IllegalStateError, JMSError, ProtocolError

MessageListener = Callable[[Message], object]
"""Called with each message; in asyncio it may be a coroutine function."""


class ConsumerWork:
    """A consumer's messages, one at a time."""

    def __init__(self, session: SessionPort, end: ReceiverEnd, subscription: str | None) -> None:
        self.destination: Destination = end.source.destination
        self._session = session
        self._end = end
        self._subscription = subscription
        """Its name, if it has one that is this connection's to count."""
        self._pulls = end.prefetch == 0
        self._inbox = end.incoming.inbox
        self._channel = session._channel
        self._transport = self._channel.transport
        self._guard = session._guard
        self._turn = session._guard.turn
        self._undertakings = session._undertakings
        self._acknowledgements = session._acknowledgements
        self._mode = self._acknowledgements.mode
        # Looked up once: what follows is asked for each message.
        self._automatic = self._mode is AcknowledgeMode.AUTO
        self._lazy = self._mode is AcknowledgeMode.DUPS_OK
        self._by_application = self._mode in (AcknowledgeMode.CLIENT, AcknowledgeMode.INDIVIDUAL)
        self._acknowledge = self._acknowledgements.acknowledge_needlessly
        self._listener: MessageListener | None = None
        self._closed = False

    def __repr__(self) -> str:
        selector = self.message_selector
        return described(
            self,
            f"of {self.destination!r}",
            "" if selector is None else f"selector {selector!r}",
            "" if self._listener is None else "with a listener",
            "closed" if self._closed else f"{len(self._inbox)} messages here",
        )

    @property
    def message_selector(self) -> str | None:
        """What messages have to match; None for all."""
        return self._end.source.selector

    @property
    def no_local(self) -> bool:
        """Whether what its own connection sends to the topic is left out."""
        return self._end.source.no_local

    def _interrupted(self, interruption: BaseException) -> None:
        self._session._interrupted(interruption)

    # -- messages ----------------------------------------------------------------------------------------

    def _read(self, delivery: Delivery) -> Message | None:
        acknowledge = self._acknowledgements.acknowledger(delivery) if self._by_application else self._acknowledge
        try:
            return read_message(delivery.data, self.destination, acknowledge)
        except ProtocolError as error:
            self._refuse(delivery, error)
            return None

    def _drop(self, delivery: Delivery) -> bool:
        """Take a message out of the inbox; returns whether it was the first: a failover may have emptied it."""
        inbox = self._inbox
        try:
            first = inbox.popleft()
        except IndexError:
            return False
        if first is not delivery:
            inbox.appendleft(first)
            return False
        return True

    def _refuse(self, delivery: Delivery, error: ProtocolError) -> None:
        """It is no message: the broker hears so."""
        self._drop(delivery)
        self._transport.post(self._end.refuse_message, delivery, Rejected(error.condition, str(error)))

    def _presented(self, delivery: Delivery, message: Message) -> None:
        end = self._end
        if self._by_application:
            if delivery.again and delivery.link == end.incoming.link:
                self._acknowledgements.presented_again(delivery)
            self._acknowledgements.unacknowledged[delivery] = None
        if delivery.times:
            message._mark_redelivered(delivery.times)
        message._delivery = delivery
        end.presented.append(delivery)
        if not end.scheduled:
            end.channel.wake_receiver(end)

    def _take_back(self) -> None:
        """A call was interrupted before it returned its message: that is the next one again, and nobody had it."""
        end = self._end
        delivery = end.handing
        if delivery is None:
            return
        for said in (end.accepted, end.presented):
            with contextlib.suppress(ValueError):
                said.remove(delivery)
        self._acknowledgements.unacknowledged.pop(delivery, None)
        inbox = self._inbox
        is_first = bool(inbox) and inbox[0] is delivery
        # A loss of the connection may have decided about it: it is gone, or comes again by itself.
        if not is_first and not delivery.again and delivery.state not in GONE:
            inbox.appendleft(delivery)
        end.handing = None

    def _first(self) -> Delivery | None:
        """The next message; None if none is here.

        What the loss of a connection took while `_take_back()` gave it back is not: it comes again by itself.
        """
        inbox = self._inbox
        while inbox:
            try:
                delivery = inbox[0]
            except IndexError:
                break
            if delivery.state not in GONE:
                return delivery
            self._drop(delivery)
        return None

    def _is_suspect(self) -> bool:
        """Whether the next message was delivered before: the broker is told that it is presented before it is.

        What kills every process that gets it is counted thereby, however soon it does, and is a dead letter at last.
        """
        delivery = self._first()
        return delivery is not None and not delivery.announced and self._again(delivery)

    def _again(self, delivery: Delivery) -> bool:
        try:
            return Received(delivery.data, self.destination).again
        except ProtocolError:
            return False

    def _announce(self) -> Steps[None]:
        """Have the broker told that the next message is presented."""
        delivery = self._first()
        if delivery is None:
            return
        self._transport.post(self._end.announce, delivery)
        yield from self._guard.wait(lambda: delivery.announced or self._closed, "receive")

    # -- with a listener ---------------------------------------------------------------------------------

    @property
    def message_listener(self) -> MessageListener | None:
        """A function called with each message, one at a time for all consumers of a session (Jakarta Messaging 8.7)."""
        return self._listener

    @message_listener.setter
    def message_listener(self, listener: MessageListener | None) -> None:
        if listener is not None and not callable(listener):
            raise JMSError(f"A message listener is a function that is called with each message; this is {listener!r}.")
        with self._guard.used():
            if self._closed:
                raise IllegalStateError("The consumer is closed.")
            self._listener = listener
            self._session._listeners.changed()

    def _ask_for_listener(self) -> None:
        """Without a prefetch: ask for the listener's next message."""
        if self._pulls and self._listener is not None and not self._inbox:
            self._transport.post(self._end.want)

    def _take_for_listener(self) -> tuple[Delivery, Message] | None:
        """The next message for the listener, presented; None if there is none now, or if it is to be announced."""
        self._take_back()
        while self._listener is not None and self._transport.started and not self._closed:
            delivery = self._first()
            if delivery is None:
                return None
            message = self._read(delivery)
            if message is None:
                continue
            if message._source.again and not delivery.announced:  # type: ignore[union-attr]
                return None
            if self._drop(delivery):
                self._presented(delivery, message)
                return delivery, message
        return None

    def _listener_returned(self, delivery: Delivery) -> None:
        """AUTO and DUPS_OK: acknowledge now (CONTRACT C3)."""
        end = self._end
        end.accepted.append(delivery)
        if not end.scheduled:
            end.channel.wake_receiver(end)

"""Members of a session: the producers and consumers that it has made and not yet closed."""

from __future__ import annotations

import contextlib
import logging
from typing import Any, Generic, Protocol, TypeVar

from legato.client.calls.session_guard import SessionGuard
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.mapping.source import Source
from legato.client.messages.destinations import Destination, Topic
from legato.client.steps import Steps
from legato.quoting import quoted

log = logging.getLogger("legato.client")


class Producer(Protocol):
    """A producer, for its session."""

    _closed: bool

    def _tell_duplicates(self) -> Steps[None]: ...


class Consumer(Protocol):
    """A consumer, for its session."""

    destination: Destination
    _closed: bool
    _end: ReceiverEnd

    @property
    def message_listener(self) -> object:
        """What is called with each message, if anything is."""

    def _take_back(self) -> None: ...
    def _release(self) -> None: ...
    def _release_subscription(self) -> None: ...


_Consumer = TypeVar("_Consumer", bound=Consumer)


class SessionMembers(Generic[_Consumer]):
    """Producers and consumers of a session; any thread may look, who has the turn changes them.

    Attributes:
        producers: those that are open.
        consumers: those that are open.
        closing: consumers that are being closed, or are, with messages that the application has not acknowledged.
        making: a consumer that a call is about to return.
    """

    __slots__ = ("_guard", "_warned", "closing", "consumers", "making", "producers")

    def __init__(self, guard: SessionGuard) -> None:
        self._guard = guard
        self._warned = False
        self.producers: list[Producer] = []
        self.consumers: list[_Consumer] = []
        self.closing: list[_Consumer] = []
        self.making: _Consumer | None = None

    def tell_duplicates(self) -> Steps[None]:
        """Have producers' listeners hear of messages that turned out to be duplicates."""
        for producer in list(self.producers):
            yield from producer._tell_duplicates()

    def note_listeners(self) -> None:
        """Whether messages go to listeners: these are not kept waiting for `receive()` to tell of an abort."""
        channel = self._guard.channel
        channel.listening = any(consumer.message_listener is not None for consumer in self.consumers)
        if channel.aborted is not None:
            channel.transport.post(channel.grant)

    def warn_of_prefetched(self, source: Source) -> None:
        """Warn, once, who makes a consumer of a queue for each message: what another one has ready it never gets."""
        if self._warned or isinstance(source.destination, Topic):
            return
        for consumer in self.consumers:
            end = consumer._end
            ready = len(end.incoming.inbox) if consumer.message_listener is None else 0
            if ready and (end.source.destination, end.source.selector) == (source.destination, source.selector):
                self._warned = True
                log.warning(
                    "! Another consumer of %s in this session has %d message(s) ready, which a new one does not get: "
                    "use one consumer for the queue, close it before the next one, or make it with prefetch=0.",
                    quoted(source.destination.name),
                    ready,
                )
                return

    def forget_producer(self, producer: Producer) -> None:
        """It is closed."""
        if producer in self.producers:
            self.producers.remove(producer)

    def forget_consumer(self, consumer: _Consumer, *, closed: bool) -> None:
        """The application has closed it.

        Args:
            closed: whether its link is closed too; else it waits until the application is done with what it received.
        """
        if consumer in self.consumers:
            self.consumers.remove(consumer)
        self.note_listeners()
        if not closed:
            self.begin_closing(consumer)
            return
        # In this order: who is interrupted leaves it to the next one.
        consumer._release_subscription()
        with contextlib.suppress(ValueError):
            self.closing.remove(consumer)

    def begin_closing(self, consumer: _Consumer) -> None:
        """Its link is about to be closed; if that is interrupted, who wants the subscription waits for it."""
        if consumer not in self.closing:
            self.closing.append(consumer)

    def sweep(self, asking: SessionGuard) -> Steps[None]:
        """Forget consumers whose messages were acknowledged after they closed: their subscriptions are free.

        Args:
            asking: the guard of the session that waits for that, which may be another one, and may close meanwhile.
        """
        channel = self._guard.channel
        for consumer in list(self.closing):
            end = consumer._end
            if not end.released:
                yield from asking.wait(
                    lambda end=end: end.closed or end.released or channel.error,  # type: ignore[misc]
                    "use a subscription",
                    gate=channel.gate,
                )
            if end.closed:
                consumer._release_subscription()
                with contextlib.suppress(ValueError):
                    self.closing.remove(consumer)

    def take_back(self) -> None:
        """A call was interrupted: the message that it was about to return is the next one again."""
        for consumer in list(self.consumers):
            consumer._take_back()
            if consumer._closed:
                # Its close was interrupted: who wants its subscription waits for its end.
                self.begin_closing(consumer)
                consumer._release()

    def unmake(self) -> None:
        """A call was interrupted: the consumer that it was about to return is closed."""
        making = self.making
        if making is not None:
            # It may be of a session below.
            channel: Any = making._end.channel
            channel.transport.post(making._end.close)
            making._release_subscription()
            channel.owner._members.forget_consumer(making, closed=making._end.closed)
            self.making = None

    def close_consumers(self) -> None:
        """No consumer receives any more; their links are closed with the session's."""
        for consumer in self.consumers:
            consumer._closed = True

    def forget_all(self) -> None:
        """The session is closed, and all that it made with it."""
        for producer in self.producers:
            producer._closed = True
        for consumer in [*self.consumers, *self.closing]:
            consumer._release_subscription()
        self.consumers.clear()
        self.closing.clear()
        self.producers.clear()

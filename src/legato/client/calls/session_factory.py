"""Steps of a session that create destinations, producers, consumers and browsers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from legato.client.calls.browser_steps import BrowserSteps
from legato.client.calls.consumer_steps import ConsumerSteps
from legato.client.calls.ports import SessionPort
from legato.client.calls.producer_steps import ProducerSteps
from legato.client.links.receiver_end import ReceiverEnd
from legato.client.links.unsubscribe_end import UnsubscribeEnd
from legato.client.mapping.source import (
    Source,
    checked_name,
    checked_prefetch,
    checked_priority,
    checked_selector,
)
from legato.client.messages.destinations import (
    Destination,
    Queue,
    Temporary,
    TemporaryQueue,
    TemporaryTopic,
    Topic,
    checked,
    checked_queue,
    checked_topic,
)
from legato.client.steps import Steps
from legato.errors import IllegalStateError, InvalidDestinationError, JMSSecurityError

_Producer = TypeVar("_Producer", bound=ProducerSteps)
_Consumer = TypeVar("_Consumer", bound=ConsumerSteps)
_Browser = TypeVar("_Browser", bound=BrowserSteps)


class SessionFactory(Generic[_Producer, _Consumer, _Browser]):
    """Makes what a session has, and what its connection has for it (Jakarta Messaging 6.2)."""

    __slots__ = (
        "_browser_type",
        "_connection",
        "_consumer_type",
        "_guard",
        "_made",
        "_members",
        "_name",
        "_prefetch",
        "_producer_type",
        "_session",
        "_subscribed",
        "_unsubscribing",
    )

    def __init__(
        self,
        session: SessionPort,
        name: str,
        prefetch: int,
        producer_type: type[_Producer],
        consumer_type: type[_Consumer],
        browser_type: type[_Browser],
    ) -> None:
        """Make objects of these types for `session`, with names that begin with its `name`.

        Args:
            prefetch: messages that consumers keep ready which do not say otherwise.
        """
        self._session = session
        self._connection = session._connection
        self._guard = session._guard
        self._members = session._members
        self._name = name
        self._prefetch = prefetch
        self._producer_type = producer_type
        self._consumer_type = consumer_type
        self._browser_type = browser_type
        self._unsubscribing: dict[str, UnsubscribeEnd] = {}
        """By the name of their subscription; those of which no call has heard yet what came of them."""
        self._subscribed: dict[str, Any] = {}
        """By the name of a durable subscription, the session below that has had a consumer of it last."""
        self._made = 0

    def _next_name(self, kind: str) -> str:
        self._made += 1
        return f"{self._name}:{kind}{self._made}"

    # -- destinations ------------------------------------------------------------------------------------

    def create_temporary_queue(self) -> Steps[TemporaryQueue]:
        """A queue that only this connection receives from, and that ends with it or by its `delete()`."""
        with self._guard.used():
            return (yield from self._connection._new_temporary(self._connection._temporary_queue_type, self._guard))

    def create_temporary_topic(self) -> Steps[TemporaryTopic]:
        """A topic that only this connection receives from, and that ends with it or by its `delete()`."""
        with self._guard.used():
            return (yield from self._connection._new_temporary(self._connection._temporary_topic_type, self._guard))

    # -- producers, consumers, browsers ------------------------------------------------------------------

    def create_producer(self, destination: Destination | None = None) -> Steps[_Producer]:
        """A producer for a queue or topic, or for those that each `send()` names.

        Raises:
            InvalidDestinationError: the destination cannot be sent to.
            IllegalStateError: the session is closed.
        """
        with self._guard.used():
            if self._session._groups.bound is not None:
                return (yield from self._producer_below(self._session._groups.bound, destination))
            target = None if destination is None else checked(destination)
            made: _Producer = yield from self._session._groups.follow_redirects(
                "create a producer",
                lambda: self._producer_here(target),
                lambda below: self._producer_below(below, destination),
            )
            return made

    def create_consumer(
        self,
        destination: Destination,
        selector: str | None = None,
        no_local: bool = False,
        *,
        prefetch: int | None = None,
        priority: int = 0,
    ) -> Steps[_Consumer]:
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
        with self._guard.used():
            found = checked(destination)
            if isinstance(found, Temporary):
                self._connection._check_owned(found)
            source = Source(
                destination=found,
                selector=checked_selector(selector),
                no_local=no_local and isinstance(found, Topic),
                priority=checked_priority(priority),
            )
            return (
                yield from self._new_consumer(
                    source,
                    prefetch,
                    None,
                    lambda factory: factory.create_consumer(
                        destination, selector, no_local, prefetch=prefetch, priority=priority
                    ),
                )
            )

    def create_durable_consumer(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        no_local: bool = False,
        *,
        prefetch: int | None = None,
    ) -> Steps[_Consumer]:
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
        with self._guard.used():
            if self._connection.client_id is None:
                raise IllegalStateError(
                    "A durable subscription that is not shared needs a client id: give the connection one, such as "
                    "with the URI's option client_id."
                )
            source = Source(
                destination=_lasting(topic), selector=checked_selector(selector), no_local=no_local, durable=True
            )
            return (
                yield from self._new_consumer(
                    source,
                    prefetch,
                    checked_name(name),
                    lambda factory: factory.create_durable_consumer(topic, name, selector, no_local, prefetch=prefetch),
                )
            )

    def create_durable_subscriber(
        self,
        topic: Topic,
        name: str,
        selector: str | None = None,
        no_local: bool = False,
    ) -> Steps[_Consumer]:
        """The older name of `create_durable_consumer`."""
        return (yield from self.create_durable_consumer(topic, name, selector, no_local))

    def create_shared_consumer(
        self, topic: Topic, name: str, selector: str | None = None, *, prefetch: int | None = None
    ) -> Steps[_Consumer]:
        """One of several consumers that share a subscription, which ends with the last one (Jakarta Messaging 8.3.2).

        Raises:
            IllegalStateError: the subscription has consumers, and another topic or selector.
            InvalidDestinationError: this is no topic.
            InvalidSelectorError: the selector is none.
        """
        return (yield from self._new_shared(checked_topic(topic), name, selector, False, prefetch))

    def create_shared_durable_consumer(
        self, topic: Topic, name: str, selector: str | None = None, *, prefetch: int | None = None
    ) -> Steps[_Consumer]:
        """One of several consumers that share a subscription, which stays until `unsubscribe()` (8.3.4).

        Raises:
            IllegalStateError: the subscription has consumers, and another topic or selector, or is not shared.
            InvalidDestinationError: this is no topic.
            InvalidSelectorError: the selector is none.
        """
        return (yield from self._new_shared(_lasting(topic), name, selector, True, prefetch))

    def unsubscribe(self, name: str) -> Steps[None]:
        """End a durable subscription, with the messages in it (Jakarta Messaging 8.3.3).

        If it is interrupted (in asyncio: cancelled) it goes on, as long as the session is open; called again it waits
        for the same end.

        Raises:
            IllegalStateError: it has an active consumer, or a stream of Spark's reads it.
            InvalidDestinationError: there is none of that name.
        """
        with self._guard.used():
            connection = self._connection
            # One of that name that is here too was left behind when its topic moved.
            last = self._subscribed.pop(checked_name(name), None)
            if last is not None and (yield from self._unsubscribe_below(last, name)):
                return
            subscriptions = yield from connection._swept_subscriptions(self._guard)
            subscriptions.check_unused(name)
            self._guard.check_fits("", subscription=name)
            link_name = f"{name}|global" if connection.client_id is None else name
            channel = self._session._channel
            end = self._unsubscribing.get(name)
            if end is None or end.closed:
                end = UnsubscribeEnd(channel, link_name, name, found=end is not None and end.found)
                self._unsubscribing[name] = end
            channel.transport.post(channel.unsubscribe, end)
            yield from self._guard.wait(lambda: end.closed, "unsubscribe")
            del self._unsubscribing[name]
            if end.error is None:
                return
            # The subscription may be in a group where this session has subscribed.
            for below in self._session._groups if isinstance(end.error, InvalidDestinationError) else ():
                if (yield from self._unsubscribe_below(below, name)):
                    return
            raise end.error

    def _unsubscribe_below(self, session: Any, name: str) -> Steps[bool]:
        """End a subscription in a session below; whether there was one of that name."""
        try:
            with self._guard.keeping_turn():
                yield from session._factory.unsubscribe(name)
        except InvalidDestinationError:
            return False
        except BaseException:
            self._subscribed[name] = session
            raise
        return True

    def create_browser(self, destination: Queue, selector: str | None = None) -> _Browser:
        """A look at the messages of a queue, without consuming them (Jakarta Messaging 4.1.6).

        Args:
            selector: show only messages that match it.
        """
        with self._guard.used():
            source = Source(destination=checked_queue(destination), selector=checked_selector(selector), browsed=True)
            self._guard.check_fits(source.destination.name, source.selector)
            return self._browser_type(self._session, source, self._next_name("b"), self._prefetch)

    def _new_shared(
        self, topic: Topic, name: str, selector: str | None, durable: bool, prefetch: int | None
    ) -> Steps[_Consumer]:
        with self._guard.used():
            everybodys = self._connection.client_id is None
            source = Source(
                destination=topic,
                selector=checked_selector(selector),
                durable=durable,
                shared=True,
                everybodys=everybodys,
            )
            return (
                yield from self._new_consumer(
                    source,
                    prefetch,
                    checked_name(name),
                    lambda factory: factory._new_shared(topic, name, selector, durable, prefetch),
                )
            )

    def _new_consumer(
        self,
        source: Source,
        prefetch: int | None,
        subscription: str | None,
        below: Callable[[Any], Steps[_Consumer]],
    ) -> Steps[_Consumer]:
        """A consumer, in a session below this one if another group of brokers has the destination.

        Args:
            below: makes it there.
        """
        groups = self._session._groups
        made: _Consumer
        if groups.bound is not None:
            made = yield from self._made_below(groups.bound, below)
        else:
            made = yield from groups.follow_redirects(
                "create a consumer",
                lambda: self._consumer_here(source, prefetch, subscription),
                lambda session: self._made_below(session, below),
            )
        if source.durable and subscription is not None:
            self._subscribed.pop(subscription, None)
            if made._session is not self._session:
                self._subscribed[subscription] = made._session
        return made

    def _consumer_here(self, source: Source, prefetch: int | None, subscription: str | None) -> Steps[_Consumer]:
        """The consumer is the call's until `making` is None; who is interrupted before leaves none behind."""
        channel = self._session._channel
        self._guard.check_fits(source.destination.name, source.selector, subscription=subscription or "")
        end = ReceiverEnd(channel, "", source, self._prefetch if prefetch is None else checked_prefetch(prefetch))
        consumer = self._consumer_type(self._session, end, subscription)
        subscriptions = None
        if subscription is not None:
            subscriptions = yield from self._connection._swept_subscriptions(self._guard)
        # Before it takes a name, so that this is given back whatever comes.
        self._members.making = consumer
        try:
            end.name = self._next_name("c") if subscriptions is None else consumer._take_subscription(subscriptions)
            channel.transport.post(channel.add_receiver, end)
            yield from self._guard.wait(lambda: end.ready or end.closed, "create a consumer")
            if end.error is not None:
                raise end.error
        except BaseException:
            channel.transport.post(end.close)
            consumer._release_subscription()
            self._members.making = None
            raise
        self._members.warn_of_prefetched(source)
        self._members.consumers.append(consumer)
        return consumer

    def _producer_here(self, target: Destination | None) -> Steps[_Producer]:
        producer = self._producer_type(self._session, target, self._next_name("p"))
        if target is not None:
            yield from producer._open_route(target)
        self._members.producers.append(producer)
        return producer

    def _producer_below(self, session: Any, destination: Destination | None) -> Steps[_Producer]:
        with self._guard.keeping_turn():
            made: _Producer = yield from session._factory.create_producer(destination)
            return made

    def _made_below(self, session: Any, make: Callable[[Any], Steps[_Consumer]]) -> Steps[_Consumer]:
        with self._guard.keeping_turn():
            consumer = yield from make(session._factory)
        # In this order: it is one call's or the other's until the application has it.
        self._members.making = consumer
        session._members.making = None
        return consumer


def _lasting(topic: Topic) -> Topic:
    """`topic`, if it can have a durable subscription."""
    found = checked_topic(topic)
    if isinstance(found, Temporary):
        raise JMSSecurityError(f"{found.name} is a temporary topic, which has no durable subscriptions.")
    return found

"""Steps of a requestor: a request, and its reply over a temporary destination."""

from __future__ import annotations

import time
from typing import Any

from legato.client.calls.consumer_steps import ConsumerSteps
from legato.client.calls.described import described
from legato.client.calls.leaving import leaving
from legato.client.calls.producer_steps import ProducerSteps
from legato.client.calls.session_steps import SessionSteps
from legato.client.messages.destinations import Destination, Temporary, Topic, checked_queue, checked_topic
from legato.client.messages.message import Message
from legato.client.steps import Steps
from legato.errors import IllegalStateError


class RequestorSteps:
    """Sends requests and receives the reply to each (Jakarta Messaging API, `QueueRequestor`, `TopicRequestor`).

    Who answers sends to the request's `reply_to`. A reply that comes after its request was given up, by its time-out, a
    cancellation or an error, is dropped if it has that request's id as correlation id.
    """

    def __init__(self, session: SessionSteps[Any, Any, Any], destination: Destination) -> None:
        if session.transacted:
            raise IllegalStateError("A requestor needs a session that is not transacted.")
        session._guard.check_open()
        self._session = session
        self._destination = destination
        self._producer: ProducerSteps | None = None
        self._consumer: ConsumerSteps | None = None
        self._replies: Temporary | None = None
        self._given_up: set[object] = set()

    def __repr__(self) -> str:
        return described(self, f"to {self._destination!r}")

    def _interrupted(self, interruption: BaseException) -> None:
        self._session._interrupted(interruption)

    def _request(self, message: Message, timeout_s: float | None = None) -> Steps[Message | None]:
        """Send a request and wait for its reply; the connection must be started.

        Args:
            timeout_s: seconds to wait at most; None for ever.

        Returns:
            The reply, or None if none came in time.
        """
        if self._consumer is None:
            yield from self._prepare()
        assert self._producer is not None
        assert self._consumer is not None
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        message.reply_to = self._replies
        sent_before = self._last_sent
        try:
            yield from self._producer._send(message)
            while True:
                remaining_s = None if deadline is None else max(deadline - time.monotonic(), 0)
                reply = yield from self._consumer._receive(remaining_s)
                if reply is None:
                    self._give_up(sent_before)
                if reply is None or reply.correlation_id not in self._given_up:
                    return reply
                self._given_up.discard(reply.correlation_id)
        except BaseException:
            self._give_up(sent_before)
            raise

    @property
    def _last_sent(self) -> str | None:
        """The message id of the last request that was sent."""
        route = None if self._producer is None else self._producer._route
        return None if route is None else f"{route.id_prefix}{route.end.outgoing.last_number}"

    def _give_up(self, sent_before: str | None) -> None:
        """A request is over without a reply: if it was sent, and is not the one before, that is nobody's."""
        sent = self._last_sent
        if sent != sent_before:
            self._given_up.add(sent)

    def _prepare(self) -> Steps[None]:
        session = self._session
        self._producer = yield from session._factory.create_producer(self._destination)
        if isinstance(self._destination, Topic):
            self._replies = yield from session._factory.create_temporary_topic()
        else:
            self._replies = yield from session._factory.create_temporary_queue()
        consumer = yield from session._factory.create_consumer(self._replies)
        # One step: before it the consumer is none that anybody has, and who is interrupted prepares anew.
        session._members.making = None; self._consumer = consumer  # fmt: skip  # noqa: E702

    def _close(self) -> Steps[None]:
        """Close the requestor, and its session; without a connection its temporary destination ends with the next.

        A broker that does not answer is waited for as long as the connection's option `close_timeout_s`, for each of
        them.
        """
        transport = self._session._channel.transport
        if self._consumer is not None and self._replies is not None:
            yield from self._consumer._close()
            yield from self._replies._delete(
                lambda: transport.wire is None, self._session._connection._options.close_timeout_s
            )
        yield from self._session._close()

    def _leave(self, error: BaseException | None) -> Steps[None]:
        return leaving(self._close(), self._session._channel.transport, error)


class QueueRequestorSteps(RequestorSteps):
    __doc__ = RequestorSteps.__doc__

    def __init__(self, session: SessionSteps[Any, Any, Any], queue: Destination) -> None:
        super().__init__(session, checked_queue(queue))


class TopicRequestorSteps(RequestorSteps):
    __doc__ = RequestorSteps.__doc__

    def __init__(self, session: SessionSteps[Any, Any, Any], topic: Destination) -> None:
        super().__init__(session, checked_topic(topic))

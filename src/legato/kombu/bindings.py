"""Bindings of queues to exchanges, kept as messages of a durable queue that every process browses."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable
from functools import lru_cache

import msgspec

from legato.client import Destination, Queue, Session, TextMessage, Topic
from legato.errors import JMSError, JMSSecurityError, ResourceAllocationError

log = logging.getLogger("legato.kombu")

TABLE = "kombu.bindings"
"""The queue that holds the bindings."""
LEASE_S = 120.0
"""A binding of a transient queue is forgotten after this time, unless a process that declared the queue renews it."""
DIRECT, TOPIC, FANOUT = "direct", "topic", "fanout"
TYPES = (DIRECT, TOPIC, FANOUT)
PAUSE_FIRST_S, PAUSE_MAX_S = 0.005, 0.2
"""Between two attempts to read the bindings while a backup takes over."""


class Binding(msgspec.Struct, frozen=True):
    """One queue bound to one exchange; each queue is bound by its name to the default exchange, whose name is empty.

    `type` is that of the exchange. `ttl_ms` is the queue's message TTL, 0 for none.
    """

    queue: str
    exchange: str
    routing_key: str
    type: str = DIRECT
    transient: bool = False
    ttl_ms: int = 0

    def matches(self, routing_key: str) -> bool:
        """Whether a message that is published with this key goes to the queue."""
        if self.type == FANOUT:
            return True
        if self.type == TOPIC:
            return topic_matches(self.routing_key, routing_key)
        return self.routing_key == routing_key

    @property
    def destination(self) -> Destination:
        """Where the queue's messages are sent: a transient queue is a shared subscription of a topic of its name."""
        return Topic(self.queue) if self.transient else Queue(self.queue)


@lru_cache(maxsize=10_000)
def topic_matches(pattern: str, routing_key: str) -> bool:
    """Whether a key matches a pattern: `*` is one word, `#` any number of words, none included (AMQP 0.9.1)."""
    words = routing_key.split(".") if routing_key else []
    reached = {0}  # how many words the pattern so far may have covered
    for part in pattern.split(".") if pattern else []:
        if part == "#":
            reached = set(range(min(reached), len(words) + 1)) if reached else reached
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in ("*", words[at])}
    return len(words) in reached


class BindingTable:
    """The bindings that all processes see; for the session of one thread at a time.

    Raises what its session raises. It is read whole, without a selector: it is short, and that is ten times faster.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._queue = session.create_queue(TABLE)
        self._producer = session.create_producer(self._queue)

    def of_exchange(self, exchange: str) -> set[Binding]:
        """Bindings to an exchange."""
        return {binding for binding in self.all() if binding.exchange == exchange}

    def of_name(self, queue: str) -> Binding | None:
        """The binding of a queue to the default exchange: there is one if anybody declared the queue."""
        found = [binding for binding in self.all() if binding.queue == queue and not binding.exchange]
        # The latest declaration cannot be told; a transient one would lose what a durable one keeps.
        return min(found, key=lambda binding: binding.transient, default=None)

    def all(self) -> set[Binding]:
        """Every binding."""
        pause_s = PAUSE_FIRST_S
        while True:
            try:
                with self._session.create_browser(self._queue) as browser:
                    return set(_read(browser))
            except (JMSSecurityError, ResourceAllocationError):
                raise  # The broker has refused it, and would again.
            except JMSError:
                # A browser does not outlive a failover. If the connection is gone for good, this raises.
                self._session.create_producer(self._queue).close()
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, PAUSE_MAX_S)

    def add(self, binding: Binding) -> None:
        """Add a binding unless it is there; when this returns every process sees it."""
        if binding.transient or binding not in self.all():
            self._producer.send(row_of(binding), time_to_live_ms=lease_ms(binding))

    def remove(self, *, queue: str, exchange: str | None = None, routing_key: str | None = None) -> None:
        """Remove bindings of a queue: all, or those to one exchange with one key."""
        selector = f"queue = {_quoted(queue)}"
        if exchange is not None:
            selector += f" AND exchange = {_quoted(exchange)} AND routing_key = {_quoted(routing_key or '')}"
        self._remove(selector)

    def remove_exchange(self, exchange: str) -> None:
        """Remove all bindings to an exchange."""
        self._remove(f"exchange = {_quoted(exchange)}")

    def _remove(self, selector: str) -> None:
        with self._session.create_consumer(self._queue, selector, prefetch=0) as consumer:
            while consumer.receive_no_wait() is not None:
                pass


def row_of(binding: Binding) -> TextMessage:
    """The message that stands for a binding."""
    row = TextMessage(msgspec.json.encode(binding).decode())
    row.set_property("queue", binding.queue)
    row.set_property("exchange", binding.exchange)
    row.set_property("routing_key", binding.routing_key)
    return row


def lease_ms(binding: Binding) -> int:
    """How long its row lives, in milliseconds; 0: for ever."""
    return round(LEASE_S * 1000) if binding.transient else 0


def _read(rows: Iterable[object]) -> Iterable[Binding]:
    for row in rows:
        try:
            assert isinstance(row, TextMessage)
            yield msgspec.json.decode(row.text or "", type=Binding)
        except (AssertionError, msgspec.MsgspecError):
            log.warning("! The queue %s holds a message that is no binding: %r", TABLE, row)


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"

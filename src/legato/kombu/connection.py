"""A connection of kombu's: one of Legato's that sends, one that receives, and the messages that wait for kombu."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from legato.client import ConnectionFactory, DeliveryMode, Destination, Message, Session
from legato.client.aio import ConnectionFactory as AsyncConnectionFactory
from legato.client.failover.uri import short_wait
from legato.client.management import request
from legato.errors import InvalidDestinationError, JMSError, TransactionRolledBackError
from legato.kombu.bindings import Binding, BindingTable
from legato.kombu.envelope import Sending
from legato.kombu.errors import BrokerAwayError, BrokerLostError, translated
from legato.kombu.receiving import Puller, Quota, Receiving
from legato.quoting import sentence

if TYPE_CHECKING:
    from legato.kombu.channel import Channel

log = logging.getLogger("legato.kombu")

RECONNECT_ATTEMPTS = 80
"""Rounds through all brokers before a publication raises, about a minute with the client's pauses; consumers go on."""
CLOSE_TIMEOUT_S = 10.0
"""The longest that closing waits for a broker to confirm what it was sent, if `connection_options` does not say."""
BROADCAST_WAIT_S = 1.0
"""A transient message to whoever listens, such as a worker's heartbeat, waits no longer for a broker.

The whole worker waits with it, also one that is to stop. A takeover is over by then.
"""
DELETIONS_MAX = 3
"""How often a message is sent if its destination was deleted each time, which ends the link to it.

Celery deletes the queue of a reply once it has it, and makes it again for the next one: the link is the only thing that
is out of date. A queue that is deleted for good is made again by the message, as by the first that it ever had.
"""


class BrokerConnection:
    """A connection as kombu sees one. One thread at a time uses it, others wait.

    Args:
        client: kombu's `Connection`.
        uri: for `legato.client`.
        options: further options of the connection.

    Raises:
        BrokerLostError: no broker could be reached.
    """

    def __init__(self, client: Any, uri: str, options: dict[str, Any]) -> None:
        self.client = client
        self.uri = uri
        self.channels: list[Channel] = []
        self.declared: dict[str, Binding] = {}
        """Queues that this connection declared, with their binding to the default exchange."""
        self.exchange_types: dict[str, str] = {}
        self.closed = False
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._events: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._waker: socket.socket | None = None
        self._wakened: socket.socket | None = None
        self._loop: Any = None
        self._receiving: Receiving | None = None
        if "close_timeout_s=" not in uri:
            options = {"close_timeout_s": CLOSE_TIMEOUT_S, **options}
        self._options = options
        self._returned = threading.Event()
        with translated():
            sender = ConnectionFactory(uri, **{"reconnect_attempts": RECONNECT_ATTEMPTS, **short_wait(uri), **options})
            self._connection = sender.create_connection()
            self._connection.exception_listener = _on_exception
            self._connection.failover_listener = lambda _: self._returned.set()
            self._connection.start()
            self._session = self._connection.create_session()
            self._producer = self._session.create_producer()
            self._transacted: Session | None = None
            self._table = BindingTable(self._session)

    @property
    def usable(self) -> bool:
        """Whether it is open, and of this process."""
        return not self.closed and self._pid == os.getpid()

    @contextmanager
    def _used(self) -> Iterator[None]:
        if not self.usable:
            raise BrokerLostError(
                "The connection is closed."
                if self.closed
                else f"The connection belongs to process {self._pid}, which forked this one: connect again."
            )
        with self._lock, translated():
            yield

    # -- bindings ----------------------------------------------------------------------------------------

    @contextmanager
    def table(self) -> Iterator[BindingTable]:
        """The bindings that all processes see."""
        with self._used():
            yield self._table

    def keep(self, bindings: set[Binding]) -> None:
        """Keep a transient queue alive as long as this connection is."""
        with self._used():
            self.receiving.keep(bindings)

    def release(self, queue_name: str) -> None:
        """A queue is deleted."""
        with self._used():
            known = self.declared.pop(queue_name, None)
            if self._receiving is not None:
                self._receiving.release(queue_name)
            if known is not None and known.transient:
                self._delete_topic(queue_name)

    def _delete_topic(self, name: str) -> None:
        """Delete the topic of a transient queue, unless somebody else subscribes to it."""
        with contextlib.suppress(JMSError):
            if request(self.uri, "read", "topic", name)["subscriptions"] == 0:
                request(self.uri, "delete", "topic", name)

    # -- sending -----------------------------------------------------------------------------------------

    def send(self, copies: list[tuple[Destination, Message, Sending]]) -> None:
        """Send a message to one queue, or to several in one transaction; returns when the broker has stored it."""
        with self._used():
            if len(copies) == 1:
                self._send_one(*copies[0])
                return
            session = self._transacted
            if session is None:
                session = self._transacted = self._connection.create_session(transacted=True)
            attempts = itertools.count(1)
            while True:
                with session.create_producer() as producer:
                    try:
                        for copy in copies:
                            _send(producer, *copy)
                        session.commit()
                    except TransactionRolledBackError:
                        continue  # a failover came: none of them was sent
                    except InvalidDestinationError:
                        session.rollback()
                        if next(attempts) == DELETIONS_MAX:
                            raise
                        continue
                return

    def demand_broker(self) -> None:
        """Wait a moment for a broker, if there is none.

        Raises:
            BrokerAwayError: none came.
        """
        if self._connection.host is not None:
            return
        self._returned.clear()
        if self._connection.host is None and not self._returned.wait(BROADCAST_WAIT_S):
            raise BrokerAwayError(
                "There is no broker at the moment; a transient message to many does not wait for one."
            )

    def _send_one(self, destination: Destination, message: Message, how: Sending) -> None:
        for _ in range(DELETIONS_MAX - 1):
            with contextlib.suppress(InvalidDestinationError):
                return _send(self._producer, destination, message, how)
        _send(self._producer, destination, message, how)

    # -- receiving ---------------------------------------------------------------------------------------

    @property
    def receiving(self) -> Receiving:
        """The half that receives, made when it is first needed."""
        if self._receiving is None:
            self._receiving = Receiving(AsyncConnectionFactory(self.uri, **self._options), self._put)
        return self._receiving

    def post(self, function: Callable[[], None]) -> None:
        """Have the half that receives do something; if there is none yet, do it."""
        if self._receiving is None:
            function()
        else:
            self._receiving.post(function)

    def consume(self, channel: Channel, quota: Quota, binding: Binding, *, no_ack: bool) -> Puller:
        """Begin to receive from a queue."""

        def deliver(puller: Puller, message: Message) -> None:
            self._put((channel, puller, message))

        with self._used():
            return self.receiving.open(quota, binding, no_ack=no_ack, deliver=deliver)

    def new_session(self, mode: Any) -> Session:
        """A session beside the one that sends."""
        with self._used():
            return self._connection.create_session(acknowledge_mode=mode)

    @contextmanager
    def used(self) -> Iterator[None]:
        """Use one of its sessions."""
        with self._used():
            yield

    def _put(self, event: Any) -> None:
        """In the event loop's thread: hand something to kombu's."""
        self._events.put(event)
        self._wake()

    def _wake(self) -> None:
        waker = self._waker
        if waker is not None:
            # It is full, or closed: whoever reads it looks at all events.
            with contextlib.suppress(OSError):
                waker.send(b"\0")

    def drain(self, timeout_s: float | None) -> None:
        """Deliver one message.

        Raises:
            socket.timeout: none came in time.
            BrokerLostError: the connection is gone for good.
        """
        if not self.usable:
            raise BrokerLostError("The connection is closed.")
        try:
            event = self._events.get(timeout_s != 0, timeout_s)
        except queue.Empty:
            raise TimeoutError("No message came in time.") from None
        self._handle(event)

    def drain_ready(self) -> None:
        """Deliver the messages that are here; those that come meanwhile wait for the next call."""
        wakened = self._wakened
        if wakened is not None:
            with contextlib.suppress(BlockingIOError):
                wakened.recv(4096)
        try:
            for _ in range(self._events.qsize()):
                try:
                    event = self._events.get_nowait()
                except queue.Empty:
                    return
                self._handle(event)
        finally:
            if not self._events.empty():
                self._wake()

    def _handle(self, event: Any) -> None:
        if isinstance(event, JMSError):
            if self.closed:
                return
            with translated():
                raise event
        channel, puller, message = event
        channel.deliver(puller, message)

    def register(self, loop: Any) -> None:
        """Have an event loop of kombu's deliver what comes."""
        self._loop = loop
        self._waker, self._wakened = socket.socketpair()
        self._waker.setblocking(False)
        self._wakened.setblocking(False)
        loop.add_reader(self._wakened.fileno(), self.drain_ready)
        if not self._events.empty():
            self._wake()

    def unregister(self) -> None:
        """The event loop is done with it."""
        waker, wakened, loop = self._waker, self._wakened, self._loop
        self._waker = self._wakened = self._loop = None
        if wakened is not None:
            with contextlib.suppress(Exception):  # the loop may have forgotten it, or be reset
                loop.remove_reader(wakened.fileno())
            wakened.close()
        if waker is not None:
            waker.close()

    # -- the end -----------------------------------------------------------------------------------------

    def close(self) -> None:
        """Give back what is not settled, and close. In a forked child nothing is sent. May be called again."""
        if self.closed:
            return
        if self._pid != os.getpid():
            self.closed = True
            return
        for channel in list(self.channels):
            channel.close()
        with self._lock:
            self.closed = True
            self.unregister()
            reachable = self._connection.host is not None
            if self._receiving is not None:
                self._receiving.close()
            try:
                self._connection.close()
            except JMSError as error:
                log.warning("! %s", sentence(error))
            for binding in self.declared.values():
                if binding.transient and reachable:
                    self._delete_topic(binding.queue)


def _on_exception(error: JMSError) -> None:
    """What the connection that sends tells without being asked: raised by what is sent next, if it matters."""
    if isinstance(error, InvalidDestinationError):
        log.debug("= %s", sentence(error))
    else:
        log.warning("! %s", sentence(error))


def _send(producer: Any, destination: Destination, message: Message, how: Sending) -> None:
    producer.send(
        message,
        destination=destination,
        priority=how.priority,
        # A transient one too: what the broker has not confirmed may have been sent to a queue that was just deleted.
        delivery_mode=DeliveryMode.PERSISTENT,
        time_to_live_ms=how.time_to_live_ms,
        delivery_delay_ms=how.delivery_delay_ms,
    )

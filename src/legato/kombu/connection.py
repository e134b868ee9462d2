"""A connection of kombu's: one of Legato's that sends, one that receives, and the messages that wait for kombu."""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from legato.client import Connection, ConnectionFactory, Message, Session
from legato.client.aio import ConnectionFactory as AsyncConnectionFactory
from legato.client.failover.uri import short_wait
from legato.client.management import request_at_group
from legato.errors import InvalidDestinationError, JMSError, JMSSecurityError
from legato.kombu.bindings import TYPES, Binding, BindingTable
from legato.kombu.errors import BrokerAwayError, BrokerLostError, translated
from legato.kombu.receiving import Puller, Quota, Receiving
from legato.kombu.sending import MessageCopy, Sender
from legato.quoting import sentence

if TYPE_CHECKING:
    from legato.kombu.channel import Channel

log = logging.getLogger("legato.kombu")

RECONNECT_ATTEMPTS = 80
"""Rounds through all brokers before a publication raises, about a minute with the client's pauses; consumers go on.

The connection that sends is gone for good then. What is sent next looks for a broker anew.
"""
CLOSE_TIMEOUT_S = 10.0
"""The longest that closing waits for a broker to confirm what it was sent, if `connection_options` does not say."""
BROADCAST_WAIT_S = 1.0
"""A transient message to whoever listens, such as a worker's heartbeat, waits no longer for a broker.

The whole worker waits with it, also one that is to stop. A takeover is over by then.
"""
AWAY = "There is no broker at the moment; a transient message to many does not wait for one."
BROADCAST_ROUNDS = 18
"""So many rounds through all brokers take about that second, with the client's pauses."""


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
        self.exchange_types = {f"amq.{kind}": kind for kind in TYPES}
        """Of exchanges that it declared, and of those that are always there, which kombu never declares."""
        self.closed = False
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._events: queue.Queue[Any] = queue.Queue()
        self._waker: socket.socket | None = None
        self._wakened: socket.socket | None = None
        self._loop: Any = None
        self._receiving: Receiving | None = None
        if "close_timeout_s=" not in uri:
            options = {"close_timeout_s": CLOSE_TIMEOUT_S, **options}
        self._options = options
        self._returned = threading.Event()
        self.connected = 0
        """How often it has connected for what it sends, and for `new_session`."""
        with translated():
            self._connect()
        self._broadcasts: tuple[Connection, Sender] | None = None
        """A connection that gives up soon, for transient messages to many."""

    def _connect(self) -> None:
        """Have a connection that sends, or another one in the place of one that is gone for good."""
        options = {"reconnect_attempts": RECONNECT_ATTEMPTS, **short_wait(self.uri), **self._options}
        connection = ConnectionFactory(self.uri, **options).create_connection()
        try:
            connection.exception_listener = _on_exception
            connection.failover_listener = lambda _: self._returned.set()
            connection.start()
            self._sender = Sender(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection
        self.connected += 1

    @property
    def usable(self) -> bool:
        """Whether it is open, and of this process."""
        return not self.closed and self._pid == os.getpid()

    @contextmanager
    def _used(self) -> Iterator[None]:
        with self._held():
            if self._connection.lost is not None:
                with contextlib.suppress(JMSError):
                    self._connection.close()
                self._connect()
            yield

    @contextmanager
    def _held(self) -> Iterator[None]:
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
            yield self._sender.table

    def keep(self, bindings: set[Binding]) -> None:
        """Keep a transient queue alive as long as this connection is."""
        with self._used():
            self.receiving.keep(bindings)

    def keeps(self, queue_name: str) -> bool:
        """Whether it keeps a transient queue alive."""
        return self._receiving is not None and self._receiving.keeps(queue_name)

    def may_have_lost(self, queue_name: str) -> bool:
        """Whether a transient queue that it keeps alive may have been deleted since, by anyone."""
        return self._receiving is not None and self._receiving.may_have_lost(queue_name)

    def let_go(self, gone: Callable[[Binding], bool]) -> None:
        """Bindings of transient queues are to be removed: renew them no longer."""
        with self._used():
            if self._receiving is not None:
                self._receiving.let_go(gone)

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
            if request_at_group(self.uri, "read", "topic", name)["subscriptions"] == 0:
                request_at_group(self.uri, "delete", "topic", name)

    # -- sending -----------------------------------------------------------------------------------------

    def send(self, copies: list[MessageCopy]) -> None:
        """Send a message to one queue, or to several in one transaction; returns when the broker has stored it."""
        with self._used():
            self._sender.send(copies)

    def broadcast(self, copies_of: Callable[[BindingTable], list[MessageCopy]]) -> None:
        """Send a transient message to whoever listens, which waits only a moment for a broker.

        Args:
            copies_of: where it goes, by the bindings.

        Raises:
            BrokerAwayError: there is no broker, or it was lost meanwhile; whether it has the message is not known.
        """
        with self._held():
            self._demand_broker()
            if self._broadcasts is not None and self._broadcasts[0].lost is not None:
                self._close_broadcasts()
            try:
                _, sender = self._broadcasts or self._open_broadcasts()
                if copies := copies_of(sender.table):
                    sender.broadcast(copies)
            except JMSError as error:
                if isinstance(error, JMSSecurityError) or (
                    self._broadcasts is not None and self._broadcasts[0].host is not None
                ):
                    raise
                self._close_broadcasts()
                raise BrokerAwayError(AWAY) from None

    def _open_broadcasts(self) -> tuple[Connection, Sender]:
        options = {
            **self._options,
            "reconnect_attempts": BROADCAST_ROUNDS,
            "connect_wait_s": BROADCAST_WAIT_S,
            "close_timeout_s": 0.0,
        }
        connection = ConnectionFactory(self.uri, **options).create_connection()
        connection.exception_listener = lambda error: log.debug("= %s", sentence(error))
        try:
            connection.start()
            self._broadcasts = connection, Sender(connection)
        except BaseException:
            connection.close()
            raise
        return self._broadcasts

    def _close_broadcasts(self) -> None:
        """Close what broadcasts; what no broker has confirmed is as if it had not been sent."""
        if self._broadcasts is not None:
            connection, _ = self._broadcasts
            self._broadcasts = None
            with contextlib.suppress(JMSError):
                connection.close()

    def _demand_broker(self) -> None:
        """Wait a moment for a broker, if there is none.

        If the connection that sends is gone for good, the one that broadcasts finds out.

        Raises:
            BrokerAwayError: none came.
        """
        if self._connection.host is not None or self._connection.lost is not None:
            return
        self._returned.clear()
        if self._connection.host is None and not self._returned.wait(BROADCAST_WAIT_S):
            raise BrokerAwayError(AWAY)

    # -- receiving ---------------------------------------------------------------------------------------

    @property
    def receiving(self) -> Receiving:
        """The half that receives, made when it is first needed, and anew if it is gone for good and nobody consumes.

        Who consumes is told by `drain`, and connects again; a connection that waits in a pool for its next use is not.
        """
        receiving = self._receiving
        if receiving is None:
            receiving = self._receiving = self._new_receiving()
        elif receiving.lost and not any(channel.consumes for channel in self.channels):
            kept = receiving.kept
            receiving.close()
            # With the loss, of which nobody is to be told any more.
            self._events = queue.Queue()
            receiving = self._receiving = self._new_receiving()
            if kept:
                receiving.keep(kept)
                receiving.renew()
        return receiving

    def _new_receiving(self) -> Receiving:
        factory = AsyncConnectionFactory(self.uri, **self._options)
        return Receiving(factory, self._put, lambda: self._connection.lost is not None)

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

    def take_back(self, puller: Puller) -> None:
        """Hand over to its channel, which gives it back, what came for a consumer that is cancelled now."""
        events = self._events
        with events.mutex:
            undelivered = [event for event in events.queue if isinstance(event, tuple) and event[1] is puller]
            for event in undelivered:
                events.queue.remove(event)
        for event in undelivered:
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
            if isinstance(event, InvalidDestinationError):
                # A queue of a consumer was deleted. To who consumes that is a connection to be made anew, as kombu says
                # of RabbitMQ: by that it declares its queues again.
                raise BrokerLostError(str(event)) from event
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
            self._close_broadcasts()
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

"""Kombu's channels: declarations, publications, consumers and settlement."""

from __future__ import annotations

import itertools
import logging
import uuid
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple
from urllib.parse import unquote

import msgspec
from amqp.protocol import queue_declare_ok_t
from kombu.transport import base

from legato.client import AcknowledgeMode, Message, MessageConsumer, Session, Topic
from legato.client.management import request_at_group
from legato.errors import InvalidDestinationError, JMSError
from legato.kombu.bindings import DIRECT, FANOUT, TOPIC, TYPES, Binding, BindingTable
from legato.kombu.connection import BrokerConnection
from legato.kombu.envelope import PRIORITY_MIN, TRANSIENT_MODE, ReceivedMessage, decode, encode, sending
from legato.kombu.errors import NOT_FOUND, PRECONDITION_FAILED, BrokerLostError, ChannelRefusedError, translated
from legato.kombu.receiving import Puller, Quota
from legato.kombu.sending import MessageCopy
from legato.quoting import quoted, sentence

log = logging.getLogger("legato.kombu")

REJECTED = "rejected by the consumer"
UNREADABLE = "kombu cannot read it"
"""Why a message became a dead letter before any consumer saw it."""


class _Consumer(NamedTuple):
    queue: str
    puller: Puller
    callback: Callable[[ReceivedMessage], object]


class _Getter(NamedTuple):
    """Consumer of a queue for `basic_get`; it is in the thread of kombu's calls."""

    session: Session
    consumer: MessageConsumer
    connected: int
    """Of which of the connections of a `BrokerConnection` it is."""


class _Held(NamedTuple):
    """A message that was delivered and is not settled."""

    source: Puller | _Getter
    message: Message


class _Unreadable(NamedTuple):
    """What stands for a message that is not written as a kombu writes one."""

    reason: str


class Channel(base.StdChannel):  # type: ignore[misc]
    """One of a connection's channels; it has a prefetch count and delivery tags of its own."""

    default_priority = PRIORITY_MIN

    def __init__(self, connection: BrokerConnection, transport: Any) -> None:
        self.connection = connection
        self.transport = transport
        self.closed = False
        self._ids = itertools.count(1)
        self.channel_id = next(transport.channel_ids)
        self.no_ack_consumers: set[str] = set()
        """Tags of consumers whose messages need no acknowledgement: kombu's messages look here."""
        self._consumers: dict[str, _Consumer] = {}
        self._retired: list[Puller] = []
        """Cancelled, but their messages may still be settled."""
        self._getters: dict[str, _Getter] = {}
        self._held: dict[int, _Held] = {}
        self._quota = Quota()
        self._warned: set[tuple[str, str]] = set()

    # -- exchanges ---------------------------------------------------------------------------------------

    def exchange_declare(self, exchange: str = "", type: str = DIRECT, passive: bool = False, **_: Any) -> None:
        """Remember an exchange's type; it needs nothing at the broker.

        Raises:
            ChannelRefusedError: its type is none; or it is to exist (`passive`) and does not (code 404): this
                connection did not declare it, and no queue is bound to it.
        """
        if passive:
            if exchange and exchange not in self.connection.exchange_types and not self._bindings_to(exchange):
                raise ChannelRefusedError(
                    f"There is no exchange {exchange!r}, or no queue was bound to it yet.", code=NOT_FOUND
                )
            return
        kind = type or DIRECT
        if kind not in TYPES:
            raise ChannelRefusedError(f"Exchange {exchange!r}: the types are {', '.join(TYPES)}, not {kind!r}.")
        self.connection.exchange_types[exchange] = kind

    def exchange_delete(self, exchange: str, if_unused: bool = False, **_: Any) -> None:
        """Remove an exchange with its bindings; its queues stay.

        Raises:
            ChannelRefusedError: it is to be unused, and a queue is bound to it (code 406).
        """
        if if_unused and self._bindings_to(exchange):
            raise ChannelRefusedError(
                f"The exchange {exchange!r} is not deleted: queues are bound to it.", code=PRECONDITION_FAILED
            )
        self.connection.exchange_types.pop(exchange, None)
        self.connection.let_go(lambda binding: binding.exchange == exchange)
        with self.connection.table() as table:
            table.remove_exchange(exchange)

    def _bindings_to(self, exchange: str) -> set[Binding]:
        with self.connection.table() as table:
            return table.of_exchange(exchange)

    def exchange_bind(self, *_: Any, **__: Any) -> None:
        """Not available: exchanges are bound to queues only."""
        raise NotImplementedError("Legato binds queues to exchanges, not exchanges to exchanges.")

    exchange_unbind = exchange_bind

    # -- queues ------------------------------------------------------------------------------------------

    def prepare_queue_arguments(self, arguments: Any, **options: Any) -> Any:
        """Queue arguments as RabbitMQ names them; of these, `x-message-ttl` counts."""
        return base.to_rabbitmq_queue_arguments(arguments, **options)

    def queue_declare(
        self,
        queue: str = "",
        passive: bool = False,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Any = None,
        **_: Any,
    ) -> queue_declare_ok_t:
        """Declare a queue, or look at it.

        A queue that is exclusive or deleted automatically lives as long as a connection that declared it or consumes
        from it; all others are durable.

        Raises:
            ChannelRefusedError: it is to exist (`passive`) and does not (code 404).
        """
        name = queue or f"amq.gen-{uuid.uuid4()}"
        if passive:
            return self._look(name)
        binding = Binding(name, "", name, DIRECT, exclusive or auto_delete, _ttl_ms(arguments))
        if self.connection.declared.get(name) != binding or self.connection.may_have_lost(name):
            with self.connection.table() as table:
                table.add(binding)
            if binding.transient:
                self.connection.keep({binding})
            self.connection.declared[name] = binding
        return queue_declare_ok_t(name, 0, 0)

    def _look(self, name: str) -> queue_declare_ok_t:
        with self.connection.table() as table:
            found = table.of_name(name)
        if found is not None and found.transient:
            return queue_declare_ok_t(name, 0, 0)
        try:
            view = self._manage("read", name)
        except ChannelRefusedError:
            if found is not None:
                return queue_declare_ok_t(name, 0, 0)
            raise
        # As AMQP 0.9.1 counts: what nobody has yet.
        return queue_declare_ok_t(name, max(view["depth"] - view["in_flight"], 0), self._consumers_of(name, view))

    def _consumers_of(self, name: str, view: Any) -> int:
        """How many consumers a queue has; that of this channel's `basic_get` is none to kombu."""
        return int(view["consumers"]) - (name in self._getters)

    def _manage(self, operation: str, name: str, kind: str = "queue", served: str = "") -> Any:
        with translated():
            try:
                return request_at_group(self.connection.uri, operation, kind, name, served=served)
            except JMSError as error:
                if error.code is not None and error.code.isdecimal():
                    raise ChannelRefusedError(str(error), code=int(error.code)) from error
                raise

    def queue_bind(self, queue: str, exchange: str = "", routing_key: str = "", **_: Any) -> None:
        """Bind a queue to an exchange; publications of every process see it when this returns."""
        if not exchange:
            return
        declared = self._binding_of(queue)
        kind = self.connection.exchange_types.get(exchange)
        with self.connection.table() as table:
            # Who binds need not have declared the exchange: others may have.
            kind = kind or next((row.type for row in table.of_exchange(exchange)), DIRECT)
            binding = msgspec.structs.replace(declared, exchange=exchange, routing_key=routing_key or "", type=kind)
            table.add(binding)
        if binding.transient:
            self.connection.keep({binding})

    def queue_unbind(self, queue: str, exchange: str = "", routing_key: str = "", **_: Any) -> None:
        """Remove a binding."""
        place = queue, exchange, routing_key or ""
        self.connection.let_go(lambda binding: (binding.queue, binding.exchange, binding.routing_key) == place)
        with self.connection.table() as table:
            table.remove(queue=queue, exchange=exchange, routing_key=routing_key or "")

    def _binding_of(self, queue: str) -> Binding:
        """A queue's binding to the default exchange; a queue that nobody declared is durable."""
        known = self.connection.declared.get(queue)
        if known is not None:
            return known
        with self.connection.table() as table:
            return table.of_name(queue) or Binding(queue, "", queue)

    def list_bindings(self) -> Iterator[tuple[str, str, str]]:
        """All bindings to named exchanges: queue, exchange, routing key."""
        with self.connection.table() as table:
            rows = table.all()
        return ((row.queue, row.exchange, row.routing_key) for row in rows if row.exchange)

    def get_bindings(self) -> list[dict[str, str]]:
        """All bindings, as kombu's management has them."""
        return [{"destination": q, "source": e, "routing_key": r} for q, e, r in self.list_bindings()]

    def queue_purge(self, queue: str, **_: Any) -> int:
        """Remove the messages that wait in a queue; returns how many."""
        binding = self._binding_of(queue)
        if binding.transient:
            count = 0
            while self.basic_get(queue, no_ack=True) is not None:
                count += 1
            return count
        try:
            return int(self._manage("purge", queue).get("purged", 0))
        except ChannelRefusedError as error:
            if error.code == NOT_FOUND:
                return 0
            raise

    def queue_delete(self, queue: str, if_unused: bool = False, if_empty: bool = False, **_: Any) -> int:
        """Delete a queue with its bindings; returns how many messages it had, as far as that is known.

        A transient queue is unused if no other connection has declared it either.

        Raises:
            ChannelRefusedError: it is to be unused or empty, and is not (code 406); or its user may not. Its bindings
                stay.
        """
        binding = self._binding_of(queue)
        count = 0
        try:
            if if_unused or if_empty:
                self._demand_idle(binding, unused=if_unused, empty=if_empty)
            if not binding.transient:
                count = int(self._manage("delete", queue).get("messages", 0))
        except ChannelRefusedError as error:
            if error.code != NOT_FOUND:
                raise
            log.debug("= queue %s could not be deleted: there is none", quoted(queue))
        self.connection.let_go(lambda binding: binding.queue == queue)
        with self.connection.table() as table:
            table.remove(queue=queue)
        with self.connection.used():
            self._end_getter(queue)
        self.connection.release(queue)
        return count

    def _demand_idle(self, binding: Binding, *, unused: bool, empty: bool) -> None:
        """See that a queue may be deleted.

        Raises:
            ChannelRefusedError: it is not unused or empty as it is to be (code 406); or there is none (code 404).
        """
        name = binding.queue
        if binding.transient:
            named = self._manage("read", name, "topic")["subscription_names"]
            # Others may subscribe to the topic too, which is nothing of kombu's.
            own = [each for each in named if unquote(each.rpartition("/")[2]) == name]
            views = [self._manage("read", each, "subscription", served=name) for each in own]
        else:
            views = [self._manage("read", name)]
        consumers = sum(self._consumers_of(name, view) for view in views) - self.connection.keeps(name)
        if unused and consumers > 0:
            raise ChannelRefusedError(f"The queue {name!r} is not deleted: it is in use.", code=PRECONDITION_FAILED)
        if empty and any(view["depth"] for view in views):
            raise ChannelRefusedError(f"The queue {name!r} is not deleted: it is not empty.", code=PRECONDITION_FAILED)

    def after_reply_message_received(self, queue: str) -> None:
        """A queue for the replies of one request is done with."""
        self.queue_delete(queue)

    # -- publications ------------------------------------------------------------------------------------

    def prepare_message(
        self,
        body: Any,
        priority: int | None = None,
        content_type: str | None = None,
        content_encoding: str | None = None,
        headers: dict[str, Any] | None = None,
        properties: dict[str, Any] | None = None,
    ) -> dict[str, Any]:
        """A message to be published."""
        properties = dict(properties or {})
        if priority is not None:
            properties["priority"] = priority
        return {
            "body": body,
            "content-type": content_type,
            "content-encoding": content_encoding,
            "headers": headers or {},
            "properties": properties,
        }

    def basic_publish(self, message: dict[str, Any], exchange: str = "", routing_key: str = "", **_: Any) -> None:
        """Publish; returns when the broker has stored the message in every queue that it goes to.

        A message of which that is several goes to all or none. One that no binding matches is dropped, as AMQP 0.9.1
        says; the default exchange stores a persistent message even if nobody declared the queue yet.
        """
        exchange, routing_key = exchange or "", routing_key or ""
        if _is_transient(message) and self.connection.exchange_types.get(exchange) in (FANOUT, TOPIC):
            self.connection.broadcast(lambda table: self._copies(message, exchange, routing_key, table))
            return
        with self.connection.table() as table:
            copies = self._copies(message, exchange, routing_key, table)
        if copies:
            self.connection.send(copies)

    def _copies(
        self, message: dict[str, Any], exchange: str, routing_key: str, table: BindingTable
    ) -> list[MessageCopy]:
        """Where a message goes, by the table of bindings, and as what."""
        how = sending(message, hold_eta=self.transport.hold_eta)
        copies = []
        for binding in self._route(exchange, routing_key, message, table):
            ttls = [ttl for ttl in (how.time_to_live_ms, binding.ttl_ms) if ttl]
            # A TTL counts from now on, also while the message is held back.
            sent = msgspec.structs.replace(how, time_to_live_ms=min(ttls, default=0))
            copies.append(MessageCopy(binding.destination, encode(message, exchange, routing_key), sent))
        return copies

    def _route(self, exchange: str, routing_key: str, message: dict[str, Any], table: BindingTable) -> list[Binding]:
        transient = _is_transient(message)
        if not exchange:
            known = self.connection.declared.get(routing_key)
            if known is None:
                known = table.of_name(routing_key)
            if known is None and not transient:
                known = Binding(routing_key, "", routing_key)
            return [] if known is None else [known]
        found = {row.queue: row for row in table.of_exchange(exchange) if row.matches(routing_key)}
        broadcast = self.connection.exchange_types.get(exchange) == FANOUT
        if not found and not transient and not broadcast and (exchange, routing_key) not in self._warned:
            self._warned.add((exchange, routing_key))
            log.warning(
                "! Nothing is bound to exchange %r with the key %r: messages are dropped.", exchange, routing_key
            )
        return list(found.values())

    # -- consumers ---------------------------------------------------------------------------------------

    @property
    def consumes(self) -> bool:
        """Whether it has a consumer."""
        return bool(self._consumers)

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """How many messages the channel may have that are not settled; 0: no limit."""
        del prefetch_size, apply_global

        def change() -> None:
            self._quota.limit = prefetch_count or 0
            self._quota.tell()

        self.connection.post(change)

    def basic_consume(
        self,
        queue: str,
        no_ack: bool = False,
        callback: Callable[[ReceivedMessage], object] | None = None,
        consumer_tag: str | None = None,
        **_: Any,
    ) -> str:
        """Receive from a queue; `drain_events()` calls `callback` with each message."""
        tag = consumer_tag or f"legato-{uuid.uuid4()}"
        puller = self.connection.consume(self, self._quota, self._binding_of(queue), no_ack=no_ack)
        self._consumers[tag] = _Consumer(queue, puller, callback or (lambda _: None))
        puller.tag = tag
        if no_ack:
            self.no_ack_consumers.add(tag)
        return tag

    def basic_cancel(self, consumer_tag: str, **_: Any) -> None:
        """Receive no more; what was delivered can still be acknowledged, what was not goes back."""
        consumer = self._consumers.pop(consumer_tag, None)
        if consumer is None:
            return
        if consumer.puller.no_ack:
            consumer.puller.close()
            return
        consumer.puller.stop()
        self._retired = [puller for puller in self._retired if not puller.ended]
        self._retired.append(consumer.puller)
        self.connection.take_back(consumer.puller)

    def deliver(self, puller: Puller, message: Message) -> None:
        """A message came to one of the channel's consumers."""
        puller.delivered()
        consumer = self._consumers.get(puller.tag or "")
        if self.closed:
            return
        if consumer is None:
            if not puller.no_ack:
                puller.give_back([message], failed=False)
            return
        tag = next(self._ids)
        received = self._decoded(message, consumer.queue, tag, puller.tag)
        if isinstance(received, _Unreadable):
            if not puller.no_ack:
                puller.reject([message], received.reason)
            return
        if not puller.no_ack:
            self._held[tag] = _Held(puller, message)
        consumer.callback(received)

    def _decoded(
        self, message: Message, queue: str, tag: int, consumer_tag: str | None
    ) -> ReceivedMessage | _Unreadable:
        try:
            return decode(message, self, queue=queue, tag=tag, consumer_tag=consumer_tag)
        except Exception as error:  # of any class: a sender may write anything, and the consumer goes on
            log.warning("! kombu cannot read a message of %s: %s", quoted(queue), sentence(error))
            return _Unreadable(f"{UNREADABLE}: {sentence(error)}")

    def message_to_python(self, message: ReceivedMessage) -> ReceivedMessage:
        """It is one already."""
        return message

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> ReceivedMessage | None:
        """The next message of a queue that can be read, if there is one."""
        while True:
            with self.connection.used():
                getter = self._getters.get(queue)
                if getter is None or getter.connected != self.connection.connected:
                    getter = self._getters[queue] = self._new_getter(queue)
                try:
                    message = getter.consumer.receive_no_wait()
                except InvalidDestinationError:
                    # The queue was deleted, by anyone; there may be another one of its name.
                    self._end_getter(queue)
                    continue
                if message is None:
                    return None
                tag = next(self._ids)
                received = self._decoded(message, queue, tag, None)
                if no_ack:
                    message.acknowledge()
                elif isinstance(received, _Unreadable):
                    getter.session.reject(message, received.reason)
            if isinstance(received, _Unreadable):
                continue
            if not no_ack:
                self._held[tag] = _Held(getter, message)
            return received

    def _end_getter(self, queue: str) -> None:
        """Receive by a new consumer next time."""
        getter = self._getters.pop(queue, None)
        if getter is not None:
            getter.session.close()

    def _new_getter(self, queue: str) -> _Getter:
        session = self.connection.new_session(AcknowledgeMode.INDIVIDUAL)
        destination, connected = self._binding_of(queue).destination, self.connection.connected
        if isinstance(destination, Topic):
            return _Getter(session, session.create_shared_consumer(destination, queue, prefetch=0), connected)
        return _Getter(session, session.create_consumer(destination, prefetch=0), connected)

    # -- settlement --------------------------------------------------------------------------------------

    def basic_ack(self, delivery_tag: int, multiple: bool = False) -> None:
        """Acknowledge a message, or all up to it; over a failover too the broker hears of it."""
        for held in self._settled(delivery_tag, multiple):
            if isinstance(held.source, Puller):
                held.source.acknowledge([held.message])
            else:
                with self.connection.used():
                    held.message.try_acknowledge()

    def basic_reject(self, delivery_tag: int, requeue: bool = False) -> None:
        """Give a message back, which counts as a failed delivery, or make it a dead letter."""
        for held in self._settled(delivery_tag, False):
            if isinstance(held.source, Puller):
                if requeue:
                    held.source.give_back([held.message], failed=True)
                else:
                    held.source.reject([held.message], REJECTED)
                continue
            with self.connection.used():
                if requeue:
                    held.source.session.give_back(held.message, failed=True)
                else:
                    held.source.session.reject(held.message, REJECTED)

    def basic_recover(self, requeue: bool = True) -> None:
        """Give back all messages that are not settled."""
        del requeue
        self._give_back_all()

    def _settled(self, delivery_tag: int, multiple: bool) -> list[_Held]:
        if self.closed or not self.connection.usable:
            raise BrokerLostError("The channel that received the message is closed; the message is delivered again.")
        tags = [tag for tag in self._held if tag <= delivery_tag] if multiple else [delivery_tag]
        try:
            settled = [self._held[tag] for tag in tags]
        except KeyError:
            raise ChannelRefusedError(f"The delivery tag {delivery_tag} is unknown, or settled already.") from None
        if any(isinstance(each.source, Puller) and each.source.lost for each in settled):
            raise BrokerLostError("The connection that received the message is lost; the message is delivered again.")
        for tag in tags:
            del self._held[tag]
        return settled

    def _give_back_all(self) -> None:
        held, self._held = self._held, {}
        for each in held.values():
            if isinstance(each.source, Puller):
                each.source.give_back([each.message], failed=False)
            else:
                with self.connection.used():
                    each.source.session.give_back(each.message)

    # -- the rest ----------------------------------------------------------------------------------------

    def flow(self, active: bool = True) -> None:
        """Not available: change the prefetch count."""
        raise NotImplementedError("Legato's channels have no flow(): use basic_qos().")

    def close(self) -> None:
        """Cancel the consumers, and give back what is not settled. May be called again."""
        if self.closed:
            return
        if not self.connection.usable:
            self.closed = True
            return
        try:
            for tag in list(self._consumers):
                self.basic_cancel(tag)
            for puller in self._retired:
                puller.close()
            for getter in self._getters.values():
                with self.connection.used():
                    getter.session.close()
        except (BrokerLostError, ChannelRefusedError, JMSError) as error:
            log.debug("= a channel was closed without a broker: %s", sentence(error))
        finally:
            self.closed = True
            if self in self.connection.channels:
                self.connection.channels.remove(self)


def _is_transient(message: dict[str, Any]) -> bool:
    return bool(message["properties"].get("delivery_mode") == TRANSIENT_MODE)


def _ttl_ms(arguments: Any) -> int:
    try:
        return max(int((arguments or {}).get("x-message-ttl") or 0), 0)
    except (TypeError, ValueError):
        return 0

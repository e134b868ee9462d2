"""The transport under kombu's own API: queues, exchanges, settlement, and what a broker's loss does."""

from __future__ import annotations

import asyncio
import multiprocessing
import pickle
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import trustme
from kombu import Connection, Exchange, Queue
from kombu.exceptions import OperationalError
from proton import Message as AmqpMessage
from proton.utils import BlockingConnection

import legato.kombu
from legato.client import management
from legato.errors import ConfigError
from legato.kombu.bindings import TABLE, Binding, BindingTable
from legato.kombu.connection import BrokerConnection
from legato.kombu.errors import BrokerAwayError, BrokerLostError
from legato.kombu.sending import MessageCopy
from legato.testing import LocalBroker, Network, broker, broker_pair
from tests.integration.client.calling import Calling
from tests.integration.server.test_logins import add
from tests.support.monitored import until
from tests.support.server import server

WAIT_S = 60.0
NOTHING_S = 0.1
"""So long nothing may come: by then the broker has answered other requests of the same connection."""
LONG_S = 3600.0

assert legato.kombu.Transport.driver_name == "legato"


@pytest.fixture(scope="module")
def running() -> Iterator[LocalBroker]:
    with broker() as started:
        yield started


@pytest.fixture
def timed() -> Iterator[LocalBroker]:
    """One whose clock the test sets."""
    with broker() as started:
        yield started


def url_of(amqp: str) -> str:
    return amqp.replace("amqp://", "legato://")


@pytest.fixture
def connect(running: LocalBroker) -> Iterator[Callable[..., Connection]]:
    made = []

    def make(**options: Any) -> Connection:
        made.append(Connection(url_of(running.url), **options))
        return made[-1]

    yield make
    for connection in made:
        connection.release()


class Sink:
    """A consumer of queues, and what it got."""

    def __init__(self, connection: Connection, *queues: Queue, prefetch: int = 0, no_ack: bool = False) -> None:
        self.messages: list[Any] = []
        self._connection = connection
        self.channel = connection.channel()
        consumer = connection.Consumer(
            list(queues), channel=self.channel, no_ack=no_ack, on_message=self.messages.append
        )
        consumer.qos(prefetch_count=prefetch)
        consumer.consume()
        self.consumer = consumer

    def take(self, count: int) -> list[Any]:
        """The next messages."""
        while len(self.messages) < count:
            self._connection.drain_events(timeout=WAIT_S)
        taken = self.messages[:count]
        del self.messages[:count]
        return taken

    def gets_nothing(self) -> bool:
        """Whether nothing comes."""
        with pytest.raises(socket.timeout):
            self._connection.drain_events(timeout=NOTHING_S)
        return not self.messages


def payloads(messages: list[Any]) -> list[Any]:
    return [message.payload for message in messages]


def test_a_message_arrives_as_it_was_published(connect: Callable[..., Connection]) -> None:
    queue = Queue("whole", Exchange("whole"), "key")
    sink = Sink(connect(), queue)
    connect().Producer().publish(
        {"item": "tea", "qty": 2},
        exchange="whole",
        routing_key="key",
        priority=7,
        headers={"nested": {"list": [1, None, "x"]}, "with-dash": True},
        correlation_id="c1",
        reply_to="answers",
        compression="gzip",
    )
    [message] = sink.take(1)
    assert message.payload == {"item": "tea", "qty": 2}
    assert message.headers["nested"] == {"list": [1, None, "x"]}
    assert message.headers["with-dash"] is True
    assert (message.content_type, message.content_encoding) == ("application/json", "utf-8")
    assert (message.properties["correlation_id"], message.properties["reply_to"]) == ("c1", "answers")
    info = message.delivery_info
    assert (info["exchange"], info["routing_key"], info["redelivered"], info["priority"]) == ("whole", "key", False, 7)
    message.ack()


def test_bytes_stay_bytes(connect: Callable[..., Connection]) -> None:
    sink = Sink(connect(), Queue("raw"))
    connect().Producer().publish(
        b"\x00\xff", routing_key="raw", content_type="application/data", content_encoding="binary"
    )
    assert sink.take(1)[0].body == b"\x00\xff"


def test_a_publication_goes_to_every_queue_that_is_bound_whoever_bound_it(connect: Callable[..., Connection]) -> None:
    sender = connect().Producer()
    feeds = Exchange("feeds", "topic")
    sink = Sink(connect(), Queue("feeds.all", feeds, "feed.#"), Queue("feeds.urgent", feeds, "*.urgent"))
    sender.publish("both", exchange="feeds", routing_key="feed.urgent")
    sender.publish("one", exchange="feeds", routing_key="feed.late.night")
    sender.publish("none", exchange="feeds", routing_key="other")
    assert sorted(payloads(sink.take(3))) == ["both", "both", "one"]
    # Bound later by somebody else: what is published from then on goes there too, at once.
    later = Sink(connect(), Queue("feeds.later", feeds, "other"))
    sender.publish("late", exchange="feeds", routing_key="other")
    assert payloads(later.take(1)) == ["late"]
    Queue("feeds.later", feeds, "other", channel=later.channel).unbind_from(feeds, "other")
    sender.publish("gone", exchange="feeds", routing_key="other")
    assert later.gets_nothing()


def test_a_broadcast_reaches_all_who_listen_and_leaves_nothing_behind(
    running: LocalBroker, connect: Callable[..., Connection]
) -> None:
    news = Exchange("news", "fanout", durable=False)
    one, two = (Sink(connect(), Queue(f"news.{n}", news, auto_delete=True, durable=False), no_ack=True) for n in "12")
    sender = connect().Producer()
    sender.publish("hello", exchange="news")
    assert payloads([*one.take(1), *two.take(1)]) == ["hello", "hello"]
    two._connection.release()
    sender.publish("again", exchange="news")
    assert payloads(one.take(1)) == ["again"]
    assert running.waiting("news.2") == 0


def test_a_transient_queue_keeps_what_comes_between_its_declaration_and_its_consumer(
    connect: Callable[..., Connection],
) -> None:
    """As a reply may: the question is asked before the consumer is there."""
    asking = connect()
    queue = Queue("replies", Exchange("replies"), "r", auto_delete=True, durable=False)
    queue(asking.channel()).declare()
    connect().Producer().publish("early", exchange="replies", routing_key="r")
    assert payloads(Sink(asking, queue).take(1)) == ["early"]


def test_a_binding_is_of_its_exchanges_type_whoever_declared_that(connect: Callable[..., Connection]) -> None:
    fanout, declaring, binding = Exchange("declared elsewhere", type="fanout"), connect(), connect().channel()
    Queue("bound here", fanout)(declaring.channel()).declare()
    binding.queue_declare("bound there", durable=True)
    binding.queue_bind("bound there", fanout.name, "any")
    declaring.Producer().publish("all", exchange=fanout, routing_key="other")
    assert [binding.basic_get(queue).payload for queue in ("bound here", "bound there")] == ["all", "all"]


def test_a_transient_queue_that_was_unbound_stays_so_when_its_other_bindings_are_renewed(
    connect: Callable[..., Connection],
) -> None:
    channel = connect().channel()
    prices, letters = Exchange("renewed.prices", type="topic"), Exchange("renewed.letters", type="fanout")
    queue = Queue("renewed", prices, routing_key="tea", auto_delete=True, durable=False)
    queue(channel).declare()
    for exchange, key in ((prices, "milk"), (letters, "")):
        exchange(channel).declare()
        queue(channel).bind_to(exchange, key)
    queue(channel).unbind_from(prices, "tea")
    letters(channel).delete()
    channel.connection.receiving.renew()
    assert [row for row in channel.list_bindings() if row[0] == "renewed"] == [("renewed", "renewed.prices", "milk")]


def test_two_connections_share_a_transient_queue(connect: Callable[..., Connection]) -> None:
    with connect().SimpleBuffer("buffer") as one, connect().SimpleBuffer("buffer") as other:
        one.put("tea")
        assert other.get(timeout=WAIT_S).payload == "tea"


def test_a_transient_message_for_a_queue_of_nobody_is_dropped_and_a_persistent_one_kept(
    running: LocalBroker, connect: Callable[..., Connection]
) -> None:
    producer = connect().Producer()
    producer.publish("result", routing_key="nobodys", delivery_mode="transient")
    producer.publish("task", routing_key="somebodys")
    assert (running.waiting("nobodys"), running.waiting("somebodys")) == (0, 1)


def test_higher_priorities_come_first(connect: Callable[..., Connection]) -> None:
    producer = connect().Producer()
    for priority in (0, 9, None, 5):
        producer.publish(priority, routing_key="ranked", priority=priority)
    sink = Sink(connect(), Queue("ranked"), prefetch=4)
    assert payloads(sink.take(4)) == [9, 5, 0, None]


def test_no_more_messages_come_than_the_prefetch_count_says(connect: Callable[..., Connection]) -> None:
    queues = [Queue("fair.1"), Queue("fair.2")]
    producer = connect().Producer()
    one = Sink(connect(), *queues, prefetch=2)
    for number in range(6):
        producer.publish(number, routing_key=f"fair.{number % 2 + 1}")
    first = one.take(2)
    assert one.gets_nothing()
    # What it has not, another one may have.
    other = Sink(connect(), *queues, prefetch=10)
    rest = other.take(4)
    assert sorted(payloads([*first, *rest])) == list(range(6))
    producer.publish(6, routing_key="fair.1")
    [last] = other.take(1)
    for message in (*rest, last):
        message.ack()
    other.consumer.cancel()
    producer.publish(7, routing_key="fair.2")
    assert one.gets_nothing()
    first[0].ack()
    assert payloads(one.take(1)) == [7]


def test_a_rejected_message_is_a_dead_letter_and_a_requeued_one_is_counted(
    running: LocalBroker, connect: Callable[..., Connection]
) -> None:
    sink = Sink(connect(), Queue("refused"), prefetch=1)
    connect().Producer().publish("tea", routing_key="refused")
    [message] = sink.take(1)
    message.requeue()
    [message] = sink.take(1)
    assert message.delivery_info["redelivered"] is True
    assert message.delivery_info["delivery_count"] == 2
    message.reject()
    sink.consumer.cancel()
    until(lambda: bool(running.dead_letters("refused")))
    [letter] = running.dead_letters("refused")
    assert letter.body == "tea"


def _send_unreadable_and_one(running: LocalBroker, queue: str) -> None:
    """Three messages that no kombu would write, and one that reads."""
    foreign = BlockingConnection(running.url, allowed_mechs="ANONYMOUS")
    sender = foreign.create_sender(queue)
    sender.send(AmqpMessage(b"\xff", inferred=True, content_type="text/plain"))
    for headers in ("x", "3"):
        sender.send(AmqpMessage("tea", properties={"kombu_headers": headers}))
    sender.send(AmqpMessage("next"))
    foreign.close()


def test_a_message_that_kombu_cannot_read_is_a_dead_letter_and_the_next_one_comes(
    running: LocalBroker, connect: Callable[..., Connection]
) -> None:
    """It costs its sender, not the worker."""
    _send_unreadable_and_one(running, "unreadable")
    sink = Sink(connect(), Queue("unreadable"), prefetch=2)
    assert [message.body for message in sink.take(1)] == [b"next"]
    _send_unreadable_and_one(running, "unreadable.got")
    channel = connect().channel()
    assert channel.basic_get("unreadable.got").body == b"next"
    until(lambda: len(running.dead_letters("unreadable") + running.dead_letters("unreadable.got")) == 6)
    _send_unreadable_and_one(running, "unreadable.freely")
    freely = Sink(connect(), Queue("unreadable.freely"), no_ack=True)
    assert [message.body for message in freely.take(1)] == [b"next"]


def test_a_requeued_message_is_a_dead_letter_at_last(running: LocalBroker, connect: Callable[..., Connection]) -> None:
    """A task that kills every worker does not come for ever, as it would at other brokers."""
    sink = Sink(connect(), Queue("poison"), prefetch=1)
    connect().Producer().publish("poison", routing_key="poison")
    for _ in range(10):
        sink.take(1)[0].requeue()
    assert sink.gets_nothing()
    until(lambda: len(running.dead_letters("poison")) == 1)


def test_a_requeued_message_comes_again_when_its_address_says() -> None:
    with (
        broker(addresses=[{"match": "#", "redelivery_delay_s": 3600.0}]) as running,
        Connection(url_of(running.url)) as connection,
    ):
        sink = Sink(connection, Queue("backs.off"))
        connection.Producer().publish("tea", routing_key="backs.off")
        sink.take(1)[0].requeue()
        assert sink.gets_nothing()
        running.advance(3600)
        assert sink.take(1)[0].delivery_info["delivery_count"] == 2


def test_what_a_consumer_has_not_settled_comes_again_when_its_channel_closes_and_is_not_counted(
    connect: Callable[..., Connection],
) -> None:
    sink = Sink(connect(), Queue("left"))
    producer = connect().Producer()
    for number in range(3):
        producer.publish(number, routing_key="left")
    sink.take(1)[0].ack()
    sink.take(1)
    sink.channel.close()
    again = Sink(connect(), Queue("left")).take(2)
    assert payloads(again) == [1, 2]
    assert [message.delivery_info["delivery_count"] for message in again] == [1, 1]


def test_a_cancelled_consumer_can_still_acknowledge(running: LocalBroker, connect: Callable[..., Connection]) -> None:
    """A worker that is stopped warmly finishes its tasks."""
    sink = Sink(connect(), Queue("warm"))
    connect().Producer().publish("task", routing_key="warm")
    [message] = sink.take(1)
    sink.consumer.cancel()
    message.ack()
    sink.channel.close()
    running.wait_until_empty("warm")


def test_what_a_cancelled_consumer_has_not_delivered_goes_to_others_at_once(connect: Callable[..., Connection]) -> None:
    queue, publisher = Queue("undelivered"), connect()
    for number in range(3):
        publisher.Producer().publish(number, routing_key="undelivered", declare=[queue])
    connection, bodies = connect(), []
    consumer = connection.Consumer([queue], callbacks=[lambda body, _: bodies.append(body)])
    consumer.consume()
    connection.drain_events(timeout=WAIT_S)
    until(lambda: consumer.channel.connection._events.qsize() == 2)
    consumer.cancel()
    assert (bodies, payloads(Sink(connect(), queue).take(2))) == ([0], [1, 2])


def test_a_channel_keeps_no_session_of_a_consumer_that_is_done(
    running: LocalBroker, connect: Callable[..., Connection]
) -> None:
    connection, publisher = connect(), connect().Producer()
    channel = connection.channel()
    for number in range(3):
        publisher.publish(number, routing_key="done", declare=[Queue("done")])
        with connection.Consumer([Queue("done")], channel=channel, on_message=lambda message: message.ack()):
            connection.drain_events(timeout=WAIT_S)
    loop = channel.connection.receiving._loop
    until(lambda: "legato kombu done" not in {task.get_name() for task in asyncio.all_tasks(loop)})
    assert running.waiting("done") == 0


def test_messages_are_got_one_by_one(running: LocalBroker, connect: Callable[..., Connection]) -> None:
    channel = connect().channel()
    queue = Queue("got", channel=channel)
    queue.declare()
    assert queue.get() is None
    for number in range(4):
        connect().Producer().publish(number, routing_key="got")
    queue.get().ack()
    queue.get().reject()
    queue.get().requeue()
    assert queue.get(no_ack=True).payload in (2, 3)
    until(lambda: len(running.dead_letters("got")) == 1)


def test_queues_can_be_measured_purged_and_deleted(running: LocalBroker, connect: Callable[..., Connection]) -> None:
    channel = connect().channel()
    queue = Queue("managed", Exchange("managed"), "m", channel=channel)
    queue.declare()
    for _ in range(3):
        channel.Producer().publish("x", exchange="managed", routing_key="m")
    assert queue.queue_declare(passive=True).message_count == 3
    got = queue.get()
    assert got is not None
    assert tuple(queue.queue_declare(passive=True)) == ("managed", 2, 0), "as RabbitMQ counts"
    got.requeue()
    until(lambda: queue.queue_declare(passive=True).message_count == 3)
    assert queue.purge() == 3
    assert running.waiting("managed") == 0
    channel.Producer().publish("x", exchange="managed", routing_key="m")
    with refused(406, "not empty"):
        queue.delete(if_empty=True)
    assert running.waiting("managed") == 1
    with connect().channel() as other:
        other.basic_consume("managed")
        with refused(406, "in use"):
            queue.delete(if_unused=True)
        assert running.waiting("managed") == 1
    until(lambda: queue.queue_declare(passive=True).consumer_count == 0)
    assert queue.delete(if_unused=True) == 1
    assert running.waiting("managed") == 0
    assert ("managed", "managed", "m") not in set(channel.list_bindings())
    assert Queue("never", channel=channel).purge() == 0
    with refused(404, "never"):
        Queue("never", channel=channel).queue_declare(passive=True)


@contextmanager
def refused(code: int, why: str) -> Iterator[None]:
    with pytest.raises(legato.kombu.ChannelRefusedError, match=why) as caught:
        yield
    assert caught.value.code == code


def test_a_transient_queue_is_deleted_on_condition_that_it_is_unused_or_empty(
    connect: Callable[..., Connection],
) -> None:
    channel, consuming, news = connect().channel(), connect(), Exchange("news of one", "fanout", durable=False)
    queue = Queue("one/reader", news, auto_delete=True, durable=False, channel=channel)
    queue.declare()
    sink = Sink(consuming, queue, no_ack=True)
    with refused(406, "in use"):
        queue.delete(if_unused=True)
    channel.Producer().publish("tea", exchange=news)
    assert payloads(sink.take(1)) == ["tea"]
    consuming.release()
    channel.Producer().publish("milk", exchange=news)
    with refused(406, "not empty"):
        queue.delete(if_empty=True)
    assert queue.get(no_ack=True).payload == "milk"
    queue.delete(if_unused=True, if_empty=True)
    assert "one/reader" not in {row[0] for row in channel.list_bindings()}


def test_an_exchange_that_is_not_there_is_not_taken_for_one(connect: Callable[..., Connection]) -> None:
    channel, other = connect().channel(), connect().channel()
    exchange = Exchange("to be there", "topic")
    with refused(404, "to be there"):
        exchange(channel).declare(passive=True)
    Queue("there", exchange, "key", channel=other).declare()
    exchange(channel).declare(passive=True)
    with refused(406, "bound"):
        exchange(channel).delete(if_unused=True)
    other.queue_unbind("there", exchange.name, "key")
    exchange(other).declare(passive=True)
    exchange(other).delete(if_unused=True)
    with refused(404, "to be there"):
        exchange(other).declare(passive=True)


@pytest.mark.parametrize(("kind", "key"), [("direct", "a.b"), ("topic", "a.*"), ("fanout", "")])
def test_the_exchanges_that_are_always_there_are_of_their_types(
    kind: str, key: str, connect: Callable[..., Connection]
) -> None:
    channel = connect().channel()
    exchange = Exchange(f"amq.{kind}", kind)
    queue = Queue(f"of amq.{kind}", exchange, key, channel=channel)
    queue.declare()
    channel.exchange_declare(exchange.name, passive=True)
    channel.Producer().publish("tea", exchange=exchange, routing_key="a.b")
    assert queue.get(no_ack=True).payload == "tea"


WORKER = """
[[role]]
name = "workers"
members = ["ann"]
allow = [{ on = "#", may = ["send", "receive", "browse", "create"] }]
"""


def test_who_consumes_from_a_queue_that_is_deleted_connects_again_and_goes_on(
    connect: Callable[..., Connection],
) -> None:
    queue, connection, other = Queue("vanishing"), connect(), connect()
    Sink(connection, queue)
    queue(other.channel()).delete()
    with pytest.raises(connection.connection_errors, match="vanishing was deleted"):
        connection.drain_events(timeout=WAIT_S)
    connection.close()
    again = Sink(connect(), queue)
    other.Producer().publish("after", routing_key="vanishing")
    assert payloads(again.take(1)) == ["after"]


def test_a_queue_that_may_not_be_deleted_keeps_its_bindings(tmp_path: Path) -> None:
    """It was taken for one that there is not."""
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    add(store / "users", "ann", "x")
    (tmp_path / "legato.toml").write_text(WORKER)
    with (
        server(store, "--config", str(tmp_path / "legato.toml")) as running,
        Connection(f"legato://ann:x@127.0.0.1:{running.port}") as connection,
    ):
        queue = Queue("kept", Exchange("kept"), "k", channel=connection.default_channel)
        queue.declare()
        connection.Producer().publish("tea", exchange="kept", routing_key="k")
        other = Queue("other", channel=connection.default_channel)
        for refused in (queue.delete, queue.purge, lambda: other.queue_declare(passive=True)):
            with pytest.raises(legato.kombu.ChannelRefusedError, match="ann") as caught:
                refused()
            assert caught.value.code == 403
        assert queue.queue_declare(passive=True).queue == "kept"
        connection.Producer().publish("milk", exchange="kept", routing_key="k")
        assert payloads(Sink(connection, queue).take(2)) == ["tea", "milk"]


def test_who_may_not_read_the_bindings_is_told(tmp_path: Path) -> None:
    """The first declaration looked at them again and again, for ever."""
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    add(store / "users", "ann", "x")
    (tmp_path / "legato.toml").write_text(WORKER.replace('"browse", ', ""))
    with (
        server(store, "--config", str(tmp_path / "legato.toml")) as running,
        Connection(f"legato://ann:x@127.0.0.1:{running.port}") as connection,
    ):
        declaring = Calling(lambda: Queue("own", channel=connection.default_channel).declare())
        with pytest.raises(legato.kombu.ChannelRefusedError, match=r"kombu\.bindings"):
            declaring.outcome()


def test_a_transient_queue_may_be_deleted_and_made_again_under_its_name(connect: Callable[..., Connection]) -> None:
    """As Celery does with the queue of a reply; whoever sends replies keeps its link to the former one."""
    asking, answering = connect(), connect().channel().Producer()
    for number in range(20):
        queue = Queue("replies", Exchange("replies", durable=False), "r", durable=False, auto_delete=True)
        sink = Sink(asking, queue, no_ack=True)
        answering.publish(number, exchange="replies", routing_key="r", delivery_mode="transient")
        [message] = sink.take(1)
        assert (message.payload, message.properties["delivery_mode"]) == (number, 1)
        sink.consumer.cancel()
        queue(sink.channel).delete()


def test_a_transient_queue_that_an_administrator_deletes_is_there_again_once_it_is_declared(
    running: LocalBroker, connect: Callable[..., Connection]
) -> None:
    """It was taken for one that was kept alive, and what was sent to it was lost."""
    connection = connect()
    exchange = Exchange("deleted.news", type="fanout")
    queue = Queue("deleted", exchange, auto_delete=True, durable=False)(connection.default_channel)
    queue.declare()
    management.request(running.url, "delete", "topic", "deleted")
    until(lambda: connection.default_channel.connection.may_have_lost("deleted"))
    queue.declare()
    connection.Producer().publish("tea", exchange=exchange, declare=[exchange])
    message = queue.get()
    assert message is not None
    assert message.payload == "tea"


def test_a_refused_operation_has_no_code_unless_kombu_looks_at_it(connect: Callable[..., Connection]) -> None:
    channel = connect().channel()
    with pytest.raises(legato.kombu.ChannelRefusedError, match="settled already") as caught:
        channel.basic_ack(7)
    assert caught.value.code == 0


def test_messages_expire_by_their_own_time_or_their_queues(timed: LocalBroker) -> None:
    with Connection(url_of(timed.url)) as connection:
        _expire(timed, connection)


def _expire(running: LocalBroker, connection: Connection) -> None:
    channel = connection.channel()
    Queue("short", message_ttl=300.0, channel=channel).declare()
    producer = connection.Producer()
    producer.publish("queue's", routing_key="short")
    producer.publish("own", routing_key="short", expiration=600)
    producer.publish("own", routing_key="long", expiration=600)
    assert (running.waiting("short"), running.waiting("long")) == (2, 1)
    running.advance(310)
    assert (running.waiting("short"), running.waiting("long")) == (0, 1)
    running.advance(600)
    assert running.waiting("long") == 0


def test_the_broker_keeps_a_task_until_its_eta_unless_told_otherwise() -> None:
    eta = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    headers = {"task": "bill", "id": "1", "eta": eta}
    with broker() as running, Connection(url_of(running.url)) as connection:
        connection.Producer().publish("held", routing_key="timed", headers=headers)
        with Connection(url_of(running.url), transport_options={"hold_eta": False}) as other:
            other.Producer().publish("not held", routing_key="timed", headers=headers)
        sink = Sink(connection, Queue("timed"), prefetch=2)
        assert payloads(sink.take(1)) == ["not held"]
        assert sink.gets_nothing()
        running.advance(3600)
        assert payloads(sink.take(1)) == ["held"]


def _publish_in_child(url: str, connection: Connection, failed: Any) -> None:
    try:
        assert not connection.connected
        connection.close()
        with Connection(url) as own:
            own.Producer().publish("from the child", routing_key="forked")
    except BaseException as error:
        failed.put(repr(error))
        raise


def test_a_forked_child_leaves_its_parents_connection_alone(
    running: LocalBroker, connect: Callable[..., Connection]
) -> None:
    """Celery's prefork pool forks a process that has connections and consumers."""
    parents = connect()
    sink = Sink(parents, Queue("forked"))
    forking = multiprocessing.get_context("fork")
    failed = forking.SimpleQueue()
    child = forking.Process(target=_publish_in_child, args=(url_of(running.url), parents, failed))
    child.start()
    assert payloads(sink.take(1)) == ["from the child"]
    child.join(WAIT_S)
    assert failed.empty()
    parents.Producer().publish("from the parent", routing_key="forked")
    assert payloads(sink.take(1)) == ["from the parent"]


def test_a_url_says_what_is_wrong_with_it_and_shows_no_password(running: LocalBroker) -> None:
    assert Connection("legato://ann:secret@one:5672,two").as_uri() == "legato://ann:**@one:5672,two"
    with pytest.raises(ConfigError, match="no virtual hosts: leave 'shop'"):
        Connection("legato://localhost:1/shop").connect()
    with pytest.raises(ConfigError, match="prefetsh"):
        Connection(url_of(running.url) + "?prefetsh=1").connect()
    with pytest.raises(OperationalError):
        Connection("legato://localhost:1?connect_attempts=1").ensure_connection(max_retries=1, interval_start=0)


SECRET = "p@ss:wor/d?%20"


@pytest.mark.parametrize("form", ["in the URL", "apart", "apart, with a URL"])
def test_a_login_works_and_what_kombu_tells_of_a_connection_has_no_password(tmp_path: Path, form: str) -> None:
    """Celery's remote control tells `info()`, less its key `password`, to whoever asks; Flower shows it."""
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    add(store / "users", "ann", SECRET)
    with server(store) as running:
        place = f"127.0.0.1:{running.port},localhost:{running.port}?prefetch=7"
        match form:
            case "in the URL":
                made = Connection(f"legato://ann:{quote(SECRET, safe='')}@{place}")
            case "apart":
                made = Connection("127.0.0.1", "ann", SECRET, port=running.port, transport="legato")
                place = f"127.0.0.1:{running.port}"
            case _:
                made = Connection(f"legato://{place}", userid="ann", password=SECRET)
        for connection in (made, made.clone(), pickle.loads(pickle.dumps(made))):
            with connection:
                connection.Producer().publish("tea", routing_key="login")
                told = connection.info()
                assert (told.pop("userid"), told.pop("password")) == ("ann", SECRET)
                assert "ss:wor" not in str(told)
                assert SECRET not in repr(connection)
                assert connection.as_uri() == f"legato://ann:**@{place}"
                assert quote(SECRET, safe="") in connection.as_uri(include_password=True)


TLS = """
[tls]
certificate = "{file}"
key = "{file}"
"""


def test_a_connection_with_ssl_speaks_tls_whatever_its_url_says(tmp_path: Path, running: LocalBroker) -> None:
    """Celery's `broker_use_ssl`: it connected in the clear."""
    authority = trustme.CA()
    file, trust = tmp_path / "server.pem", tmp_path / "ca.pem"
    file.touch(mode=0o600)
    authority.issue_cert("localhost").private_key_and_cert_chain_pem.write_to_path(str(file))
    authority.cert_pem.write_to_path(str(trust))
    (tmp_path / "legato.toml").write_text(TLS.format(file=file))
    with server(tmp_path / "store", "--config", str(tmp_path / "legato.toml")) as secure:
        place = f"localhost:{secure.port}"
        trusting: list[Any] = [{"ca_certs": str(trust), "keyfile": None}, {"cert_reqs": ssl.CERT_NONE}]
        for options in trusting:
            for scheme in ("legato", "legatos"):
                with Connection(f"{scheme}://{place}", ssl=options) as connection:
                    connection.Producer().publish("tea", routing_key="tls")
        for url, refused in ((f"legato://{place}", True), (url_of(running.url), {"ca_certs": str(trust)})):
            with pytest.raises(OperationalError), Connection(f"{url}?connect_attempts=1", ssl=refused) as connection:
                connection.ensure_connection(max_retries=1, interval_start=0)
        with pytest.raises(ConfigError, match="knows ca_certs, certfile, keyfile, cert_reqs; not ciphers"):
            Connection(f"legato://{place}", ssl={"ciphers": "ALL"}).connect()


def test_plain_clients_can_send_tasks_queues(running: LocalBroker, connect: Callable[..., Connection]) -> None:
    """A message of no kombu has its properties as headers."""
    from legato.client import ConnectionFactory, TextMessage

    sink = Sink(connect(), Queue("plain"))
    with ConnectionFactory(running.url).create_connection() as connection, connection.create_session() as session:
        message = TextMessage("tea")
        message.set_property("qty", 2)
        session.create_producer(session.create_queue("plain")).send(message)
    [received] = sink.take(1)
    assert (received.body, received.headers["qty"], received.content_type) == (b"tea", 2, "text/plain")


@contextmanager
def cut_network(tmp_path: Any) -> Iterator[tuple[Any, Network]]:
    # What a client held that is gone for good is not kept for its return for long.
    soon = {"LEGATO_SERVER_RECONNECT_TIMEOUT_S": "2"}
    with broker_pair(tmp_path, environment=soon) as pair, Network(pair) as network:
        yield pair, network


@pytest.mark.slow
def test_bindings_and_messages_survive_the_death_of_both_brokers(tmp_path: Any) -> None:
    with broker_pair(tmp_path) as pair, Connection(url_of(pair.url)) as connection:
        feeds = Exchange("feeds", "topic")
        for name in ("one", "two"):
            Queue(name, feeds, "feed.#", channel=connection.default_channel).declare()
        connection.Producer().publish("before", exchange="feeds", routing_key="feed.x")
        pair.fail_over()
        pair.fail_over()
        connection.Producer().publish("after", exchange="feeds", routing_key="feed.y")
        with Connection(url_of(pair.url)) as another:
            assert set(another.default_channel.list_bindings()) == {
                ("one", "feeds", "feed.#"),
                ("two", "feeds", "feed.#"),
            }
            for name in ("one", "two"):
                assert payloads(Sink(another, Queue(name)).take(2)) == ["before", "after"]


def test_acknowledgements_and_held_messages_go_over_a_failover(tmp_path: Any) -> None:
    """A consumer sees nothing of it: what it has it can acknowledge, and nothing comes twice."""
    with broker_pair(tmp_path) as pair, Connection(url_of(pair.url)) as connection:
        producer = connection.Producer()
        news = Exchange("news", "fanout", durable=False)
        sink = Sink(connection, Queue("held"), prefetch=3)
        heard = Sink(connection, Queue("news.held", news, auto_delete=True, durable=False), no_ack=True)
        for number in range(6):
            producer.publish(number, routing_key="held")
        held = sink.take(3)
        pair.fail_over()
        for message in held:
            message.ack()
        producer.publish("still there", exchange="news")
        assert payloads(heard.take(1)) == ["still there"]
        rest = sink.take(3)
        assert payloads(rest) == [3, 4, 5]
        for message in rest:
            message.ack()
        assert sink.gets_nothing()


def test_a_publication_raises_after_a_while_without_a_broker_and_a_retry_succeeds_when_it_is_back(
    tmp_path: Any,
) -> None:
    options = {"connection_options": {"reconnect_attempts": 3, "reconnect_delay_max_s": 0.01, "connect_attempts": 3}}
    with (
        cut_network(tmp_path) as (_, network),
        Connection(url_of(network.url), transport_options=options) as connection,
    ):
        producer = connection.Producer()
        producer.publish("one", routing_key="cut")
        sink = Sink(connection, Queue("cut"), prefetch=1)
        [held] = sink.take(1)
        network.cut()
        with pytest.raises(legato.kombu.BrokerLostError):
            producer.publish("two", routing_key="cut")
        with pytest.raises(legato.kombu.BrokerLostError):
            connection.drain_events(timeout=WAIT_S)
        begun = time.monotonic()
        connection.collect()
        assert time.monotonic() - begun < WAIT_S, "closing waits for no broker that is lost"
        with pytest.raises(legato.kombu.BrokerLostError):
            held.ack()
        network.heal()
        producer.revive(connection.default_channel)
        producer.publish("two", routing_key="cut", retry=True)
        # "one" comes back when the broker gives up the lost receiver: before "two" is sent, or after it was taken.
        assert sorted(payloads(Sink(connection, Queue("cut")).take(2))) == ["one", "two"]


def test_a_crashed_process_leaves_no_binding_of_its_transient_queues() -> None:
    """Its bindings are leased: nobody renews them, and they expire."""
    with broker() as running, Connection(url_of(running.url)) as connection:
        exchange = Exchange("c", "fanout")
        Queue("crashed", exchange, auto_delete=True, channel=connection.default_channel).declare()
        Queue("durable", exchange, channel=connection.default_channel).declare()
        assert running.waiting(TABLE) == 4
        running.advance(3600)
        with connection.connection.table() as table:
            assert {binding.queue for binding in table.all()} == {"durable"}


def forget_bindings(channel: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the bindings that it declared with short leases expire, as they do in a long outage."""
    until(lambda: not list(channel.list_bindings()))
    monkeypatch.setattr("legato.kombu.bindings.LEASE_S", LONG_S)


def test_bindings_that_expired_while_there_was_no_broker_are_there_as_soon_as_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker heard of nothing that it was told to do until their next renewal."""
    monkeypatch.setattr("legato.kombu.receiving.LEASE_S", LONG_S)
    monkeypatch.setattr("legato.kombu.bindings.LEASE_S", 0.01)
    with server(tmp_path / "store") as lost, Connection(f"legato://127.0.0.1:{lost.port}") as client:
        channel = client.default_channel
        queue = Queue("worker", Exchange("control", "fanout"), auto_delete=True, durable=False, channel=channel)
        queue.declare()
        forget_bindings(channel, monkeypatch)
        lost.kill()
        lost.start()
        until(lambda: list(channel.list_bindings()) == [("worker", "control", "")])
        client.Producer().publish("end", exchange="control")
        client.Producer().publish("soon", routing_key="worker", delivery_mode="transient")
        assert [queue.get(no_ack=True).payload for _ in range(2)] == ["end", "soon"]


def test_a_broadcast_whose_broker_is_lost_meanwhile_waits_only_a_moment(tmp_path: Path) -> None:
    """A worker's heartbeat waits in its main loop: one that was told to stop could not."""
    with server(tmp_path / "store") as lost:
        connection = BrokerConnection(None, f"amqp://127.0.0.1:{lost.port}?close_timeout_s=0.3", {})

        def lose(table: BindingTable) -> list[MessageCopy]:
            lost.kill()
            table.all()
            raise AssertionError("the table was read without a broker")

        with pytest.raises(BrokerAwayError, match="no broker at the moment"):
            connection.broadcast(lose)
        lost.start()
        seen: list[set[Binding]] = []

        def look(table: BindingTable) -> list[MessageCopy]:
            seen.append(table.all())
            return []

        while not seen:
            with suppress(BrokerAwayError):
                connection.broadcast(look)
        connection.close()
    assert seen == [set()]


def test_a_connection_that_gave_up_looking_for_a_broker_looks_again_when_it_is_used(tmp_path: Path) -> None:
    """As a worker does after a long outage, whose heartbeats nobody repeats."""
    options = {"reconnect_attempts": 3, "reconnect_delay_max_s": 0.01, "connect_wait_s": 0.1, "close_timeout_s": 0.3}
    with server(tmp_path / "store") as lost:
        url = f"legato://127.0.0.1:{lost.port}"
        with Connection(url, transport_options={"connection_options": options}) as client:
            channel, connection = client.default_channel, client.connection
            assert channel.basic_get("got") is None
            lost.kill()
            until(lambda: connection._connection.lost is not None)
            with pytest.raises(BrokerAwayError, match="no broker at the moment"):
                connection.broadcast(lambda table: [])
            with pytest.raises(BrokerLostError):
                channel.basic_get("got")
            with pytest.raises(BrokerLostError):
                client.Producer(channel).publish("two", routing_key="got")
            lost.start()
            until(lambda: _looks(connection))
            client.Producer(channel).publish("two", routing_key="got")
            assert channel.basic_get("got", no_ack=True).payload == "two"
            assert connection is client.connection


def test_a_connection_in_a_pool_whose_receiving_half_gave_up_receives_again_when_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Celery uses it for the replies to a question, and then no longer; the bindings have expired meanwhile."""
    monkeypatch.setattr("legato.kombu.bindings.LEASE_S", 0.01)
    options = {"reconnect_attempts": 3, "reconnect_delay_max_s": 0.01, "close_timeout_s": 0.3}
    with server(tmp_path / "store") as lost:
        url = f"legato://127.0.0.1:{lost.port}"
        with Connection(url, transport_options={"connection_options": options}) as client:
            replies = Queue("replies", Exchange("replies"), "r", auto_delete=True, durable=False)
            sink = Sink(client, replies, no_ack=True)
            sink.consumer.cancel()
            forget_bindings(sink.channel, monkeypatch)
            lost.kill()
            until(lambda: client.connection._receiving.lost)
            lost.start()
            client.Producer().publish("durable", routing_key="tasks")
            again = Sink(client, replies, Queue("tasks"), no_ack=True)
            client.Producer().publish("tea", exchange="replies", routing_key="r")
            with Connection(url) as other:
                other.Producer().publish("by name", routing_key="replies", delivery_mode="transient")
            assert sorted(payloads(again.take(3))) == ["by name", "durable", "tea"]


def _looks(connection: BrokerConnection) -> bool:
    """Whether a transient message to many finds a broker."""

    def look(table: BindingTable) -> list[MessageCopy]:
        seen.append(table.all())
        return []

    seen: list[set[Binding]] = []
    with suppress(BrokerAwayError):
        connection.broadcast(look)
    return bool(seen)

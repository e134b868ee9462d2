"""What the transport must not leave behind: half a publication, a consumer that was cancelled, a dead `basic_get`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from kombu import Connection, Exchange, Queue

import legato.kombu
from legato.client import ConnectionFactory, Topic
from legato.kombu.errors import BrokerLostError, ChannelRefusedError
from legato.testing import broker
from tests.integration.client.calling import Calling
from tests.integration.kombu.test_transport import Sink, payloads, url_of
from tests.support.monitored import until
from tests.support.server import server

FULL = {"match": "full", "max_messages": 1, "when_full": "fail"}
OFTEN = 3
BUSY_S = 0.05
"""So long the event loop is at other work, as with all its links when it looks for a broker."""


def test_a_publication_to_several_queues_that_is_refused_does_not_go_with_the_next_one() -> None:
    with broker(addresses=[FULL]) as running, Connection(url_of(running.url)) as connection:
        channel, producer = connection.default_channel, connection.Producer()
        for exchange, names in (("both", ("free", "full")), ("others", ("free", "other"))):
            for name in names:
                Queue(name, Exchange(exchange, "fanout"), channel=channel).declare()
        producer.publish("fills it", routing_key="full")
        with pytest.raises(legato.kombu.ChannelRefusedError, match="full"):
            producer.publish("refused", exchange="both")
        assert running.waiting("free") == 0
        producer.publish("next", exchange="others")
        assert (running.waiting("free"), running.waiting("full"), running.waiting("other")) == (1, 1, 1)


def test_a_publication_to_several_queues_that_a_signal_interrupts_does_not_go_with_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with broker() as running, Connection(url_of(running.url)) as connection:
        channel, producer = connection.default_channel, connection.Producer()
        for name in ("one", "two"):
            Queue(name, Exchange("pair", "fanout"), channel=channel).declare()
        send, sent = legato.kombu.sending._send, []

        def interrupted(*arguments: Any) -> None:
            send(*arguments)
            sent.append(arguments)
            if len(sent) == 1:
                # As Ctrl-C does; who ran before in this process may have left another handler of that.
                raise KeyboardInterrupt

        monkeypatch.setattr("legato.kombu.sending._send", interrupted)
        with pytest.raises(KeyboardInterrupt):
            producer.publish("interrupted", exchange="pair")
        producer.publish("next", exchange="pair")
        assert (running.waiting("one"), running.waiting("two")) == (1, 1)


def test_a_queue_that_was_deleted_and_made_again_is_got_from() -> None:
    with broker() as running, Connection(url_of(running.url)) as connection, Connection(url_of(running.url)) as other:
        producer, got = other.Producer(), Queue("remade", channel=connection.default_channel)
        producer.publish("before", routing_key="remade")
        assert got.get(no_ack=True).payload == "before"
        Queue("remade", channel=other.default_channel).delete()
        producer.publish("after", routing_key="remade")
        assert got.get(no_ack=True).payload == "after"


@pytest.mark.parametrize("how", ["cancelled", "closed"])
def test_a_consumer_that_ends_while_there_is_no_broker_takes_nothing_when_there_is_one(
    tmp_path: Path, how: str
) -> None:
    with server(tmp_path / "store") as lost:
        url = f"legato://127.0.0.1:{lost.port}"
        with Connection(url) as client, Connection(url) as other:
            names = [f"quiet{number}" for number in range(OFTEN)]
            sinks = [Sink(client, Queue(name)) for name in names]
            receiving = client.connection.receiving
            producer = other.Producer()
            producer.publish("before", routing_key=names[0])
            assert payloads(sinks[0].take(1)) == ["before"]
            lost.kill()
            until(lambda: receiving._connection.host is None)
            for sink in sinks:
                receiving.post(time.sleep, BUSY_S)
                sink.consumer.cancel() if how == "cancelled" else sink.channel.close()
            lost.start()
            until(lambda: receiving._connection.host is not None)
            for name in names:
                producer.publish("after", routing_key=name)
            held = [] if how == "cancelled" else ["before"]
            assert sorted(payloads(Sink(other, Queue(names[0])).take(len(held) + 1))) == ["after", *held]
            assert [payloads(Sink(other, Queue(name)).take(1)) for name in names[1:]] == [["after"]] * (OFTEN - 1)


def test_who_begins_to_consume_does_not_wait_for_ever_for_a_broker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A publication raises after a minute; a worker that had come so far could not even be stopped."""
    monkeypatch.setattr("legato.kombu.connection.RECONNECT_ATTEMPTS", 12)
    with server(tmp_path / "store") as lost, Connection(f"legato://127.0.0.1:{lost.port}") as client:
        sink = Sink(client, Queue("early"))
        Queue("late", channel=sink.channel).declare()
        connection = client.connection
        lost.kill()
        until(lambda: connection.receiving._connection.host is None)
        consuming = Calling(lambda: sink.channel.basic_consume("late"))
        until(lambda: connection._connection.lost is not None)
        with pytest.raises(BrokerLostError):
            consuming.outcome()
        lost.start()


def test_a_transient_queue_that_was_refused_is_declared_again() -> None:
    """It counted as kept alive, so that the next declaration made nothing, and what was sent to it was lost."""
    with broker() as running, Connection(url_of(running.url)) as connection:
        channel = connection.channel()
        with ConnectionFactory(running.url).create_connection() as other:
            other.create_session().create_shared_consumer(Topic("own"), "own", "number = 1")
            for _ in range(2):
                with pytest.raises(ChannelRefusedError, match="in use with another topic or selector"):
                    channel.queue_declare("own", auto_delete=True)
        channel.queue_declare("own", auto_delete=True)
        connection.Producer(channel).publish("kept", routing_key="own", delivery_mode="transient")
        received = channel.basic_get("own", no_ack=True)
        assert received is not None
        assert received.payload == "kept"


def test_a_channel_closes_though_the_connection_that_its_former_consumer_had_is_gone(tmp_path: Path) -> None:
    """`close()` raised `RuntimeError: Event loop is closed`, and an acknowledgement went nowhere without a word."""
    options = {"reconnect_attempts": 3, "reconnect_delay_max_s": 0.01, "close_timeout_s": 0.3}
    with server(tmp_path / "store") as lost:
        url = url_of(f"amqp://127.0.0.1:{lost.port}")
        with Connection(url, transport_options={"connection_options": options}) as client:
            sink = Sink(client, Queue("tasks"))
            for body in ("one", "two"):
                client.Producer().publish(body, routing_key="tasks")
            one, two = sink.take(2)
            sink.consumer.cancel()
            lost.kill()
            until(lambda: client.connection._receiving.lost)
            with pytest.raises(BrokerLostError, match="delivered again"):
                one.ack()
            lost.start()
            client.Producer().publish("three", routing_key="tasks")
            again = Sink(client, Queue("tasks"))
            with pytest.raises(BrokerLostError, match="delivered again"):
                two.ack()
            sink.channel.close()
            assert sorted(payloads(again.take(3))) == ["one", "three", "two"]


@pytest.mark.parametrize("auto_delete", [False, True], ids=["durable", "transient"])
def test_a_name_that_no_queue_can_have_is_no_loss_of_the_connection(*, auto_delete: bool) -> None:
    """Kombu connected again, and tried again: Celery said that it could not reach its broker."""
    with broker() as running, Connection(url_of(running.url)) as connection:
        channel = connection.channel()

        def use(name: str) -> None:
            channel.queue_declare(name, auto_delete=auto_delete)
            connection.Producer(channel).publish("refused", routing_key=name)

        with pytest.raises(ChannelRefusedError, match="name of a"):
            use("new\nline")
        connection.Producer(channel).publish("kept", routing_key="tasks")
        assert running.waiting("tasks") == 1

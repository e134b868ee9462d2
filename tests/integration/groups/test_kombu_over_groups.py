"""Kombu, and so Celery, over queues of two groups of brokers, with the URL of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Producer, Queue
from typer.testing import CliRunner

import legato.kombu  # noqa: F401  the transport is known by it
from legato.cli.main import app
from legato.kombu.errors import ChannelRefusedError
from tests.integration.groups.conftest import Groups
from tests.support.replicated import eventually

WAIT_S = 60.0


@pytest.fixture
def kombu(calm_groups: Groups) -> Iterator[Callable[[], Connection]]:
    made: list[Connection] = []

    def connect() -> Connection:
        made.append(Connection(calm_groups.url("orders").replace("amqp://", "legato://")))
        return made[-1]

    yield connect
    for connection in made:
        connection.close()


def bound(channel: Any, exchange: Exchange, *names: str, **options: Any) -> list[Queue]:
    queues = [Queue(name, exchange, "#", **options)(channel) for name in names]
    for queue in queues:
        queue.declare()
    return queues


def test_queues_of_another_group_are_counted_purged_and_deleted(kombu: Callable[[], Connection]) -> None:
    """Nothing was: `celery purge` said that there was nothing to purge."""
    connection = kombu()
    for name in ("orders.managed", "rest.managed"):
        producer = Producer(connection.channel())
        for number in range(3):
            producer.publish(number, routing_key=name, exchange="", declare=[Queue(name)])
        channel = connection.channel()
        assert channel.queue_declare(name, passive=True).message_count == 3
        assert channel.queue_purge(name) == 3
        assert channel.queue_declare(name, passive=True).message_count == 0
        assert channel.queue_delete(name) == 0
        with pytest.raises(ChannelRefusedError, match="There is no queue"):
            channel.queue_declare(name, passive=True)


def test_what_many_listen_to_reaches_both_groups(kombu: Callable[[], Connection], calm_groups: Groups) -> None:
    """Remote control of workers, whose mailboxes the hash spreads, was refused as a transaction of two groups."""
    connection = kombu()
    channel = connection.channel()
    exchange = Exchange("control", type="fanout")
    names = ("orders.mailbox", "rest.mailbox")
    queues = bound(channel, exchange, *names, exclusive=True, auto_delete=True)
    heard: list[Any] = []

    def hear(body: Any, message: Any) -> None:
        heard.append(body)
        message.ack()

    with Consumer(channel, queues, callbacks=[hear]):
        producer = Producer(kombu().channel())
        for word in ("first", "second"):
            producer.publish(word, exchange=exchange, delivery_mode=1, declare=[exchange])
        while len(heard) < 4:
            connection.drain_events(timeout=WAIT_S)
    assert sorted(heard) == ["first", "first", "second", "second"]
    # And a mailbox leaves no topic behind, where it was.
    connection.close()
    for name in ("orders", "rest"):
        url = calm_groups.url(name)
        eventually(lambda url=url: "mailbox" not in CliRunner().invoke(app, ["topics", "--url", url]).output, "topics")  # type: ignore[misc]


def test_a_message_to_queues_of_two_groups_goes_to_none_and_the_channel_goes_on(
    kombu: Callable[[], Connection],
) -> None:
    """It was an error after which kombu connects again and tries the same for ever."""
    channel = kombu().channel()
    exchange = Exchange("both", type="topic")
    queues = bound(channel, exchange, "orders.both", "rest.both")
    producer = Producer(channel)
    with pytest.raises(ChannelRefusedError, match="or pin both addresses to one group"):
        producer.publish("to both", exchange=exchange, routing_key="any")
    producer.publish("to one", routing_key="rest.both")
    assert queues[0].get() is None
    assert queues[1].get().payload == "to one"


def test_messages_to_the_queues_of_one_group_and_of_another_in_turn(kombu: Callable[[], Connection]) -> None:
    """Each change was refused: the session was that of the group before."""
    channel = kombu().channel()
    here, there = Exchange("here", type="topic"), Exchange("there", type="topic")
    queues = [
        *bound(channel, here, "orders.turn.1", "orders.turn.2"),
        *bound(channel, there, "rest.turn.1", "rest.turn.2"),
    ]
    producer = Producer(channel)
    for number in range(3):
        for exchange in (here, there):
            producer.publish(number, exchange=exchange, routing_key="any")
    for queue in queues:
        assert [queue.get().payload for _ in range(3)] == [0, 1, 2]
        assert queue.get() is None

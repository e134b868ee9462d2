"""Assignments on the wire: ranges that last, read in bulk with a ticket, over kills and takeovers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest

from legato.amqp.codec.header import Header
from legato.amqp.codec.message import ValueBody, decode_message, encode_message
from legato.amqp.engine.outcomes import ACCEPTED
from legato.client import ConnectionFactory, TextMessage, Topic
from legato.errors import IllegalStateError, InvalidDestinationError
from tests.integration.server.test_management import Manager
from tests.integration.server.wire import attach, close, durable, selecting
from tests.support.amqp_peer import AmqpPeer, Refused
from tests.support.server import Server, server


@pytest.fixture
def manager(peer: AmqpPeer) -> Manager:
    return Manager(peer)


def publish(peer: AmqpPeer, address: str, *texts: str) -> None:
    sender = peer.sender(address)
    for said in texts:
        assert peer.send(sender, encode_message(header=Header(durable=True), body=ValueBody(said))) == ACCEPTED


def ask(manager: Manager, operation: str, name: str = "", **arguments: Any) -> Any:
    status, result = manager.ask(operation, name, "assignment", **arguments)
    assert status == 200, result
    return result


def opened(manager: Manager, address: str = "orders", **arguments: Any) -> Any:
    return ask(manager, "open", subscription="spark", address=address, **arguments)


def read(manager: Manager, name: str, **arguments: Any) -> list[tuple[int, str]]:
    """All rows of a range, over Flight."""
    told = ask(manager, "ticket", name, **arguments)
    with flight.connect(f"grpc://127.0.0.1:{told['port']}") as client:
        rows = client.do_get(flight.Ticket(bytes.fromhex(told["ticket"]))).read_all().to_pylist()
    return [(row["seq"], text_of(row["message"])) for row in rows]


def text_of(data: bytes) -> str:
    body = decode_message(data).body
    assert isinstance(body, ValueBody)
    return str(body.value)


def test_a_pipeline_takes_reads_and_acknowledges(peer: AmqpPeer, manager: Manager) -> None:
    publish(peer, "orders", "1", "2", "3")
    stand = opened(manager)
    name, fence = stand["name"], stand["fence"]
    assert ask(manager, "assign", name, fence=fence, limit=2)["last"] == 2
    assert read(manager, name) == [(1, "1"), (2, "2")]
    assert read(manager, name, after=1, through=2) == [(2, "2")]
    assert ask(manager, "acknowledge", name, fence=fence, through=1)["acknowledged"] == 1
    assert read(manager, name) == [(2, "2")]
    assert manager.depth("orders") == 1


def test_a_queue_is_browsed_with_a_ticket(peer: AmqpPeer, manager: Manager) -> None:
    publish(peer, "browsed", "1", "2")
    assert read(manager, "browsed") == [(1, "1"), (2, "2")]
    assert manager.depth("browsed") == 2


def test_a_topic_is_read_through_a_subscription_with_a_selector(peer: AmqpPeer, manager: Manager) -> None:
    stand = opened(manager, "prices", topic=True, selector="JMSPriority > 3")
    publish(peer, "topic://prices", "1", "2")
    ask(manager, "assign", stand["name"], fence=stand["fence"])
    assert read(manager, stand["name"]) == [(1, "1"), (2, "2")]


@pytest.mark.parametrize(
    ("name", "address", "selector"),
    [("one", "prices.b", "TRUE"), ("two", "prices.a", "JMSPriority > 3")],
    ids=["topic", "selector"],
)
def test_a_stream_loses_nothing_to_one_of_its_name_with_another_topic_or_selector(
    peer: AmqpPeer, manager: Manager, name: str, address: str, selector: str
) -> None:
    """What waited for the first one was dropped, and the second one was refused all the same."""
    stand = ask(manager, "open", subscription=name, address="prices.a", topic=True)
    publish(peer, "topic://prices.a", "1", "2")
    ask(manager, "assign", stand["name"], fence=stand["fence"], limit=1)
    other: dict[str, Any] = {"subscription": name, "address": address, "topic": True, "selector": selector}
    status, why = manager.ask("open", "", "assignment", **other)
    said = f"A stream reads the topic prices.a as subscription {name}: "
    assert (status, said in why) == (409, True)
    with pytest.raises(Refused, match=said):
        attach(peer, durable(address, "shared", "global", filters=selecting(selector)), name=f"{name}|global1")
    assert ask(manager, "assign", stand["name"], fence=stand["fence"])["last"] == 2
    ask(manager, "acknowledge", stand["name"], fence=stand["fence"], through=2)
    # Who means it ends the subscription, and has the stream go on with the new one.
    assert manager.ask("delete", f"subscription:///{name}", "subscription")[0] == 200
    assert ask(manager, "open", **other, renew=True)["waiting"] == 0


def test_a_client_does_not_end_the_subscription_that_a_stream_reads(broker: Server, manager: Manager) -> None:
    """It was ended, and what waited in it dropped, while the stream did not run, and while it ran."""
    stand = ask(manager, "open", subscription="ended", address="prices.c", topic=True)
    with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection:
        session = connection.create_session()
        consumer = session.create_shared_durable_consumer(Topic("prices.c"), "ended")
        with pytest.raises(IllegalStateError, match=r"in use|active"):
            session.unsubscribe("ended")
        consumer.close()
        session.create_producer(Topic("prices.c")).send(TextMessage("waits"))
        with pytest.raises(IllegalStateError, match=r"A stream reads the topic prices\.c .*subscription delete"):
            session.unsubscribe("ended")
        assert ask(manager, "assign", stand["name"], fence=stand["fence"])["last"] == 1
        ask(manager, "acknowledge", stand["name"], fence=stand["fence"], through=1)
        # An administrator ends what the stream reads, or what it keeps of that: then the subscription is a client's.
        ask(manager, "delete", stand["name"])
        session.unsubscribe("ended")
        with pytest.raises(InvalidDestinationError):
            session.unsubscribe("ended")


def test_the_closing_detach_of_a_consumer_leaves_a_stream_its_subscription(peer: AmqpPeer, manager: Manager) -> None:
    """Other clients than JMS' close their receivers; that ended a durable subscription also for the stream."""
    stand = ask(manager, "open", subscription="left", address="prices.d", topic=True)
    close(peer, attach(peer, durable("prices.d", "shared", "global"), name="left|global1"))
    publish(peer, "topic://prices.d", "1")
    assert ask(manager, "assign", stand["name"], fence=stand["fence"])["last"] == 1


def test_a_later_run_fences_the_first(manager: Manager) -> None:
    first, second = opened(manager, "fenced"), opened(manager, "fenced")
    status, why = manager.ask("assign", first["name"], "assignment", fence=first["fence"])
    assert (status, "Another run" in why) == (409, True)
    assert ask(manager, "assign", second["name"], fence=second["fence"])["last"] == 0


@pytest.mark.parametrize(
    ("operation", "arguments", "said"),
    [
        ("open", {}, "needs subscription"),
        ("open", {"subscription": "s", "address": "orders", "selector": "a ="}, ""),
        ("open", {"subscription": "s", "address": "orders", "latest": "yes"}, "true or false"),
        ("assign", {"name": "assignment://nobody/orders"}, "no assignment"),
        ("ticket", {"name": "nowhere"}, "no queue"),
        ("fly", {}, "there are open"),
    ],
)
def test_what_cannot_be_is_refused_with_a_reason(
    manager: Manager, operation: str, arguments: dict[str, Any], said: str
) -> None:
    status, why = manager.ask(operation, arguments.pop("name", ""), "assignment", **arguments)
    assert 400 <= status < 500
    assert said in why


def test_nobody_sends_to_or_receives_from_an_assignment(peer: AmqpPeer, manager: Manager) -> None:
    stand = opened(manager)
    with pytest.raises(Refused, match="own"):
        peer.sender(stand["name"])


def test_numbers_outlive_a_kill_and_old_tickets_do_not(tmp_path: Path) -> None:
    with server(tmp_path / "store") as running:
        peer = AmqpPeer(running.port)
        manager = Manager(peer)
        publish(peer, "orders", "1", "2", "3")
        stand = opened(manager)
        ask(manager, "assign", stand["name"], fence=stand["fence"], limit=2)
        assert read(manager, stand["name"]) == [(1, "1"), (2, "2")]
        peer.close()
        running.kill()
        running.start()
        peer = AmqpPeer(running.port)
        manager = Manager(peer)
        again = opened(manager)
        assert (again["fence"], again["last"], again["acknowledged"]) == (stand["fence"] + 1, 2, 0)
        assert read(manager, stand["name"]) == [(1, "1"), (2, "2")]
        peer.close()

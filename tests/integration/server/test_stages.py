"""Stages on the wire: rows sent by Arrow Flight become messages in one commit, once, over kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from legato.bulk.requests import PutRequest
from legato.bulk.staging import StageOptions
from legato.client import ConnectionFactory
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer
from tests.support.server import Server, server


@pytest.fixture
def manager(peer: AmqpPeer) -> Manager:
    return Manager(peer)


def ask(manager: Manager, operation: str, name: str, **arguments: Any) -> Any:
    status, result = manager.ask(operation, name, "stage", **arguments)
    assert status == 200, result
    return result


def stage(manager: Manager, sink: str, batch: int, name: str, rows: dict[str, list[Any]], **options: Any) -> None:
    told = ask(manager, "ticket", sink, batch=batch, stage=name)
    request = PutRequest(bytes.fromhex(told["ticket"]), StageOptions(**options))
    table = pa.table(rows)
    with flight.connect(f"grpc://127.0.0.1:{told['port']}") as client:
        descriptor = flight.FlightDescriptor.for_command(msgspec.msgpack.encode(request))
        writer, _ = client.do_put(descriptor, table.schema)
        with writer:
            writer.write_table(table)


def received(broker: Server, address: str, count: int) -> list[Any]:
    url = f"amqp://127.0.0.1:{broker.port}"
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        consumer = session.create_consumer(session.create_queue(address))
        connection.start()
        found = [consumer.receive(timeout_s=10) for _ in range(count)]
        assert consumer.receive_no_wait() is None
        return found


def test_stages_of_a_batch_become_visible_together_and_once(broker: Server, manager: Manager) -> None:
    stage(manager, "sink", 0, "a", {"body": ["1", "2"], "priority": [4, 9]}, destination="staged")
    stage(manager, "sink", 0, "b", {"body": ["3"]}, destination="staged")
    stage(manager, "sink", 0, "loser", {"body": ["never"]}, destination="staged")
    assert ask(manager, "publish", "sink", batch=0, stages="a,b")["published"] == 3
    assert ask(manager, "publish", "sink", batch=0, stages="a,b")["published"] == 0
    assert [message.body for message in received(broker, "staged", 3)] == ["2", "1", "3"]
    assert list((broker.store / "stages").glob("*/*")) == []


def test_rows_go_where_they_say_as_they_say(broker: Server, manager: Manager) -> None:
    rows: dict[str, list[Any]] = {
        "body": [b"one", b"two"],
        "destination": ["here", "there"],
        "correlation_id": ["c", None],
        "group_id": [None, "g"],
        "duplicate_id": ["d", None],
    }
    stage(manager, "ways", 0, "a", rows)
    stage(manager, "ways", 1, "a", rows)
    assert ask(manager, "publish", "ways", batch=0, stages="a")["published"] == 2
    assert ask(manager, "publish", "ways", batch=1, stages="a")["published"] == 2
    [here] = received(broker, "here", 1)
    there, again = received(broker, "there", 2)
    assert (here.body, here.correlation_id) == (b"one", "c")
    assert (there.body, there.properties["JMSXGroupID"], again.body) == (b"two", "g", b"two")


def test_a_row_without_a_destination_is_refused(manager: Manager) -> None:
    with pytest.raises(flight.FlightServerError, match="names no destination"):
        stage(manager, "lost", 0, "a", {"body": ["1"]})


def test_a_stage_that_is_not_there_is_named(manager: Manager) -> None:
    status, why = manager.ask("publish", "sink", "stage", batch=77, stages="nothing")
    assert (status, "nothing" in why) == (503, True)


def test_what_is_given_up_is_gone(broker: Server, manager: Manager) -> None:
    stage(manager, "given", 0, "a", {"body": ["1"]}, destination="given")
    ask(manager, "discard", "given", batch=0, stages="a")
    assert list((broker.store / "stages" / "given").glob("*")) == []


def test_stages_and_what_was_published_outlive_a_kill(tmp_path: Path) -> None:
    with server(tmp_path / "store") as running:
        peer = AmqpPeer(running.port)
        stage(Manager(peer), "sink", 0, "a", {"body": ["1"]}, destination="staged")
        running.kill()
        running.start()
        manager = Manager(AmqpPeer(running.port))
        assert ask(manager, "publish", "sink", batch=0, stages="a")["published"] == 1
        running.kill()
        running.start()
        manager = Manager(AmqpPeer(running.port))
        assert ask(manager, "publish", "sink", batch=0, stages="a")["published"] == 0
        assert [message.body for message in received(running, "staged", 1)] == ["1"]

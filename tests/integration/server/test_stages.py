"""Stages on the wire: rows sent by Arrow Flight become messages in one commit, once, over kills."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.flight as flight
import pytest

from legato import limits
from legato.amqp.codec.stubs import STUB_MARK
from legato.bulk.requests import PutRequest, StageOptions
from legato.bulk.stage_files import DigestRecord, MessageRecord, path_of, read_stage, write_stage
from legato.client import ConnectionFactory
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer
from tests.support.server import Server, server

CONFIGURATION = """
[[address]]
match = "limited"
max_bytes = 1_000_000
when_full = "fail"
"""


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
        found = [consumer.receive(timeout_s=60) for _ in range(count)]
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
    assert "/" not in why


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


def test_a_batch_that_is_staged_again_with_its_rows_is_confirmed(broker: Server, manager: Manager) -> None:
    """As Spark does when a driver died before it wrote down that the batch is published: in other tasks."""
    stage(manager, "again", 0, "a", {"body": ["1", "2", "3"]}, destination="again")
    assert ask(manager, "publish", "again", batch=0, stages="a")["published"] == 3
    stage(manager, "again", 0, "b", {"body": ["3"]}, destination="again")
    stage(manager, "again", 0, "c", {"body": ["2", "1"]}, destination="again")
    assert ask(manager, "publish", "again", batch=0, stages="b,c")["published"] == 0
    assert [message.body for message in received(broker, "again", 3)] == ["1", "2", "3"]


def test_two_queries_from_copies_of_one_checkpoint_are_told_apart(broker: Server, manager: Manager) -> None:
    """Both publish under one name; of the second one nothing is told that is not so."""
    sent, told = [], []
    for batch in range(3):
        for query in ("one", "two"):
            rows = [f"{query}-{batch}-{row}" for row in range(2)]
            stage(manager, "copies", batch, query, {"body": rows}, destination="copies")
            status, result = manager.ask("publish", "copies", "stage", batch=batch, stages=query)
            told.append(status)
            if status == 200:
                sent += rows
            else:
                assert "other rows" in result or "rows of these are gone" in result
                ask(manager, "discard", "copies", batch=batch, stages=query)
    assert told == [200, 503] * 3
    assert [message.body for message in received(broker, "copies", len(sent))] == sent


def test_a_query_whose_rows_always_differ_may_say_so(broker: Server, manager: Manager) -> None:
    stage(manager, "random", 0, "a", {"body": ["1"]}, destination="random")
    assert ask(manager, "publish", "random", batch=0, stages="a")["published"] == 1
    stage(manager, "random", 0, "b", {"body": ["2"]}, destination="random")
    assert ask(manager, "publish", "random", batch=0, stages="b", unverified=True)["published"] == 0
    assert [message.body for message in received(broker, "random", 1)] == ["1"]


def test_sinks_are_listed_and_forgotten(broker: Server, manager: Manager) -> None:
    for batch in range(2):
        stage(manager, "listed", batch, "a", {"body": ["1", "2"]}, destination="listed")
        assert ask(manager, "publish", "listed", batch=batch, stages="a")["published"] == 2
    stage(manager, "once", 0, "a", {"body": ["1"]}, destination="listed")
    assert ask(manager, "publish", "once", batch=0, stages="a", once=True)["published"] == 1
    found = ask(manager, "query", "")["results"]
    assert {"name": "listed", "last_batch": 1, "rows": 2} in found
    assert "once" not in [sink["name"] for sink in found]
    ask(manager, "forget", "listed")
    assert "listed" not in [sink["name"] for sink in ask(manager, "query", "")["results"]]
    assert manager.ask("forget", "listed", "stage")[0] == 404
    stage(manager, "listed", 1, "b", {"body": ["3"]}, destination="listed")
    assert ask(manager, "publish", "listed", batch=1, stages="b")["published"] == 1


def test_what_a_former_version_staged_is_published(broker: Server, manager: Manager) -> None:
    """Its stages do not say what their rows are known by."""
    for name in ("a", "b"):
        stage(manager, "former", 0, name, {"body": ["1"]}, destination="former")
        [path] = [*(broker.store / "stages" / "former").glob(f"*-{name}.stage")]
        records = [record for record in read_stage(path) if not isinstance(record, DigestRecord)]
        assert len(records) == 1
        write_stage(path, iter(records))
        published = ask(manager, "publish", "former", batch=0, stages=name)["published"]
        assert published == (1 if name == "a" else 0)


def test_no_number_of_a_row_ends_the_broker(broker: Server, manager: Manager) -> None:
    """A row that lives for 300,000 years was a commit that no broker could make: one after the other ended."""
    epoch = broker.epoch
    for batch, further in enumerate(({}, {"duplicate_id": ["d"]})):
        for way, time_ms in enumerate((10**14, 10**16, 2**63 - 1)):
            rows: dict[str, list[Any]] = {"body": ["1"], "time_to_live_ms": [time_ms], "priority": [2**62], **further}
            stage(manager, f"hostile-{way}", batch, "a", rows, destination=f"hostile-{way}-{batch}")
            assert ask(manager, "publish", f"hostile-{way}", batch=batch, stages="a")["published"] == 1
            assert [message.body for message in received(broker, f"hostile-{way}-{batch}", 1)] == ["1"]
    for batch, delay_ms in enumerate((10**14, 10**16, 2**63 - 1)):
        stage(manager, "later", batch, "a", {"body": ["1"], "delivery_delay_ms": [delay_ms]}, destination="later")
        assert ask(manager, "publish", "later", batch=batch, stages="a")["published"] == 1
    assert received(broker, "later", 0) == []
    assert broker.epoch == epoch


def test_a_stage_that_no_store_can_keep_is_refused_when_it_is_published(broker: Server, manager: Manager) -> None:
    """Its file is of another version, or of a client that found a way: each primary ended of it."""
    epoch = broker.epoch
    message = MessageRecord("unsound", False, 4, 0, 0, b"d", "", "ID:1", b"body")
    for batch, changed in enumerate(({"expires_us": -5}, {"deliver_us": limits.TIME_MS_MAX * 2000})):
        path = path_of(broker.store, "unsound", batch, "a")
        write_stage(path, iter([message, msgspec.structs.replace(message, **changed)]))
        for _ in range(2):
            status, why = manager.ask("publish", "unsound", "stage", batch=batch, stages="a")
            assert (status, "cannot be published" in why) == (503, True)
    assert received(broker, "unsound", 0) == []
    assert broker.epoch == epoch


def test_a_row_that_stands_for_a_large_message_of_others_is_refused(manager: Manager) -> None:
    with pytest.raises(flight.FlightServerError, match="ends as no message may"):
        stage(manager, "forged", 0, "a", {"body": [bytes(40) + STUB_MARK]}, destination="forged")


def test_a_batch_that_an_address_cannot_take_as_a_whole_is_refused(broker: Server, manager: Manager) -> None:
    """Those from the eleventh on were lost, and all of them were told as published."""
    rows = {"body": ["x" * 100_000] * 100, "duplicate_id": [str(row) for row in range(100)]}
    stage(manager, "limited", 0, "a", rows, destination="limited")
    for _ in range(2):
        status, why = manager.ask("publish", "limited", "stage", batch=0, stages="a")
        assert (status, "limited has room for 1000000 bytes" in why) == (503, True), why
    stage(manager, "limited", 0, "b", {name: values[:9] for name, values in rows.items()}, destination="limited")
    assert ask(manager, "publish", "limited", batch=0, stages="b")["published"] == 9
    assert len(received(broker, "limited", 9)) == 9

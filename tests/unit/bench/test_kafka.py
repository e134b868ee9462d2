"""The configuration of the Kafka node, and what is made of the rows that arrive."""

from pathlib import Path

import pytest
from bench.f9 import sender_of, spread_of
from bench.formats import Format, settings
from bench.kafka import properties

LEGATO, KAFKA = Format("legato", "amqp://127.0.0.1:4711"), Format("kafka", "127.0.0.1:9")


def test_a_node_is_broker_and_controller_on_loopback() -> None:
    lines = properties(Path("/somewhere"), 1, 2, fsync=False).splitlines()
    assert "process.roles=broker,controller" in lines
    assert "controller.quorum.voters=1@127.0.0.1:2" in lines
    assert "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2" in lines
    assert not any("flush" in line for line in lines)


def test_kafka_writes_each_record_to_disk_only_if_it_is_told_to() -> None:
    assert "log.flush.interval.messages=1\n" in properties(Path("/somewhere"), 1, 2, fsync=True)


def test_both_formats_are_read_from_the_beginning_and_in_the_same_portions() -> None:
    assert LEGATO.stream("in", 100) == {
        "url": "amqp://127.0.0.1:4711",
        "queue": "in",
        "subscription": "bench",
        "maxOffsetsPerTrigger": "100",
    }
    assert KAFKA.stream("in", 100) == {
        "kafka.bootstrap.servers": "127.0.0.1:9",
        "subscribe": "in",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": "100",
    }
    assert "maxOffsetsPerTrigger" not in LEGATO.stream("in", 0)


def test_the_session_has_the_connector_of_kafka() -> None:
    assert settings([Path("/a.jar"), Path("/b.jar")])["spark.jars"] == "/a.jar,/b.jar"


def test_messages_are_sent_to_legato_by_the_raw_client_at_the_rate() -> None:
    command = sender_of(LEGATO, "in", 5000, 100, 256)
    assert command[2:] == [
        *("bench.rawclient", "latency", "--port", "4711", "--address", "in"),
        *("--rate", "5000", "--count", "100", "--size", "256"),
    ]


def test_a_latency_runs_from_the_instant_at_which_the_send_was_due() -> None:
    # The first two of five do not count.
    median, nearly_all = spread_of([(10.5, [0, 1, 2]), (10.9, [4, 3])], 10.0, 10, 5)
    assert median == pytest.approx(500)
    assert nearly_all == pytest.approx(600)


@pytest.mark.parametrize("numbers", [[0, 1], [0, 1, 1], [0, 1, 2, 2]])
def test_rows_that_are_missing_or_come_twice_are_noticed(numbers: list[int]) -> None:
    with pytest.raises(RuntimeError, match="each of 3 once"):
        spread_of([(1.0, numbers)], 0.0, 1, 3)

"""What a broker whose clock jumps still knows: of attached producers, of sinks, of commits (promises 1 and 2)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructType

from legato import limits
from legato.amqp import names
from legato.amqp.engine.outcomes import ACCEPTED, Rejected
from legato.server.process.service import Service
from legato.spark.connector.options import sink_options
from legato.spark.connector.requests import close_shared
from legato.spark.connector.sink import StreamSink
from legato.store.lmdb import LmdbStore
from legato.testing import LocalBroker
from tests.support.amqp_peer import AmqpPeer, text

JUMPS_S = [25 * 3600.0, 8 * 86_400.0, -25 * 3600.0]


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalBroker]:
    """A broker that keeps no producer beyond the retention."""
    monkeypatch.setattr(limits, "PRODUCERS_KEPT", 0)
    running = LocalBroker(tmp_path)
    running.start()
    yield running
    running.stop()


def connected(running: LocalBroker, container: str) -> AmqpPeer:
    return AmqpPeer(int(running.url.rpartition(":")[2]), container=container)


def jump(running: LocalBroker, seconds: float) -> None:
    """The clock jumps, and the upkeep of the next minute comes."""

    def upkeep(service: Service) -> None:
        service.broker.producers.forget_unused()
        service.upkeep.forget(prune=True)
        service.advance()

    running.advance(0)
    running.advance(seconds)
    running._ask(upkeep)
    running.advance(0)


@pytest.mark.parametrize("seconds", JUMPS_S)
def test_after_a_jump_of_the_clock_a_send_in_flight_at_a_takeover_is_stored_once(
    running: LocalBroker, seconds: float
) -> None:
    """Attached before the jump, it sends after it; the next broker is told the same once more."""
    properties = {names.PRODUCER_ID: "p"}
    peer = connected(running, "before")
    sender = peer.sender("q", properties)
    jump(running, seconds)
    assert peer.send(sender, text(b"in flight"), (1).to_bytes(8, "big")) == ACCEPTED
    jump(running, seconds)
    peer.drop()
    running.stop()
    running.start()
    jump(running, seconds)
    peer = connected(running, "after")
    sender = peer.sender("q", properties)
    assert sender.remote_properties[names.LAST_NUMBER] == 1
    assert peer.send(sender, text(b"in flight"), (1).to_bytes(8, "big")) == ACCEPTED
    peer.drop()
    assert running.waiting("q") == 1


@pytest.mark.parametrize("seconds", JUMPS_S)
def test_after_a_jump_of_the_clock_the_outcome_of_a_commit_is_known(running: LocalBroker, seconds: float) -> None:
    """In flight, and rolled back by the takeover: that is an answer, not a doubt."""
    peer = connected(running, "before")
    rolled_back, committed = (peer.declare(peer.coordinator()) for _ in range(2))
    sender, coordinator = peer.sender("q"), peer.coordinator()
    peer.send(sender, text(b"x"), txn_id=committed)
    assert peer.discharge(coordinator, committed) == ACCEPTED
    peer.drop()
    running.stop()
    running.start()
    jump(running, seconds)
    peer = connected(running, "after")
    coordinator = peer.coordinator()
    assert peer.discharge(coordinator, committed) == ACCEPTED
    answer = peer.discharge(coordinator, rolled_back)
    assert isinstance(answer, Rejected)
    assert answer.condition == "amqp:transaction:rollback"
    peer.drop()


def test_the_steady_clock_is_in_the_store(running: LocalBroker) -> None:
    """The next primary, of this machine or another, goes on with it."""
    began_us = running._ask(lambda service: service.broker.kernel.steady.now_us)
    jump(running, 8 * 86_400.0)
    peer = connected(running, "c")
    peer.send(peer.sender("q"), text(b"x"))
    peer.drop()
    running.stop()
    store = LmdbStore(running.store, read_only=True)
    assert began_us < store.meta().steady_us < began_us + 3_600_000_000
    store.close()


@pytest.mark.parametrize("seconds", JUMPS_S)
def test_a_batch_that_spark_repeats_after_days_is_not_published_again(running: LocalBroker, seconds: float) -> None:
    """Its driver died between the broker's commit and Spark's commit log, and is started after the weekend."""
    told = []
    for again in range(3):
        options = sink_options({"url": running.url, "queue": "q", "transactionalId": "bills"})
        writer = StreamSink(options, StructType().add("body", StringType()))
        for batch, texts in enumerate((["1", "2"], ["3"])):
            if again and batch == 0:
                continue
            rows = pa.RecordBatch.from_pydict({"body": texts})
            writer.commit([writer._stage(iter([rows]), "bills", batch)], batch)
        told.append(running.waiting("q"))
        jump(running, seconds)
        if again == 1:
            close_shared()
            running.stop()
            running.start()
    close_shared()
    assert told == [3, 3, 3]

"""What a client is told is durable was synced to the disk before: the broker's own calls of `fdatasync` are watched."""

import os
import subprocess
from pathlib import Path

import pytest

from legato.client import ConnectionFactory, TextMessage
from tests.support import broker
from tests.support.broker import BrokerProcess
from tests.support.server import free_port

SENDS = 10
SOURCE = Path(__file__).with_name("tell_syncs.c")


@pytest.fixture
def sync_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Processes that this test starts say in this file which files they synced, a line each."""
    library = tmp_path / "tell_syncs.so"
    compiler = os.environ.get("CC", "cc")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, SOURCE, "-ldl"], check=True)
    log = tmp_path / "synced"
    log.touch()
    monkeypatch.setenv("LD_PRELOAD", str(library))
    monkeypatch.setenv("SYNC_LOG", str(log))
    # Not from the fork server, which has been loaded before.
    monkeypatch.setattr(broker, "start", subprocess.Popen)
    return log


def test_each_send_that_returned_had_been_synced_to_disk(tmp_path: Path, sync_log: Path) -> None:
    """CONTRACT B8; promise 6."""
    store = tmp_path / "store"
    running = BrokerProcess(store, free_port(), tmp_path / "broker.log")
    try:
        running.wait_for("active")
        factory = ConnectionFactory(f"amqp://127.0.0.1:{running.port}")
        with factory.create_connection() as connection, connection.create_session() as session:
            producer = session.create_producer(session.create_queue("synced"))
            for number in range(SENDS):
                before = syncs_of(sync_log, store)
                producer.send(TextMessage(str(number)))
                assert syncs_of(sync_log, store) > before, f"send {number} returned, and nothing was synced"
    finally:
        running.close()


def test_each_commit_that_returned_had_been_synced_to_disk(tmp_path: Path, sync_log: Path) -> None:
    """CONTRACT B8, B9; promise 2."""
    store = tmp_path / "store"
    running = BrokerProcess(store, free_port(), tmp_path / "broker.log")
    try:
        running.wait_for("active")
        factory = ConnectionFactory(f"amqp://127.0.0.1:{running.port}")
        with factory.create_connection() as connection, connection.create_session(transacted=True) as session:
            producer = session.create_producer(session.create_queue("synced"))
            for number in range(SENDS):
                producer.send(TextMessage(str(number)))
                before = syncs_of(sync_log, store)
                session.commit()
                assert syncs_of(sync_log, store) > before, f"commit {number} returned, and nothing was synced"
    finally:
        running.close()


def syncs_of(log: Path, store: Path) -> int:
    """How often the store's file or its journal was synced up to now."""
    paths = [Path(line) for line in log.read_text().splitlines()]
    return sum(path == store / "data.mdb" or path.parent == store / "journal" for path in paths)

"""Other processes that read the store: killed ones cost nothing, stopped ones are named."""

from __future__ import annotations

import inspect
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from legato.cli.status import ask
from legato.client import ConnectionFactory, TextMessage
from legato.store.lmdb import LmdbStore
from legato.store.transactions import Transactions
from tests.integration.ha.test_switchover import legato, url_of
from tests.support.server import server

WAIT_S = 60
BODY = "x" * 16_000
ROUND = 100
"""Messages that come and go, 1.6 MB of them."""
GROWTH_BYTES_MAX = 3 << 20
"""For what comes and goes before a dead reader is noticed; without an end to that it would be three times as much."""
SMALL_LOG = {"LEGATO_STORE_LOG_BYTES": str(256 << 10)}

READ = """
import sys
from legato.store.lmdb import LmdbStore
store = LmdbStore(sys.argv[1], read_only=True)
with store._reading():
    print("reading", flush=True)
    sys.stdin.read()
"""


@contextmanager
def reader(store: Path) -> Iterator[subprocess.Popen[str]]:
    """A process in the middle of a read, as `legato story`, the exporter or an audit may be."""
    process = subprocess.Popen(
        [sys.executable, "-c", READ, str(store)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "reading\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def come_and_go(url: str) -> None:
    """Send and receive, one after the other."""
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        queue = session.create_queue("q")
        producer, consumer = session.create_producer(queue), session.create_consumer(queue)
        connection.start()
        for _ in range(ROUND):
            producer.send(TextMessage(BODY))
            assert consumer.receive(timeout_s=WAIT_S) is not None


def test_a_reader_killed_in_a_read_lets_the_file_grow_for_seconds_only(tmp_path: Path) -> None:
    """CORRECTNESS D5: everything ever written stayed in the file, until somebody opened the store anew."""
    with server(tmp_path / "store", environment=SMALL_LOG) as broker:
        come_and_go(url_of(broker))
        with reader(tmp_path / "store") as process:
            process.kill()
        broker.wait_for_log("processes that died")
        before = (tmp_path / "store" / "data.mdb").stat().st_size
        for _ in range(5):
            come_and_go(url_of(broker))
        assert (tmp_path / "store" / "data.mdb").stat().st_size < before + GROWTH_BYTES_MAX


def test_a_reader_stopped_in_a_read_is_named_until_it_goes_on(tmp_path: Path) -> None:
    """CORRECTNESS D5: who it is, since when, and by how much the file has grown; the log says it once."""
    with server(tmp_path / "store") as broker, reader(tmp_path / "store") as process:
        process.send_signal(signal.SIGSTOP)
        come_and_go(url_of(broker))
        broker.wait_for_log(f"process {process.pid}")
        come_and_go(url_of(broker))
        (told,) = long_readers(url_of(broker), 1)
        assert (told["pid"], told["stopped"]) == (process.pid, True)
        assert 0 < told["since_us"] < time.time_ns() // 1000
        assert "LmdbStore" in told["command"]
        while told["grown_bytes"] < ROUND * len(BODY):
            (told,) = long_readers(url_of(broker), 1)
        shown = legato("status", "--url", url_of(broker)).stdout.replace("\n", " ")
        assert f"Process {process.pid} (" in shown
        assert "SIGCONT" in shown
        assert broker.log.read_text().count(f"process {process.pid}") == 1
        process.send_signal(signal.SIGCONT)
        process.communicate("")
        come_and_go(url_of(broker))
        assert long_readers(url_of(broker), 0) == []


def long_readers(url: str, count: int) -> list[dict[str, Any]]:
    """Those that the status names, once there are so many."""
    deadline = time.monotonic() + WAIT_S
    while len(found := ask(url)["long_readers"]) != count:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    return list(found)


def test_a_reader_that_holds_nothing_back_is_not_named(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path)
    store.begin_epoch("b", 1)
    with reader(tmp_path) as process:
        assert store.check_readers().holding == [], "nothing was committed since"
        for _ in range(2):
            store.begin_epoch("b", 1)
        assert [reading.pid for reading in store.check_readers().holding] == [process.pid]
        os.kill(process.pid, signal.SIGKILL)
        process.wait(WAIT_S)
        assert store.check_readers().cleared == 1
    assert store.check_readers().holding == []
    store.close()


def test_no_read_of_ours_lasts_longer_than_a_call() -> None:
    """CORRECTNESS D5: a generator that reads would hold its pages for as long as its caller takes its time."""
    members = [*vars(LmdbStore).values(), *vars(Transactions).values()]
    methods = [inspect.unwrap(each) for each in members if inspect.isfunction(each)]
    generators = [each for each in methods if inspect.isgeneratorfunction(each)]
    assert "queues" in {each.__name__ for each in generators}
    reading = {each.__name__ for each in generators if "begin(" in inspect.getsource(each)}
    reading |= {each.__name__ for each in generators if "_reading(" in inspect.getsource(each)}
    assert reading == {"reading", "writing", "locked"}

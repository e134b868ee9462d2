"""A real broker on a store of which one queue cannot be read: that costs who wants this queue, and nobody else."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from legato.client import ConnectionFactory, TextMessage
from legato.errors import JMSError
from tests.support.forked_process import run_legato
from tests.support.monitored import fetch_json, scrape, scrape_until
from tests.support.server import free_port, server

ADVICE = "restore a backup (legato store restore)"


def _fill(store: Path) -> None:
    """Messages in two queues, of which the first is damaged afterwards."""
    with server(store) as broker:
        with ConnectionFactory(f"amqp://127.0.0.1:{broker.port}").create_connection() as connection:
            session = connection.create_session()
            for name in ("bad", "good"):
                producer = session.create_producer(session.create_queue(name))
                for number in range(3):
                    producer.send(TextMessage(f"{name} {number}"))
        broker.stop()
    with lmdb.open(str(store), max_dbs=64) as environment:
        blocks = environment.open_db(b"messages", create=False)
        with environment.begin(write=True, db=blocks) as txn, txn.cursor() as cursor:
            assert cursor.first()
            txn.put(cursor.key(), b"\xff" * len(cursor.value()))


def test_a_queue_that_cannot_be_read_costs_only_who_wants_it(tmp_path: Path) -> None:
    _fill(store := tmp_path / "store")
    port = free_port()
    with server(store, "--http", f"localhost:{port}") as broker:
        url = f"amqp://127.0.0.1:{broker.port}"
        with ConnectionFactory(url).create_connection() as connection:
            connection.start()
            session = connection.create_session()
            good = session.create_consumer(session.create_queue("good"))
            first = good.receive(timeout_s=60)
            assert isinstance(first, TextMessage)
            for _ in range(2):
                with pytest.raises(JMSError, match="queue bad cannot be read") as told:
                    session.create_consumer(session.create_queue("bad")).receive(timeout_s=60)
                assert ADVICE in str(told.value)
            with pytest.raises(JMSError, match="queue bad cannot be read"):
                list(session.create_browser(session.create_queue("bad")))
            # The same connection goes on with what it had.
            second = good.receive(timeout_s=60)
            assert isinstance(second, TextMessage)
            assert (first.text, second.text) == ("good 0", "good 1")
            session.create_producer(session.create_queue("bad")).send(TextMessage("later"))
        listed = run_legato("queues", "--url", url)
        assert (listed.returncode, "good" in listed.stdout) == (0, True), listed.stderr
        assert ADVICE in " ".join(listed.stdout.split())
        for words in (["queue", "export", "bad", str(tmp_path / "out.jsonl")], ["queue", "purge", "bad", "--yes"]):
            done = run_legato(*words, "--url", url)
            assert done.returncode != 0
            assert "queue bad cannot be read" in " ".join(done.stderr.split())
        found = scrape(port)
        assert found.get("legato_scrape_complete") == 1
        assert found.get("legato_queues_damaged") == 1
        assert found.get("legato_internal_errors_total") == 0
        status, ready = fetch_json(port, "/readyz")
        assert (status, len(ready["trouble"])) == (200, 1)
        logged = broker.log.read_text()
        assert logged.count("cannot be read") == 1, logged
        assert "Traceback" not in logged
        assert run_legato("queue", "delete", "bad", "--yes", "--url", url).returncode == 0
        assert "trouble" not in fetch_json(port, "/readyz")[1]
        scrape_until(port, lambda now: now.get("legato_queues_damaged") == 0)


def test_metrics_are_complete_when_a_scrape_is_the_first_to_find_it(tmp_path: Path) -> None:
    _fill(store := tmp_path / "store")
    port = free_port()
    with server(store, "--http", f"localhost:{port}") as broker:
        assert scrape(port).get("legato_scrape_complete") == 1
        assert "queue bad cannot be read" in broker.log.read_text()
        assert "queue bad cannot be read" in fetch_json(port, "/readyz")[1]["trouble"][0]

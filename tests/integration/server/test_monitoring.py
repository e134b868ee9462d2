"""The HTTP endpoint of real brokers: metrics, liveness and readiness of a primary, a backup, and a stuck process."""

from __future__ import annotations

import socket
import urllib.request
from contextlib import suppress
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families as parse_plain

from legato.client import ConnectionFactory, Message, TextMessage
from legato.failpoints import VARIABLE, DrillOrders, Stuck
from legato.small_http import REQUESTS_MAX
from tests.integration.ha.test_heartbeats import QUICK
from tests.support.monitored import WAIT_S, fetch, fetch_json, scrape, scrape_until, until
from tests.support.server import free_port, server


def test_what_clients_do_is_counted(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path / "store", "--http", f"localhost:{port}") as broker:
        url = f"amqp://127.0.0.1:{broker.port}"
        with ConnectionFactory(url).create_connection() as connection:
            connection.start()
            session = connection.create_session(transacted=True)
            queue = session.create_queue("orders")
            producer = session.create_producer(queue)
            for number in range(5):
                producer.send(TextMessage(str(number)))
            session.commit()
            consumer = session.create_consumer(queue)
            assert isinstance(consumer.receive(timeout_s=60), Message)
            session.rollback()
            assert isinstance(consumer.receive(timeout_s=60), Message)
            session.commit()
            found = scrape_until(port, lambda now: now.get("legato_messages_acknowledged_total") == 1)
            assert found.get("legato_messages_stored_total") == 5
            assert (found.get("legato_messages_delivered_total") or 0) >= 2
            assert (found.get("legato_deliveries_failed_total", cause="rollback") or 0) >= 1
            assert found.get("legato_transactions_committed_total") == 2
            assert found.get("legato_queue_depth", queue="orders") == 4
            assert found.get("legato_messages", kind="queue") == 4
            assert (found.get("legato_queue_head_age_seconds", queue="orders") or 0) > 0
            assert found.get("legato_connections") == 1
            assert found.get("legato_consumers") == 1
        assert found.get("legato_epoch") == 1
        assert found.get("legato_role", role="primary") == 1
        assert found.get("legato_members", role="primary") == 1
        assert found.get("legato_commits_total") == found.get("legato_commit_seconds_count")
        assert (found.get("legato_store_room_bytes") or 0) > 0
        assert (found.get("process_resident_memory_bytes") or 0) > 1 << 20
        assert fetch_json(port, "/readyz") == (200, {"ready": True, "role": "primary", "epoch": 1})
        assert fetch(port, "/nothing")[0] == 404


def test_who_does_not_ask_for_open_metrics_is_given_plain_text_which_promtool_reads(tmp_path: Path) -> None:
    """`curl .../metrics | promtool check metrics` said `unknown metric type "info"`."""
    port = free_port()
    with server(tmp_path / "store", "--http", f":{port}"):
        for accept in ("*/*", "text/plain;version=0.0.4"):
            request = urllib.request.Request(f"http://127.0.0.1:{port}/metrics", headers={"Accept": accept})
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                assert answer.headers["Content-Type"].startswith("text/plain")
                families = {family.name: family.type for family in parse_plain(answer.read().decode())}
            assert families["legato_role"] == "gauge"
            assert set(families.values()) <= {"gauge", "counter", "histogram"}
        assert scrape(port).get("legato_role", role="primary") == 1


def test_a_backup_is_alive_and_ready_and_says_that_it_is_a_backup(tmp_path: Path) -> None:
    first, second = free_port(), free_port()
    with (
        server(tmp_path / "store", "--http", f":{first}") as primary,
        server(tmp_path / "store", "--http", f":{second}") as backup,
    ):
        backup.wait_for_log("heartbeats of epoch 1")
        assert fetch(second, "/livez")[0] == 200
        assert fetch_json(second, "/readyz") == (200, {"ready": True, "role": "backup", "epoch": 1})
        assert fetch(second, "/readyz?role=primary")[0] == 503, "for what sends clients to the primary only"
        assert fetch(first, "/readyz?role=primary")[0] == 200
        found = scrape(second)
        assert found.get("legato_role", role="backup") == 1
        assert found.get("legato_members", role="primary") == 1
        assert found.get("legato_members", role="backup") == 1
        assert found.get("legato_scrape_complete") == 1
        assert "legato_commits_total" not in found.names()
        primary.kill()
        backup.wait_for_role("active epoch=2")
        assert fetch_json(second, "/readyz?role=primary") == (200, {"ready": True, "role": "primary", "epoch": 2})
        assert scrape_until(second, lambda now: now.get("legato_role", role="primary") == 1).get("legato_epoch") == 2


def test_a_process_whose_loop_is_stuck_for_good_is_not_alive_and_its_metrics_say_so(tmp_path: Path) -> None:
    """With its watchdog off: else that ends the process first."""
    port, orders = free_port(), DrillOrders(tmp_path / "orders")
    environment = QUICK | {"LEGATO_HA_WATCHDOG_S": "0", VARIABLE: str(tmp_path / "orders")}
    with server(tmp_path / "store", "--http", f":{port}", environment=environment):
        until(lambda: fetch(port, "/livez")[0] == 200)
        orders.stick(Stuck.WAITING)
        found = scrape_until(port, lambda now: now.get("legato_scrape_complete") == 0)
        assert (found.get("legato_loop_stalled_seconds") or 0) > 0
        until(lambda: fetch(port, "/livez")[0] == 503)
        assert fetch(port, "/readyz")[0] == 503


def test_who_sends_nothing_or_nonsense_holds_nobody_up(tmp_path: Path) -> None:
    port = free_port()
    with server(tmp_path / "store", "--http", f":{port}") as broker:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(REQUESTS_MAX // 2)]
        for nonsense in (
            b"\0" * 100,
            b"GET " + b"/" * 100_000 + b" HTTP/1.1\r\n\r\n",
            b"POST /metrics HTTP/1.1\r\n\r\n",
        ):
            # Who has been answered before all of it was read finds the connection closed.
            with socket.create_connection(("127.0.0.1", port)) as peer, suppress(ConnectionError):
                peer.sendall(nonsense)
                with suppress(OSError):
                    peer.shutdown(socket.SHUT_WR)
                while peer.recv(4096):
                    pass
        assert fetch(port, "/livez")[0] == 200
        for peer in silent:
            peer.close()
        assert broker.stop() == 0


def test_a_port_in_use_is_a_sentence(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with server(tmp_path / "store", "--http", f"127.0.0.1:{port}") as broker:
            assert broker.wait() == 1, "it may be free later: systemd is to try again, which it does not after 2"
            assert f"Cannot listen on http.listen 127.0.0.1:{port}" in broker.log.read_text()

"""A primary that lets go: planned switchover, clean shutdown, and what clients notice of it."""

import json
import re
import subprocess
import threading
from pathlib import Path

import pytest

from legato.amqp import names
from legato.amqp.engine.events import Closed
from legato.amqp.engine.outcomes import ACCEPTED
from legato.cli.management import request
from legato.cli.status import ask, members_of
from legato.client import AcknowledgeMode, ConnectionFactory, TextMessage
from legato.core.facts import AnyFact, EpochEnded, ServingBegan
from legato.errors import JMSError
from legato.ha.roles import Role
from legato.store.lmdb import LmdbStore
from legato.store.settling import settle_store
from tests.integration.ha.conftest import WAIT_S, WaitForRole
from tests.integration.ha.test_heartbeats import QUICK
from tests.support.amqp_peer import AmqpPeer, data_of, text
from tests.support.forked_process import run_legato
from tests.support.server import Server, server

STAYS = QUICK | {"LEGATO_HA_FAILOVER_ON_SERVER_SHUTDOWN": "false"}


def url_of(*servers: Server) -> str:
    return "amqp://" + ",".join(f"127.0.0.1:{each.port}" for each in servers)


def legato(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return run_legato(*arguments)


def test_roles_swap_at_a_switchover_and_swap_again(tmp_path: Path, wait_for_role: WaitForRole) -> None:
    """CONTRACT B3: the old primary is the backup of the new one, in the same process."""
    with server(tmp_path / "store") as first, server(tmp_path / "store") as second:
        peer = AmqpPeer(first.port)
        assert peer.send(peer.sender("q"), text(b"kept")) == ACCEPTED
        done = legato("switchover", "--url", url_of(first), "--json")
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["listen"] == f"127.0.0.1:{second.port}"
        second.wait_for_role("active epoch=2")
        first.wait_for_role("backup")
        first.wait_for_log("heartbeats of epoch 2")
        after = AmqpPeer(second.port)
        after.receiver("q", 1)
        assert data_of(after.transfer()) == b"kept"
        assert legato("switchover", "--url", url_of(first, second)).stdout.startswith("epoch 3 began")
        first.wait_for_role("active epoch=3")
        second.wait_for_role("backup")
        second.wait_for_log("heartbeats of epoch 3")
        first.kill()
        second.wait_for_role("active epoch=4")


def test_each_primary_says_when_it_began_to_serve_and_why(tmp_path: Path) -> None:
    """An audit measures outages by it: an idle switchover is no outage until the next message."""
    with server(tmp_path / "store") as first, server(tmp_path / "store") as second:
        assert legato("switchover", "--url", url_of(first)).returncode == 0
        first.wait_for_log("heartbeats of epoch 2")
        second.kill()
        first.wait_for_role("active epoch=3")
        peer = AmqpPeer(first.port)
        assert peer.send(peer.sender("q"), text(b"durable, and all before it")) == ACCEPTED
        facts = records_of(tmp_path / "store")
    served = [(epoch, fact) for epoch, fact in facts if isinstance(fact, ServingBegan)]
    assert [(epoch, fact.cause) for epoch, fact in served] == [(1, "start"), (2, "switchover"), (3, "crash")]
    began_us = [fact.at_us for _, fact in served]
    assert began_us == sorted(began_us)
    assert [fact.reason for _, fact in facts if isinstance(fact, EpochEnded)] == ["switchover"]


def records_of(store_dir: Path) -> list[tuple[int, AnyFact]]:
    """The epochs and facts of a store's log."""
    settle_store(store_dir)
    store = LmdbStore(store_dir, read_only=True)
    try:
        return [(record.epoch, fact) for _, record in store.log(0, 1000) for fact in record.facts]
    finally:
        store.close()


def test_a_peer_is_told_that_another_broker_serves(tmp_path: Path) -> None:
    """amqp.md A11: failover clients take this condition for a reason to reconnect."""
    with server(tmp_path / "store") as first, server(tmp_path / "store") as second:
        peer = AmqpPeer(first.port)
        request(url_of(first), "switchover", "broker")
        closed = peer.expect(Closed)
        farewell = {names.FAREWELL: "switchover", names.RETURN_WINDOW: 0}
        assert (closed.condition, closed.info) == ("amqp:connection:forced", farewell)
        second.wait_for_role("active")
        peer = AmqpPeer(second.port)
        assert second.stop() == 0
        closed = peer.expect(Closed)
        farewell = {names.FAREWELL: "shutdown", names.RETURN_WINDOW: 0}
        assert (closed.condition, closed.info) == ("amqp:connection:forced", farewell)


def test_at_no_instant_of_a_switchover_does_the_status_show_two_primaries(tmp_path: Path) -> None:
    """USERS S1: for seconds it showed two; the old one is handing over for as long as its clients take to go."""
    with server(tmp_path / "store") as first, server(tmp_path / "store") as second:
        second.wait_for_log("heartbeats of epoch 1")
        stays = AmqpPeer(first.port, container="one that does not go")
        request(url_of(first), "switchover", "broker")
        roles_of_first: list[str] = []
        while "backup" not in roles_of_first:
            roles = {member["pid"]: member["role"] for member in members_of(tmp_path / "store")}
            assert list(roles.values()).count(Role.PRIMARY) <= 1, roles
            roles_of_first.append(roles.get(first.pid, ""))
            if Role.HANDING_OVER in roles_of_first:
                stays.socket.close()
        assert Role.HANDING_OVER in roles_of_first
        shown = legato("status", "--store", str(tmp_path / "store"), "--url", url_of(second)).stdout
        assert str(first.pid) in shown
        assert " UTC" in shown
        assert not re.search(r"\d{3},\d{3},\d{3}", shown), "epoch microseconds"


def test_nothing_is_lost_or_done_twice_by_switchovers_under_load(tmp_path: Path) -> None:
    """CONTRACT B8, B9: sends, receipts and commits go on over three switchovers; every message comes once."""
    sent: list[int] = []
    with server(tmp_path / "store") as first, server(tmp_path / "store") as second:
        url = url_of(first, second)
        over = threading.Event()

        def send() -> None:
            with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
                producer = session.create_producer(session.create_queue("q"))
                while not over.is_set():
                    producer.send(TextMessage(str(len(sent))))
                    sent.append(len(sent))

        sender = threading.Thread(target=send)
        sender.start()
        received: list[int] = []
        with ConnectionFactory(url).create_connection() as connection:
            connection.start()
            session = connection.create_session(acknowledge_mode=AcknowledgeMode.AUTO)
            consumer = session.create_consumer(session.create_queue("q"))
            for epoch in (2, 3, 4):
                before = len(received)
                request(url, "switchover", "broker")
                successor = first if epoch % 2 else second
                while successor.role != f"active epoch={epoch}" or len(received) < before + 50:
                    message = consumer.receive(timeout_s=WAIT_S)
                    assert isinstance(message, TextMessage)
                    received.append(int(str(message.text)))
            over.set()
            sender.join()
            while len(received) < len(sent):
                message = consumer.receive(timeout_s=WAIT_S)
                assert isinstance(message, TextMessage)
                received.append(int(str(message.text)))
            assert connection.failovers
        assert received == sent


def test_without_a_backup_there_is_nobody_to_hand_over_to(tmp_path: Path) -> None:
    with server(tmp_path / "store") as alone:
        with pytest.raises(JMSError, match="no backup"):
            request(url_of(alone), "switchover", "broker")
        refused = legato("switchover", "--url", url_of(alone))
        assert refused.returncode == 1
        assert "There is no backup" in refused.stderr
        peer = AmqpPeer(alone.port)
        assert peer.send(peer.sender("q"), text(b"still served")) == ACCEPTED


def test_a_clean_shutdown_lets_the_backup_take_over(tmp_path: Path) -> None:
    """CONTRACT's table: in the `legato` contract clients fail over; the lock is free at once."""
    with server(tmp_path / "store") as first, server(tmp_path / "store") as second:
        peer = AmqpPeer(first.port)
        assert peer.send(peer.sender("q"), text(b"kept")) == ACCEPTED
        assert first.stop() == 0
        second.wait_for_role("active epoch=2")
        after = AmqpPeer(second.port)
        after.receiver("q", 1)
        assert data_of(after.transfer()) == b"kept"
        first.start()
        assert first.role == "backup"


def test_a_clean_shutdown_may_leave_the_backup_as_it_is(tmp_path: Path, wait_for_role: WaitForRole) -> None:
    """CONTRACT E7 on the broker's side: it waits for the primary to come back; a crash it replaces."""
    with (
        server(tmp_path / "store", environment=STAYS) as first,
        server(tmp_path / "store", environment=STAYS) as second,
    ):
        second.wait_for_log("heartbeats of epoch 1")
        assert first.stop() == 0
        second.wait_for_log("its backups wait for another one")
        first.start()
        first.wait_for_role("active epoch=2")
        second.wait_for_log("heartbeats of epoch 2")
        wait_for_role(second, Role.BACKUP)
        first.kill()
        second.wait_for_role("active epoch=3")


def test_the_status_tells_of_the_last_takeover_and_of_what_to_expect(tmp_path: Path) -> None:
    """CONTRACT A26: an estimate from the configuration and from what was measured."""
    with server(tmp_path / "store") as first, server(tmp_path / "store") as second:
        second.wait_for_log("heartbeats of epoch 1")
        failover = ask(url_of(first))["failover"]
        assert (failover["cause"], failover["backups"]) == ("start", [f"127.0.0.1:{second.port}"])
        assert (failover["silence_noticed_after_s_min"], failover["silence_noticed_after_s_max"]) == (7, 10)
        assert failover["expected_crash_ms"] == failover["expected_switchover_ms"] == failover["takeover_ms"] > 0
        told = legato("status", "--url", url_of(first)).stdout
        assert "noticed after 7 to 10 s" in told
        assert "may reconnect immediately." in told
        request(url_of(first), "switchover", "broker")
        second.wait_for_role("active")
        assert ask(url_of(second))["failover"]["cause"] == "switchover"
        first.wait_for_log("heartbeats of epoch 2")
        second.kill()
        first.wait_for_role("active epoch=3")
        told = legato("status", "--url", url_of(first)).stdout
        assert "(the last primary failed; noticed after" in told
        assert "There is no backup" in told


def test_each_client_is_told_where_all_brokers_are(tmp_path: Path) -> None:
    """CONTRACT E5, amqp.md A11: the list that Qpid JMS understands, in the broker's open."""
    addresses = {"LEGATO_HA_ADDRESSES": "one.example:5672,[::1]:5673"}
    with server(tmp_path / "store", environment=addresses) as broker:
        assert AmqpPeer(broker.port).opened.properties["failover-server-list"] == [
            {"network-host": "one.example", "port": 5672, "scheme": "amqp"},
            {"network-host": "::1", "port": 5673, "scheme": "amqp"},
        ]
    with server(tmp_path / "other") as broker:
        assert "failover-server-list" not in AmqpPeer(broker.port).opened.properties


def test_brokers_with_tls_hear_each_other_and_hand_over(tmp_path: Path) -> None:
    """CONTRACT B1, B3 over TLS, where a socket cannot be closed halfway."""
    certificate, key = tmp_path / "certificate.pem", tmp_path / "key.pem"
    request_of = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*request_of, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    secure = QUICK | {"LEGATO_TLS_CERTIFICATE": str(certificate), "LEGATO_TLS_KEY": str(key)}
    with (
        server(tmp_path / "store", environment=secure) as first,
        server(tmp_path / "store", environment=secure) as second,
    ):
        second.wait_for_log("heartbeats of epoch 1")
        url = url_of(first, second).replace("amqp:", "amqps:") + "?tls_verify=false"
        with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
            producer = session.create_producer(session.create_queue("q"))
            producer.send(TextMessage("before"))
            request(url, "switchover", "broker")
            second.wait_for_role("active epoch=2")
            producer.send(TextMessage("after"))
            assert [failover.new_epoch for failover in connection.failovers] == [2]
        first.wait_for_log("heartbeats of epoch 2")

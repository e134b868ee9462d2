"""Brokers on machines of their own: a store each, kept the same by a log on real servers of NATS.

A machine here is a broker with its directory and, if said, a server of the log with its.
"""

from __future__ import annotations

import http.client
import itertools
import json
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import proton
import pytest
from proton.handlers import MessagingHandler
from proton.reactor import ApplicationEvent, Container, EventInjector

from legato.cli.status import ask, members_of
from legato.client import ConnectionFactory, Message
from legato.core.facts import EpochEnded, MessageStored
from legato.processes.log_servers import Login, LogServers
from legato.replication.log import BEGINNING, PATIENCE_S
from legato.replication.nats import NatsSettings, open_log
from legato.server.process.service import ANOTHER_CLAIMED
from legato.store.commit_records import CommitRecord, decode
from legato.store.content_digest import content_digest
from legato.store.lmdb import LmdbStore
from legato.testing.log_servers import log_servers
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer
from tests.support.forked_process import run_legato
from tests.support.replicated import WAIT_S, Group, commits_of, eventually, received
from tests.support.server import Server, free_port
from tests.support.stores import raw


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LogServers]:
    servers = LogServers(tmp_path_factory.mktemp("log"))
    servers.start()
    yield servers
    servers.close()


class Load:
    """A client that sends numbered messages until it is told to stop, and remembers which were confirmed."""

    def __init__(self, url: str) -> None:
        self.confirmed: list[str] = []
        self.errors: list[BaseException] = []
        self._url = url
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with ConnectionFactory(self._url).create_connection() as connection:
                session = connection.create_session()
                producer = session.create_producer(session.create_queue("q"))
                for number in itertools.count():
                    if self._stop.is_set():
                        return
                    producer.send(session.create_text_message(str(number)))
                    self.confirmed.append(str(number))
        except BaseException as error:
            self.errors.append(error)

    def wait_for_more(self, count: int = 20) -> None:
        """Wait until so many more are confirmed."""
        target = len(self.confirmed) + count
        deadline = time.monotonic() + WAIT_S
        while len(self.confirmed) < target:
            assert not self.errors, self.errors
            assert time.monotonic() < deadline, "nothing is confirmed"
            time.sleep(0.01)

    def end(self) -> list[str]:
        """Stop it; what was confirmed, in order. It has seen no error."""
        self._stop.set()
        self._thread.join(WAIT_S)
        assert not self.errors
        return self.confirmed


def assert_level(group: Group) -> None:
    """All stores are the same, but for what each forgets by itself (R9)."""
    brokers = list(group.brokers.values())
    last = max(map(commits_of, brokers))
    eventually(lambda: all(commits_of(broker) == last for broker in brokers), "a replica does not follow")
    digests = {content_digest(broker.store) for broker in brokers}
    assert {content.commit for content in digests} != {last} or len(digests) == 1
    group.kill_all()
    contents = [raw(broker.store) for broker in brokers]
    for databases in contents:
        databases["meta"].pop(b"state")
    assert all(databases == contents[0] for databases in contents)


def test_a_backup_takes_over_from_a_primary_that_was_killed(group: Group) -> None:
    first = group.start("a", "active")
    second = group.start("b", "backup")
    load = Load(group.url)
    load.wait_for_more()
    first.kill()
    second.wait_for_role("active epoch=2")
    load.wait_for_more()
    first.start()
    first.wait_for_role("backup")
    confirmed = load.end()
    assert received(group.url) == confirmed
    assert_level(group)


def test_a_broker_takes_over_with_its_own_file_as_it_is_then(group: Group, tmp_path: Path) -> None:
    """Each machine has a file of its own, and `legato reload` reaches the primary's only."""
    settings = '[[address]]\nmatch = "q"\nmaximum_deliveries = {}\n'
    files = [tmp_path / "one.toml", tmp_path / "other.toml"]
    for file in files:
        file.write_text(settings.format(3))
    first, second = group.start("a", "active", config=files[0]), group.start("b", "backup", config=files[1])
    for file in files:
        file.write_text(settings.format(4))
    where = f"127.0.0.1:{second.port}"
    eventually(lambda: ask(group.url)["failover"]["backups"] == [where], "the primary does not know of the backup")
    told = run_legato("reload", "--url", group.url).stdout
    assert f"the backup at {where} reads its own when it takes over; " in told
    first.kill()
    second.wait_for_role("active")
    second.wait_for_log("the configuration has changed since it was read last: address\n")
    manager = Manager(AmqpPeer(second.port))
    manager.ask("CREATE", "q")
    assert manager.ask("READ", "q")[1]["settings"]["maximum_deliveries"] == 4


def test_a_primary_whose_ledger_took_its_log_over_has_the_same_content(group: Group) -> None:
    primary, backup = group.add("a", "--ledger").start(), group.add("b", "--ledger")
    primary.wait_for_role("active")
    backup.start().wait_for_role("backup")
    load = Load(group.url)
    load.wait_for_more()
    load.end()
    # The last commit stays, by which an exporter knows the ledger.
    eventually(lambda: _log_of(primary) == 1, "the primary keeps its log")
    eventually(lambda: commits_of(backup) == commits_of(primary), "the backup does not follow")
    assert _log_of(backup) > 1
    done = run_legato("replica", "verify", str(primary.store), str(backup.store))
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    last = f"{commits_of(primary):,}"
    assert f"its log has commits {last} to {last}" in run_legato("store", "verify", str(primary.store)).stdout


def _log_of(broker: Server) -> int:
    """How many commits its store's log holds."""
    store = LmdbStore(broker.store, read_only=True)
    try:
        first, last = store.log_range()
        return last - first + 1
    finally:
        store.close()


@pytest.mark.parametrize(
    "leads",
    [pytest.param(True, id="the log's leader"), pytest.param(False, id="a follower", marks=pytest.mark.slow)],
)
def test_a_machine_is_lost_with_its_disks_and_comes_back_empty(group: Group, leads: bool) -> None:
    """Its log server too, whether that one leads the log or not."""
    first = group.start("a", "active")
    second = group.start("b", "backup")
    load = Load(group.url)
    load.wait_for_more()
    log_server = group.log_server(leads=leads)
    log_server.kill()
    first.kill()
    shutil.rmtree(first.store)
    log_server.wipe()
    second.wait_for_role("active epoch=2")
    load.wait_for_more()
    log_server.start()
    log_server.wait_until_healthy()
    first.start()
    first.wait_for_role("backup")
    load.wait_for_more()
    confirmed = load.end()
    eventually(lambda: commits_of(first) == commits_of(second), "the new replica is not filled")
    second.kill()
    first.wait_for_role("active epoch=3")
    assert received(group.url) == confirmed


STOPPED_LEASE_S = 2.0
"""Of a primary that is stopped: a busy machine does not stop it for so long before."""


def test_a_primary_that_was_stopped_and_wakes_after_a_takeover_confirms_nothing(group: Group) -> None:
    first = group.start("a", "active", LEGATO_REPLICATION_LEASE_S=f"{STOPPED_LEASE_S}")
    second = group.start("b", "backup", LEGATO_REPLICATION_LEASE_S=f"{STOPPED_LEASE_S}")
    with ConnectionFactory(f"amqp://127.0.0.1:{first.port}?reconnect_attempts=0").create_connection() as connection:
        session = connection.create_session()
        producer = session.create_producer(session.create_queue("q"))
        producer.send(session.create_text_message("before"))
        first.signal(signal.SIGSTOP)
        second.wait_for_role("active epoch=2")
        outcome: list[str] = []

        def send() -> None:
            try:
                producer.send(session.create_text_message("to the old one"))
                outcome.append("confirmed")
            except Exception:
                outcome.append("refused")

        sending = threading.Thread(target=send)
        sending.start()
        first.signal(signal.SIGCONT)
        first.wait_for_role("backup")
        sending.join(WAIT_S)
        assert outcome == ["refused"]
    assert received(f"amqp://127.0.0.1:{second.port}") == ["before"]


PATIENT_LEASE_S = 4.0


def test_without_a_quorum_of_the_log_nothing_is_confirmed_and_nobody_takes_over(group: Group) -> None:
    """Clients stay connected, and what they sent is confirmed when the quorum is back."""
    # A lease that a stalled machine does not miss: who hears nothing for so long may take over.
    lease_s = f"{PATIENT_LEASE_S}"
    first = group.start("a", "active", LEGATO_HA_ACTIVATION_INTERVAL_S="60", LEGATO_REPLICATION_LEASE_S=lease_s)
    group.start("b", "backup", LEGATO_HA_ACTIVATION_INTERVAL_S="60", LEGATO_REPLICATION_LEASE_S=lease_s)
    load = Load(group.url)
    load.wait_for_more()
    lost = group.servers.servers[1:]
    with ConnectionFactory(group.url).create_connection() as connection, connection.create_session() as session:
        for server in lost:
            server.freeze()
        first.wait_for_log("nothing is confirmed until it does")
        before = len(load.confirmed)
        seen: list[Message] = []
        looking = threading.Thread(target=lambda: seen.extend(session.create_browser(session.create_queue("q"))))
        looking.start()
        time.sleep(PATIENT_LEASE_S / 2)  # The lease is over; who is to wait has waited.
        assert len(load.confirmed) <= before + 1
        assert not seen, "not even what needs no commit is answered: another may be the primary"
        for server in lost:
            server.thaw()
        looking.join(WAIT_S)
        assert len(seen) >= before
    first.wait_for_log("the replicated log answers again")
    load.wait_for_more()
    confirmed = load.end()
    assert received(group.url) == confirmed
    assert first.role == "active epoch=1"


class Foreign(MessagingHandler):  # type: ignore[misc]
    """A client of Qpid Proton that sends, and notes with which words its connection is closed."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.confirmed = threading.Event()
        self.told = ""
        self.links: list[str] = []
        self._sent = False
        self._injector = EventInjector()
        self._container = Container(self)
        self._url = url
        self._thread = threading.Thread(target=self._container.run, daemon=True)
        self._thread.start()

    def open_receiver(self) -> None:
        """Attach another link, without waiting for an answer."""
        self._injector.trigger(ApplicationEvent("open_receiver"))

    def on_start(self, event: Any) -> None:
        event.container.selectable(self._injector)
        self._connection = event.container.connect(self._url, reconnect=False)

    def on_open_receiver(self, event: Any) -> None:
        self._container.create_receiver(self._connection, "q")

    def on_link_opened(self, event: Any) -> None:
        self.links.append("receiver" if event.link.is_receiver else "sender")

    def on_connection_opened(self, event: Any) -> None:
        event.container.create_sender(event.connection, "q")

    def on_sendable(self, event: Any) -> None:
        if not self._sent:
            self._sent = True
            event.sender.send(proton.Message(body="foreign"))

    def on_accepted(self, event: Any) -> None:
        self.confirmed.set()

    def on_connection_remote_close(self, event: Any) -> None:
        """Proton's own handler takes this condition for a reason to connect again, and tells nobody."""
        condition = event.connection.remote_condition
        self.told = f"{condition.name}: {condition.description}"
        event.connection.close()
        self._injector.close()

    def last_words(self) -> str:
        """What it was told at the end."""
        self._thread.join(WAIT_S)
        return self.told


def test_clients_are_told_why_when_the_log_has_no_quorum_for_too_long(group: Group) -> None:
    """They stay connected until the activation interval is over; those of other makers log what they are told."""
    # Longer than a busy machine takes for what it acknowledges.
    first = group.start("a", "active", LEGATO_HA_ACTIVATION_INTERVAL_S="4", LEGATO_HA_HEARTBEAT_INTERVAL_S="0.25")
    foreign = Foreign(f"127.0.0.1:{first.port}")
    assert foreign.confirmed.wait(WAIT_S)
    lost = group.servers.servers[1:]
    for server in lost:
        server.freeze()
    first.wait_for_log("the log acknowledges nothing now")
    foreign.open_receiver()
    try:
        assert foreign.last_words() == (
            "amqp:connection:forced: the replicated log has acknowledged nothing for 4 s: it has no quorum, or this "
            "broker cannot reach it; what was not confirmed may be stored or not"
        )
    finally:
        for server in lost:
            server.thaw()
    assert foreign.links == ["sender"], "what was held back is not said with the last words"
    # It comes back as often as servers that were stopped take to find each other.
    first.wait_for_role(*(f"active epoch={epoch}" for epoch in range(2, 10)))


def test_clients_of_a_primary_that_lost_the_log_to_another_are_told_so(group: Group) -> None:
    first = group.start("a", "active", LEGATO_REPLICATION_LEASE_S=f"{STOPPED_LEASE_S}")
    second = group.start("b", "backup", LEGATO_REPLICATION_LEASE_S=f"{STOPPED_LEASE_S}")
    foreign = Foreign(f"127.0.0.1:{first.port}")
    assert foreign.confirmed.wait(WAIT_S)
    first.signal(signal.SIGSTOP)
    second.wait_for_role("active epoch=2")
    first.signal(signal.SIGCONT)
    told = foreign.last_words()
    assert told == f"amqp:connection:forced: {ANOTHER_CLAIMED}"


def test_an_administrator_hands_over_and_the_status_says_how_the_log_is(group: Group) -> None:
    lease_s = f"{PATIENT_LEASE_S}"
    first = group.start("a", "active", LEGATO_REPLICATION_LEASE_S=lease_s)
    second = group.start("b", "backup", LEGATO_REPLICATION_LEASE_S=lease_s)
    first.wait_for_log("opened as legato-backup-")
    load = Load(group.url)
    load.wait_for_more()
    done = run_legato("switchover", "--url", group.url)
    assert done.returncode == 0, done.stderr
    second.wait_for_role("active epoch=2")
    first.wait_for_role("backup")
    load.wait_for_more()
    confirmed = load.end()
    assert received(group.url) == confirmed

    def is_well() -> bool:
        said = ask(group.url)["replication"]
        found = (said["state"], said["group"], said["sure"], said["quorum"], said["trouble"])
        synced = [server["synced"] for server in said["servers"]]
        return (*found, synced) == ("leads", group.name, True, True, [], [True] * 3)

    eventually(is_well, "the status does not say that the log is well")


def test_a_clean_end_hands_over_at_once_and_the_log_says_so(group: Group) -> None:
    lease_s = f"{PATIENT_LEASE_S}"
    first = group.start("a", "active", LEGATO_REPLICATION_LEASE_S=lease_s)
    second = group.start("b", "backup", LEGATO_REPLICATION_LEASE_S=lease_s)
    load = Load(group.url)
    load.wait_for_more()
    assert first.stop() == 0
    second.wait_for_role("active epoch=2")
    load.wait_for_more()
    confirmed = load.end()
    assert received(group.url) == confirmed
    store = LmdbStore(second.store, read_only=True)
    ends = [fact for _, log in store.log(0, 1_000_000) for fact in log.facts if isinstance(fact, EpochEnded)]
    store.close()
    assert [end.reason for end in ends] == ["shutdown"]


def test_a_group_that_was_stopped_goes_on_where_it_was(group: Group) -> None:
    group.start("a", "active")
    group.start("b", "backup")
    load = Load(group.url)
    load.wait_for_more()
    confirmed = load.end()
    group.stop_all()
    for broker in group.brokers.values():
        broker.start()
    eventually(lambda: any(b.role.startswith("active") for b in group.brokers.values()), "nobody serves")
    assert received(group.url) == confirmed


def test_two_brokers_cannot_share_a_directory(group: Group, tmp_path: Path) -> None:
    first = group.start("a", "active")
    second = Server(first.store, *first.flags)
    second.start()
    second.wait_for_role("ended")
    second.wait_for_log("each broker has a directory of its own")


def readiness(broker: Server) -> dict[str, Any]:
    """What `/readyz` says, with its HTTP status."""
    connection = http.client.HTTPConnection("127.0.0.1", int(broker.environment["PORT"]), timeout=WAIT_S)
    connection.request("GET", "/readyz")
    answer = connection.getresponse()
    told: dict[str, Any] = json.loads(answer.read())
    return {"status": answer.status} | told


def test_a_broker_says_at_once_that_servers_of_the_log_do_not_answer_and_goes_on_trying(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    port = free_port()
    log = LogServers(tmp_path / "log")
    address = log.url.removeprefix("nats://").partition(",")[0]
    flags = ("--replicate", log.url, "--group", "g", "--http", f"127.0.0.1:{port}")
    broker = Server(tmp_path / "a" / "store", *flags, environment={"PORT": str(port)}).start()
    try:
        assert broker.role == "backup"
        broker.wait_for_log("the replica waits: no server of the log answers", 0.9 * PATIENCE_S)
        said = f"{address} (refuses connections)"
        broker.wait_for_log(said)
        eventually(lambda: said in readiness(broker)["replication"]["trouble"][0], "it does not say so")
        ready = readiness(broker)
        assert (ready["status"], ready["ready"], ready["replication"]["state"]) == (503, False, "waits")
        assert ready["replication"]["since"]
        eventually(lambda: bool(members_of(broker.store)[0]["trouble"]), "its record among the members does not say so")
        for command in (
            ["status", "--url", "amqp://127.0.0.1:1?reconnect_attempts=0", "--store"],
            ["replica", "status"],
        ):
            told = run_legato(*command, str(broker.store))
            assert "and goes on trying" in told.stdout
            assert said in told.stdout.replace("\n", " ")
        log.start()
        broker.wait_for_role("active")
        broker.wait_for_log("the replica goes on")
        eventually(lambda: readiness(broker)["status"] == 200, "it is not ready")
        assert readiness(broker)["replication"]["since"] is None
        eventually(lambda: members_of(broker.store)[0]["trouble"] == [], "its record among the members is old")
        assert broker.stop() == 0
    finally:
        log.close()


def test_brokers_say_that_the_log_they_had_is_gone(servers: LogServers, group: Group) -> None:
    first, second = group.start("a", "active"), group.start("b", "backup")
    for server in servers.servers[1:]:
        server.freeze()
    try:
        for broker in (first, second):
            broker.wait_for_log("the replica waits: ")
            eventually(lambda broker=broker: bool(members_of(broker.store)[0]["trouble"]), "it is not told")  # type: ignore[misc]
    finally:
        for server in servers.servers[1:]:
            server.thaw()
    for broker in (first, second):
        broker.wait_for_log("the replica goes on")


def test_a_broker_does_not_serve_on_servers_that_write_to_disk_late_and_says_so(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with log_servers(sync_interval="2m") as lazy:
        broker = Server(tmp_path / "a" / "store", "--replicate", lazy.url, "--group", "g").start()
        broker.wait_for_role("ended")
        assert broker.wait() == 1
    assert "so that a power cut loses what was confirmed: set sync_interval: always" in broker.log.read_text()


def test_a_broker_says_at_once_that_its_login_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (password := tmp_path / "password").write_text("wrong")
    password.chmod(0o600)
    config = tmp_path / "legato.toml"
    config.write_text(f'[replication]\nuser = "brokers"\npassword_file = "{password}"\n')
    with log_servers(login=Login("brokers", "right")) as servers:
        flags = ("--replicate", servers.url, "--group", "g", "--config", str(config))
        broker = Server(tmp_path / "a" / "store", *flags).start()
        broker.wait_for_log("refuses the user brokers", 0.9 * PATIENCE_S)
        password.write_text("right")
        broker.stop()
        broker.start().wait_for_role("active")
        broker.kill()


def test_a_password_is_changed_while_a_broker_runs(tmp_path: Path) -> None:
    """The servers leave whoever logged in with the former one; the file is read again at each connection."""
    (tmp_path / "a").mkdir()
    (password := tmp_path / "password").write_text("former\n")
    password.chmod(0o600)
    (config := tmp_path / "legato.toml").write_text(
        f'[ha]\nactivation_interval_s = 60\n[replication]\nuser = "brokers"\npassword_file = "{password}"\n'
    )
    with log_servers(login=Login("brokers", "former")) as servers:
        flags = ("--replicate", servers.url, "--group", "g", "--config", str(config))
        broker = Server(tmp_path / "a" / "store", *flags).start()
        broker.wait_for_role("active")
        LogServers(servers.directory, login=Login("brokers", "later"))  # writes their configuration
        for server in servers.servers:
            server._signal(signal.SIGHUP)
        broker.wait_for_log("refuses the user brokers")
        password.write_text("later\n")
        broker.wait_for_log("the replica goes on")
        broker.kill()


def test_a_log_holds_what_was_confirmed_and_nothing_twice(group: Group) -> None:
    """Read independently of any broker."""
    group.start("a", "active")
    load = Load(group.url)
    load.wait_for_more(50)
    confirmed = load.end()
    log = open_log(NatsSettings(group.servers.url, group.name))
    records = [decode(record.data) for record in log.read(BEGINNING, 1 << 30).records]
    log.close()
    commits = [record for record in records if isinstance(record, CommitRecord)]
    facts = [fact for record in commits for fact in record.batch.facts if isinstance(fact, MessageStored)]
    assert len(facts) == len({fact.seq for fact in facts}) == len(confirmed)


def test_a_replica_whose_address_another_program_has_leaves_the_takeover_to_another_machine(group: Group) -> None:
    """It kept the claim of the log, and nobody served: other machines' brokers are no members of its directory."""
    primary, cannot = group.start("one", "active"), group.start("two", "backup")
    can = group.start("three", "backup")
    with socket.create_server(("127.0.0.1", cannot.port)):
        # It wins the claim, as the other one is stopped.
        can.signal(signal.SIGSTOP)
        primary.kill()
        cannot.wait_for_log("nobody is served until the address of this broker is free: Cannot listen on")
        can.signal(signal.SIGCONT)
        can.wait_for_role("active")
        cannot.wait_for_log("another backup is to take over: Cannot listen on")

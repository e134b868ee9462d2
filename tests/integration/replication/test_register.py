"""R12: a backup that falls behind is named, gets its records while the log keeps them, and a sentence after that."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import msgspec
import pytest

from legato.cli.status import ask
from legato.client import ConnectionFactory
from legato.errors import LogAccessError, LogError, LogUnavailableError
from legato.processes.log_servers import LogServers
from legato.replication import registration
from legato.replication.log import LogHealth
from legato.replication.memory import MemoryRegister, MemoryServers
from legato.replication.nats import NatsSettings, open_register
from legato.replication.register import AWAY_S, Entry, Register, Registered
from legato.replication.registration import (
    AWAY,
    DROPPED,
    FALLS_BEHIND,
    SAME_ADDRESS,
    Registration,
    backup_statuses,
)
from legato.store.content_digest import content_digest
from tests.support.forked_process import run_legato
from tests.support.replicated import Group, eventually
from tests.support.server import Server, free_port

TIMEOUT_S = 60.0


def entry(listen: str, sequence: int = 0, **other: Any) -> Entry:
    said = Entry(listen, "1.0", "follows", epoch=1, commits=sequence, sequence=sequence, behind=0)
    return msgspec.structs.replace(said, **other)


@pytest.fixture(params=["memory", "nats"])
def register(request: pytest.FixtureRequest) -> Iterator[Register]:
    """An empty one of each kind."""
    if request.param == "memory":
        yield MemoryServers().register()
    else:
        servers: LogServers = request.getfixturevalue("servers")
        found = open_register(NatsSettings(servers.url, f"g{uuid4().hex[:12]}"), TIMEOUT_S)
        yield found
        found.close()


def test_a_register_has_the_last_word_of_each_broker(register: Register) -> None:
    assert list(register.entries(TIMEOUT_S)) == []
    assert not register.forget("one:1", TIMEOUT_S)
    odd = "[::1%eth0]:5672 \u2603.*>"
    for each in (entry("one:1", 5), entry(odd, 7), entry("one:1", 6, trouble="no room")):
        register.say(each, TIMEOUT_S)
    found = {each.entry.listen: each for each in register.entries(TIMEOUT_S)}
    assert found.keys() == {"one:1", odd}
    assert found["one:1"].entry == entry("one:1", 6, trouble="no room")
    assert all(0 <= each.age_s < TIMEOUT_S for each in found.values())
    assert register.forget(odd, TIMEOUT_S)
    assert [each.entry.listen for each in register.entries(TIMEOUT_S)] == ["one:1"]


@pytest.mark.parametrize("written", [b"\xff", b'{"listen": "\xff\xfe"}', b'{"a":' * 50_000, b"[]", b""])
def test_what_no_broker_wrote_is_passed_over(servers: LogServers, written: bytes) -> None:
    """As with `nats kv put`: what was no text in UTF-8 ended the thread that says how far a broker is."""
    register = open_register(settings := NatsSettings(servers.url, f"g{uuid4().hex[:12]}"), TIMEOUT_S)
    register.say(entry("one:1", 5), TIMEOUT_S)
    register._connection.call(
        lambda: register._connection.request(f"$KV.{settings.stream}.odd", written, TIMEOUT_S), TIMEOUT_S
    )
    assert [each.entry.listen for each in register.entries(TIMEOUT_S)] == ["one:1"]
    register.close()


def test_a_word_that_was_taken_back_with_tools_of_nats_does_not_count(servers: LogServers) -> None:
    register = open_register(settings := NatsSettings(servers.url, f"g{uuid4().hex[:12]}"), TIMEOUT_S)
    register.allow_beginning(TIMEOUT_S)
    assert register.may_begin(TIMEOUT_S)
    deleted = {"KV-Operation": "DEL"}
    subject = f"$KV.{settings.stream}.=begin"
    register._connection.call(lambda: register._connection.request(subject, b"", TIMEOUT_S, deleted), TIMEOUT_S)
    assert not register.may_begin(TIMEOUT_S)
    register.close()


@pytest.mark.slow
def test_a_primary_says_that_another_broker_has_its_address(group: Group) -> None:
    """As of two machines with one file: each wrote over what the other said, and no status named the backup."""
    place = f"127.0.0.1:{free_port()}"
    first = group.add("a", "--advertise", place).start()
    first.wait_for_role("active")
    assert SAME_ADDRESS not in ask(group.url)["replication"]["trouble"]
    second = group.add("b", "--advertise", place).start()
    second.wait_for_role("backup")
    first.wait_for_log(SAME_ADDRESS)
    eventually(lambda: SAME_ADDRESS in ask(group.url)["replication"]["trouble"], "the status does not say it")
    second.stop()
    eventually(lambda: SAME_ADDRESS not in ask(group.url)["replication"]["trouble"], "the status still says it")


def test_who_lost_its_store_is_not_taken_for_one_that_never_had_any(register: Register) -> None:
    register.say(entry("one:1"), TIMEOUT_S)
    register.say(entry("one:1", 5), TIMEOUT_S)
    register.say(entry("one:1"), TIMEOUT_S)
    assert [each.entry.commits for each in register.entries(TIMEOUT_S)] == [5]
    register.say(entry("one:1", 2), TIMEOUT_S)
    assert [each.entry.commits for each in register.entries(TIMEOUT_S)] == [2]


def test_a_register_without_servers_raises_when_its_time_is_over() -> None:
    servers = MemoryServers()
    with servers.outage():
        for call in (
            lambda: servers.register().entries(0.01),
            lambda: servers.register().say(entry("one:1"), 0.01),
        ):
            with pytest.raises(LogUnavailableError):
                call()


def test_what_a_primary_says_of_backups() -> None:
    own = entry("a:1", 1_000, state="leads")
    health = LogHealth((), 400, 1_000, 601_000, 0, ())

    def told(age_s: float, log_bytes_max: int = 10_000_000, **of: Any) -> tuple[int, str]:
        registered = [Registered(entry("b:1", **of), age_s), Registered(own, 0.0)]
        (status,) = backup_statuses(registered, 1.0, own, health, log_bytes_max)
        return status.behind, status.trouble

    assert told(0.0, sequence=900, behind=3) == (3, "")
    assert told(0.0, sequence=900, behind=None) == (100, "")
    assert told(AWAY_S, sequence=900, behind=3) == (100, AWAY)
    assert told(0.0, sequence=900, behind=3, trouble="no room") == (3, "no room")
    assert told(0.0, 1_000_000, sequence=400, behind=601) == (601, FALLS_BEHIND)
    assert told(AWAY_S, sequence=398, behind=0) == (602, DROPPED)
    assert told(AWAY_S, sequence=399, behind=0) == (601, AWAY)
    assert told(0.0, sequence=398, behind=0) == (0, "")
    (excused,) = backup_statuses([Registered(entry("b:1", 5), AWAY_S + 8.0)], 0.0, own, None, 1, 10.0)
    assert not excused.away
    (unknown,) = backup_statuses([Registered(entry("b:1", 5, behind=None), 0.0)], 0.0, own, None, 1)
    assert (unknown.behind, unknown.trouble) == (995, "")


class SteppedClock:
    """In the place of `threading.Event` and of the clock: a pause of a registration takes no time, and ends it."""

    def __init__(self, end_s: float) -> None:
        self.now_s = 1_000.0
        self.end_s = self.now_s + end_s

    def monotonic(self) -> float:
        return self.now_s

    def Event(self) -> SteppedClock:
        return self

    def wait(self, pause_s: float) -> None:
        self.now_s += pause_s

    def is_set(self) -> bool:
        return self.now_s >= self.end_s


class InterruptedRegister(MemoryRegister):
    """A register that cannot be used for a while, in seconds since the beginning, or refuses; a backup says more."""

    def __init__(self, clock: SteppedClock, out_s: range, silent_s: range, error: type[LogError]) -> None:
        super().__init__(MemoryServers())
        self._clock = clock
        self._began_s = clock.now_s
        self._out_s = out_s
        self._silent_s = silent_s
        self._error = error
        self.asked_s: list[int] = []

    def say(self, entry: Entry, timeout_s: float) -> None:
        self.entries(timeout_s)

    def entries(self, timeout_s: float) -> list[Registered]:
        now_s = int(self._clock.now_s - self._began_s)
        self.asked_s.append(now_s)
        if now_s in self._out_s:
            raise self._error("out")
        heard_s = self._silent_s.start if now_s in self._silent_s else now_s
        return [Registered(entry("b:1", 5), now_s - heard_s)]


def looked(
    monkeypatch: pytest.MonkeyPatch, out_s: range, silent_s: range, error: type[LogError] = LogUnavailableError
) -> InterruptedRegister:
    """What a primary asked for in two minutes."""
    clock = SteppedClock(120.0)
    register = InterruptedRegister(clock, out_s, silent_s, error)
    with monkeypatch.context() as patch:
        patch.setattr(registration, "time", clock)
        patch.setattr(registration, "threading", SimpleNamespace(**vars(threading) | {"Event": clock.Event}))
        own = entry("a:1", 5, state="leads")
        Registration(register, lambda: own, lambda: True, lambda: None, 1)._thread.join(TIMEOUT_S)
    return register


def test_a_register_is_used_again_as_soon_as_its_servers_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A primary and a backup paused for half a minute, and missed each other; who is refused does pause."""
    assert {36, 38} <= set(looked(monkeypatch, range(20, 36), range(0)).asked_s)
    refused = looked(monkeypatch, range(20, 36), range(0), LogAccessError)
    assert not set(refused.asked_s) & set(range(26, 50))


@pytest.mark.parametrize(("back_s", "missed"), [(34, False), (100, True)])
def test_a_backup_is_not_missed_because_nobody_could_say_anything(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, back_s: int, missed: bool
) -> None:
    """After an outage it has the time to say something; then it is missed."""
    looked(monkeypatch, range(20, 24), range(5, back_s))
    assert any(AWAY in record.getMessage() for record in caplog.records) is missed


def backups(url: str) -> dict[str, dict[str, Any]]:
    """What the status of a group's primary says of its backups."""
    return {each["listen"]: each for each in ask(url)["replication"]["backups"]}


def listen(broker: Server) -> str:
    return f"127.0.0.1:{broker.port}"


def trouble(url: str, backup: Server) -> str:
    """What the primary says is wrong with a backup; while it says nothing of that one, that."""
    found = backups(url).get(listen(backup))
    return "it is not named" if found is None else str(found["trouble"])


def send(url: str, count: int, size: int = 100_000) -> None:
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue("q"))
        for _ in range(count):
            producer.send(session.create_text_message("x" * size))


def settled(group: Group) -> None:
    """All stores have the same."""
    eventually(lambda: len({content_digest(each.store) for each in group.brokers.values()}) == 1, "they differ")


LOG_BYTES = 2_000_000
PATIENCE = ("--timeout", "60")
PATIENT = {"LEGATO_REPLICATION_LEASE_S": "30", "LEGATO_HA_ACTIVATION_INTERVAL_S": "60"}


def start(group: Group, name: str, role: str, config: Path) -> Server:
    broker = group.add(name, config=config, **PATIENT).start()
    broker.wait_for_role(role)
    return broker


@pytest.mark.slow
def test_a_slow_backup_is_named_and_catches_up_while_the_log_keeps_what_it_lacks(group: Group, tmp_path: Path) -> None:
    (config := tmp_path / "legato.toml").write_text(f"[replication]\nlog_bytes = {20 * LOG_BYTES}\n")
    first = start(group, "a", "active", config)
    second = start(group, "b", "backup", config)
    url = f"amqp://{listen(first)}"
    eventually(lambda: listen(second) in backups(url), "the backup is not named")
    second.signal(signal.SIGSTOP)
    send(url, 30)
    eventually(lambda: trouble(url, second) == AWAY, "the backup is not missed")
    eventually(lambda: backups(url)[listen(second)]["behind"] >= 30, "it is not said how much it lacks")
    assert backups(url)[listen(second)]["away"]
    shown = run_legato("status", "--url", url)
    assert f"The backup at {listen(second)}" in shown.stdout
    second.signal(signal.SIGCONT)
    eventually(lambda: not trouble(url, second), "it is still missed")
    settled(group)


@pytest.mark.slow
def test_a_backup_that_the_log_forgets_is_named_and_takes_a_copy(group: Group, tmp_path: Path) -> None:
    """The primary goes on. The backup ends with a sentence, also to be read at the primary; a copy makes it whole."""
    (config := tmp_path / "legato.toml").write_text(f"[replication]\nlog_bytes = {LOG_BYTES}\n")
    first = start(group, "a", "active", config)
    second = start(group, "b", "backup", config)
    url = f"amqp://{listen(first)}"
    eventually(lambda: listen(second) in backups(url), "the backup is not named")
    second.signal(signal.SIGSTOP)
    send(url, 60)
    eventually(lambda: trouble(url, second) == DROPPED, "it is not said that it is dropped")
    first.wait_for_log(f"the backup at {listen(second)}: the log has forgotten")
    second.signal(signal.SIGCONT)
    second.wait_for_role("ended")
    assert second.wait() == 1
    assert "legato replica seed here" in second.log.read_text()
    eventually(lambda: trouble(url, second) == DROPPED, "the primary does not say why the backup ended")
    listed = json.loads(
        run_legato("replica", "list", group.servers.url, "--group", group.name, "--json", *PATIENCE).stdout
    )
    (told,) = (each["entry"] for each in listed if each["entry"]["listen"] == listen(second))
    assert "legato replica seed here" in told["trouble"]
    seeded = run_legato("replica", "seed", str(second.store), "--from", str(first.store))
    assert seeded.returncode == 0, seeded.stderr
    second.start().wait_for_role("backup")
    eventually(lambda: not trouble(url, second), "it is still missed")
    settled(group)


def test_a_broker_that_is_gone_for_good_is_forgotten(group: Group, tmp_path: Path) -> None:
    (config := tmp_path / "legato.toml").write_text("")
    first = start(group, "a", "active", config)
    second = start(group, "b", "backup", config)
    url = f"amqp://{listen(first)}"
    eventually(lambda: listen(second) in backups(url), "the backup is not named")
    second.stop()
    command = ("replica", "forget", group.servers.url, listen(second), "--group", group.name, *PATIENCE)
    assert "is no broker of the group" in run_legato(*command).stdout
    eventually(lambda: not backups(url), "it is still named")
    again = run_legato(*command)
    assert again.returncode == 1
    assert "has registered there" in again.stderr

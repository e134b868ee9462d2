"""The audit trail: each login, denial and request is a line, whatever its words are."""

from __future__ import annotations

import json
import os
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from legato.amqp.engine.outcomes import ACCEPTED
from legato.core.facts import ActionAudited
from legato.server.identity.audit_trail import FACTS_BURST, FACTS_PER_S, AuditTrail
from legato.store.lmdb import LmdbStore
from tests.integration.server.test_logins import add, outcome, plain_login
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer, Refused, text
from tests.support.server import Server, server

SETTINGS = """
[audit]
file = "{0}"
[auth]
failed_logins = {{ delay_s = 0 }}
[[role]]
name = "root"
members = ["ann"]
allow = [{{ on = "#", may = ["send", "create", "bulk"] }}]
management = "administer"
"""


def until(trail: Path, found: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The first line of the trail that is meant, as soon as it is there."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        lines = [json.loads(line) for line in trail.read_text().splitlines()] if trail.exists() else []
        for line in lines:
            if found(line):
                return dict(line)
        time.sleep(0.02)
    raise AssertionError(trail.read_text())


def test_who_did_what_is_in_the_trail(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir(mode=0o700)
    for name in ("ann", "bob"):
        add(tmp_path / "store" / "users", name, "x")
    trail = tmp_path / "audit.jsonl"
    (tmp_path / "legato.toml").write_text(SETTINGS.format(trail))
    with server(tmp_path / "store", "--config", str(tmp_path / "legato.toml")) as running:
        ann, bob = (AmqpPeer(running.port, user=name, password="x", container=name) for name in ("ann", "bob"))
        with socket.create_connection(("127.0.0.1", running.port), timeout=60) as sock:
            sock.sendall(plain_login("ev\x1b[31mil", "x"))
            assert outcome(sock) == 1
        with pytest.raises(Refused):
            bob.sender("salaries")
        assert ann.send(ann.sender("salaries"), text(b"x")) == ACCEPTED
        manager = Manager(ann)
        assert manager.ask("PURGE", "salaries")[0] == 200
        assert Manager(bob).ask("PURGE", "salaries")[0] == 403
        assert manager.ask("PURGE", "\x1b[2J" + "x" * 1000)[0] == 404
        running.stop()

    login = until(trail, lambda line: line["event"] == "login" and line.get("user") == "ann")
    assert (login["decision"], login["mechanism"]) == ("allowed", "SCRAM-SHA-512")
    refused = until(trail, lambda line: line["event"] == "login" and line["decision"] == "refused")
    assert refused["object"] == "ev\x1b[31mil"
    denial = until(trail, lambda line: line["event"] == "denial")
    assert (denial["user"], denial["client"], denial["object"]) == ("bob", "bob/bob", "salaries")
    purge = until(trail, lambda line: line["event"] == "management" and line["decision"] == "allowed")
    assert (purge["user"], purge["operation"], purge["object"]) == ("ann", "PURGE", "salaries")
    until(trail, lambda line: line["event"] == "management" and line["decision"] == "denied" and line["user"] == "bob")
    odd = until(trail, lambda line: line["event"] == "management" and line["decision"] == "refused")
    assert odd["object"].startswith("\x1b[2Jxxx")
    assert len(odd["object"]) == 255
    assert b"\x1b" not in trail.read_bytes()
    assert stat.S_IMODE(trail.stat().st_mode) == 0o600


def test_a_trail_that_cannot_be_written_is_a_mistake_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "legato.toml").write_text(f'[audit]\nfile = "{tmp_path}/no/such/audit"\n')
    refused = Server(tmp_path / "store", "--config", str(tmp_path / "legato.toml")).start()
    assert refused.wait() == 2
    assert "Cannot write the audit trail" in refused.log.read_text()


def test_a_pipe_that_nobody_reads_is_a_mistake_too_and_stops_no_broker(tmp_path: Path) -> None:
    trail = tmp_path / "audit"
    os.mkfifo(trail, 0o600)
    (tmp_path / "legato.toml").write_text(f'[audit]\nfile = "{trail}"\n')
    refused = Server(tmp_path / "store", "--config", str(tmp_path / "legato.toml")).start()
    assert refused.wait() == 2
    assert f"Cannot write the audit trail {trail}: it is a pipe, and nobody reads it." in refused.log.read_text()


def test_a_trail_that_was_moved_away_is_begun_anew(tmp_path: Path) -> None:
    trail = tmp_path / "audit.jsonl"
    (tmp_path / "legato.toml").write_text(f'[audit]\nfile = "{trail}"\n')
    with server(tmp_path / "store", "--config", str(tmp_path / "legato.toml")) as running:
        AmqpPeer(running.port, container="first").drop()
        until(trail, lambda line: line["event"] == "login")
        trail.rename(tmp_path / "old")
        AmqpPeer(running.port, container="second").drop()
        until(trail, lambda line: line["event"] == "login" and line["mechanism"] == "ANONYMOUS")


def actions_in(store: Path) -> list[ActionAudited]:
    """What the log of a store that no broker uses says that somebody did."""
    opened = LmdbStore(store, read_only=True)
    try:
        first, last = opened.log_range()
        records = opened.log(first - 1, last)
    finally:
        opened.close()
    return [fact for _, record in records for fact in record.facts if isinstance(fact, ActionAudited)]


@pytest.mark.parametrize("detail", ["durable", "all"])
def test_who_did_what_is_in_the_log_of_facts(tmp_path: Path, detail: str) -> None:
    """Management that changes something, and denials; all else at the ledger's detail `all`."""
    (tmp_path / "store").mkdir(mode=0o700)
    for name in ("ann", "bob"):
        add(tmp_path / "store" / "users", name, "x")
    settings = SETTINGS.format(tmp_path / "audit.jsonl") + f'[ledger]\ndetail = "{detail}"\n'
    (tmp_path / "legato.toml").write_text(settings)
    with server(tmp_path / "store", "--config", str(tmp_path / "legato.toml")) as running:
        ann, bob = (AmqpPeer(running.port, user=name, password="x", container=name) for name in ("ann", "bob"))
        with pytest.raises(Refused):
            bob.sender("salaries")
        manager = Manager(ann)
        assert manager.ask("create", "salaries")[0] == 200
        assert manager.ask("read", "salaries")[0] == 200
        assert manager.ask("move", "salaries", to="elsewhere")[0] in (200, 403)
        assert manager.ask("edit", "salaries", message_id="ID:1")[0] == 403, "that takes receive and send"
        assert Manager(bob).ask("purge", "salaries")[0] == 403
        running.stop()
    found = actions_in(tmp_path / "store")
    said = {(each.event, each.user, each.operation, each.object, each.decision) for each in found}
    assert ("denial", "bob", "attach a sender", "salaries", "denied") in said
    assert ("management", "ann", "create", "salaries", "allowed") in said
    assert ("management", "bob", "purge", "salaries", "denied") in said
    [edit] = [each for each in found if each.operation == "edit"]
    assert (edit.message_id, edit.object_type, edit.decision, edit.client) == ("ID:1", "queue", "denied", "ann/ann")
    assert edit.origin.startswith("127.0.0.1:")
    assert "lacks a permission" in edit.reason
    others = {("login", "ann", "", "", "allowed"), ("management", "ann", "read", "salaries", "allowed")}
    assert (others <= said) == (detail == "all")
    assert bool(others & said) == (detail == "all")


def test_a_pipe_that_is_read_slowly_gets_all_lines(tmp_path: Path) -> None:
    """A write that a pipe took a part of was taken for one of all: the rest was lost, and the line in the middle."""
    pipe = tmp_path / "audit"
    os.mkfifo(pipe, 0o600)
    with open(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)) as reading:
        os.set_blocking(reading.fileno(), True)
        trail = AuditTrail(pipe, lambda: 0, 1)
        peer = SimpleNamespace(user="eve", name="192.0.2.7:1", container="c" * 255)
        for number in range(2_000):
            trail.say("denial", peer, "denied", object=f"{number}")
        told = [json.loads(reading.readline())["object"] for _ in range(2_000)]
        trail.stop()
    assert told == [f"{number}" for number in range(2_000)]


DISK_WITH_ROOM_AGAIN = """
import logging, resource, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
from legato.server.identity.audit_trail import AuditTrail

logging.basicConfig(stream=sys.stderr)
file, log = Path(sys.argv[1]), Path(sys.argv[2])
peer = SimpleNamespace(user="eve", name="192.0.2.7:1", container="c")
trail = AuditTrail(file, lambda: 0, 1)

def say(word, times, until):
    for _ in range(times):
        trail.say("denial", peer, "denied", object=word)
    deadline = time.monotonic() + 60
    while not until() and time.monotonic() < deadline:
        time.sleep(0.01)

say("first", 1, lambda: file.stat().st_size)
resource.setrlimit(resource.RLIMIT_FSIZE, (file.stat().st_size + 30, resource.RLIM_INFINITY))
say("cut", 1, lambda: "cannot be written" in log.read_text())
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
say("last", 1, lambda: b"last" in file.read_bytes())
trail.stop()
"""


def test_a_line_that_a_full_disk_cuts_spoils_no_other_and_the_log_says_how_many_are_lost(tmp_path: Path) -> None:
    """Nothing was said of it, and the next line was added to the half."""
    trail, log = tmp_path / "audit", tmp_path / "log"
    with log.open("wb") as said:
        command = [sys.executable, "-c", DISK_WITH_ROOM_AGAIN, str(trail), str(log)]
        subprocess.run(command, stderr=said, timeout=60, check=True)
    first, cut, last = trail.read_text().splitlines()
    assert json.loads(first)["object"] == "first"
    assert json.loads(last)["object"] == "last"
    assert first.startswith(cut)
    assert "cannot be written: File too large" in log.read_text()
    assert "is written again; lines that are lost: 1" in log.read_text()


def test_denials_do_not_fill_the_ledger() -> None:
    now_us = 0
    recorded: list[ActionAudited] = []
    trail = AuditTrail(None, lambda: now_us, 1, recorded.append)
    peer = SimpleNamespace(user="eve", name="192.0.2.7:1", container="c")
    for _ in range(10_000):
        trail.say("denial", peer, "denied", operation="attach", object="q" * 1000)
    assert len(recorded) == FACTS_BURST
    assert len(recorded[0].object) == 255
    now_us = 1_000_000
    for _ in range(100):
        trail.say("management", peer, "denied", operation="purge")
    assert len(recorded) == FACTS_BURST + FACTS_PER_S
    assert recorded[FACTS_BURST].omitted == 10_000 - FACTS_BURST
    trail.say("management", peer, "allowed", operation="purge")
    assert recorded[-1].decision == "allowed", "what was done is on record in any case"


def test_a_backup_takes_over_though_the_trail_cannot_be_written_and_writes_it_when_it_can(tmp_path: Path) -> None:
    """It ended, as did all others: the trail had been made anew so that others could read it, or its disk was full."""
    trail = tmp_path / "trails" / "audit.jsonl"
    trail.parent.mkdir()
    (tmp_path / "legato.toml").write_text(f'[audit]\nfile = "{trail}"\n')
    store, flags = tmp_path / "store", ("--config", str(tmp_path / "legato.toml"))
    with server(store, *flags) as primary, server(store, *flags) as backup:
        backup.wait_for_log("heartbeats of epoch")
        trail.parent.rename(tmp_path / "elsewhere")
        primary.kill()
        backup.wait_for_role("active")
        backup.wait_for_log(f"Cannot write the audit trail {trail}: No such file or directory.")
        trail.parent.mkdir()
        AmqpPeer(backup.port).drop()
        assert until(trail, lambda line: line["event"] == "login")["epoch"] == 2

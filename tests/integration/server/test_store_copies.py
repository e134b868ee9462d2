"""A broker's store, copied over the network: whole, as of one commit, and only for who may have all of it."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from legato.bulk import store_fetch
from legato.bulk.store_fetch import fetch_store
from legato.client import ConnectionFactory, TextMessage
from legato.errors import JMSError, StoreError
from legato.store.backup import verify
from legato.store.backup_files import USERS_NAME
from legato.store.content_digest import content_digest
from tests.integration.server.test_logins import add
from tests.support.forked_process import run_legato
from tests.support.server import Server, server

SETTINGS = """
[audit]
file = "{audit}"
[[role]]
name = "clients"
members = ["ann"]
allow = [{{ on = "#", may = ["send", "receive", "browse", "create", "bulk"] }}]
management = "operate"
[[role]]
name = "administrators"
members = ["root"]
allow = [{{ on = "#", may = ["send", "create"] }}]
management = "administer"
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    tmp_path = tmp_path_factory.mktemp("copies")
    (store := tmp_path / "store").mkdir(mode=0o700)
    for name in ("ann", "root"):
        add(store / USERS_NAME, name, "x")
    (tmp_path / "legato.toml").write_text(SETTINGS.format(audit=tmp_path / "audit.log"))
    with server(store, "--config", str(tmp_path / "legato.toml")) as process:
        send(url_of(process), "0", "1", "2")
        yield process


def url_of(process: Server, user: str = "root") -> str:
    return f"amqp://{user}:x@127.0.0.1:{process.port}?allow_insecure_plain=true"


def send(url: str, *texts: str) -> None:
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue("q"))
        for text in texts:
            producer.send(TextMessage(text))


def test_a_copy_has_all_that_the_store_has_and_its_users(running: Server, tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    manifest = fetch_store(url_of(running), tmp_path / "copy", lambda done, total: told.append((done, total)))
    assert content_digest(tmp_path / "copy") == content_digest(running.store)
    assert verify(tmp_path / "copy").log_position == manifest.log_position
    assert (tmp_path / "copy" / USERS_NAME).read_bytes() == (running.store / USERS_NAME).read_bytes()
    assert not any(path.stat().st_mode & 0o077 for path in (tmp_path / "copy").iterdir())
    assert told[-1][0] <= told[-1][1]


def test_the_command_makes_a_backup_that_a_broker_serves(running: Server, tmp_path: Path) -> None:
    made = run_legato("store", "backup", url_of(running), str(tmp_path / "copy"), "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["contents"]["messages"] >= 3
    assert "x@127" not in made.stderr
    restored = run_legato("store", "restore", str(tmp_path / "copy"), str(tmp_path / "store"))
    assert restored.returncode == 0, restored.stderr
    with (
        server(tmp_path / "store") as process,
        ConnectionFactory(url_of(process, "ann")).create_context() as context,
    ):
        assert context.create_consumer(context.create_queue("q")).receive_body(str, 10) == "0"


def test_a_copy_is_of_one_commit_though_commits_go_on(running: Server, tmp_path: Path) -> None:
    ends = threading.Event()
    sent = 0

    def send_on() -> None:
        nonlocal sent
        while not ends.is_set():
            send(url_of(running), *["x" * 10_000] * 20)
            sent += 20

    thread = threading.Thread(target=send_on)
    thread.start()
    try:
        found = []
        for number in range(3):
            fetch_store(url_of(running), tmp_path / str(number))
            found.append(verify(tmp_path / str(number)))
    finally:
        ends.set()
        thread.join()
    assert [contents.messages for contents in found] == sorted(contents.messages for contents in found)
    assert sent


def test_only_who_administers_the_broker_gets_a_copy_and_each_is_on_record(running: Server, tmp_path: Path) -> None:
    with pytest.raises(JMSError, match="administer"):
        fetch_store(url_of(running, "ann"), tmp_path / "copy")
    assert list(tmp_path.iterdir()) == []
    fetch_store(url_of(running), tmp_path / "copy")
    trail = (running.store.parent / "audit.log").read_text().splitlines()
    lines = [line for line in map(json.loads, trail) if line.get("operation") == "copy"]
    assert {"user": "ann", "decision": "denied"}.items() <= next(x for x in lines if x["user"] == "ann").items()
    assert lines[-1]["user"] == "root"
    assert lines[-1]["decision"] == "allowed"


def test_a_copy_of_which_nothing_comes_any_more_has_broken_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that seeded itself waited for ever for a machine that was lost, or a process that was stopped."""
    monkeypatch.setattr(store_fetch, "TRIES", 1)
    with server(tmp_path / "store") as process:
        url = f"amqp://127.0.0.1:{process.port}"
        send(url, *["x" * 1_000_000] * 40)
        stopped: list[int] = []

        def stop(*_: int) -> None:
            if not stopped:
                stopped.append(bulk_process_of(process))
                os.kill(stopped[0], signal.SIGSTOP)

        try:
            with pytest.raises(JMSError, match="broke off: nothing came of it for 2 s"):
                fetch_store(url, tmp_path / "copy", stop, stalled_s=2.0)
        finally:
            os.kill(stopped[0], signal.SIGCONT)
    assert not (tmp_path / "copy").exists()


def bulk_process_of(running: Server) -> int:
    for children in Path(f"/proc/{running.pid}/task").glob("*/children"):
        for pid in map(int, children.read_text().split()):
            if b"legato.bulk.serve" in Path(f"/proc/{pid}/cmdline").read_bytes():
                return pid
    raise AssertionError("no process for copies")


def test_what_is_there_already_stays(running: Server, tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").write_text("mine")
    with pytest.raises(StoreError, match="already"):
        fetch_store(url_of(running), tmp_path / "copy")
    assert [path.name for path in tmp_path.rglob("*")] == ["copy", "mine"]


def test_commits_that_only_the_journal_has_are_in_the_copy(tmp_path: Path) -> None:
    (tmp_path / "legato.toml").write_text("[store]\ncheckpoint_ms = 500\n")
    with server(tmp_path / "store", "--config", str(tmp_path / "legato.toml")) as process:
        url = f"amqp://127.0.0.1:{process.port}"
        send(url, "0", "1", "2")
        fetch_store(url, tmp_path / "copy")
        assert verify(tmp_path / "copy").messages == 3

"""`legato log run` and `legato log status`, as a user types them."""

import contextlib
import json
import os
import queue
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from legato.processes.child import Child
from legato.replication.log import BEGINNING
from legato.replication.nats import NatsSettings, open_log
from legato.store.lmdb import LmdbStore
from legato.testing.log_servers import log_servers
from tests.conformance.replicated_log.log import claim, data_of, read_all
from tests.support.monitored import until

WAIT_S = 60.0


@pytest.fixture(autouse=True)
def _interruptible() -> Iterator[None]:
    """Commands hear of Ctrl-C also where tests run in the background, which ignore it, as does what they start."""
    former = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, former)


def legato(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "legato.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_S, check=False)


def said_until(
    holds: Callable[[subprocess.CompletedProcess[str]], bool], url: str, *flags: str
) -> subprocess.CompletedProcess[str]:
    """What `legato log status` says once that holds: servers that are busy answer late, and are asked again."""
    said: list[subprocess.CompletedProcess[str]] = []

    def look() -> bool:
        said.append(legato("log", "status", url, *flags))
        return said[-1].returncode != 0 or holds(said[-1])

    until(look)
    return said[-1]


@contextmanager
def running(directory: Path) -> Iterator[tuple[Child, dict[str, Any]]]:
    """The command and what it printed."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    child = Child(
        "log run",
        ("legato.cli", "log", "run", "--directory", str(directory), "--json"),
        log_file=directory.with_suffix(".err"),
        on_line=lambda child, line: lines.put(line),
        on_end=lambda child: lines.put(b"null"),
    )
    try:
        printed = json.loads(lines.get(timeout=WAIT_S))
        assert printed is not None, child.last_words()
        yield child, printed
    finally:
        child.send_signal(signal.SIGINT)
        assert child.wait(WAIT_S)


def test_servers_run_until_ctrl_c_and_go_on_where_they_were(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with running(directory) as (child, printed):
        log = open_log(NatsSettings(printed["url"], "orders"))
        claim(log).append(b"one")
        log.close()
        status = said_until(lambda said: said.stdout.count("on disk before it acknowledges") == 3, printed["url"])
        assert status.returncode == 0, status.stderr
        assert "group orders: records 1 to 2" in status.stdout
        said_until(lambda said: bool(json.loads(said.stdout)["orders"]["quorum"]), printed["url"], "--json")
        unknown = legato("log", "status", printed["url"], "--group", "payments")
        assert (unknown.returncode, unknown.stdout) == (1, "the group payments has no log there\n")
    assert child.exit_code == 0
    with running(directory) as (_, again):
        assert again == printed
        twice = legato("log", "run", "--directory", str(directory))
        assert (twice.returncode, twice.stdout) == (1, "")
        assert f"the servers in {directory} run already, at {printed['url']}" in twice.stderr
        log = open_log(NatsSettings(again["url"], "orders"))
        assert data_of(read_all(log, BEGINNING)) == [b"epoch", b"one"]
        log.close()


def test_a_server_that_ends_by_itself_ends_the_command(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with running(directory) as (child, _):
        os.kill(server_of(child.pid, "log-2"), signal.SIGKILL)
        assert child.wait(WAIT_S)
    assert child.exit_code == 1
    assert "log-2 ended by itself: see" in child.last_words()


def test_ctrl_c_ends_a_start_that_lasts(tmp_path: Path) -> None:
    directory = tmp_path / 'a "log" for {me}'
    child = Child(
        "log run",
        ("legato.cli", "log", "run", "--directory", str(directory)),
        log_file=tmp_path / "err",
        on_line=lambda child, line: None,
        on_end=lambda child: None,
    )
    stopped: list[int] = []

    def stop_two() -> bool:  # of three: what is left is no majority
        with contextlib.suppress(AssertionError):
            stopped[:] = [server_of(child.pid, name) for name in ("log-1", "log-2")]
            for pid in stopped:
                os.kill(pid, signal.SIGSTOP)
        return bool(stopped)

    until(stop_two)
    child.send_signal(signal.SIGINT)
    assert child.wait(WAIT_S)
    assert child.exit_code == 130
    assert child.last_words() == ""
    assert not [pid for pid in stopped if Path(f"/proc/{pid}").exists()]


def test_a_start_that_lasts_says_what_it_waits_for(tmp_path: Path) -> None:
    """It was silent for two minutes."""
    child = Child(
        "log run",
        ("legato.cli", "log", "run", "--directory", str(tmp_path / "log")),
        log_file=tmp_path / "err",
        on_line=lambda child, line: None,
        on_end=lambda child: None,
    )
    stopped: set[str] = set()

    def stop_two() -> bool:  # of three: what is left is no majority
        with contextlib.suppress(AssertionError):
            for name in ("log-1", "log-2"):
                os.kill(server_of(child.pid, name), signal.SIGSTOP)
                stopped.add(name)
        return len(stopped) == 2

    try:
        until(stop_two)
        until(lambda: "can keep a log, at most 120 s" in (tmp_path / "err").read_text())
        said = (tmp_path / "err").read_text()
        assert said.startswith("waits until log-1, log-2"), said
        assert f"{tmp_path}/log/*/nats-server.log" in said
    finally:
        child.send_signal(signal.SIGINT)
        assert child.wait(WAIT_S)


def test_a_mistyped_group_leaves_nothing_on_the_servers(tmp_path: Path) -> None:
    with log_servers() as servers:
        open_log(NatsSettings(servers.url, "orders")).close()
        begun = legato("log", "begin", servers.url, "--group", "orderz")
        assert begun.returncode == 1
        assert "no broker of the group orderz has come to these servers" in begun.stderr
        store = LmdbStore(tmp_path / "store")
        store.begin_epoch("b", 0)
        store.close()
        restored = legato(
            *("log", "restore", str(tmp_path / "store"), servers.url, "--group", "orderz", "--brokers", "1")
        )
        assert restored.returncode == 1
        assert "has come to these servers, which have logs of orders: if the name is right" in restored.stderr
        streams = {each.name for server in servers.servers for each in server.directory.glob("data/*/*/streams/*")}
        assert streams == {"LEGATO_orders"}
        claim(open_log(NatsSettings(servers.url, "orders"))).close()
        told = legato("log", "begin", servers.url, "--group", "orders")
        assert "no broker of the group orders has come" in told.stderr
        told = legato("log", "restore", str(tmp_path / "store"), servers.url, "--group", "orders", "--brokers", "1")
        assert "the group orders has a log, with 1 record: it is not lost" in told.stderr


def test_a_port_that_is_taken_is_told_at_once(tmp_path: Path) -> None:
    directory = tmp_path / "log"
    with running(directory) as (_, printed):
        port = printed["servers"][2]["port"]
    with socket.create_server(("127.0.0.1", port)):
        refused = legato("log", "run", "--directory", str(directory))
    assert refused.returncode == 1
    assert "log-3 ended: see" in refused.stderr
    assert "address already in use" in refused.stderr


def server_of(parent: int, name: str) -> int:
    """The process of a server that the command started."""
    for found in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        if f"/{name}/" in Path(f"/proc/{found}/cmdline").read_bytes().decode():
            return int(found)
    raise AssertionError(f"{name} is not running")


def test_a_directory_that_is_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    refused = legato("log", "run", "--directory", str(tmp_path))
    assert refused.returncode == 2
    assert "is not empty, and was not made for servers of a log" in refused.stderr
    refused = legato("log", "run", "--nodes", "4", "--directory", str(tmp_path / "new"))
    assert "3 or 5 servers, not by 4" in refused.stderr


def test_servers_that_do_not_answer_are_named() -> None:
    told = "legato: no server of the log answers: 127.0.0.1:9 (refuses connections)"
    # The less time it has the sooner it ends; a busy machine may need more to be refused a connection at all.
    for timeout_s in ("0.2", "2", "20"):
        refused = legato("log", "status", "127.0.0.1:9", "--timeout", timeout_s)
        if refused.stderr.splitlines()[-1] == told:
            break
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, told)
    waits = f"waits for the log's servers, at most {float(timeout_s):g} s for each answer (--timeout)"
    assert refused.stderr.splitlines()[:-1] in ([], [waits])


@pytest.mark.parametrize("command", ["begin", "status"])
def test_who_waits_for_servers_is_told_so(command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        process = subprocess.Popen(
            [sys.executable, "-m", "legato.cli", "log", command, address, "--timeout", "600"],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        assert "waits for the log's servers, at most 600 s" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(WAIT_S) == 130


def test_a_log_is_not_restored_with_a_store_that_is_not_there(tmp_path: Path) -> None:
    store = tmp_path / "mistyped"
    refused = legato("log", "restore", str(store), "127.0.0.1:9")
    assert (refused.returncode, refused.stderr.splitlines()[-1]) == (1, f"legato: there is no store in {store}")
    assert not store.exists()


def test_a_store_is_not_compared_with_itself(tmp_path: Path) -> None:
    """Two that are named twice would count as all of the others."""
    for others in (
        ["--other", f"{tmp_path}/../{tmp_path.name}", "--other", "b.json"],
        ["--other", "b.json", "--other", "./b.json"],
    ):
        refused = legato("log", "restore", str(tmp_path), "127.0.0.1:9", *others)
        assert refused.returncode == 1
        assert "is named twice: --other is for each of the other brokers" in refused.stderr


@pytest.mark.parametrize("mode", [0o644, 0o600])
def test_a_file_with_a_password_that_others_may_read_is_refused(tmp_path: Path, mode: int) -> None:
    file = tmp_path / "password"
    file.write_text("hush\n")
    file.chmod(mode)
    said = legato(
        "log", "status", "127.0.0.1:9", "--timeout", "0.2", "--user", "brokers", "--password-file", str(file)
    ).stderr
    assert ("can be read by others" in said) == (mode == 0o644)
    assert "hush" not in said

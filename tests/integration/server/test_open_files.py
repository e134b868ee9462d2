"""A broker that may have few open files says so in a sentence, and goes on when there are some again."""

from __future__ import annotations

import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.amqp_peer import AmqpPeer
from tests.support.monitored import until
from tests.support.server import free_port


def serve_with(most: int, store: Path, port: int) -> list[str]:
    """The command that serves with so many open files."""
    legato = (sys.executable, "-m", "legato.cli", "serve", "--store", str(store), "--listen", f"127.0.0.1:{port}")
    return ["sh", "-c", f'ulimit -n {most} && exec "$@"', "sh", *legato, "--no-ledger"]


@pytest.mark.parametrize("most", [12, 16, 20, 63])
def test_too_few_open_files_are_refused_in_a_sentence(tmp_path: Path, most: int) -> None:
    """It was a page of calls, or that the address is busy, or that the store cannot be opened."""
    command = serve_with(most, tmp_path / "store", free_port())
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    last = done.stderr.splitlines()[-1]
    assert last.startswith(f"legato: this process may have {most} open files, and each connection takes one: a broker")
    assert "LimitNOFILE=65536" in last
    assert "Traceback" not in done.stderr
    assert done.returncode == 2


def test_when_all_files_are_open_the_log_says_what_to_do_and_who_leaves_lets_others_in(tmp_path: Path) -> None:
    port, log = free_port(), tmp_path / "log"
    with log.open("wb") as file:
        process = subprocess.Popen(
            serve_with(64, tmp_path / "store", port), stdout=subprocess.PIPE, stderr=file, text=True
        )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "active epoch=1\n"
        assert "this process may have 64 open files, and each connection takes one: LimitNOFILE" in log.read_text()
        with ExitStack() as sockets:
            for _ in range(80):
                sockets.enter_context(socket.create_connection(("127.0.0.1", port)))
            until(lambda: "no more connections are accepted for now: this process has 64 open files" in log.read_text())
        AmqpPeer(port).drop()
        assert log.read_text().count("no more connections") == 1, "it is told once a minute"
    finally:
        process.terminate()
        process.wait(60)

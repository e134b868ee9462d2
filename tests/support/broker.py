"""A primary and its backup as real processes over one store, to be killed by tests."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from tests.support.forked_process import start
from tests.support.server import free_port

READY_WAIT_S = 60.0
SOURCES = Path(__file__).parents[2] / "src"
LOG_SERVERS = "LEGATO_TESTS_LOG_SERVERS"
_groups = itertools.count(1)


def log_servers_of_run() -> str:
    """The servers of the log by which pairs of this run are replicated; empty if they share a store."""
    return os.environ.get(LOG_SERVERS, "")


class BrokerProcess:
    """One `legato serve`; its lines arrive as it prints them.

    It writes no ledger: a process that does takes longer to start than the broker.
    """

    def __init__(self, store: Path, port: int, log: Path, extra: tuple[str, ...] = ()) -> None:
        self.port = port
        self.epoch = 0
        self._states: queue.Queue[str] = queue.Queue()
        command = [
            *(sys.executable, "-m", "legato.cli", "serve", "--store", str(store)),
            *("--listen", f"127.0.0.1:{port}", "--no-ledger"),
        ]
        with log.open("ab") as errors:
            self.process = start(
                [*command, *extra],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
                env={**os.environ, "PYTHONPATH": str(SOURCES), "PYTHONUNBUFFERED": "1"},
            )
        self._log = log
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(("active epoch=", "backup")):
                self._states.put(line.strip())
        self._states.put("ended")

    def wait_for(self, state: str) -> None:
        """Wait for the line that begins with `active` or `backup`."""
        while True:
            try:
                line = self._states.get(timeout=READY_WAIT_S)
            except queue.Empty:
                raise AssertionError(f"the broker did not become {state}: {self._log.read_text()}") from None
            if line.startswith("active"):
                self.epoch = int(line.partition("epoch=")[2])
            if line.startswith(state):
                return
            assert line != "ended", f"the broker ended: {self._log.read_text()}"

    def kill(self, with_signal: int = signal.SIGKILL) -> None:
        """Send a signal, and wait for the end."""
        self.process.send_signal(with_signal)
        self.process.wait(READY_WAIT_S)

    def close(self) -> None:
        """Leave nothing behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(READY_WAIT_S)
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()


class BrokerPair:
    """A primary and a backup; `fail_over` kills the one, waits for the other, and starts the killed one again.

    With `pytest --replicated` each has a store of its own, kept the same by a replicated log.
    """

    def __init__(self, directory: Path, extra: tuple[str, ...] = ()) -> None:
        self._directory = directory
        self._group = f"pair-{os.getpid()}-{next(_groups)}"
        self._log = directory / "brokers.log"
        self._extra = extra
        self.primary = self._start(free_port())
        self.primary.wait_for("active")
        self.backup = self._start(free_port())
        self.backup.wait_for("backup")

    def _start(self, port: int) -> BrokerProcess:
        replicate = ("--replicate", servers, "--group", self._group) if (servers := log_servers_of_run()) else ()
        return BrokerProcess(self._store_of(port), port, self._log, (*self._extra, *replicate))

    def _store_of(self, port: int) -> Path:
        return self._directory / (f"store-{port}" if log_servers_of_run() else "store")

    @property
    def store(self) -> Path:
        """The store of the present primary."""
        return self._store_of(self.primary.port)

    @property
    def url(self) -> str:
        """Both brokers, the present primary first."""
        return f"amqp://127.0.0.1:{self.primary.port},127.0.0.1:{self.backup.port}"

    def kill_primary(self, with_signal: int = signal.SIGKILL) -> None:
        """Kill the primary; returns at once, before the backup has taken over."""
        self.primary.process.send_signal(with_signal)

    def swap(self) -> None:
        """After `kill_primary`: wait for the backup to serve, and start the killed one as its backup (CONTRACT B3)."""
        self.primary.process.wait(READY_WAIT_S)
        dead, self.primary = self.primary, self.backup
        self.primary.wait_for("active")
        dead.close()
        self.backup = self._start(dead.port)
        self.backup.wait_for("backup")

    def fail_over(self, with_signal: int = signal.SIGKILL) -> None:
        """Kill the primary and wait until roles are swapped."""
        self.kill_primary(with_signal)
        self.swap()

    def close(self) -> None:
        """Kill both."""
        self.backup.close()
        self.primary.close()


@contextlib.contextmanager
def broker_pair(directory: Path, *extra: str) -> Iterator[BrokerPair]:
    """A pair for the time of a test."""
    pair = BrokerPair(directory, extra)
    try:
        yield pair
    finally:
        pair.close()

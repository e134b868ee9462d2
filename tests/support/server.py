"""One real `legato serve`, with any settings, for tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from legato.processes.scratch import free_ports
from tests.support.forked_process import ForkedProcess, start

WAIT_S = 60.0


def free_port() -> int:
    """A port that nobody listens on."""
    return free_ports(1)[0]


class Server:
    """A server process; `start` returns when it said what it is."""

    def __init__(
        self,
        store: Path,
        *flags: str,
        port: int = 0,
        environment: Mapping[str, str] | None = None,
        program: str = "legato.cli",
    ) -> None:
        self.store = store
        self.port = port or free_port()
        self.program = program
        self.flags: Sequence[str] = flags
        self.environment = dict(environment or {})
        self.log = store.parent / f"serve-{self.port}.log"
        self.role = ""
        self._process: ForkedProcess | subprocess.Popen[bytes] | None = None
        self._said = threading.Condition()

    def start(self) -> Server:
        """Start, and wait for `active epoch=N` or `backup`."""
        with self._said, self.log.open("ab") as log:
            self.role = ""
            self._process = start(
                [
                    *(sys.executable, "-m", self.program, "serve", "--store", str(self.store)),
                    *("--listen", f"127.0.0.1:{self.port}", "--no-ledger", *self.flags),
                ],
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | self.environment,
            )
        threading.Thread(target=self._read, args=(self._process,), daemon=True).start()
        self.wait_for_role("active", "backup", "ended")
        return self

    def _read(self, process: ForkedProcess | subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self._tell(process, line.decode().strip())
        process.wait()
        self._tell(process, "ended")

    def _tell(self, process: ForkedProcess | subprocess.Popen[bytes], role: str) -> None:
        """Only what the present process says counts: that the last one ended may be noticed late."""
        with self._said:
            if process is self._process:
                self.role = role
                self._said.notify_all()

    def wait_for_role(self, *beginnings: str) -> None:
        """Wait until the process said something that begins so."""
        with self._said:
            if not self._said.wait_for(lambda: self.role.startswith(beginnings), WAIT_S):
                raise AssertionError(f"the server said {self.role!r}; its log:\n{self.log.read_text()}")

    @property
    def epoch(self) -> int:
        return int(self.role.removeprefix("active epoch="))

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._process.wait(WAIT_S)

    def stop(self) -> int:
        """SIGTERM; returns the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._process.wait(WAIT_S)

    def signal(self, number: int) -> None:
        """Send a signal and go on."""
        assert self._process is not None
        self._process.send_signal(number)

    def wait_for_log(self, text: str, wait_s: float = WAIT_S) -> None:
        """Wait until the process has logged that."""
        deadline = time.monotonic() + wait_s
        while text not in (logged := self.log.read_text()):
            assert self._process is None or self._process.poll() is None or text in self.log.read_text(), (
                f"the server ended and did not log {text!r}; its log:\n{logged}"
            )
            assert time.monotonic() < deadline, f"the server did not log {text!r}; its log:\n{logged}"
            time.sleep(0.02)

    def wait(self) -> int:
        """Wait until it ends by itself; returns the exit code."""
        assert self._process is not None
        return self._process.wait(WAIT_S)

    def rss_anon_bytes(self) -> int:
        """Private memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) << 10
        raise AssertionError("no RssAnon")


@contextmanager
def server(store: Path, *flags: str, port: int = 0, environment: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A running server, gone after the block."""
    process = Server(store, *flags, port=port, environment=environment)
    try:
        yield process.start()
    finally:
        if process._process is not None and process._process.poll() is None:
            process.kill()

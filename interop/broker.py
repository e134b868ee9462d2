"""A broker of its own for each suite: `legato serve` over a temporary store on a free port."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
READY_WAIT_S = 60.0
END_WAIT_S = 20.0


@dataclass(frozen=True)
class Broker:
    """Where a broker that runs can be reached."""

    process: subprocess.Popen[str]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"amqp://localhost:{self.port}"

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


@contextlib.contextmanager
def broker(log: Path, *, users: Sequence[str] = (), port: int = 0, trace_frames: bool = False) -> Iterator[Broker]:
    """Serve from a new store until the block ends.

    Args:
        log: file that gets what the broker writes to standard error.
        users: `name:password` of those that SASL PLAIN lets in, besides everybody who gives no name.
        port: where to listen; a free one if 0.
        trace_frames: whether the broker's log gets every AMQP frame.

    Raises:
        RuntimeError: the broker ended before it served.
    """
    port = port or free_port()
    with tempfile.TemporaryDirectory(prefix="legato-interop-") as directory, log.open("w") as errors:
        command = [sys.executable, "-m", "legato.cli", "serve"]
        command += ["--store", f"{directory}/store", "--listen", f"localhost:{port}", "--no-ledger"]
        command += [argument for user in users for argument in ("--user", user)]
        environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONUNBUFFERED": "1",
            **({"PN_TRACE_FRM": "1"} if trace_frames else {}),
        }
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, stdin=subprocess.DEVNULL, text=True, env=environment
        )
        assert process.stdout is not None
        try:
            for line in process.stdout:
                if line.startswith("active"):
                    break
            else:
                raise RuntimeError(f"the broker did not start: {log.read_text().strip()}")
            yield Broker(process, port, log)
        finally:
            process.terminate()
            try:
                process.wait(END_WAIT_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            process.stdout.close()

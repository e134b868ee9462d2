"""A broker of its own for each suite: `legato serve` over a temporary store on a free port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interop.security import Security

ROOT = Path(__file__).parents[1]
END_WAIT_S = 20.0
REPLICATED_HELP = "brokers with a replicated log on three servers of NATS, and stores of their own"
_groups = count(1)


@contextmanager
def log_of_brokers(*, replicated: bool) -> Iterator[str]:
    """The servers of a replicated log for `Broker`'s `log_url`; empty if none is wanted."""
    if not replicated:
        yield ""
        return
    from legato.testing.log_servers import log_servers

    with log_servers() as servers:
        yield servers.url


def new_group() -> str:
    """The name of a group that has no log yet."""
    return f"interop-{next(_groups)}"


def free_port() -> int:
    """A port that nobody listens on."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Broker:
    """A broker that runs until it is closed."""

    def __init__(
        self,
        log: Path,
        *,
        users: Sequence[str] = (),
        port: int = 0,
        trace_frames: bool = False,
        store: Path | None = None,
        wait: bool = True,
        security: Security | None = None,
        log_url: str = "",
        group: str = "",
    ) -> None:
        """Start it.

        Args:
            log: file that gets what the broker writes to standard error.
            users: `name:password` of those that SASL PLAIN lets in, besides everybody who gives no name.
            port: where to listen; a free one if 0.
            trace_frames: whether the broker's log gets every AMQP frame.
            store: its store's directory; a new one, removed at the end, if None.
            wait: whether to wait until it serves; it does not while it is a backup.
            security: TLS, users and roles; None for a broker that everybody on this machine may use.
            log_url: the servers of a replicated log, of `log_of_brokers`; empty for a broker without one.
            group: the group whose log it is; a new one at each start with an empty store if it is not given.

        Raises:
            RuntimeError: the broker ended before it served.
        """
        self.port = port or free_port()
        self._log = log
        self._options = ["--listen", f"localhost:{self.port}", "--no-ledger"]
        self._security = security
        if security is not None:
            self._options += ["--config", str(security.config)]
        if users:
            self._options += ["--insecure", *(argument for user in users for argument in ("--user", user))]
        self._environment = {
            **os.environ,
            "PYTHONPATH": str(ROOT / "src"),
            "PYTHONUNBUFFERED": "1",
            **({"LEGATO_AUTH_ANONYMOUS": "true"} if users else {}),
            **({"PN_TRACE_FRM": "1"} if trace_frames else {}),
        }
        self._store = store
        self._log_url = log_url
        self._group = group
        log.unlink(missing_ok=True)
        self.start(wait=wait)

    def __enter__(self) -> Broker:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """For Qpid JMS."""
        if self._security is not None:
            return f"amqps://localhost:{self.port}?{self._security.options}"
        return f"amqp://localhost:{self.port}"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def start_anew(self) -> None:
        """End it, and start another one with nothing in its store on the same port."""
        self.close()
        self.start()

    def kill(self) -> None:
        """Let it die at once."""
        self._process.kill()
        self._process.wait()

    def wait_until_active(self) -> None:
        """Wait until it serves."""
        assert self._process.stdout is not None
        if not any(line.startswith("active") for line in self._process.stdout):
            self.close()
            raise RuntimeError(f"the broker did not start: {self._log.read_text().strip()}")

    def close(self) -> None:
        """End it, and remove its store."""
        self._process.terminate()
        try:
            self._process.wait(END_WAIT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        self._directory.cleanup()

    def start(self, *, wait: bool = True) -> None:
        """Start it again after its end."""
        self._directory = tempfile.TemporaryDirectory(prefix="legato-interop-")
        store = self._store or Path(self._directory.name, "store")
        command = [sys.executable, "-m", "legato.cli", "serve", "--store", str(store)]
        if self._log_url:
            command += ["--replicate", self._log_url, "--group", self._group or new_group()]
        with self._log.open("a") as errors:
            self._process = subprocess.Popen(
                [*command, *self._options],
                stdout=subprocess.PIPE,
                stderr=errors,
                stdin=subprocess.DEVNULL,
                text=True,
                env=self._environment,
            )
        if wait:
            self.wait_until_active()

"""A `legato serve` as a child process, over all its restarts; its output tells its role."""

import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from legato.processes.child import Child, ProcessError

ACTIVE_LINE = re.compile(rb"^active epoch=(\d+)")
BACKUP_LINE = re.compile(rb"^backup")


class Role(StrEnum):
    """The present role of a broker process."""

    STARTING = "starting"
    BACKUP = "backup"
    PRIMARY = "primary"
    DEAD = "dead"
    STOPPED = "stopped"


class BrokerProcess:
    """One `legato serve`, through all its lives.

    Args:
        options: of `legato serve`, besides where it listens and its store.
        environment: variables that are added to ours.

    Attributes:
        host: where it listens, from its next start on.
        program: what runs a Python module, from its next start on.
    """

    def __init__(
        self,
        name: str,
        port: int,
        store: Path,
        log_file: Path,
        *,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.port = port
        self.host = "127.0.0.1"
        self.program: Sequence[str] = (sys.executable, "-m")
        self.role = Role.STARTING
        self.epoch = 0
        self._store = store
        self._log_file = log_file
        self._options = options
        self._environment = environment
        self._child: Child | None = None

    @property
    def pid(self) -> int:
        return self._child.pid if self._child else 0

    def start(self, on_line: Callable[[Child, bytes], None], on_end: Callable[[Child], None]) -> None:
        """Start the process; what it is then is told by its lines (`read`)."""
        self.role = Role.STARTING
        self._child = Child(
            self.name,
            [
                "legato.cli",
                "serve",
                "--store",
                str(self._store),
                "--listen",
                f"{self.host}:{self.port}",
                *self._options,
            ],
            program=self.program,
            environment=self._environment,
            log_file=self._log_file,
            on_line=on_line,
            on_end=on_end,
        )

    def is_child(self, child: Child) -> bool:
        """Whether `child` is this broker's present life."""
        return child is self._child

    def read(self, line: bytes) -> None:
        """Take note of what the process says of itself."""
        if found := ACTIVE_LINE.match(line):
            self.role, self.epoch = Role.PRIMARY, int(found[1])
        elif BACKUP_LINE.match(line):
            self.role = Role.BACKUP

    def kill(self) -> None:
        """SIGKILL: what a power cut or the kernel's memory killer does."""
        assert self._child is not None
        self.role = Role.DEAD
        self._child.kill()

    def send_signal(self, number: signal.Signals) -> None:
        """Send the process a signal, such as SIGSTOP."""
        assert self._child is not None
        self._child.send_signal(number)

    @property
    def exit_code(self) -> int | None:
        """Of its present life; None while it runs."""
        return None if self._child is None else self._child.exit_code

    def last_words(self) -> str:
        """The last line of its log."""
        return "" if self._child is None else self._child.last_words()

    def ended(self) -> None:
        """The process ended by itself.

        Raises:
            ProcessError: nobody asked it to.
        """
        if self.role not in (Role.DEAD, Role.STOPPED):
            assert self._child is not None
            raise ProcessError(
                f"{self.name} ended with exit code {self._child.exit_code}: {self._child.last_words()} "
                f"Its log is {self._log_file}."
            )

    def stop(self) -> bool:
        """SIGTERM; False if it had to be killed."""
        if self._child is None or self._child.exit_code is not None:
            return True
        self.role = Role.STOPPED
        self._child.send_signal(signal.SIGTERM)
        if self._child.wait():
            return self._child.exit_code == 0
        self._child.kill()
        return False

    def end(self) -> None:
        """Leave nothing behind, whatever state it is in."""
        if self._child is not None and self._child.exit_code is None:
            self.role = Role.DEAD
            self._child.kill()

"""Child processes that report by lines, stop when asked, and never outlive their parent."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from legato.errors import LegatoError

PR_SET_PDEATHSIG = 1
STOP_WAIT_S = 60.0
"""A broker that leaves has its last facts written to the ledger, which takes a while on a busy machine."""


class ProcessError(LegatoError):
    """The run cannot go on; the message says why and where to look."""


class Child:
    """One process: a Python module with its arguments, unless another `program` is given.

    Its standard output goes line by line to `on_line`, its standard error to a file. Closing its standard input asks it
    to stop (`ask_to_stop`); that also happens when the parent dies. `environment` is added to the parent's.
    """

    def __init__(
        self,
        name: str,
        arguments: Sequence[str],
        *,
        program: Sequence[str] = (sys.executable, "-m"),
        log_file: Path,
        on_line: Callable[["Child", bytes], None],
        on_end: Callable[["Child"], None],
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log_file = log_file
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                [*_DYING_WITH_PARENT, *program, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **(environment or {})},
                # Ctrl-C is for the parent alone: it stops its children in order.
                start_new_session=True,
                preexec_fn=_die_with_parent if _libc is not None and not _DYING_WITH_PARENT else None,
            )
        self._reader = threading.Thread(target=self._read, args=(on_line, on_end), name=f"read {name}", daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number if a signal ended it."""
        return self._process.poll()

    def ask_to_stop(self) -> None:
        """Let it finish what it does and end."""
        assert self._process.stdin is not None
        if not self._process.stdin.closed:
            self._process.stdin.close()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it a signal; nothing happens if it has ended."""
        self._process.send_signal(number)

    def wait(self, timeout_s: float = STOP_WAIT_S) -> bool:
        """Wait for its end and for its last line; False if it still runs after `timeout_s` seconds."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        self._reader.join(timeout_s)
        return True

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        self._process.kill()
        self._process.wait()

    def last_words(self) -> str:
        """The last line it wrote to its log, empty if there is none."""
        lines = self.log_file.read_text(errors="replace").strip().splitlines() if self.log_file.exists() else []
        return lines[-1] if lines else ""

    def _read(self, on_line: Callable[["Child", bytes], None], on_end: Callable[["Child"], None]) -> None:
        assert self._process.stdout is not None
        with self._process.stdout:
            for line in self._process.stdout:
                on_line(self, line)
        self._process.wait()
        self.ask_to_stop()  # nobody is left to hear it: this closes our end
        on_end(self)


_libc = ctypes.CDLL(None) if sys.platform == "linux" else None
_DYING_WITH_PARENT = [setpriv, "--pdeathsig", "KILL", "--"] if (setpriv := shutil.which("setpriv")) else []
"""Asks the kernel for it and becomes the program. `_die_with_parent` is for where it is not installed: to run it Python
forks, and drops in the fork what other threads hold. A connection of Py4J, say, is shut down there, for us too.
"""


def _die_with_parent() -> None:
    """In the child, before it becomes the new program: the kernel kills it when the parent's thread ends."""
    assert _libc is not None
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() == 1:
        os._exit(1)

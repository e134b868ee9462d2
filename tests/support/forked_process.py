"""Brokers and commands forked by the fork server, with the part of `subprocess`'s interface that tests use."""

from __future__ import annotations

import atexit
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any
from unittest.mock import patch

from legato.processes import child

SERVE = (sys.executable, "-m", "legato.cli", "serve")
ROOT = Path(__file__).parents[2]
_JOINED = "LEGATO_TESTS_FORK_SERVER"
"""The number of the socket of a fork server that another process started."""


class _ForkServer:
    """This process's fork server; it ends with us. Or, where `_JOINED` says so, the one of who started this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        if joined := os.environ.pop(_JOINED, ""):
            self._requests = socket.socket(fileno=int(joined))
            atexit.register(self._requests.close)
            return
        self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            start_new_session=True,
            cwd=ROOT,
        )
        theirs.close()

    def bear(self, arguments: Sequence[str], environment: Mapping[str, str], descriptors: Sequence[int]) -> int:
        """Start `legato` in this process's directory; returns the number of its process.

        Raises:
            ConnectionError: the fork server has ended; its standard error says why. The next broker gets another one.
        """
        request = json.dumps([arguments, dict(environment), os.getcwd()]).encode()
        try:
            with self._lock:
                socket.send_fds(self._requests, [request], list(descriptors))
                return int(self._requests.recv(32))
        except (OSError, ValueError) as error:
            _fork_server.cache_clear()
            ended = "" if self._process is None else f" with {self._process.wait()}"
            raise ConnectionError(f"the fork server ended{ended}") from error

    def lend(self) -> int:
        """The descriptor of what a process inherits that joins us."""
        return self._requests.fileno()


@functools.cache
def _fork_server() -> _ForkServer:
    return _ForkServer()


class ForkedProcess:
    """A `legato` that the fork server started."""

    def __init__(
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        *,
        stdin: int | IO[Any] | None,
        stderr: int | IO[Any] | None,
        text: bool,
    ) -> None:
        self.arguments = ["legato", *arguments]
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self._lock = threading.Lock()
        self._status, their_status = os.pipe()
        # Not before nobody can wait any more.
        weakref.finalize(self, os.close, self._status)
        out, their_out = os.pipe()
        self.stdout: IO[Any] = os.fdopen(out, "r" if text else "rb")
        theirs = [their_out, their_status]
        if stdin == subprocess.PIPE:
            their_in, ours = os.pipe()
            self.stdin = os.fdopen(ours, "wb")
        elif stdin is not None and not isinstance(stdin, int):
            their_in = os.dup(stdin.fileno())
        else:
            their_in = os.open(os.devnull, os.O_RDONLY)
        theirs.append(their_in)
        errors = stderr.fileno() if stderr is not None and not isinstance(stderr, int) else 2
        self.pid = _fork_server().bear(arguments, environment, [their_in, their_out, errors, their_status])
        for descriptor in theirs:
            os.close(descriptor)

    def wait(self, timeout: float | None = None) -> int:
        """See `subprocess.Popen.wait`."""
        ready, _, _ = select.select([self._status], [], [], timeout)
        with self._lock:
            if self.returncode is None:
                if not ready:
                    raise subprocess.TimeoutExpired(self.arguments, timeout or 0)
                self.returncode = int(os.read(self._status, 16) or -signal.SIGKILL)
            return self.returncode

    def poll(self) -> int | None:
        """See `subprocess.Popen.poll`."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def send_signal(self, number: int) -> None:
        """See `subprocess.Popen.send_signal`."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """See `subprocess.Popen.kill`."""
        self.send_signal(signal.SIGKILL)


def start(command: Sequence[str], **options: Any) -> ForkedProcess | subprocess.Popen[Any]:
    """Start a command as `subprocess.Popen` does; if it is `legato serve`, let the fork server do it.

    What the kernel is asked for before the command becomes `legato serve` (`setpriv`), the fork server asks for itself.
    """
    begins = command.index(sys.executable) if sys.executable in command else 0
    if tuple(command[begins : begins + len(SERVE)]) != SERVE:
        return subprocess.Popen(command, **options)
    return ForkedProcess(
        command[begins + len(SERVE) - 1 :],
        options.get("env") or os.environ,
        stdin=options.get("stdin"),
        stderr=options.get("stderr"),
        text=options.get("text", False),
    )


def run_legato(
    *arguments: str, stdin: str | bytes = "", environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command of `legato` to its end, in a process of its own, without what the start of an interpreter costs.

    Args:
        arguments: what follows `legato`.
        stdin: all of its standard input.
        environment: variables beside those of this process.
    """
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as errors:
        given.write(stdin.encode() if isinstance(stdin, str) else stdin)
        given.flush()
        given.seek(0)
        process = ForkedProcess(
            arguments, {**os.environ, **(environment or {})}, stdin=given, stderr=errors, text=False
        )
        with process.stdout:
            said = process.stdout.read()
        code = process.wait()
        errors.seek(0)
        return subprocess.CompletedProcess(process.arguments, code, said.decode(), errors.read().decode())


def run_with_quick_starts(program: Path, *, directory: Path, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """Run a program of Python as `python -W error PROGRAM` does, but with brokers that come from our fork server.

    Args:
        program: its file.
        directory: the directory it is run in.
        timeout_s: it is killed after so long.
    """
    # Nobody else asks for a broker meanwhile: we wait.
    lent = _fork_server().lend()
    return subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "tests" / "support" / "run_program.py"), str(program)],
        capture_output=True,
        text=True,
        cwd=directory,
        timeout=timeout_s,
        pass_fds=[lent],
        env={**os.environ, _JOINED: str(lent)},
    )


def _start_broker(command: Sequence[str], **options: Any) -> ForkedProcess | subprocess.Popen[Any]:
    process = start(command, **options)
    # Tests became slow once, unseen, when the command began with other words.
    assert isinstance(process, ForkedProcess) or "serve" not in command, command
    return process


@contextmanager
def quick_starts() -> Iterator[None]:
    """Meanwhile the brokers of `legato.testing` come from the fork server, too."""
    popen: Callable[..., Any] = _start_broker
    with patch.object(child, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": popen})):
        yield

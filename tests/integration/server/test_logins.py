"""Logins at a real broker: who gets in, who is put off, and what that costs the others."""

from __future__ import annotations

import selectors
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from legato.amqp.codec.types import Symbol
from legato.amqp.engine.sasl import SASL_HEADER, SaslClient
from legato.server.identity.keys import ITERATIONS_MIN
from legato.server.identity.users_file import User, changing, make_keys
from tests.integration.server.test_management import Manager
from tests.support.amqp_peer import AmqpPeer, Refused, text
from tests.support.server import Server, free_port, server
from tests.unit.amqp.test_sasl import frame

SETTINGS = "[auth]\nfailed_logins = { delay_s = 0.3, most = 3, for_s = 3600 }\n"


def add(file: Path, name: str, password: str, iterations: int = ITERATIONS_MIN) -> None:
    with changing(file) as content:
        content.users[name] = User(name, (), make_keys(password, iterations))


@pytest.fixture
def users(tmp_path: Path) -> Path:
    """The users file of a store that no broker has opened yet: ann and bob."""
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    add(store / "users", "ann", "secret")
    add(store / "users", "bob", "hidden")
    return store / "users"


@pytest.fixture
def running(users: Path, tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "legato.toml").write_text(SETTINGS)
    with server(users.parent, "--config", str(tmp_path / "legato.toml")) as process:
        yield process


def offered(port: int, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None) -> set[str]:
    """What a broker offers whoever connects."""
    with socket.create_connection((host, port), timeout=60) as plain:
        sock = tls.wrap_socket(plain, server_hostname="localhost") if tls else plain
        sock.sendall(SASL_HEADER)
        data = b""
        while len(data) < 12 or len(data) < 8 + int.from_bytes(data[8:12], "big"):
            data += sock.recv(4096)
    return {
        name for name in ("SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS", "EXTERNAL") if name.encode() in data
    }


def plain_login(user: str, password: str) -> bytes:
    return SASL_HEADER + frame(0x41, [Symbol("PLAIN"), f"\0{user}\0{password}".encode()])


def outcome(sock: socket.socket) -> int | None:
    """The code of the SASL outcome that comes, None if the socket ends first."""
    data = b""
    while b"\x00\x53\x44" not in data or not data.endswith((b"\x50\x00", b"\x50\x01", b"\x50\x04")):
        more = sock.recv(4096)
        if not more:
            return None
        data += more
    return data[-1]


def test_users_log_in_and_nobody_else(running: Server) -> None:
    assert offered(running.port) == {"SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"}
    AmqpPeer(running.port, user="ann", password="secret").drop()
    for user, password in (("ann", "wrong"), ("nobody", "secret"), (None, None)):
        with pytest.raises(Refused):
            AmqpPeer(running.port, user=user, password=password)


def test_plain_is_held_against_the_same_keys(running: Server) -> None:
    codes = []
    for user, password in (("ann", "secret"), ("ann", "wrong"), ("nobody", "secret")):
        with socket.create_connection(("127.0.0.1", running.port), timeout=60) as sock:
            sock.sendall(plain_login(user, password))
            codes.append(outcome(sock))
    assert codes == [0, 1, 1]


def test_after_too_many_failures_the_right_password_is_not_looked_at_either(running: Server) -> None:
    for _ in range(3):
        with pytest.raises(Refused, match="did not accept"):
            AmqpPeer(running.port, user="ann", password="wrong")
    with pytest.raises(Refused, match="takes no login now"):
        AmqpPeer(running.port, user="ann", password="secret")
    AmqpPeer(running.port, user="bob", password="hidden").drop()


def test_guessing_takes_its_time(running: Server) -> None:
    began = time.monotonic()
    with pytest.raises(Refused):
        AmqpPeer(running.port, user="ann", password="wrong")
    assert time.monotonic() - began >= 0.3


def test_a_user_that_was_removed_is_cut_off_and_the_others_stay(running: Server, users: Path) -> None:
    ann = AmqpPeer(running.port, user="ann", password="secret", container="a")
    bob = AmqpPeer(running.port, user="bob", password="hidden", container="b")
    with changing(users) as content:
        del content.users["bob"]
    running.signal(signal.SIGHUP)
    while bob.socket.recv(4096):
        pass
    with pytest.raises(Refused):
        AmqpPeer(running.port, user="bob", password="hidden")
    assert ann.send(ann.sender("q"), text(b"still here")) is not None


def test_a_password_that_was_changed_ends_what_the_old_one_began(running: Server, users: Path) -> None:
    ann = AmqpPeer(running.port, user="ann", password="secret", container="a")
    add(users, "ann", "another")
    assert Manager(ann).ask("RELOAD", type="broker")[0] == 200
    while ann.socket.recv(4096):
        pass
    AmqpPeer(running.port, user="ann", password="another").drop()


def test_a_users_file_with_a_mistake_changes_nothing(running: Server, users: Path) -> None:
    ann = AmqpPeer(running.port, user="ann", password="secret")
    whole = users.read_bytes()
    users.write_bytes(whole[: len(whole) // 2])
    status, _ = Manager(ann).ask("RELOAD", type="broker")
    assert status == 400
    running.signal(signal.SIGHUP)
    running.wait_for_log("was not read again")
    assert ann.send(ann.sender("q"), text(b"still here")) is not None
    AmqpPeer(running.port, user="bob", password="hidden").drop()


def test_the_first_user_ends_anonymous_connections(tmp_path: Path) -> None:
    with server(tmp_path / "store") as running:
        anybody = AmqpPeer(running.port)
        add(running.store / "users", "ann", "secret")
        running.signal(signal.SIGHUP)
        while anybody.socket.recv(4096):
            pass
        with pytest.raises(Refused):
            AmqpPeer(running.port)
        AmqpPeer(running.port, user="ann", password="secret").drop()


def test_a_users_file_that_is_gone_does_not_open_the_broker(running: Server, users: Path) -> None:
    users.unlink()
    running.signal(signal.SIGHUP)
    running.wait_for_log("is gone")
    with pytest.raises(Refused):
        AmqpPeer(running.port)
    AmqpPeer(running.port, user="ann", password="secret").drop()


def test_a_users_file_without_users_does_not_open_the_broker_either(running: Server, users: Path) -> None:
    with changing(users) as content:
        content.users.clear()
    running.signal(signal.SIGHUP)
    running.wait_for_log("were read again")
    for user in (None, "ann"):
        with pytest.raises(Refused):
            AmqpPeer(running.port, user=user, password="secret")


def test_who_was_removed_is_not_let_in_by_the_backup_that_takes_over(users: Path) -> None:
    with server(users.parent) as primary, server(users.parent) as backup:
        backup.wait_for_log("heartbeats of epoch")
        with changing(users) as content:
            del content.users["bob"]
        primary.kill()
        backup.wait_for_role("active")
        AmqpPeer(backup.port, user="ann", password="secret").drop()
        with pytest.raises(Refused):
            AmqpPeer(backup.port, user="bob", password="hidden")


def test_a_takeover_with_a_users_file_that_cannot_be_read_keeps_the_users(users: Path) -> None:
    with server(users.parent) as primary, server(users.parent) as backup:
        backup.wait_for_log("heartbeats of epoch")
        users.write_text("nothing of the kind")
        primary.kill()
        backup.wait_for_role("active")
        AmqpPeer(backup.port, user="ann", password="secret").drop()
        backup.wait_for_log("users were not read again")


def test_who_was_removed_from_a_primary_stays_so_when_it_takes_over_again(users: Path) -> None:
    """With a users file that cannot be read it had the users with which it was started."""
    with server(users.parent) as one, server(users.parent) as other:
        with changing(users) as content:
            del content.users["bob"]
        one.signal(signal.SIGHUP)
        one.wait_for_log("were read again")
        other.wait_for_log("heartbeats of epoch")
        ann = Manager(AmqpPeer(one.port, user="ann", password="secret"))
        assert ann.ask("SWITCHOVER", type="broker")[0] == 200
        other.wait_for_role("active")
        one.wait_for_role("backup")
        users.write_text("nothing of the kind")
        other.kill()
        one.wait_for_role("active epoch=3")
        with pytest.raises(Refused):
            AmqpPeer(one.port, user="bob", password="hidden")
        AmqpPeer(one.port, user="ann", password="secret").drop()


def own_address() -> str:
    """An address of this machine that is not loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            pytest.skip("this machine has no network")
        address: str = probe.getsockname()[0]
        return address


def test_beyond_loopback_passwords_never_go_in_the_clear(users: Path) -> None:
    """PLAIN is offered over TLS and on loopback only."""
    flags = ("--listen", f"0.0.0.0:{(port := free_port())}", "--insecure")
    with server(users.parent, *flags) as running:
        running.wait_for_log("insecure, as was asked for")
        assert offered(port, own_address()) == {"SCRAM-SHA-512", "SCRAM-SHA-256"}
        assert "PLAIN" in offered(port)


def test_over_tls_plain_is_offered_to_everybody(users: Path, tmp_path: Path) -> None:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "tls.pem"))
    (tmp_path / "tls.pem").chmod(0o600)
    (tmp_path / "legato.toml").write_text(f'[tls]\ncertificate = "{tmp_path}/tls.pem"\nkey = "{tmp_path}/tls.pem"\n')
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    flags = ("--config", str(tmp_path / "legato.toml"), "--listen", f"0.0.0.0:{(port := free_port())}")
    with server(users.parent, *flags):
        assert offered(port, own_address(), trusting) == {"SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"}


@pytest.mark.parametrize("listen", ["0.0.0.0", "[::]"])
def test_a_broker_that_strangers_could_use_does_not_start(tmp_path: Path, listen: str) -> None:
    process = Server(tmp_path / "store", "--listen", f"{listen}:{free_port()}").start()
    assert process.wait() == 2
    assert "--insecure" in process.log.read_text()
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("loose", [".", "data.mdb", "members"])
def test_a_store_that_others_may_look_into_is_refused_with_the_command_that_mends_it(
    tmp_path: Path, loose: str
) -> None:
    with server(tmp_path / "store") as first:
        first.stop()
    (first.store / loose).chmod(0o755)
    refused = Server(tmp_path / "store").start()
    assert refused.wait() == 2
    line = refused.log.read_text().splitlines()[-1]
    command = line.partition("Close it to them: ")[2]
    assert command.startswith("chmod ")
    subprocess.run(command, shell=True, check=True)
    with server(tmp_path / "store") as again:
        assert again.role.startswith("active")


def test_nothing_that_a_broker_writes_is_for_others(tmp_path: Path) -> None:
    with server(tmp_path / "store", "--ledger") as running:
        peer = AmqpPeer(running.port)
        peer.send(peer.sender("q"), text(b"x"))
        assert running.stop() == 0
    modes = {path.relative_to(tmp_path): path.stat().st_mode & 0o077 for path in (tmp_path / "store").rglob("*")}
    assert len(modes) > 3
    assert [str(path) for path, mode in modes.items() if mode] == []


class Crowd:
    """Many connections that log in at once, without a thread for each."""

    def __init__(self, port: int, count: int, first: Callable[[int], bytes]) -> None:
        self._selector = selectors.DefaultSelector()
        self.left = count
        self.codes: list[int] = []
        for number in range(count):
            sock = socket.create_connection(("127.0.0.1", port), timeout=60)
            sock.sendall(first(number))
            sock.setblocking(False)
            self._selector.register(sock, selectors.EVENT_READ, bytearray())

    def turn(self) -> None:
        """Take what came, without waiting for more."""
        for key, _ in self._selector.select(0):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)
            data = sock.recv(4096)
            key.data.extend(data)
            if data and b"\x00\x53\x44" not in key.data:
                continue
            self.codes += key.data[-1:]
            self.left -= 1
            self._selector.unregister(sock)
            sock.close()


@pytest.mark.timeout(600)
def test_many_who_log_in_at_once_do_not_stop_a_good_client(users: Path) -> None:
    """Passwords are looked at beside the loop: somebody else has many turns while 100 of them wait."""
    add(users, "ann", "secret", 30_000)
    with server(users.parent) as running:
        good = AmqpPeer(running.port, user="bob", password="hidden", container="good")
        link = good.sender("q")
        crowd = Crowd(running.port, 100, lambda number: plain_login("ann", "secret"))
        trips = 0
        while crowd.left:
            good.send(link, text(b"x"))
            trips += 1
            crowd.turn()
        assert crowd.codes == [0] * 100
        assert trips > 5


def test_scram_takes_no_more_than_a_moment_of_the_loop() -> None:
    """The broker's part of SCRAM is a few hashes: it needs no thread."""
    from legato.server.identity.keys import derive
    from legato.server.identity.mechanisms import Scram

    keys = derive("SCRAM-SHA-256", "x", 1_000_000)
    client = SaslClient("ann", "x")
    assert client.data_to_send() == SASL_HEADER
    began = time.thread_time()
    step = Scram("SCRAM-SHA-256", lambda user, mechanism: (keys, True), lambda user: False).step(b"n,,n=ann,r=nonce")
    assert step.__class__.__name__ == "Challenge"
    assert time.thread_time() - began < 0.2

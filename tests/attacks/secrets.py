"""Passwords, keys and files: guessing them, and reading what is not for others."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from pathlib import Path

from legato.amqp.codec.types import Array, Symbol
from legato.amqp.codec.values import Described, ULong, encode_value
from legato.client import ConnectionFactory
from legato.errors import JMSError
from legato.server.config.configuration import load
from legato.server.identity.users_file import make_keys
from tests.attacks.ground import PASSWORD, SASL_HEADER, Ground, holds, listening, plain_login
from tests.attacks.register import attack, scratch
from tests.integration.server.test_logins import outcome
from tests.support.amqp_peer import AmqpPeer, Refused
from tests.support.raw import framed
from tests.support.server import free_port

GUESSES, AT_ONCE = 400, 50
NOT_NOW = 4


def serve(store: Path, *flags: str, listen: str = "") -> tuple[int, str]:
    """What `legato serve` says if it does not start: its exit code and its words."""
    command = [sys.executable, "-m", "legato.cli", "serve", "--store", str(store), "--no-ledger"]
    command += ["--listen", listen or f"127.0.0.1:{free_port()}", *flags]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except subprocess.TimeoutExpired:
        return 0, ""
    return done.returncode, done.stderr


@attack(6, "anonymous beside users, and listening to everybody", own_ground=True)
def anonymous(ground: Ground) -> None:
    """Users switch anonymous peers off; what other machines reach does not start without users and TLS."""
    for user, password in ((None, None), ("anonymous", "anonymous"), ("", "")):
        try:
            AmqpPeer(ground.port, user=user, password=password).drop()
        except (Refused, OSError):
            continue
        holds(False, f"{user!r} is let in beside users")
    for listen in ("0.0.0.0", "[::]"):
        code, said = serve(scratch(ground, f"exposed-{len(listen)}"), listen=f"{listen}:{free_port()}")
        holds(code == 2 and "legato serve --insecure" in said, f"a broker on {listen} without users starts: {said}")


@attack(13, "guess passwords, many at once")
def guessing(ground: Ground) -> None:
    """1,257 guesses a second were looked at; now a few are, whether they come at once or one by one."""
    looked_at = []
    for _ in range(GUESSES // AT_ONCE):
        sockets = []
        for number in range(AT_ONCE):
            with contextlib.suppress(OSError):
                sock = socket.create_connection(("127.0.0.1", ground.port), timeout=20)
                sock.sendall(plain_login("ann", f"guess {number}"))
                sockets.append(sock)
        for sock in sockets:
            with contextlib.suppress(OSError), sock:
                looked_at.append(outcome(sock))
    holds(looked_at.count(1) <= 5, f"{looked_at.count(1)} of {GUESSES} guesses were looked at")
    holds(0 not in looked_at, "one was let in")


@attack(13, "passwords and keys that others may read", own_ground=True)
def readable_secrets(ground: Ground) -> None:
    """A configuration with passwords, a key and a users file of mode 0644 are refused; nothing shows a password."""
    directory = scratch(ground, "readable")
    file = directory / "legato.toml"
    file.write_text('[auth]\nusers = { ann = "topsecret" }\n')
    file.chmod(0o644)
    code, said = serve(directory / "store", "--config", str(file))
    holds(code != 0 and "chmod 600" in said, "a configuration with passwords for others is taken")
    file.write_text(f'[tls]\ncertificate = "{directory}/key.pem"\nkey = "{directory}/key.pem"\n')
    (directory / "key.pem").write_text("x")
    (directory / "key.pem").chmod(0o644)
    code, said = serve(directory / "store", "--config", str(file))
    holds(code != 0 and "chmod 600" in said, "a private key for others is taken")
    file.write_text('[auth]\nusers = { ann = "" }\n')
    file.chmod(0o600)
    code, said = serve(directory / "store", "--config", str(file))
    holds(code != 0 and "empty" in said, "an empty password is taken")
    ours = load(ground.config, store=ground.store, environment={})
    holds(PASSWORD + "'" not in repr(ours.auth.users), "a configuration shows passwords")
    holds("topsecret" not in repr(make_keys("topsecret")), "keys show the password")
    users = ground.store / "users"
    users.chmod(0o644)
    try:
        code, said = serve(ground.store)
        holds(code != 0 and "chmod" in said, "a users file for others is taken")
    finally:
        users.chmod(0o600)
    listed = Path(f"/proc/{ground.server.pid}/cmdline").read_bytes()
    holds(b":x" not in listed, "a password is in the list of processes")


@attack(14, "read the store as another local user")
def files(ground: Ground) -> None:
    """Nothing that the broker writes is for others, and a store that is open to them is refused."""
    for root, directories, found in os.walk(ground.store):
        for path in (Path(root, name) for name in [".", *directories, *found]):
            mode = stat.S_IMODE(path.lstat().st_mode)
            holds(not mode & 0o077, f"{path} has mode {mode:04o}")
    audit = ground.directory / "audit.jsonl"
    holds(stat.S_IMODE(audit.stat().st_mode) == 0o600, "others may read the audit trail")
    ground.store.chmod(0o755)
    try:
        code, said = serve(ground.store)
        holds(code != 0 and "chmod" in said, "a store that is open to others is taken")
    finally:
        ground.store.chmod(0o700)


@attack(26, "send a client elsewhere to hear its password", own_ground=True)
def redirected(ground: Ground) -> None:
    """A broker names a host of the attacker's: that host hears no password, though it offers nothing but PLAIN."""
    with listening() as rogue, listening() as second:
        heard = threading.Thread(target=_redirect, args=(rogue, second.getsockname()[1]), daemon=True)
        heard.start()
        words: list[bytes] = []
        listens = threading.Thread(target=_offer_plain, args=(second, words), daemon=True)
        listens.start()
        url = f"amqp://ann:topsecret@127.0.0.1:{rogue.getsockname()[1]}?connect_attempts=2&connect_timeout_s=3"
        with contextlib.suppress(JMSError):
            ConnectionFactory(url).create_connection().close()
        time.sleep(0.5)
    holds(words, "nobody came to where the client was sent")
    holds(not any(b"topsecret" in word for word in words), "the second host heard the password")


def _redirect(listener: socket.socket, port: int) -> None:
    """Let a client log in, and send it elsewhere."""
    from legato.amqp.codec.types import Symbol
    from legato.amqp.engine.sasl import AMQP_HEADER, SaslServer
    from tests.support.raw import CLOSE, OPEN, frame

    while True:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        with sock, contextlib.suppress(OSError):
            sasl = SaslServer(anonymous=False, verify=lambda user, password: True)
            while not sasl.done:
                sasl.receive_data(sock.recv(4096))
                sock.sendall(sasl.data_to_send())
            info = {Symbol("network-host"): "localhost", Symbol("port"): port, Symbol("hostname"): "localhost"}
            error = Described(ULong(0x1D), [Symbol("amqp:connection:redirect"), "elsewhere", info])
            sock.recv(4096)
            sock.sendall(AMQP_HEADER + frame(OPEN, ["rogue"]) + frame(CLOSE, [error]))
            sock.recv(4096)


def _offer_plain(listener: socket.socket, words: list[bytes]) -> None:
    """Offer nothing but PLAIN, and listen."""
    offer = SASL_HEADER + framed(encode_value(Described(ULong(0x40), [Array([Symbol("PLAIN")])])), kind=1)
    while True:
        try:
            sock, _ = listener.accept()
        except OSError:
            return
        with sock, contextlib.suppress(OSError):
            sock.settimeout(2)
            words.append(sock.recv(4096))
            sock.sendall(offer)
            words.append(sock.recv(4096))

"""Files with credentials, as `nsc` writes them: a JWT that expires, and its key."""

import base64
import contextlib
import hashlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nkeys
import pytest

from legato.errors import LogAccessError, LogUnavailableError
from legato.processes.log_servers import LogServers
from legato.replication.log import Claim, ReplicatedLog
from legato.replication.nats import NatsSettings, Opening, open_log
from legato.testing.log_servers import log_servers
from tests.conformance.replicated_log.log import claim, data_of, health_when, is_proved, read_all

EXPIRIES_S = (4, 8, 16, 32)
WAIT_S = 60.0
UNLIMITED = dict.fromkeys(
    (
        *("subs", "data", "payload", "imports", "exports", "conn", "leaf"),
        *("mem_storage", "disk_storage", "streams", "consumer"),
    ),
    -1,
)
NO_STORAGE = {**UNLIMITED, **dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), 0)}
QUESTION = "$SYS.REQ.SERVER.PING.JSZ"


class Key:
    """A key pair of NATS.

    Args:
        prefix: what it is of: an operator, an account, a user.
    """

    def __init__(self, prefix: int) -> None:
        self.seed = bytes(nkeys.encode_seed(os.urandom(32), prefix))
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.public = self._pair.public_key.decode()

    def sign(self, claims: dict[str, Any]) -> str:
        """A JWT with claims, issued by this key."""
        claims = {"iat": int(time.time()), "iss": self.public, **claims}
        claims["jti"] = hashlib.sha256(json.dumps(claims).encode()).hexdigest()
        parts = ({"typ": "JWT", "alg": "ed25519-nkey"}, claims)
        signed = ".".join(_base64(json.dumps(part).encode()) for part in parts)
        return f"{signed}.{_base64(self._pair.sign(signed.encode()))}"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Trust:
    """An operator with two accounts; the brokers' may ask the system's one question."""

    def __init__(self) -> None:
        self.operator, self.system, self.brokers = (
            Key(nkeys.PREFIX_BYTE_OPERATOR),
            Key(nkeys.PREFIX_BYTE_ACCOUNT),
            Key(nkeys.PREFIX_BYTE_ACCOUNT),
        )

    def configuration(self) -> str:
        """For the servers."""
        operator = self.operator.sign(
            {"sub": self.operator.public, "name": "operator", "nats": {"type": "operator", "version": 2}}
        )
        export = {"name": "servers", "subject": QUESTION, "type": "service", "response_type": "Stream"}
        imported = {**export, "account": self.system.public, "local_subject": "legato.servers"}
        del imported["response_type"]
        accounts = {
            self.system: {"limits": NO_STORAGE, "exports": [export]},
            self.brokers: {"limits": {**UNLIMITED, "wildcards": True}, "imports": [imported]},
        }
        preload = ", ".join(
            f"{key.public}: {self.operator.sign(_claims(key.public, 'account', nats))}"
            for key, nats in accounts.items()
        )
        return (
            f"operator: {operator}\nsystem_account: {self.system.public}\n"
            f"resolver: MEMORY\nresolver_preload: {{ {preload} }}"
        )

    def write_credentials(self, file: Path, lifetime_s: int) -> None:
        """A user of the brokers' account, for so long."""
        user = Key(nkeys.PREFIX_BYTE_USER)
        nats = {"pub": {}, "sub": {}, "subs": -1, "data": -1, "payload": -1}
        claims = {**_claims(user.public, "user", nats), "exp": int(time.time()) + lifetime_s}
        made = file.with_suffix(".new")
        made.write_text(
            f"-----BEGIN NATS USER JWT-----\n{self.brokers.sign(claims)}\n------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n------END USER NKEY SEED------\n"
        )
        made.replace(file)


def _claims(subject: str, kind: str, nats: dict[str, Any]) -> dict[str, Any]:
    return {"sub": subject, "name": kind, "nats": {**nats, "type": kind, "version": 2}}


@pytest.fixture(scope="module")
def trust() -> Trust:
    return Trust()


@pytest.fixture(scope="module")
def trusting(trust: Trust) -> Iterator[LogServers]:
    with log_servers(accounts=trust.configuration()) as running:
        yield running


def ask_until_refused(log: ReplicatedLog) -> None:
    """Ask until the servers refuse the credentials; on a busy machine they may be late with an answer."""
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        try:
            log.last(timeout_s=1.0)
        except LogUnavailableError as error:
            if "refuses the credentials" in str(error):
                raise
    raise AssertionError(f"nothing was refused in {WAIT_S} s")


def begin(trust: Trust, servers: LogServers, file: Path) -> tuple[ReplicatedLog, Claim]:
    """A log whose credentials expire soon, but not before its first record is stored, however busy the machine is."""
    for expiry_s in EXPIRIES_S:
        trust.write_credentials(file, expiry_s)
        log = None
        try:
            log = open_log(NatsSettings(servers.url, "orders", credentials_file=file))
            writer = claim(log)
            writer.submit(b"one").result(expiry_s)
            health_when(log, is_proved)
        except (LogUnavailableError, TimeoutError):
            if log is not None:
                log.close()
        else:
            return log, writer
    raise AssertionError(f"no record was stored in {EXPIRIES_S[-1]} s")


def test_a_broker_whose_credentials_expire_goes_on_with_new_ones(
    trust: Trust, trusting: LogServers, tmp_path: Path
) -> None:
    file = tmp_path / "brokers.creds"
    log, writer = begin(trust, trusting, file)
    with pytest.raises(LogAccessError, match=rf"refuses the credentials in {file}.*expired"):
        ask_until_refused(log)
    waiting = writer.submit(b"two")
    assert not waiting.done()
    trust.write_credentials(file, 3600)
    waiting.result(WAIT_S)
    assert data_of(read_all(log))[-3:] == [b"epoch", b"one", b"two"]
    log.close()


def test_credentials_that_have_expired_are_refused(trust: Trust, trusting: LogServers, tmp_path: Path) -> None:
    file = tmp_path / "brokers.creds"
    trust.write_credentials(file, -10)
    with pytest.raises(LogAccessError, match=r"it may have expired") as refused:
        open_log(NatsSettings(trusting.url, "orders", credentials_file=file))
    assert "eyJ" not in str(refused.value)


def test_credentials_of_another_operator_are_refused(trusting: LogServers, tmp_path: Path) -> None:
    file = tmp_path / "brokers.creds"
    Trust().write_credentials(file, 3600)
    with pytest.raises(LogAccessError, match="refuses the credentials"):
        open_log(NatsSettings(trusting.url, "orders", credentials_file=file))


def test_a_file_with_a_damaged_key_is_refused(trusting: LogServers, tmp_path: Path) -> None:
    file = tmp_path / "brokers.creds"
    Trust().write_credentials(file, 3600)
    before, key = file.read_text().split("-----BEGIN USER NKEY SEED-----\n")
    file.write_text(f"{before}-----BEGIN USER NKEY SEED-----\n{key[:20]}\n{key[-40:]}")
    with pytest.raises(LogAccessError, match=r"brokers.creds cannot be used"):
        open_log(NatsSettings(trusting.url, "orders", credentials_file=file))


def test_credentials_are_not_blamed_for_what_is_not_a_server_of_nats(tmp_path: Path) -> None:
    file = tmp_path / "brokers.creds"
    Trust().write_credentials(file, 3600)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=_greet, args=[listening], daemon=True).start()
        address = f"nats://127.0.0.1:{listening.getsockname()[1]}"
        opening = Opening(NatsSettings(address, "orders", credentials_file=file))
        try:
            with pytest.raises(LogUnavailableError, match=r"no server of the log answers: 127.0.0.1:\d+ \(.*answer"):
                opening()
        finally:
            opening.close()
            listening.shutdown(socket.SHUT_RDWR)


def _greet(listening: socket.socket) -> None:
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection:
            connection.sendall(b"220 mail.example ESMTP\r\n")


def test_a_file_without_credentials_is_refused(trusting: LogServers, tmp_path: Path) -> None:
    file = tmp_path / "brokers.creds"
    file.write_text("nothing\n")
    with pytest.raises(LogAccessError, match=r"brokers.creds cannot be used"):
        open_log(NatsSettings(trusting.url, "orders", credentials_file=file))


@pytest.mark.parametrize("servers", ["tls://{0}", "tls://127.0.0.1:1,{0}"])
def test_no_login_is_told_to_a_server_that_does_not_ask_for_tls(servers: str) -> None:
    """As somebody between a broker and a server would say who wants the password."""
    heard: list[bytes] = []

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                accepted, _ = listener.accept()
                with accepted:
                    accepted.sendall(b'INFO {"server_id":"x","auth_required":true,"headers":true}\r\n')
                    while data := accepted.recv(4096):
                        heard.append(data)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=serve, args=(listener,), daemon=True).start()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        settings = NatsSettings(servers.format(address), "g", user="brokers", password="hush")
        opening = Opening(settings)
        try:
            with pytest.raises(LogAccessError, match="does not require TLS"):
                opening.connection.wait_for_first(WAIT_S, patient=False)
        finally:
            opening.close()
            listener.shutdown(socket.SHUT_RDWR)
    assert heard == []

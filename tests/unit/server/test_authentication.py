"""Authentication: what is looked at beside the event loop, what is offered to whom, and who may stay."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from legato.amqp.engine.mechanisms import Check, Failure, Success
from legato.amqp.engine.sasl import SASL_HEADER
from legato.clock import SystemClock
from legato.ha.heartbeat_connection import BACKUP_USER
from legato.server.config.configuration import load
from legato.server.identity import authentication
from legato.server.identity.authentication import Authentication
from legato.server.identity.origin import Origin, is_loopback
from legato.server.identity.users import Users

FAR, NEAR, SECURE = Origin("192.0.2.1"), Origin("127.0.0.1", True), Origin("192.0.2.1", False, True)
CERTIFIED = Origin("192.0.2.1", False, True, {"subject": ((("commonName", "ann"),),)})


def of(tmp_path: Path, text: str = "") -> Authentication:
    file = tmp_path / "legato.toml"
    file.write_text(text)
    file.chmod(0o600)
    config = load(file, store=tmp_path, environment={})
    return Authentication(config, Users.load(config), "token", SystemClock())


def offered(authentication: Authentication, origin: Origin) -> set[str]:
    sasl = authentication.new_sasl(origin)
    sasl.receive_data(SASL_HEADER)
    data = sasl.data_to_send()
    names = ("EXTERNAL", "SCRAM-SHA-512", "SCRAM-SHA-256", "XOAUTH2", "PLAIN", "ANONYMOUS")
    return {name for name in names if name.encode() in data}


SCRAM = {"SCRAM-SHA-512", "SCRAM-SHA-256"}
ANN = '[auth]\nusers = { ann = "a" }\n'


@pytest.mark.parametrize(
    ("text", "origin", "names"),
    [
        ("", NEAR, {"ANONYMOUS"}),
        (ANN, NEAR, {*SCRAM, "PLAIN"}),
        (ANN, SECURE, {*SCRAM, "PLAIN"}),
        (ANN, FAR, SCRAM),
        (ANN + 'mechanisms = ["SCRAM-SHA-256"]\n', NEAR, {"SCRAM-SHA-256"}),
        (ANN + 'mechanisms = ["EXTERNAL"]\n', NEAR, {"SCRAM-SHA-256"}),
        (ANN + '[auth.jwt]\nissuer = "https://a.example"\naudience = "l"\n', SECURE, {*SCRAM, "PLAIN", "XOAUTH2"}),
        (ANN + '[auth.jwt]\nissuer = "https://a.example"\naudience = "l"\n', FAR, SCRAM),
        (ANN, CERTIFIED, {*SCRAM, "PLAIN"}),
    ],
)
def test_secrets_are_asked_for_only_where_nobody_listens(
    tmp_path: Path, text: str, origin: Origin, names: set[str]
) -> None:
    assert offered(of(tmp_path, text), origin) == names


def test_passwords_are_looked_at_in_another_thread_and_told_in_the_loop(tmp_path: Path) -> None:
    looked: list[int] = []

    def work() -> Success:
        looked.append(threading.get_ident())
        return Success("ann")

    async def main() -> tuple[object, int]:
        authentication = of(tmp_path, ANN)
        told: asyncio.Future[tuple[object, int]] = asyncio.get_running_loop().create_future()
        authentication.run(Check(work), lambda result: told.set_result((result, threading.get_ident())))
        try:
            return await told
        finally:
            authentication.stop()

    result, teller = asyncio.run(main())
    assert result == Success("ann")
    assert teller == threading.get_ident()
    assert looked[0] != teller


def test_a_check_that_fails_is_no_wrong_password(tmp_path: Path) -> None:
    def work() -> Success:
        raise OSError("no entropy")

    async def main() -> object:
        authentication = of(tmp_path, ANN)
        told: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        authentication.run(Check(work), told.set_result)
        try:
            return await told
        finally:
            authentication.stop()

    assert asyncio.run(main()) == Failure("the login could not be checked", temporary=True)


def test_there_is_an_end_to_passwords_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(authentication, "CHECKS_WAITING_MAX", 1)
    held = threading.Event()

    def work() -> Success:
        held.wait(60)
        return Success("ann")

    async def main() -> list[object]:
        tested = of(tmp_path, ANN)
        told: list[object] = []
        over = asyncio.Event()
        tested.run(Check(work), lambda result: over.set())
        tested.run(Check(work), told.append)
        held.set()
        await over.wait()
        tested.stop()
        return told

    (refused,) = asyncio.run(main())
    assert isinstance(refused, Failure)
    assert refused.temporary


def test_a_realm_is_one_users_only(tmp_path: Path) -> None:
    tested = of(tmp_path, ANN)
    names = ("ann", "ann/shop", "ann%2Fshop", "anonymous", BACKUP_USER)
    assert len({tested.realm_of(name) for name in names}) == len(names)
    assert all(tested.realm_of(name).count("/") == 1 for name in names)
    assert of(tmp_path).realm_of("anonymous") == ""


@pytest.mark.parametrize(
    ("host", "near"),
    [
        *((host, True) for host in ("127.0.0.1", "127.9.9.9", "::1", "localhost", "::ffff:127.0.0.1")),
        *((host, False) for host in ("0.0.0.0", "::", "192.0.2.1", "localhost.example.org", "")),
    ],
)
def test_loopback_is_what_no_other_machine_reaches(host: str, near: bool) -> None:
    assert is_loopback(host) is near

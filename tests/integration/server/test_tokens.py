"""Logins with tokens of OAuth 2.0, against a provider with keys of its own."""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from legato.amqp.engine.events import Closed
from legato.amqp.engine.outcomes import ACCEPTED
from legato.client import ConnectionFactory, JMSSecurityError
from legato.server.config.configuration import JwtSection
from legato.server.identity import tokens
from legato.server.identity.tokens import TokenRefused, Tokens, TokensUnavailable
from tests.integration.client.helpers import drain, send
from tests.integration.server.test_logins import add, outcome, plain_login
from tests.support.amqp_peer import AmqpPeer, Refused, text
from tests.support.openid import AUDIENCE, Provider, openid_provider
from tests.support.server import Server, server

SETTINGS = """
[auth.jwt]
issuer = "{0}"
audience = "{1}"
roles_claim = "realm_access.roles"
leeway_s = 0
[[role]]
name = "senders"
allow = [{{ on = "q", may = ["send", "receive", "create"] }}]
[[role]]
name = "root"
allow = [{{ on = "#", may = ["send", "create"] }}]
management = "administer"
"""
SENDERS = {"roles": ["senders", "unheard-of"]}


@pytest.fixture
def provider() -> Iterator[Provider]:
    with openid_provider() as running:
        yield running


@pytest.fixture
def running(provider: Provider, tmp_path: Path) -> Iterator[Server]:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    add(store / "users", "carl", "x")
    (tmp_path / "legato.toml").write_text(SETTINGS.format(provider.issuer, AUDIENCE))
    with server(store, "--config", str(tmp_path / "legato.toml")) as process:
        yield process


def test_a_token_says_who_somebody_is_and_which_roles_it_has(running: Server, provider: Provider) -> None:
    peer = AmqpPeer(running.port, token=provider.token(realm_access=SENDERS))
    assert peer.send(peer.sender("q"), text(b"x")) == ACCEPTED
    with pytest.raises(Refused, match="'ann', with the roles senders"):
        peer.sender("other")


def test_a_token_is_taken_as_a_password_of_plain_too(running: Server, provider: Provider) -> None:
    """For clients that speak nothing else."""
    with socket.create_connection(("127.0.0.1", running.port), timeout=20) as sock:
        sock.sendall(plain_login("anybody", provider.token(realm_access=SENDERS)))
        assert outcome(sock) == 0


def unsigned(provider: Provider) -> str:
    claims = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 600}
    return jwt.encode(claims, "", algorithm="none", headers={"kid": "first"})


def signed_with_the_public_key(provider: Provider) -> str:
    """The attack by which a key that everybody knows is taken for a shared secret."""
    key = base64.urlsafe_b64encode(json.dumps({"k": 1}).encode())
    claims = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 600}
    return jwt.encode(claims, key + b"=" * 32, algorithm="HS256", headers={"kid": "first"})


@pytest.mark.parametrize(
    "make",
    [
        lambda provider: provider.token(lasts_s=-1),
        lambda provider: provider.token(aud="another"),
        lambda provider: provider.token(aud=None),
        lambda provider: provider.token(iss="https://elsewhere.example"),
        lambda provider: provider.token(exp=None),
        lambda provider: provider.token(nbf=time.time() + 600),
        lambda provider: provider.token(key=rsa.generate_private_key(65537, 2048)),
        lambda provider: provider.token(sub=None),
        lambda provider: provider.token("$backup"),
        lambda provider: provider.token("anonymous"),
        lambda provider: provider.token()[:-10],
        unsigned,
        signed_with_the_public_key,
        lambda provider: "eyJ.eyJ.x",
        lambda provider: "",
    ],
    ids=[
        *(
            "expired",
            "for another",
            "for nobody",
            "of another",
            "without end",
            "not yet",
            "wrongly signed",
            "of nobody",
        ),
        *("of the backup", "of the anonymous", "cut off", "unsigned", "signed with a public key"),
        *("no token", "empty"),
    ],
)
def test_a_token_with_a_flaw_lets_nobody_in(running: Server, provider: Provider, make: object) -> None:
    assert callable(make)
    with pytest.raises(Refused):
        AmqpPeer(running.port, token=make(provider))
    AmqpPeer(running.port, user="carl", password="x").drop()


def test_the_end_of_a_token_ends_its_connection(running: Server, provider: Provider) -> None:
    peer = AmqpPeer(running.port, token=provider.token(lasts_s=3, realm_access=SENDERS))
    closed = peer.expect(Closed)
    assert closed.condition == "amqp:connection:forced"
    assert "token has expired" in closed.description


def test_the_client_comes_back_with_another_token(running: Server, provider: Provider) -> None:
    given: list[str] = []

    def fresh() -> str:
        given.append(provider.token(lasts_s=600 if given else 3, realm_access=SENDERS))
        return given[-1]

    with ConnectionFactory(f"amqp://127.0.0.1:{running.port}", token=fresh).create_connection() as connection:
        connection.start()
        send(connection, "q", "before")
        deadline = time.monotonic() + 30
        while not connection.failovers and time.monotonic() < deadline:
            time.sleep(0.05)
        send(connection, "q", "after")
        assert drain(connection, "q") == ["before", "after"]
    assert len(given) > 1


def test_a_token_that_cannot_be_had_is_a_security_error(running: Server) -> None:
    def fails() -> str:
        raise OSError("the provider is away")

    with pytest.raises(JMSSecurityError, match="the provider is away"):
        ConnectionFactory(f"amqp://127.0.0.1:{running.port}", token=fails).create_connection()


def test_keys_may_change_while_somebody_is_connected(running: Server, provider: Provider) -> None:
    peer = AmqpPeer(running.port, token=provider.token(realm_access=SENDERS), container="first")
    old = provider.token(realm_access=SENDERS)
    provider.rotate("second", withdraw=True)
    deadline = time.monotonic() + 60
    while True:
        # Keys that nobody knows are looked for once in a while only.
        try:
            AmqpPeer(running.port, token=provider.token(realm_access=SENDERS), container="second").drop()
            break
        except Refused:
            assert time.monotonic() < deadline
    with pytest.raises(Refused):
        AmqpPeer(running.port, token=old)
    assert peer.send(peer.sender("q"), text(b"x")) == ACCEPTED


@pytest.mark.slow
def test_tokens_with_keys_that_nobody_knows_do_not_have_the_provider_asked_each_time(
    running: Server, provider: Provider
) -> None:
    AmqpPeer(running.port, token=provider.token(), container="first").drop()
    before = provider.fetches
    key = rsa.generate_private_key(65537, 2048)
    for number in range(5):
        made = jwt.encode({"sub": "ann"}, key, algorithm="RS256", headers={"kid": f"unknown {number}"})
        with pytest.raises(Refused):
            AmqpPeer(running.port, token=made)
    assert provider.fetches - before <= 2 * 3


def test_a_provider_that_is_away_is_no_wrong_password(running: Server, provider: Provider) -> None:
    provider.down = True
    with pytest.raises(Refused, match="takes no login now"):
        AmqpPeer(running.port, token=provider.token())
    AmqpPeer(running.port, user="carl", password="x").drop()


def test_a_token_does_not_stand_for_a_user_with_a_password(running: Server, provider: Provider, tmp_path: Path) -> None:
    """Whoever the provider calls carl need not be our carl, and would have his subscriptions and his roles."""
    from legato.server.identity.users_file import User, changing

    theirs = AmqpPeer(running.port, token=provider.token("eric"), container="theirs")
    with changing(tmp_path / "store" / "users") as content:
        content.users["dora"] = User("dora", ("root",))
        content.users["eric"] = User("eric", ("root",), content.users["carl"].keys)
    running.signal(signal.SIGHUP)
    running.wait_for_log("were read again")
    assert "may not be here any more" in theirs.expect(Closed).description
    for name in ("carl", "eric"):
        with pytest.raises(Refused, match="did not accept"):
            AmqpPeer(running.port, token=provider.token(name))
    running.wait_for_log("only a user without one (--no-password)")
    dora = AmqpPeer(running.port, token=provider.token("dora"), container="dora")
    dora.sender("other")


@pytest.mark.parametrize("said", [["ann"], {"a": "ann"}, 7, None, True, "", " ", "ann\n"])
def test_a_claim_that_is_no_name_names_nobody(provider: Provider, said: object) -> None:
    section = JwtSection(provider.issuer, AUDIENCE, user_claim="preferred_username")
    with pytest.raises(TokenRefused):
        Tokens(section).check(provider.token(preferred_username=said))


def test_keys_that_come_too_slowly_are_given_up(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then would hold up every login with a token."""
    monkeypatch.setattr(tokens, "FETCH_TIMEOUT_S", 0.2)
    sent = 0

    class Slow(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nonlocal sent
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while sent < 1000:
                    self.wfile.write(b" ")
                    sent += 1
                    time.sleep(0.05)

        def log_message(self, format: str, *args: Any) -> None:
            """Nobody reads it."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Slow) as slow:
        threading.Thread(target=slow.serve_forever, daemon=True).start()
        section = JwtSection(provider.issuer, AUDIENCE, jwks=f"http://127.0.0.1:{slow.server_address[1]}/")
        with pytest.raises(TokensUnavailable):
            Tokens(section).check(provider.token())
        slow.shutdown()
    assert 0 < sent < 1000


def test_an_issuer_names_no_file_of_the_brokers_machine(provider: Provider, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(json.dumps(provider._documents()["/keys"]))
    provider.keys_at = f"file://{tmp_path}/keys"
    with pytest.raises(TokensUnavailable):
        Tokens(JwtSection(provider.issuer, AUDIENCE)).check(provider.token())


def test_a_token_says_nothing_of_where_its_key_is(provider: Provider) -> None:
    """Headers with a key of their own, or an address of one, are not looked at (RFC 8725, 3.10)."""
    mine = rsa.generate_private_key(65537, 2048)
    public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(mine.public_key()))
    claims = {"iss": provider.issuer, "aud": AUDIENCE, "sub": "ann", "exp": time.time() + 600}
    headers: list[dict[str, Any]] = [
        {"jwk": public},
        {"jku": "http://127.0.0.1:1/keys", "kid": "mine"},
        {"x5u": "http://127.0.0.1:1/keys", "kid": "first"},
        {"kid": "../../../../dev/null"},
        {"crit": ["exp"], "kid": "first"},
    ]
    for header in headers:
        with pytest.raises(TokenRefused):
            Tokens(JwtSection(provider.issuer, AUDIENCE)).check(
                jwt.encode(claims, mine, algorithm="RS256", headers=header)
            )

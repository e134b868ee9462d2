"""Logins with tokens of OAuth 2.0, against a provider with keys of its own."""

from __future__ import annotations

import base64
import contextlib
import json
import signal
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jwt
import pytest
import trustme
from cryptography.hazmat.primitives.asymmetric import rsa

from legato.amqp.engine.events import Closed
from legato.amqp.engine.outcomes import ACCEPTED
from legato.client import Connection, ConnectionFactory, JMSSecurityError
from legato.server.config.configuration import JwtSection
from legato.server.identity import tokens
from legato.server.identity.tokens import TokenRefused, Tokens, TokensUnavailable
from tests.integration.client.helpers import drain, send
from tests.integration.server.test_logins import add, outcome, plain_login
from tests.support.amqp_peer import AmqpPeer, Refused, text
from tests.support.monitored import until
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
    with socket.create_connection(("127.0.0.1", running.port), timeout=60) as sock:
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


LIVES_S = (3, 12, 48)
"""Of tokens that are tried in turn: on a busy machine one may have expired before it is shown."""


def test_the_end_of_a_token_ends_its_connection(running: Server, provider: Provider) -> None:
    for lasts_s in LIVES_S:
        with contextlib.suppress(Refused):
            peer = AmqpPeer(running.port, token=provider.token(lasts_s=lasts_s, realm_access=SENDERS))
            break
    closed = peer.expect(Closed)
    assert closed.condition == "amqp:connection:forced"
    assert "token has expired" in closed.description


def test_the_client_comes_back_with_another_token(running: Server, provider: Provider) -> None:
    given: list[str] = []

    def connected(lasts_s: int) -> Connection:
        """With a first token that lasts so long; those after it last."""

        def fresh() -> str:
            given.append(provider.token(lasts_s=600 if given else lasts_s, realm_access=SENDERS))
            return given[-1]

        return ConnectionFactory(f"amqp://127.0.0.1:{running.port}", token=fresh).create_connection()

    for lasts_s in LIVES_S:
        given.clear()
        with contextlib.suppress(JMSSecurityError):
            connection = connected(lasts_s)
            break
    with connection:
        connection.start()
        send(connection, "q", "before")
        until(lambda: bool(connection.failovers))
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


def test_a_token_that_ends_beyond_all_times_is_refused_as_one(provider: Provider) -> None:
    """It was answered as if the issuer's keys could not be had."""
    tokens = Tokens(JwtSection(provider.issuer, AUDIENCE))
    assert tokens.check(provider.token(exp=1e308)).expires_s > 1e307
    with pytest.raises(TokenRefused):
        tokens.check(provider.token(exp=10**400))


class Dripping:
    """A server that begins to answer, and then goes on and on with a byte now and then.

    Args:
        before: what it sends at once.
        drip: what it repeats.
        every_s: how often; 0: as fast as it is read.
    """

    def __init__(self, before: bytes, drip: bytes, every_s: float, context: ssl.SSLContext | None = None) -> None:
        self._before, self._drip, self._every_s = before, drip, every_s
        self._context = context
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.sent = 0
        self.left = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        peer, _ = self._listening.accept()
        with peer, contextlib.suppress(OSError):
            if self._context is not None:
                peer = self._context.wrap_socket(peer, server_side=True)
            peer.sendall(self._before)
            while True:
                peer.sendall(self._drip)
                self.sent += len(self._drip)
                if self.left.wait(self._every_s):
                    break
        self.left.set()

    def close(self) -> None:
        self.left.set()
        self._listening.close()


TIMEOUTS_S = (0.2, 2.0, 20.0)
"""Tried in turn: on a busy machine nothing has come when a short one is over."""
OK = b"HTTP/1.1 200 OK\r\n"
DRIPS = {
    "status line": (b"HTTP/1.1 200 ", b"O"),
    "a header": (OK + b"x: ", b"y"),
    "headers": (OK, b"x: y\r\n"),
    "interim answers": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "document": (OK + b"\r\n", b" "),
    "chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "the end of chunks": (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"x: y\r\n"),
}


@pytest.mark.parametrize("part", DRIPS)
def test_keys_that_come_too_slowly_are_given_up(part: str, provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then, of the headers or of the document, would hold up every login with a token."""
    for timeout_s in TIMEOUTS_S:
        monkeypatch.setattr(tokens, "FETCH_TIMEOUT_S", timeout_s)
        with contextlib.closing(Dripping(*DRIPS[part], every_s=0.02)) as slow:
            section = JwtSection(provider.issuer, AUDIENCE, jwks=f"http://127.0.0.1:{slow.port}/")
            with pytest.raises(TokensUnavailable):
                Tokens(section).check(provider.token())
            assert slow.left.wait(60), "the connection is still there"
        if slow.sent:
            break
    assert slow.sent > 0


@pytest.mark.parametrize("part", DRIPS)
def test_keys_that_come_without_end_are_given_up(
    part: str, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "FETCH_TIMEOUT_S", 60.0)
    monkeypatch.setattr(tokens, "FETCH_BYTES_MAX", 100_000)
    before, drip = DRIPS[part]
    with contextlib.closing(Dripping(before, drip * 1000, every_s=0)) as fast:
        section = JwtSection(provider.issuer, AUDIENCE, jwks=f"http://127.0.0.1:{fast.port}/")
        with pytest.raises(TokensUnavailable):
            Tokens(section).check(provider.token())
        assert fast.left.wait(60), "the connection is still there"


def test_keys_over_tls_have_the_same_bounds(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    for timeout_s in TIMEOUTS_S:
        monkeypatch.setattr(tokens, "FETCH_TIMEOUT_S", timeout_s)
        with contextlib.closing(Dripping(*DRIPS["headers"], every_s=0.02, context=context)) as slow:
            section = JwtSection(
                provider.issuer, AUDIENCE, jwks=f"https://localhost:{slow.port}/", tls_ca=str(tmp_path / "ca.pem")
            )
            with pytest.raises(TokensUnavailable):
                Tokens(section).check(provider.token())
            assert slow.left.wait(60), "the connection is still there"
        if slow.sent:
            break
    assert slow.sent > 0
    # And one that says nothing in the handshake.
    with contextlib.closing(Dripping(b"", b"\x16", every_s=0.02)) as slow:
        section.jwks = f"https://localhost:{slow.port}/"
        with pytest.raises(TokensUnavailable):
            Tokens(section).check(provider.token())
        assert slow.left.wait(60), "the connection is still there"


@pytest.mark.parametrize("document", ["[]", "7", '{"keys": 7}', '{"keys": [7]}', "[" * 100_000, '"' + "x" * 100])
def test_keys_that_are_none_are_no_wrong_password(document: str, provider: Provider, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text(document)
    with pytest.raises(TokensUnavailable):
        Tokens(JwtSection(provider.issuer, AUDIENCE, jwks=str(tmp_path / "keys"))).check(provider.token())


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

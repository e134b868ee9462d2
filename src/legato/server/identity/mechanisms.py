"""SASL mechanisms of a broker: SCRAM, and PLAIN against the same keys."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from legato.amqp.engine.mechanisms import Challenge, Check, Failure, Result, Success
from legato.quoting import quoted
from legato.server.identity.keys import Keys
from legato.server.identity.tokens import looks_like_token

TOO_MANY = "too many logins failed"
_CHARACTERS_MAX = 1024
"""Of a user name that a peer gives."""

FindKeys = Callable[[str, str], tuple[Keys, bool]]
"""The keys of a user for a mechanism, and whether they are real ones."""
Blocks = Callable[[str], bool]
"""Whether a user is not listened to, because too many logins failed."""


def _too_many(user: str) -> Failure:
    return Failure(f"{TOO_MANY} for {quoted(user)}", temporary=True, user=user)


def prepared(name: str) -> str:
    """A user name as names are compared; one that can be nobody's stays what it is."""
    from scramp.utils import ScramException, saslprep

    if len(name) > _CHARACTERS_MAX:
        return name
    try:
        return str(saslprep(name))
    except ScramException:
        return name


class Proof(msgspec.Struct, frozen=True):
    """What a login proved about its user besides the name.

    Attributes:
        by_password: whether it was a password; else a certificate, or a token.
        groups: the roles that a token says it has.
        expires_s: when a token expires, in seconds since 1970; 0: never.
    """

    by_password: bool = True
    groups: tuple[str, ...] = ()
    expires_s: float = 0.0


BY_PASSWORD = Proof()


class Scram:
    """RFC 5802, RFC 7677: the user proves that it knows the password, and so does the broker."""

    def __init__(self, name: str, find_keys: FindKeys, blocks: Blocks) -> None:
        import scramp

        self._error = scramp.ScramException
        self._name = name
        self._find_keys = find_keys
        self._blocks = blocks
        self._server: Any = scramp.ScramMechanism(name).make_server(self._keys_of)
        self._user = ""
        self._real = False
        self._challenged = False

    def _keys_of(self, user: str) -> tuple[bytes, bytes, bytes, int]:
        self._user = user
        keys, self._real = self._find_keys(user, self._name)
        return keys.salt, keys.stored_key, keys.server_key, keys.iterations

    def step(self, response: bytes | None) -> Result:
        """See `Mechanism`."""
        if response is None:
            return Challenge(b"")
        try:
            text = response.decode()
            if not self._challenged:
                self._server.set_client_first(text)
                if self._blocks(self._user):
                    return _too_many(self._user)
                self._challenged = True
                return Challenge(self._server.get_server_first().encode())
            if self._blocks(self._user):
                # Others that were challenged at the same time failed since: all of them are guesses.
                return _too_many(self._user)
            self._server.set_client_final(text)
            proof = self._server.get_server_final().encode()
        except (self._error, ValueError):
            return Failure(f"wrong user name or password for {quoted(self._user)}", user=self._user)
        if not self._real:
            return Failure(f"wrong user name or password for {quoted(self._user)}", user=self._user)
        return Success(self._user, proof)


class CheckedPlain:
    """RFC 4616, for peers that speak nothing better: the password is looked at beside the event loop."""

    def __init__(
        self,
        verify: Callable[[str, str], Success | Failure],
        blocks: Blocks,
        verify_token: Callable[[str], Success | Failure] | None = None,
    ) -> None:
        self._verify = verify
        self._verify_token = verify_token
        self._blocks = blocks

    def step(self, response: bytes | None) -> Result:
        """See `Mechanism`."""
        if response is None:
            return Challenge(b"")
        try:
            authorised, user, password = response.decode("utf-8").split("\0")
        except ValueError:
            return Failure("a PLAIN response is malformed")
        verify_token = self._verify_token
        if verify_token is not None and looks_like_token(password):
            return Check(lambda: verify_token(password), slow=True)
        name = prepared(user)
        if prepared(authorised) not in ("", name):
            return Failure(f"{quoted(user)} may not act for {quoted(authorised)}", user=name)
        if self._blocks(name):
            return _too_many(name)
        # Those that wait with this one are guesses too: when they have failed, what it says does not count.
        return Check(lambda: self._verify(name, password), unless=lambda: self._now_blocked(name))

    def _now_blocked(self, name: str) -> Failure | None:
        return _too_many(name) if self._blocks(name) else None


class External:
    """RFC 4422, appendix A: who the certificate of the TLS connection says it is."""

    def __init__(self, user: str | None, is_another: Callable[[str], Failure | None] = lambda user: None) -> None:
        self._user = user
        self._is_another = is_another

    def step(self, response: bytes | None) -> Result:
        """See `Mechanism`."""
        if response is None:
            return Challenge(b"")
        wanted = response.decode(errors="replace")
        if self._user is None:
            return Failure("no rule of auth.external_user finds a user in the certificate")
        if wanted not in ("", self._user):
            return Failure(f"{quoted(self._user)} may not act for {quoted(wanted)}", user=self._user)
        if (another := self._is_another(self._user)) is not None:
            return another
        return Success(self._user, proved=Proof(by_password=False))


class Bearer:
    """XOAUTH2: a token of OAuth 2.0, looked at beside the event loop, as keys may have to be fetched."""

    def __init__(self, verify: Callable[[str], Success | Failure]) -> None:
        self._verify = verify

    def step(self, response: bytes | None) -> Result:
        """See `Mechanism`."""
        if response is None:
            return Challenge(b"")
        parts = response.decode(errors="replace").split("\1")
        found = next((part for part in parts if part.lower().startswith("auth=bearer ")), None)
        if found is None:
            return Failure("an XOAUTH2 response is malformed")
        token = found[len("auth=bearer ") :].strip()
        return Check(lambda: self._verify(token), slow=True)

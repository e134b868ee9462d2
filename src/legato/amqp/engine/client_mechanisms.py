"""SASL mechanisms of a client: what it says to prove who it is, and which of those that a broker offers it takes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from legato.amqp.engine.mechanisms import Anonymous
from legato.errors import ProtocolError

SCRAM = ("SCRAM-SHA-512", "SCRAM-SHA-256")
"""The stronger one first."""


class ClientMechanism(Protocol):
    """One exchange with a broker."""

    name: str

    def begin(self) -> bytes:
        """The initial response."""

    def answer(self, challenge: bytes) -> bytes:
        """The response to a challenge.

        Raises:
            ProtocolError: it makes no sense.
        """

    def finish(self, data: bytes) -> None:
        """The broker accepts us, and says `data` with that.

        Raises:
            ProtocolError: it should have proved who it is, and did not.
        """


class _Stated:
    """A mechanism that says all in its initial response, and answers each challenge so."""

    def __init__(self, name: str, response: bytes) -> None:
        self.name = name
        self._response = response

    def begin(self) -> bytes:
        """See `ClientMechanism`."""
        return self._response

    def answer(self, challenge: bytes) -> bytes:
        """See `ClientMechanism`."""
        return self._response

    def finish(self, data: bytes) -> None:
        """See `ClientMechanism`: nothing was to be proved."""


class _Token(_Stated):
    """XOAUTH2: a challenge tells why a token is refused, and is answered with nothing."""

    def answer(self, challenge: bytes) -> bytes:
        """See `ClientMechanism`."""
        return b""


class _Scram:
    """SCRAM (RFC 5802, RFC 7677): neither side learns the password from the other, and each proves that it knows it."""

    def __init__(self, name: str, username: str, password: str) -> None:
        # It takes a good part of a connection's time to load, and most connections need none of it.
        import scramp

        self.name = name
        self._error = scramp.ScramException
        try:
            self._client = scramp.ScramClient([name], username, password)
        except scramp.ScramException as error:
            raise ProtocolError(f"the user name or password cannot be used: {error}") from error
        self._step = 0

    def begin(self) -> bytes:
        """See `ClientMechanism`."""
        return str(self._client.get_client_first()).encode()

    def answer(self, challenge: bytes) -> bytes:
        """See `ClientMechanism`: the broker's salt, or its proof if it sends that as a challenge."""
        self._step += 1
        try:
            if self._step == 1:
                self._client.set_server_first(challenge.decode())
                return str(self._client.get_client_final()).encode()
            self._check(challenge)
        except (self._error, ValueError) as error:
            raise ProtocolError(f"the broker's part of {self.name} makes no sense: {error}") from error
        return b""

    def _check(self, data: bytes) -> None:
        self._client.set_server_final(data.decode())
        self._step = -1

    def finish(self, data: bytes) -> None:
        """See `ClientMechanism`: the broker's proof."""
        if self._step == -1:
            return
        try:
            self._check(data)
        except (self._error, ValueError) as error:
            raise ProtocolError("the broker did not prove that it knows the password") from error


def plain_response(user: str, password: str) -> bytes:
    """A client's response in PLAIN."""
    return f"\0{user}\0{password}".encode()


def token_response(user: str, token: str) -> bytes:
    """A client's response in XOAUTH2."""
    return f"user={user}\1auth=Bearer {token}\1\1".encode()


def choose(
    offered: Sequence[str],
    *,
    username: str | None,
    password: str,
    token: Callable[[], str] | None = None,
    secret_may_be_shown: bool = True,
    certificate: bool = False,
    or_anonymous: bool = False,
) -> ClientMechanism | str:
    """The best mechanism of those that are offered; or, as a text, why there is none.

    The arguments are those of `SaslClient`.
    """
    wanted: tuple[str, ...]
    if token is not None:
        wanted = ("XOAUTH2", "PLAIN")
    elif username is not None:
        wanted = (*SCRAM, "PLAIN")
    else:
        wanted = ("EXTERNAL", "ANONYMOUS") if certificate else ("ANONYMOUS",)
    if or_anonymous:
        wanted = (*wanted, "ANONYMOUS")
    shown = ("XOAUTH2", "PLAIN")
    usable = [name for name in wanted if name in offered]
    name = next((name for name in usable if secret_may_be_shown or name not in shown), None)
    if name is None and usable:
        secret = "the token" if token is not None else "the password"
        return f"{secret} would go there in the clear, as the broker offers only {', '.join(usable)}"
    if name is None:
        return f"the broker does not offer {' or '.join(wanted)}, but {', '.join(offered) or 'nothing'}"
    if name in SCRAM:
        assert username is not None
        return _Scram(name, username, password)
    if name == "XOAUTH2":
        assert token is not None
        return _Token(name, token_response(username or "", token()))
    if name == "PLAIN":
        secret = token() if token is not None else password
        return _Stated(name, plain_response(username or "token", secret))
    return _Stated(name, Anonymous.USER.encode() if name == "ANONYMOUS" else b"")

"""SASL mechanisms: ANONYMOUS and PLAIN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

Verify = Callable[[str, str], bool]
"""Whether a user name and a password belong together."""


class Challenge(msgspec.Struct, frozen=True):
    """The peer must say more."""

    data: bytes


class Success(msgspec.Struct, frozen=True):
    """The peer is `user`; `data` goes with the outcome."""

    user: str
    data: bytes = b""


class Failure(msgspec.Struct, frozen=True):
    """The peer is refused; `reason` is for our log, not for the peer."""

    reason: str


class Mechanism(Protocol):
    """One exchange with one peer."""

    def step(self, response: bytes | None) -> Challenge | Success | Failure:
        """Take the peer's initial response (None if it sent none), or its answer to our last challenge."""
        ...


class Anonymous:
    """RFC 4505: anybody."""

    USER = "anonymous"

    def step(self, response: bytes | None) -> Challenge | Success | Failure:
        """Let anybody in."""
        return Success(self.USER)


class Plain:
    """RFC 4616: a user name and a password in the clear."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify

    def step(self, response: bytes | None) -> Challenge | Success | Failure:
        """Check the password."""
        if response is None:
            return Challenge(b"")
        try:
            authorised, user, password = response.decode("utf-8").split("\0")
        except ValueError:
            return Failure("a PLAIN response is malformed")
        if authorised not in ("", user):
            return Failure(f"{user} may not act for {authorised}")
        if not user or not self._verify(user, password):
            return Failure(f"wrong user name or password for {user}")
        return Success(user)


def plain_response(user: str, password: str) -> bytes:
    """A client's response in PLAIN."""
    return f"\0{user}\0{password}".encode()

"""SASL mechanisms: what a server and a client have in common, ANONYMOUS, and PLAIN."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from legato.quoting import quoted

Verify = Callable[[str, str], bool]
"""Whether a user name and a password belong together."""


class Challenge(msgspec.Struct, frozen=True):
    """The peer must say more."""

    data: bytes


class Success(msgspec.Struct, frozen=True):
    """The peer is `user`; `data` goes with the outcome, and `proved` is what else the mechanism found out."""

    user: str
    data: bytes = b""
    proved: Any = None


class Failure(msgspec.Struct, frozen=True):
    """The peer is refused; `reason` is for our log, not for the peer.

    `temporary`: another attempt may succeed. `user` is whom the peer says it is.
    """

    reason: str
    temporary: bool = False
    user: str = ""


class Check(msgspec.Struct, frozen=True):
    """The result takes work that no event loop should wait for: `work` may run in any thread.

    `slow`: it may have to wait for others, so that what needs only a processor should not wait behind it.
    `unless`: is asked in the loop when the work is done; a failure that it returns is the result instead.
    """

    work: Callable[[], Success | Failure]
    slow: bool = False
    unless: Callable[[], Failure | None] | None = None


Result = Challenge | Success | Failure | Check


class Mechanism(Protocol):
    """One exchange with one peer."""

    def step(self, response: bytes | None) -> Result:
        """Take the peer's initial response (None if it sent none), or its answer to our last challenge."""
        ...


class Anonymous:
    """RFC 4505: anybody."""

    USER = "anonymous"

    def step(self, response: bytes | None) -> Result:
        """Let anybody in."""
        return Success(self.USER)


class Plain:
    """RFC 4616: a user name and a password in the clear."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify

    def step(self, response: bytes | None) -> Result:
        """Check the password."""
        if response is None:
            return Challenge(b"")
        try:
            authorised, user, password = response.decode("utf-8").split("\0")
        except ValueError:
            return Failure("a PLAIN response is malformed")
        if authorised not in ("", user):
            return Failure(f"{quoted(user)} may not act for {quoted(authorised)}", user=user)
        if not user or not self._verify(user, password):
            return Failure(f"wrong user name or password for {quoted(user)}", user=user)
        return Success(user)

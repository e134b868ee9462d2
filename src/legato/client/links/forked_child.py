"""Forked children of a process: its connections stay the parent's."""

from __future__ import annotations

import contextlib
import os
import weakref
from typing import Protocol

from legato.errors import IllegalStateError, JMSError


class Disowned(Protocol):
    """A connection that a child of its process is not to use."""

    def disown(self, error: JMSError) -> None:
        """Every call says why, and nothing goes out."""


_transports: weakref.WeakSet[Disowned] = weakref.WeakSet()


def remember(transport: Disowned) -> None:
    """A child of this process is not to use it."""
    _transports.add(transport)


def _in_child() -> None:
    error = IllegalStateError(
        f"The connection belongs to process {os.getppid()}, which forked this one: nobody here reads or writes it. "
        "Create a connection in this process.",
        code="FORKED",
    )
    for transport in list(_transports):
        # Whatever state the other threads had left it in.
        with contextlib.suppress(Exception):
            transport.disown(error)
    _transports.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

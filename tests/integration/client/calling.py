"""Calls in threads of their own, and how tests see that one is blocked; a client that is kept from reconnecting."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from legato.client import Session
from legato.client.calls.connection_steps import ConnectionSteps
from tests.integration.client.helpers import WAIT_S

HELD_S = 280.0
"""So long a held client waits for its test, in which brokers start."""
LOOK_S = 0.002
"""Between two looks at what says nothing by itself."""


class Calling(threading.Thread):
    """A call in a thread of its own: what it returned, or what it raised."""

    def __init__(self, call: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._call = call
        self.result: Any = None
        self.error: Exception | None = None
        self.start()

    def run(self) -> None:
        try:
            self.result = self._call()
        except Exception as error:
            self.error = error

    def outcome(self) -> Any:
        """What it returned, or raised."""
        self.join(WAIT_S)
        assert not self.is_alive(), "the call hangs"
        if self.error is not None:
            raise self.error
        return self.result


def until(happened: Callable[[], object]) -> None:
    """Wait for what tells nobody."""
    deadline = time.monotonic() + WAIT_S
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(LOOK_S)


def until_blocked(session: Session) -> None:
    """Wait until a call waits for the session's I/O thread."""
    gate = session._channel.gate
    until(lambda: gate.is_awaited)


def until_away(connection: Any) -> None:
    """Wait until the loss of a connection is noticed, and its sessions know of it."""
    until(lambda: connection.host is None)
    known = threading.Event()
    connection._transport.post(known.set)
    assert known.wait(WAIT_S)


def drop(connection: Any) -> None:
    """Have the network fail, but not the broker."""
    transport = connection._transport
    transport.post(transport.wire._socket.shutdown, socket.SHUT_RDWR)
    transport.hurry()


@contextmanager
def held_back(connection: ConnectionSteps[Any]) -> Iterator[None]:
    """Keeps a connection's client from noticing or doing anything while the block runs."""
    go_on, held = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        assert go_on.wait(HELD_S)

    connection._transport.post(hold)
    assert held.wait(WAIT_S)
    try:
        yield
    finally:
        go_on.set()

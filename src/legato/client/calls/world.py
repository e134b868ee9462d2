"""The backend, threads or asyncio: runs steps, locks sessions, calls listeners."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from legato.client.calls.dispatcher import ThreadDispatcher
from legato.client.calls.ports import SessionPort
from legato.client.calls.session_listeners import Dispatcher
from legato.client.calls.turn import ThreadTurn, Turn
from legato.client.links.notifier import Notifier, ThreadNotifier
from legato.client.steps import Steps, drive


class World(Protocol):
    """How a connection's objects wait and call."""

    def run(self, steps: Steps[Any]) -> Any:
        """Take steps: returns their value, or what has to be awaited for it."""

    def turn(self) -> Turn:
        """Keeps a session's users apart."""

    def notifier(self, name: str) -> Notifier:
        """Calls a connection's listeners."""

    def dispatcher(self, session: SessionPort, name: str, *, redeliver_on_error: bool, backoff_s: float) -> Dispatcher:
        """Calls a session's message listeners."""


class Threads:
    """The world of `legato.client`."""

    run: Callable[[Steps[Any]], Any] = staticmethod(drive)
    turn = ThreadTurn
    notifier = ThreadNotifier
    dispatcher = ThreadDispatcher

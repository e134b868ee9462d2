"""Message listeners of a session, and who calls them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from legato.client.calls.session_members import SessionMembers
from legato.client.gate import Gate
from legato.client.links.deliveries import Delivery
from legato.client.steps import Steps
from legato.errors import IllegalStateError


class Dispatcher(Protocol):
    """Calls a session's message listeners."""

    current: Delivery | None
    serving: Any
    """The consumer whose listener has a message or may get one."""
    closing: list[Any]
    """Consumers that their own listener has closed."""

    at_end: Callable[[], None] | None
    """What is to be done when it has ended."""

    @property
    def is_current(self) -> bool:
        """Whether a listener is asking."""

    @property
    def waits_for_asker(self) -> bool:
        """Whether the listener that runs now asks, or waits for who does."""

    def wait_listened(self, consumer: Any) -> Steps[None]:
        """Wait for the consumer's listener."""

    def wait_served(self, consumer: Any, timeout_s: float) -> Steps[None]:
        """Wait until its message is acknowledged or given back too."""

    def wait_idle(self) -> Steps[None]:
        """Wait for the listener that runs now, unless it is the one that asks."""

    @property
    def ended(self) -> bool:
        """Whether no listener will be called any more, and none runs."""

    def stop(self) -> None:
        """End after the listener that runs now."""


class SessionListeners:
    """Has a dispatcher from when a consumer first gets a listener.

    Attributes:
        dispatcher: calls the listeners; None before that.
    """

    __slots__ = ("_gate", "_make_dispatcher", "_members", "dispatcher")

    def __init__(self, members: SessionMembers[Any], gate: Gate, make_dispatcher: Callable[[], Dispatcher]) -> None:
        self._members = members
        self._gate = gate
        self._make_dispatcher = make_dispatcher
        self.dispatcher: Dispatcher | None = None

    def changed(self) -> None:
        """A consumer has another listener, or none."""
        if self.dispatcher is None:
            self.dispatcher = self._make_dispatcher()
        self._members.note_listeners()
        self._gate.open()

    def held(self) -> Delivery | None:
        """What a listener has now."""
        return None if self.dispatcher is None else self.dispatcher.current

    def check_not_in_listener(self, what: str) -> None:
        """Raise if a listener asks, or may wait for who does.

        Raises:
            IllegalStateError: it would wait for itself.
        """
        if self.dispatcher is not None and self.dispatcher.waits_for_asker:
            raise IllegalStateError(f"A message listener cannot {what} its own session or connection.")

"""Completion listeners: report the outcomes of asynchronous sends (Jakarta Messaging 7.3)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Protocol

from legato.client.gate import Gate
from legato.client.links.notifier import Notifier
from legato.client.messages import Message
from legato.client.steps import Await, Steps
from legato.errors import JMSError

if TYPE_CHECKING:
    from legato.client.links.session_state import Send

log = logging.getLogger("legato.client")


class CompletionListener(Protocol):
    """Hears what became of asynchronous sends (Jakarta Messaging 7.3); in asyncio its methods may be coroutines."""

    def on_completion(self, message: Message) -> object:
        """The broker has stored the message."""

    def on_exception(self, message: Message, error: JMSError) -> object:
        """The broker has not stored the message."""


CompletionCallable = Callable[[Message, JMSError | None], object]
"""A function does as a completion listener too; `error` is None if the broker has stored the message."""


class Completions:
    """The number of a session's sends whose listener was not called yet."""

    __slots__ = ("counting", "gate", "held_up", "paid", "running", "taken")

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.counting = threading.Lock()
        """Each group of brokers that messages go to has an I/O thread."""
        self.taken = 0
        """Sends that are done; counted by I/O threads. Of what is under way, producers know."""
        self.paid = 0
        """Counted by who calls listeners."""
        self.running: dict[Notifier, None] = {}
        """Who calls one of the listeners now."""
        self.held_up = False
        """Whether their caller is in another listener, which waits for the session: they are called after that one."""

    @property
    def all_called(self) -> bool:
        """Whether every listener of what is done has returned."""
        return self.paid == self.taken


class Completion:
    """Calls one listener for sends of one session."""

    __slots__ = ("_call", "_completions", "listener")

    def __init__(self, listener: CompletionListener | CompletionCallable, completions: Completions) -> None:
        self.listener = listener
        self._completions = completions
        self._call = listener if callable(listener) else self._call_method

    def _call_method(self, message: Message, error: JMSError | None) -> object:
        listener = self.listener
        assert not callable(listener)
        return listener.on_completion(message) if error is None else listener.on_exception(message, error)


def are_due(sends: list[Send]) -> None:
    """Sends are done, and their listeners will be called. In the I/O thread."""
    for send in sends:
        completion = send.completion
        assert completion is not None
        completions = completion._completions
        with completions.counting:
            completions.taken += 1


def complete_all(sends: list[Send], notifier: Notifier) -> Steps[None]:
    """Tell the listeners of sends that are done, in order; each counts as called, whatever it raises."""
    for number, send in enumerate(sends, 1):
        completion = send.completion
        assert completion is not None
        completions = completion._completions
        completions.running[notifier] = None
        try:
            result = completion._call(send.message, send.error)
            if result is not None:
                yield Await(result)
        except BaseException as error:
            if notifier.ends(error, partial(complete_all, sends[number:], notifier)):
                raise
            log.exception("a completion listener raised")
        finally:
            completions.running.pop(notifier, None)
            completions.paid += 1
            if completions.paid == completions.taken:
                completions.gate.open()

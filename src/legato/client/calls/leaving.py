"""Closing because of an exception: it waits briefly for a broker that is not there; told twice, not at all."""

from __future__ import annotations

import logging
import sys

from legato.client.links.transport import Transport
from legato.client.steps import Await, Steps, Wait
from legato.errors import JMSError
from legato.quoting import quoted, sentence

log = logging.getLogger("legato.client")

AWAY_WAIT_S = 2.0
"""So long it waits for a connection."""
SILENT_WAIT_S = 5.0
"""So long it waits for an answer while nothing at all is heard from the broker."""

_GIVEN_UP = "_legato_given_up"
"""An exception that has this attribute has waited for the broker once, in a `with` block further in."""


class _UnansweredError(BaseException):
    """Ends the steps of a close that no broker answers, where they wait: they clean up as after any interruption."""


def in_flight() -> BaseException | None:
    """What makes the caller close in a hurry: Ctrl-C, an exit or a cancellation that is being handled.

    An error is none, as who handles it may go on; a `with` block that it leaves says so itself.
    """
    error = sys.exc_info()[1]
    return None if isinstance(error, Exception) else error


def leaving(steps: Steps[None], transport: Transport, error: BaseException | None) -> Steps[None]:
    """Take the steps of a close.

    Args:
        error: the exception because of which it closes; None if there is none, and it has time.
    """
    if error is None:
        yield from steps
        return
    at_once = _is_told_again(error)
    try:
        step = next(steps)
        while True:
            try:
                answer = yield from _briefly(step, transport, at_once=at_once)
            except BaseException as interruption:
                step = steps.throw(interruption)
            else:
                step = steps.send(answer)
    except StopIteration:
        return
    except JMSError as failure:
        if _GIVEN_UP not in vars(failure):
            raise
        # The caller is told of the exception because of which it closes.
        log.warning("%s", sentence(failure))
        mark_given_up(error)
    except _UnansweredError:
        if not at_once:
            _tell(transport, error)
        mark_given_up(error)


def mark_given_up(error: BaseException) -> None:
    """The broker was waited for long enough: the `with` blocks that the exception leaves wait no more."""
    vars(error)[_GIVEN_UP] = True


def _is_told_again(error: BaseException) -> bool:
    """Whether the broker was waited for already, or the user interrupted that: a second Ctrl-C."""
    if _GIVEN_UP in vars(error):
        return True
    seen = error.__context__ if not isinstance(error, Exception) else None
    while seen is not None and isinstance(seen, Exception):
        seen = seen.__context__
    return seen is not None


def _briefly(step: Wait | Await, transport: Transport, *, at_once: bool) -> Steps[bool]:
    """Wait as a step says, but not for a broker that is not there.

    Raises:
        _UnansweredError: it is not.
    """
    if not isinstance(step, Wait):
        return bool((yield step))
    remaining_s = step.timeout_s
    while True:
        away, heard = transport.wire is None, transport.heard
        part_s = 0.0 if at_once else AWAY_WAIT_S if away else SILENT_WAIT_S
        if remaining_s is not None:
            part_s = min(part_s, remaining_s)
        if (yield Wait(step.gate, step.ready, part_s)):
            return True
        if remaining_s is not None:
            remaining_s -= part_s
            if remaining_s <= 0 and not at_once:
                return False
        is_away = transport.wire is None
        # An application's listener may take its time (Jakarta Messaging 6.2.15).
        is_silent = not away and not is_away and transport.heard == heard and not step.for_listener
        if at_once or (away and is_away) or is_silent:
            raise _UnansweredError


def _tell(transport: Transport, error: BaseException) -> None:
    count = transport.outages.unconfirmed()
    why = "to which there is no connection" if transport.wire is None else "which does not answer"
    lost = f" Messages that it has not confirmed, and that may be lost: {count}." if count else ""
    log.warning(
        "Closing because of %s, without waiting for the broker, %s",
        quoted(type(error).__name__),
        sentence(f"{why}.{lost}"),
    )

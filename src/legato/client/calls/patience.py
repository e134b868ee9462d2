"""Patience of a close: how long it waits for what the broker has not confirmed, and the error for what it gave up."""

from __future__ import annotations

import time

from legato.client.calls.leaving import mark_given_up
from legato.client.links.channel import Channel
from legato.client.links.transport import Transport
from legato.errors import JMSError

GIVEN_UP_AFTER_S = 1.0
"""What was given up has at least so long to end in good order, before all else is given up too."""
TIMEOUT = "TIMEOUT"


class Patience:
    """The time that one `close()` has, for all that it closes, and what it gave up when that was over.

    Without a connection there is nothing to close: only what is not confirmed is waited for.

    Args:
        what: is closed, for errors: `session`.
        timeout_s: the option `close_timeout_s`.
    """

    __slots__ = ("_acknowledgements", "_began", "_is_told", "_sends", "_transport", "timeout_s", "what")

    def __init__(self, what: str, timeout_s: float, transport: Transport) -> None:
        self.what = what
        self.timeout_s = timeout_s
        self._transport = transport
        self._is_told = transport.is_stopping
        """An earlier close of the connection was interrupted, which said that what was on its way may be lost."""
        self._began = time.monotonic()
        self._sends = 0
        self._acknowledgements = 0

    @property
    def for_sends_s(self) -> float:
        """So long a broker has for what was sent, from now on."""
        left_s = self._began + self.timeout_s - time.monotonic()
        if left_s > 0:
            return left_s
        # What else closes has had its time. A broker that is there gets a moment to answer.
        return 0.0 if self._transport.wire is None else min(self.timeout_s, GIVEN_UP_AFTER_S)

    @property
    def for_all_s(self) -> float:
        """So long it has for anything, from now on."""
        longest_s = self.timeout_s + max(self.timeout_s, GIVEN_UP_AFTER_S)
        return max(self._began + longest_s - time.monotonic(), GIVEN_UP_AFTER_S)

    def error_of_send(self) -> JMSError:
        """What is said of each message that is given up."""
        return JMSError(
            f"The {self.what} was closed, and the broker did not confirm the message within {self.timeout_s:g} s; "
            "whether it is stored is not known.",
            code=TIMEOUT,
        )

    def error_of_call(self) -> JMSError:
        """What a blocked call raises that is given up."""
        return JMSError(
            f"The {self.what} was closed, and the broker did not answer within {self.timeout_s:g} s; what came of the "
            "call is not known.",
            code=TIMEOUT,
        )

    def lost(self, sends: int, acknowledgements: int) -> None:
        """So many sent messages, and acknowledgements of received ones, were given up without anybody having heard."""
        self._sends += sends
        self._acknowledgements += acknowledgements

    def check(self) -> None:
        """Everything is closed.

        Raises:
            JMSError: messages or acknowledgements were given up.
        """
        sends, acknowledgements = self._sends, self._acknowledgements
        parts = []
        if sends:
            parts.append(f"{_counted(sends, 'sent message')}, which may be lost")
        if acknowledgements:
            received = _counted(acknowledgements, "received message")
            parts.append(f"the acknowledgement of {received}, which may be delivered again")
        if not parts or self._is_told:
            return
        transport = self._transport
        waits = f"within the {self.timeout_s:g} s that closing waits (close_timeout_s)"
        why = f"it did not answer {waits}" if transport.wire else f"there was no connection to it {waits}"
        if transport.wire and time.monotonic() - self._began < self.timeout_s:
            why = "it ended the link or the session that they went over"
        if transport.failed:
            why = str(transport.error).rstrip(".")
        error = JMSError(
            f"The {self.what} is closed, but the broker has not confirmed {', and '.join(parts)}: {why}.", code=TIMEOUT
        )
        mark_given_up(error)
        raise error


class Losses:
    """What one session gives up from now on."""

    __slots__ = ("_acknowledgements", "_channel", "_sends")

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._sends = channel.sends_given_up
        self._acknowledgements = channel.acknowledgements_given_up

    def tell(self, patience: Patience) -> None:
        """Have it counted."""
        channel = self._channel
        patience.lost(channel.sends_given_up - self._sends, channel.acknowledgements_given_up - self._acknowledgements)


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"

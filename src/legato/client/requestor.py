"""Requestors: send a request and wait for its reply over a temporary destination.

Do not edit: `tools/make_faces.py` writes this from `calls/requestor_steps.py`.
"""

from __future__ import annotations

from types import TracebackType

from legato.client.calls.leaving import in_flight
from legato.client.calls.requestor_steps import QueueRequestorSteps, TopicRequestorSteps
from legato.client.messages.message import Message
from legato.client.steps import drive, leave_block, mend


class QueueRequestor(QueueRequestorSteps):
    """Sends requests and receives the reply to each (Jakarta Messaging API, `QueueRequestor`, `TopicRequestor`).

    Who answers sends to the request's `reply_to`. A reply that comes after its request was given up, by its time-out, a
    cancellation or an error, is dropped if it has that request's id as correlation id.
    """

    def request(self, message: Message, timeout_s: float | None = None) -> Message | None:
        """Send a request and wait for its reply; the connection must be started.

        Args:
            timeout_s: seconds to wait at most; None for ever.

        Returns:
            The reply, or None if none came in time.
        """
        try:
            return drive(self._request(message, timeout_s))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def close(self) -> None:
        """Close the requestor, and its session; without a connection its temporary destination ends with the next.

        A broker that does not answer is waited for as long as the connection's option `close_timeout_s`, for each of
        them.
        """
        try:
            drive(self._leave(in_flight()))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def __enter__(self) -> QueueRequestor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leave_block(self, error)


class TopicRequestor(TopicRequestorSteps):
    """Sends requests and receives the reply to each (Jakarta Messaging API, `QueueRequestor`, `TopicRequestor`).

    Who answers sends to the request's `reply_to`. A reply that comes after its request was given up, by its time-out, a
    cancellation or an error, is dropped if it has that request's id as correlation id.
    """

    def request(self, message: Message, timeout_s: float | None = None) -> Message | None:
        """Send a request and wait for its reply; the connection must be started.

        Args:
            timeout_s: seconds to wait at most; None for ever.

        Returns:
            The reply, or None if none came in time.
        """
        try:
            return drive(self._request(message, timeout_s))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def close(self) -> None:
        """Close the requestor, and its session; without a connection its temporary destination ends with the next.

        A broker that does not answer is waited for as long as the connection's option `close_timeout_s`, for each of
        them.
        """
        try:
            drive(self._leave(in_flight()))
        except BaseException as interruption:
            mend(self, interruption)
            raise

    def __enter__(self) -> TopicRequestor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        leave_block(self, error)

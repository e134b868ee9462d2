"""Asking and being answered over a temporary destination."""

from __future__ import annotations

from legato.client.requestor_steps import QueueRequestorSteps, TopicRequestorSteps
from legato.client.steps import blocking


class QueueRequestor(QueueRequestorSteps):
    __doc__ = QueueRequestorSteps.__doc__

    request = blocking(QueueRequestorSteps._request)
    close = blocking(QueueRequestorSteps._close)

    def __enter__(self) -> QueueRequestor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class TopicRequestor(TopicRequestorSteps):
    __doc__ = TopicRequestorSteps.__doc__

    request = blocking(TopicRequestorSteps._request)
    close = blocking(TopicRequestorSteps._close)

    def __enter__(self) -> TopicRequestor:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

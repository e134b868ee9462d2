"""What an initiator is told when its messages could not be sent."""

from __future__ import annotations

import pytest

from legato.errors import FlowBackendError, FlowError, FlowInDoubtError, FlowMessageSendError, JMSError
from legato.flows.starting.sender_pool import Once


@pytest.mark.parametrize(
    ("database_committed", "code", "error"),
    [
        (False, "amqp:not-found", FlowBackendError),
        (False, "IN_DOUBT", FlowInDoubtError),
        (True, "amqp:not-found", FlowMessageSendError),
    ],
)
def test_the_error_says_what_is_committed(database_committed: bool, code: str, error: type[FlowError]) -> None:
    """CONTRACT D7: nothing, perhaps, or the database alone."""
    once = Once(lambda: None)
    if database_committed:
        once()
    assert type(once.failure(JMSError("gone", code=code))) is error

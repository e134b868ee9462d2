"""Sender: envelopes to destinations that are gone."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from legato.errors import InvalidDestinationError
from legato.flows.model.calls import first_envelope
from legato.flows.model.envelope import Call, Outgoing
from legato.flows.model.wire import Sender


class Deleting:
    """A session, and its producers: each destination is deleted before anything reaches it."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def create_producer(self, _: Any) -> Deleting:
        self.done.append("created")
        return self

    def send(self, *_: Any, **__: Any) -> None:
        raise InvalidDestinationError("It was deleted.")

    def close(self) -> None:
        self.done.append("closed")


def test_what_is_deleted_again_and_again_is_tried_twice() -> None:
    """It was tried until Python allowed no deeper call."""
    session: Any = Deleting()
    envelope = first_envelope(
        message_id="1",
        flow_id="1",
        trace_id="1",
        sender="test",
        to="Work",
        data=msgspec.Raw(b"1"),
        now_us=0,
        call=Call.SEND,
    )
    with pytest.raises(InvalidDestinationError):
        Sender(session).send(Outgoing(envelope))
    assert session.done == ["created", "closed"] * 2

"""How messages look on a terminal and as JSON."""

import json
from typing import Any
from uuid import UUID

import pytest

from legato.cli.rendering import as_line
from legato.client import MapMessage, Message, ObjectMessage, StreamMessage, TextMessage


@pytest.mark.parametrize(
    ("message", "body"),
    [
        (TextMessage("tea"), "tea"),
        (MapMessage({"name": "tea", "raw": b"\xff"}), {"name": "tea", "raw": "b'\\xff'"}),
        (StreamMessage([1, 2.5, None]), [1, 2.5, None]),
        (ObjectMessage({"key": UUID(int=5), "list": [b"x"]}), {"key": str(UUID(int=5)), "list": ["b'x'"]}),
        (Message(), None),
    ],
)
def test_every_type_of_message_can_be_shown_as_json(message: Message, body: Any) -> None:
    message.set_property("shop", "Lyon")
    shown = json.loads(as_line(message, as_json=True))
    assert (shown["body"], shown["properties"]) == (body, {"shop": "Lyon"})

"""Batching rules: whether a message may join a batch, and its key in the inbox."""

from __future__ import annotations

from legato.client import Message
from legato.flows.model.calls import plain_id
from legato.flows.model.wire import MESSAGE_ID, is_apart, is_plain

ALONE_FROM = 3
"""A message that is delivered for the third time is not put into a batch. One delivery the death of a broker may have
cost it, and all that waited with it; another one the death of who worked on all of them.
"""


def is_alone(message: Message) -> bool:
    """Whether a message is kept out of batches."""
    return message.delivery_count >= ALONE_FROM or is_apart(message)


def message_key(message: Message) -> str:
    """Key of a message in the inbox: its id as a flow's."""
    if is_plain(message):
        return plain_id(message.message_id or "", message.timestamp)
    return str(message.properties[MESSAGE_ID])

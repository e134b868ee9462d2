"""Dead letters of a drill: what died, where, and whether the drill meant it to."""

from contextlib import suppress
from typing import NamedTuple

from legato.client import Message
from legato.core.dead_letters import CAUSE, DELIVERIES, ORIGINAL_DESTINATION, ORIGINAL_SUBSCRIPTION
from legato.drill.messages import identity_of, is_to_die
from legato.drill.records import Identity


class DeadLetter(NamedTuple):
    """A message that waits in a dead-letter queue.

    Args:
        subscription: where it died, as the records name it: the queue, or `TOPIC/SUBSCRIPTION`.
        flow: the queue or topic that it was sent to.
        identity: None if it has none, as the later stages of a flow have none.
        why: what the broker says of its death.
    """

    subscription: str
    flow: str
    identity: Identity | None
    why: str = ""

    @property
    def is_planned(self) -> bool:
        """Whether the drill's own consumers never process it."""
        return self.identity is not None and is_to_die(self.flow, self.identity)


def letter_of(message: Message) -> DeadLetter | None:
    """What a message says of its death; None if it is no dead letter."""
    properties = message.properties
    if ORIGINAL_DESTINATION not in properties:
        return None
    flow, identity = str(properties[ORIGINAL_DESTINATION]), None
    subscription = flow
    if ORIGINAL_SUBSCRIPTION in properties:
        # In the store a subscription's name says whose it is, too.
        subscription = f"{flow}/{str(properties[ORIGINAL_SUBSCRIPTION]).rpartition('/')[2]}"
    with suppress(ValueError):
        identity = identity_of(message)
    why = f"{properties.get(CAUSE, 'no cause')}, deliveries: {properties.get(DELIVERIES, 'unknown')}"
    return DeadLetter(subscription, flow, identity, why)


def doomed_in(flow: str, message: Message) -> DeadLetter | None:
    """What a message that waits in a flow's own queue is to become; None if it is not to die."""
    with suppress(ValueError):
        identity = identity_of(message)
        if is_to_die(flow, identity):
            return DeadLetter(flow, flow, identity)
    return None

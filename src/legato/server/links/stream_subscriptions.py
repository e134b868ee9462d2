"""Subscriptions that a stream of Spark's reads: only an administrator has them replaced, or ends them."""

from __future__ import annotations

from legato.core.broker import Broker
from legato.core.queues import Queue
from legato.core.refusals import SubscriptionInUse
from legato.core.topics import Topic
from legato.quoting import quoted
from legato.server.links.refused import RESOURCE_LOCKED, Refused
from legato.server.links.subscription_names import assignment_of, durable_of_all


def demand_unread(broker: Broker, subscription: str, topic: Topic, selector: str) -> None:
    """See that a durable subscription of all can be joined so, without the loss of what waits there for a stream.

    A stream is no consumer, and may not run now: its assignment says that the subscription is its own.

    Args:
        subscription: its name, as a client gives it.

    Raises:
        SubscriptionInUse: a stream reads it, with another topic or selector.
    """
    stored = durable_of_all(subscription)
    former = broker.subscriptions.find(stored)
    if former is None or (former.topic is topic and former.selector == selector):
        return
    if reads(broker, former):
        raise SubscriptionInUse(
            f"A stream reads the topic {quoted(former.address)} as subscription {quoted(subscription)}"
            f"{f' with the selector {quoted(former.selector)}' if former.selector else ''}: with another topic or "
            "selector, what waits there would be lost. Take another name of a subscription, or end this one first: "
            f"legato subscription delete {quoted(stored)}."
        )


def demand_endable(broker: Broker, subscription: Queue) -> None:
    """See that a client can end a subscription without the loss of what waits there for a stream.

    Raises:
        Refused: a stream reads it.
    """
    if reads(broker, subscription):
        raise Refused(
            RESOURCE_LOCKED,
            f"A stream reads the topic {quoted(subscription.address)} through this subscription, and what waits there "
            "would be lost. If the stream does not run again, let an administrator end it: "
            f"legato subscription delete {quoted(subscription.name)}.",
        )


def reads(broker: Broker, subscription: Queue) -> bool:
    """Whether a stream takes its messages from there, now or when it runs again."""
    assignment = broker.assignments.find(assignment_of(subscription.name))
    return assignment is not None and assignment.source == subscription.id

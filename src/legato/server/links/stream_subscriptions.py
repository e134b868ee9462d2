"""Subscriptions that a stream of Spark's reads: nobody else has them replaced."""

from __future__ import annotations

from legato.core.broker import Broker
from legato.core.queues import Queue
from legato.core.refusals import SubscriptionInUse
from legato.core.topics import Topic
from legato.quoting import quoted
from legato.server.links.subscription_names import assignment_name, durable_of_all


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
    if reads(broker, subscription, former):
        raise SubscriptionInUse(
            f"A stream reads the topic {quoted(former.address)} as subscription {quoted(subscription)}"
            f"{f' with the selector {quoted(former.selector)}' if former.selector else ''}: with another topic or "
            "selector, what waits there would be lost. Take another name of a subscription, or end this one first: "
            f"legato subscription delete {quoted(stored)}."
        )


def reads(broker: Broker, subscription: str, queue: Queue) -> bool:
    """Whether a stream takes its messages from there, now or when it runs again."""
    assignment = broker.assignments.find(assignment_name(subscription, queue.name))
    return assignment is not None and assignment.source == queue.id

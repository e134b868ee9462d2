"""Refusals of the broker, each with its AMQP condition."""

from legato.errors import LegatoError

FULL = "amqp:resource-limit-exceeded"
NOT_FOUND = "amqp:not-found"
LOCKED = "amqp:resource-locked"
STILL_COMMITTING = "The batch is being committed for an earlier request: ask again."


class Refusal(LegatoError):
    """A command that cannot be carried out; the message says why."""

    condition = "amqp:precondition-failed"


class NotFound(Refusal):
    """There is no such address, and `auto_create` is off."""

    condition = NOT_FOUND


class SubscriptionInUse(Refusal):
    """The subscription has a consumer and cannot be shared, changed or removed now."""

    condition = LOCKED


class Exists(Refusal):
    """The name is in use already."""


class NumbersUsedUp(Refusal):
    """The store has no more numbers for what is new."""

    condition = FULL


class AssignmentFencedOff(Refusal):
    """A later run of the pipeline has the assignment."""

    condition = LOCKED

"""What the broker refuses, with the AMQP condition that says why."""

from legato.errors import LegatoError

FULL = "amqp:resource-limit-exceeded"
NOT_FOUND = "amqp:not-found"
LOCKED = "amqp:resource-locked"
STILL_COMMITTING = "The batch is being committed for an earlier request: ask again."


class Refusal(LegatoError):
    """A command that cannot be carried out; the message says why."""

    condition = "amqp:precondition-failed"


class NotFound(Refusal):
    """There is no such address, and it may not be made by using it."""

    condition = NOT_FOUND


class SubscriptionInUse(Refusal):
    """The subscription has a consumer and cannot be shared, changed or removed now."""

    condition = LOCKED


class Exists(Refusal):
    """There is something of that name already."""


class AssignmentFencedOff(Refusal):
    """A later run of the pipeline has the assignment."""

    condition = LOCKED

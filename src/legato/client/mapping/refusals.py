"""Errors of sends that the broker did not confirm. Pure."""

from __future__ import annotations

from legato.amqp.engine.outcomes import Modified, Outcome, Rejected, Released
from legato.client.mapping.conditions import UNBLOCKED, error_of
from legato.client.messages.destinations import Destination
from legato.errors import JMSError


def released(destination: Destination) -> JMSError:
    """The connection was lost first, under a contract that has nobody wait for the next one (CONTRACT E11)."""
    return JMSError(
        f"The connection was lost before the broker confirmed the message for {destination}; whether it is stored is "
        "not known. To send it again is safe with a duplicate id.",
        code=UNBLOCKED,
    )


def refused(destination: Destination, outcome: Outcome | None) -> JMSError:
    """The broker settled it with another outcome than accepted (AMQP 3.4)."""
    what = f"The message for {destination} was refused"
    match outcome:
        case Rejected(condition=condition, description=description):
            return error_of(condition, description, what)
        case Released():
            return JMSError(f"{what}: the broker released it; it was not stored.", code="released")
        case Modified():
            return JMSError(f"{what}: the broker could not deliver it; it was not stored.", code="modified")
    return JMSError(f"{what}: the broker settled it without an outcome.")

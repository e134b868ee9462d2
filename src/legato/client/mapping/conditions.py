"""AMQP error conditions to Jakarta Messaging errors (amqp.md A1.8, A10)."""

from __future__ import annotations

from legato.errors import (
    IllegalStateError,
    InvalidClientIDError,
    InvalidDestinationError,
    InvalidSelectorError,
    JMSError,
    JMSSecurityError,
    ResourceAllocationError,
    TransactionRolledBackError,
)

UNBLOCKED = "UNBLOCKED"
"""`JMSError.code` of a call that was released because the connection was lost (CONTRACT E11)."""

FAILOVER = "FAILOVER"
"""`JMSError.code` of what the exception listener is told at a failover, if it is to be told (CONTRACT B5, E18)."""

RESOURCE_DELETED = "amqp:resource-deleted"
"""The condition of a link whose destination was deleted, with all that was in it."""

_CLASSES: dict[str, type[JMSError]] = {
    "amqp:unauthorized-access": JMSSecurityError,
    "amqp:resource-limit-exceeded": ResourceAllocationError,
    "amqp:not-found": InvalidDestinationError,
    RESOURCE_DELETED: InvalidDestinationError,
    "amqp:resource-locked": IllegalStateError,
    "amqp:transaction:rollback": TransactionRolledBackError,
    "amqp:transaction:timeout": TransactionRolledBackError,
}
_SENTENCES = {
    "amqp:unauthorized-access": "The broker does not permit this; check the user's name, password and permissions.",
    "amqp:resource-limit-exceeded": "The broker has no room for this now; let consumers catch up, or try later.",
    "amqp:not-found": "The broker knows no such destination; check its name.",
    RESOURCE_DELETED: "The destination was deleted.",
    "amqp:resource-locked": "Somebody else uses it.",
}


def error_of(condition: str, description: str, what: str, kind: type[JMSError] | None = None) -> JMSError:
    """The error for a condition that the broker gave.

    Args:
        what: a sentence's beginning that says what failed, such as `The send to orders was refused`.
        kind: the class of the error, if the caller knows more than the condition says.
    """
    if kind is not None:
        pass
    elif condition == "amqp:invalid-field" and "client" in description.lower():
        kind = InvalidClientIDError
    elif condition == "amqp:invalid-field" and "selector" in description.lower():
        kind = InvalidSelectorError
    else:
        kind = _CLASSES.get(condition, JMSError)
    reason = description or _SENTENCES.get(condition) or condition or "the broker gave no reason."
    return kind(f"{what}: {reason}", code=condition or None)

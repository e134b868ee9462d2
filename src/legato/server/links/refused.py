"""The refusal of a link: its condition and description."""

from legato.errors import LegatoError

INTERNAL_ERROR = "amqp:internal-error"
INVALID_FIELD = "amqp:invalid-field"
NOT_ALLOWED = "amqp:not-allowed"
NOT_FOUND = "amqp:not-found"
NOT_IMPLEMENTED = "amqp:not-implemented"
NO_BACKUP = "amqp:precondition-failed"
RESOURCE_DELETED = "amqp:resource-deleted"
RESOURCE_LOCKED = "amqp:resource-locked"
TOO_LARGE = "amqp:link:message-size-exceeded"


class Refused(LegatoError):
    """Refusal of a peer's request; `condition` is AMQP's name for the reason."""

    def __init__(self, condition: str, description: str) -> None:
        super().__init__(description)
        self.condition = condition

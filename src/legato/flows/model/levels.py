"""The three transaction levels of a stage, and what each guarantees."""

from enum import StrEnum


class Transaction(StrEnum):
    """Transaction levels of a stage: how its message, database and sends commit together (CONTRACT D3, D4, D14).

    Attributes:
        MESSAGING: receive and send are one; there is no database.
        BEST_EFFORT: the database commits first, then messaging. A death between the two brings the message again
            although the work is done (CONTRACT D6, D8).
        INBOX_OUTBOX: what was received and what is to be sent are written in the stage's own database transaction:
            exactly once through every death (CONTRACT D12, D13).
    """

    MESSAGING = "messaging"
    BEST_EFFORT = "best-effort"
    INBOX_OUTBOX = "inbox-outbox"

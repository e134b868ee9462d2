"""The summary of a message (its *tally*): sums, minima and maxima over its facts, which add up in any order.

Said once, for who adds up in SQL (`message_summary_sql.py`) and in NumPy (`message_summary_numpy.py`).
"""

from typing import Literal, NamedTuple

from legato.spark.ledger.fact_schema import TAGS

LEFT_KINDS = ("MessageConsumed", "MessageDeadLettered", "MessageMoved")
"""What is said of a message that left its queue."""

KINDS = ("MessageStored", *LEFT_KINDS, "MessageReturned", "MessagePresented", "MessageDelivered")
"""What is told of messages."""

NOT_TALLIED = (
    *("EpochBegan", "ServingBegan", "EpochEnded", "QueueCreated", "QueueDeleted", "QueuePaused", "QueueGrouped"),
    *("ProducerRegistered", "ProducerForgotten", "ConsumerAttached", "DispatchMarked", "QueueMarked"),
    *("NumberRefused", "DuplicateDropped", "DuplicateIdKept", "DuplicateIdDropped"),
    *("TransactionCommitted", "TransactionRolledBack", "MessageTaken", "MessageOfFlow"),
    *("MessageSeen", "MessageReleased", "AssignmentFenced", "BatchPublished", "ActionAudited"),
    # Each has a row of its own for each of its messages, which is `stored`, `moved` or `consumed` (`fact_schema.py`).
    *("MessagePublished", "MessagesAssigned", "AssignmentAcknowledged", "RunStored"),
    *("MessagesStored", "MessagesConsumed"),
)
"""Facts that add nothing to what a message comes to."""

STORED, CONSUMED, RETURNED, PRESENTED = (
    TAGS[f"Message{what}"] for what in ("Stored", "Consumed", "Returned", "Presented")
)

WEIGHTS = {"MessageStored": 1, "MessageConsumed": 1 << 8, "MessageDeadLettered": 1 << 16, "MessageMoved": 1 << 24}
"""How often each of these happened, in one number: fewer sums are faster, and nothing happens 255 times unnoticed."""

ONE_PRESENTED = 1 << 24
ONE_CLAIMED = 1 << 48
"""In the number that counts what came back: the lowest three bytes are how often a delivery failed."""

CLAIMED, CARRIED = "claimed", "carried"
"""Causes with which messages come back without a failed delivery: the second one does not count at all."""

MESSAGE = ("queue", "seq")
"""What a message is called."""

How = Literal["sum", "min", "max"]

TALLY: dict[str, How] = {
    "left": "sum",
    "back": "sum",
    "stored_us": "min",
    "first_delivered_us": "min",
    "delivered_us": "max",
    "left_us": "max",
    "stored_place": "min",
    "left_place": "max",
    "attempt": "max",
    "returned_attempt": "max",
    "first_epoch": "min",
    "last_epoch": "max",
    "producer": "max",
    "sent_txn": "max",
    "consumed_txn": "max",
}
"""The columns of a tally, and how each adds up."""


class Count(NamedTuple):
    """Where a count is within a sum of a tally."""

    column: str
    shift: int
    bits: int


COUNTS = {
    "stored_count": Count("left", 0, 8),
    "consumed_count": Count("left", 8, 8),
    "dead_count": Count("left", 16, 8),
    "moved_count": Count("left", 24, 39),
    "returned_count": Count("back", 0, 24),
    "presented_count": Count("back", 24, 24),
    "claimed": Count("back", 48, 15),
}
"""What is counted in the two sums of a tally."""

LEFT_COUNTS = ("consumed_count", "dead_count", "moved_count")
"""Together they are `left_count`."""

MESSAGES_SCHEMA = """
    queue int, seq bigint, stored_count bigint, consumed_count bigint, dead_count bigint, moved_count bigint,
    left_count bigint, returned_count bigint, presented_count bigint, stored_us bigint, delivered_us bigint,
    left_us bigint, stored_place bigint, left_place bigint, attempt int, returned_attempt int, claimed bigint,
    first_epoch int, last_epoch int, first_delivered_us bigint, producer int, sent_txn bigint, consumed_txn bigint
"""
"""The row of a message, as Spark spells schemas."""

MESSAGE_TYPES = dict(column.split() for column in MESSAGES_SCHEMA.split(","))
"""The same by column."""

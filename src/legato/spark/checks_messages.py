"""Checks of messages: what can be said of each by its own row of the ledger."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from legato.spark.check import Check, all_of_them
from legato.spark.those import Those


def expired_consumed(expiring: DataFrame, lifecycle: DataFrame) -> DataFrame:
    """Messages first delivered after they had expired, and consumed (Jakarta Messaging 3.4.9).

    What its application had before, and claimed when it came back, is on record as presented or claimed.
    """
    first = lifecycle.where("consumed_count > 0 and attempt = 1 and claimed = 0 and presented_count = 0")
    consumed = first.select("queue", "seq", "delivered_us")
    late = expiring.select("queue", "seq", "expires_us").join(consumed, ["queue", "seq"])
    return late.where("delivered_us > expires_us")


def of_strangers(strangers: DataFrame, lifecycle: DataFrame) -> DataFrame:
    """Messages in queues that were never created."""
    unknown = lifecycle.join(F.broadcast(strangers), "queue", "left_semi")
    return unknown.select("queue", "seq", "stored_us")


PLACE_TAKEN_TWICE = Check(
    "place taken twice",
    "No two messages have the same place in a queue.",
    "lifecycle",
    "stored_count > 1",
    all_of_them("queue", "seq", "stored_count"),
)

CONSUMED_TWICE = Check(
    "consumed twice",
    "No message was consumed twice.",
    "lifecycle",
    "left_count > 1",
    all_of_them("queue", "seq", "consumed_count", "dead_count", "moved_count"),
)

CONSUMED_NEVER_STORED = Check(
    "consumed, never stored",
    "No message was consumed that had not been stored.",
    "lifecycle",
    "left_count > 0 and stored_count = 0",
    all_of_them("queue", "seq", "left_us"),
)

CONSUMED_BEFORE_STORED = Check(
    "consumed before stored",
    "Every message was stored before it was consumed.",
    "lifecycle",
    "left_place < stored_place",
    all_of_them("queue", "seq", "stored_us", "left_us"),
)

# A delivery that its application claimed again had been counted, and counts once when it ends.
ATTEMPT_FORGOTTEN = Check(
    "attempt forgotten",
    "Every delivery that failed was remembered by the ones after it.",
    "lifecycle",
    "attempt <= returned_attempt - claimed",
    all_of_them("queue", "seq", "attempt", "returned_attempt", "claimed"),
)

# A delivery that was presented when its broker died counts too.
ATTEMPT_INVENTED = Check(
    "attempt invented",
    "No message was consumed with a delivery count that nothing on record explains.",
    "lifecycle",
    "attempt > coalesce(returned_attempt, 0) + presented_count + 1",
    all_of_them("queue", "seq", "attempt", "returned_attempt", "presented_count"),
)

EXPIRED_CONSUMED = Check(
    "expired, consumed",
    "No message was delivered for the first time, and consumed, that had expired.",
    "facts",
    Those(("MessageStored",), known=("expires_us",)),
    expired_consumed,
    ("lifecycle",),
)

QUEUE_UNKNOWN = Check(
    "queue unknown", "Every message is in a queue that was created.", "strangers", "true", of_strangers, ("lifecycle",)
)

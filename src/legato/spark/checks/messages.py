"""Checks of messages: what can be said of each by its own row of the ledger."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from legato.core.facts import Kind
from legato.spark.checks.check import Check, Says, all_of_them
from legato.spark.ledger.fact_filter import FactFilter


def expired_consumed(expiring: DataFrame, lifecycle: DataFrame) -> DataFrame:
    """Messages first delivered after they had expired, and consumed (Jakarta Messaging 3.4.9).

    What its application had before, and claimed when it came back, is on record as presented or claimed.
    """
    first = lifecycle.where("consumed_count > 0 and attempt = 1 and claimed = 0 and presented_count = 0")
    consumed = first.select("queue", "seq", "delivered_us")
    late = expiring.select("queue", "seq", "expires_us").join(consumed, ["queue", "seq"])
    return late.where("delivered_us > expires_us")


def consumed_never_stored(suspects: DataFrame, queues: DataFrame) -> DataFrame:
    """Messages that left queues in which they had not been stored; for what pipelines acknowledge there is a check."""
    assignments = queues.where(f"queue_kind = {Kind.ASSIGNMENT:d}").select("queue")
    return suspects.join(F.broadcast(assignments), "queue", "left_anti").select("queue", "seq", "left_us")


def of_strangers(strangers: DataFrame, lifecycle: DataFrame) -> DataFrame:
    """Messages in queues that were never created."""
    unknown = lifecycle.join(F.broadcast(strangers), "queue", "left_semi")
    return unknown.select("queue", "seq", "stored_us")


PLACE_TAKEN_TWICE = Check(
    "place taken twice",
    Says(
        "No two messages have the same place in a queue.",
        "{stored_count} messages have the same place in {queue}: place {seq}.",
        "{count} places in queues were given to more than one message.",
        "{queue}, place {seq}: given {stored_count} times",
    ),
    "lifecycle",
    "stored_count > 1",
    all_of_them("queue", "seq", "stored_count"),
)

CONSUMED_TWICE = Check(
    "consumed twice",
    Says(
        "No message was consumed twice.",
        "1 message of {queue} left it more than once: place {seq}, consumed {consumed_count} times, dead-lettered "
        "{dead_count} times, moved {moved_count} times.",
        "{count} messages left their queues more than once.",
        "{queue}, place {seq}: consumed {consumed_count} times, dead-lettered {dead_count} times, moved {moved_count} "
        "times",
    ),
    "lifecycle",
    "left_count > 1",
    all_of_them("queue", "seq", "consumed_count", "dead_count", "moved_count"),
)

CONSUMED_NEVER_STORED = Check(
    "consumed, never stored",
    Says(
        "No message was consumed that had not been stored.",
        "1 message of {queue} was consumed at {left_us} and never stored: place {seq}.",
        "{count} messages were consumed and never stored.",
        "{queue}, place {seq}: consumed at {left_us}, never stored",
    ),
    "lifecycle",
    "left_count > 0 and stored_count = 0",
    consumed_never_stored,
    ("queues",),
)

CONSUMED_BEFORE_STORED = Check(
    "consumed before stored",
    Says(
        "Every message was stored before it was consumed.",
        "1 message of {queue} was consumed at {left_us}, before it was stored at {stored_us}: place {seq}.",
        "{count} messages were consumed before they were stored.",
        "{queue}, place {seq}: consumed at {left_us}, stored at {stored_us}",
    ),
    "lifecycle",
    "left_place < stored_place",
    all_of_them("queue", "seq", "stored_us", "left_us"),
)

# A delivery that its application claimed again had been counted, and counts once when it ends.
ATTEMPT_FORGOTTEN = Check(
    "attempt forgotten",
    Says(
        "Every delivery that failed was remembered by the ones after it.",
        "1 message of {queue} was consumed as its delivery {attempt}, after {returned_attempt} had failed: place "
        "{seq}.",
        "{count} messages were consumed as deliveries that do not count those that had failed.",
        "{queue}, place {seq}: consumed as delivery {attempt}, after {returned_attempt} had failed",
    ),
    "lifecycle",
    "attempt <= returned_attempt - claimed",
    all_of_them("queue", "seq", "attempt", "returned_attempt", "claimed"),
)

# A delivery that was presented when its broker died counts too.
ATTEMPT_INVENTED = Check(
    "attempt invented",
    Says(
        "No message was consumed with a delivery count that nothing on record explains.",
        "1 message of {queue} was consumed as its delivery {attempt}, and fewer are on record: place {seq}.",
        "{count} messages were consumed as deliveries that are not all on record.",
        "{queue}, place {seq}: consumed as delivery {attempt}; {returned_attempt} failed, {presented_count} presented",
    ),
    "lifecycle",
    "attempt > coalesce(returned_attempt, 0) + presented_count + 1",
    all_of_them("queue", "seq", "attempt", "returned_attempt", "presented_count"),
)

EXPIRED_CONSUMED = Check(
    "expired, consumed",
    Says(
        "No message was delivered for the first time, and consumed, that had expired.",
        "1 message of {queue} was delivered at {delivered_us}, and had expired at {expires_us}: place {seq}.",
        "{count} messages were delivered and consumed after they had expired.",
        "{queue}, place {seq}: expired at {expires_us}, delivered at {delivered_us}",
    ),
    "facts",
    FactFilter(("MessageStored",), not_null=("expires_us",)),
    expired_consumed,
    ("lifecycle",),
)

QUEUE_UNKNOWN = Check(
    "queue unknown",
    Says(
        "Every message is in a queue that was created.",
        "1 message is in a queue that was never created: number {queue}, place {seq}.",
        "{count} messages are in queues that were never created.",
        "number {queue}, place {seq}: stored at {stored_us}",
    ),
    "strangers",
    "true",
    of_strangers,
    ("lifecycle",),
)

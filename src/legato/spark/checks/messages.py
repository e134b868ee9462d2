"""Checks of messages, each by its own row: stored and consumed once, in that order, counted right."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from legato.core.facts import Kind
from legato.spark.checks.check import check
from legato.spark.ledger.fact_filter import FactFilter


@check(
    "expired, consumed",
    of="facts",
    where=FactFilter(("MessageStored",), not_null=("expires_us",)),
    holds="No message was delivered for the first time, and consumed, that had expired.",
    one="1 message of {queue} was delivered at {delivered_us}, and had expired at {expires_us}: place {seq}.",
    many="{count} messages were delivered and consumed after they had expired.",
    each="{queue}, place {seq}: expired at {expires_us}, delivered at {delivered_us}",
)
def expired_consumed(expiring: DataFrame, messages: DataFrame) -> DataFrame:
    """Messages first delivered after they had expired, and consumed (Jakarta Messaging 3.4.9).

    What its application had before, and claimed when it came back, is on record as presented or claimed.
    """
    first = messages.where("consumed_count > 0 and attempt = 1 and claimed = 0 and presented_count = 0")
    consumed = first.select("queue", "seq", "delivered_us")
    late = expiring.select("queue", "seq", "expires_us").join(consumed, ["queue", "seq"])
    return late.where("delivered_us > expires_us")


@check(
    "consumed, never stored",
    of="messages",
    where="left_count > 0 and stored_count = 0",
    holds="No message was consumed that had not been stored.",
    one="1 message of {queue} was consumed at {left_us} and never stored: place {seq}.",
    many="{count} messages were consumed and never stored.",
    each="{queue}, place {seq}: consumed at {left_us}, never stored",
)
def consumed_never_stored(never_stored: DataFrame, queues: DataFrame) -> DataFrame:
    """Messages that left queues in which they had not been stored; for what pipelines acknowledge there is a check."""
    assignments = queues.where(f"queue_kind = {Kind.ASSIGNMENT:d}").select("queue")
    return never_stored.join(F.broadcast(assignments), "queue", "left_anti").select("queue", "seq", "left_us")


@check(
    "queue unknown",
    of="unknown_queues",
    holds="Every message is in a queue that was created.",
    one="1 message is in a queue that was never created: number {queue}, place {seq}.",
    many="{count} messages are in queues that were never created.",
    each="number {queue}, place {seq}: stored at {stored_us}",
)
def queue_unknown(unknown_queues: DataFrame, messages: DataFrame) -> DataFrame:
    """Messages in queues that were never created."""
    unknown = messages.join(F.broadcast(unknown_queues), "queue", "left_semi")
    return unknown.select("queue", "seq", "stored_us")


@check(
    "place taken twice",
    of="messages",
    where="stored_count > 1",
    holds="No two messages have the same place in a queue.",
    one="{stored_count} messages have the same place in {queue}: place {seq}.",
    many="{count} places in queues were given to more than one message.",
    each="{queue}, place {seq}: given {stored_count} times",
)
def place_taken_twice(messages: DataFrame) -> DataFrame:
    """Places of queues that were given to more than one message."""
    return messages.selectExpr("queue", "seq", "stored_count")


@check(
    "consumed twice",
    of="messages",
    where="left_count > 1",
    holds="No message was consumed twice.",
    one=(
        "1 message of {queue} left it more than once: place {seq}, consumed {consumed_count} times, dead-lettered "
        "{dead_count} times, moved {moved_count} times."
    ),
    many="{count} messages left their queues more than once.",
    each=(
        "{queue}, place {seq}: consumed {consumed_count} times, dead-lettered {dead_count} times, moved {moved_count} "
        "times"
    ),
)
def consumed_twice(messages: DataFrame) -> DataFrame:
    """Messages that left their queue more than once."""
    return messages.selectExpr("queue", "seq", "consumed_count", "dead_count", "moved_count")


@check(
    "consumed before stored",
    of="messages",
    where="left_place < stored_place",
    holds="Every message was stored before it was consumed.",
    one="1 message of {queue} was consumed at {left_us}, before it was stored at {stored_us}: place {seq}.",
    many="{count} messages were consumed before they were stored.",
    each="{queue}, place {seq}: consumed at {left_us}, stored at {stored_us}",
)
def consumed_before_stored(messages: DataFrame) -> DataFrame:
    """Messages that left their queue before they were stored in it."""
    return messages.selectExpr("queue", "seq", "stored_us", "left_us")


# A delivery that its application claimed again had been counted, and counts once when it ends.
@check(
    "attempt forgotten",
    of="messages",
    where="attempt <= returned_attempt - claimed",
    holds="Every delivery that failed was remembered by the ones after it.",
    one=(
        "1 message of {queue} was consumed as its delivery {attempt}, after {returned_attempt} had failed: place {seq}."
    ),
    many="{count} messages were consumed as deliveries that do not count those that had failed.",
    each="{queue}, place {seq}: consumed as delivery {attempt}, after {returned_attempt} had failed",
)
def attempt_forgotten(messages: DataFrame) -> DataFrame:
    """Messages consumed with a delivery count that leaves out deliveries that had failed."""
    return messages.selectExpr("queue", "seq", "attempt", "returned_attempt", "claimed")


# A delivery that was presented when its broker died counts too.
@check(
    "attempt invented",
    of="messages",
    where="attempt > coalesce(returned_attempt, 0) + presented_count + 1",
    holds="No message was consumed with a delivery count that nothing on record explains.",
    one="1 message of {queue} was consumed as its delivery {attempt}, and fewer are on record: place {seq}.",
    many="{count} messages were consumed as deliveries that are not all on record.",
    each="{queue}, place {seq}: consumed as delivery {attempt}; {returned_attempt} failed, {presented_count} presented",
)
def attempt_invented(messages: DataFrame) -> DataFrame:
    """Messages consumed with a delivery count beyond all deliveries on record."""
    return messages.selectExpr("queue", "seq", "attempt", "returned_attempt", "presented_count")

"""Checks of waiting messages: lost, resurrected, and those of deleted queues."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from legato.spark.checks.check import check, variant_of
from legato.spark.ledger.fact_frames import aggregate


@check(
    "lost",
    of="messages",
    where="stored_count > 0 and left_count = 0",
    holds="No message was lost: what was stored was consumed, moved away, deleted with its queue or still waits.",
    one="1 message of {queue} is unaccounted for: stored at {stored_us}, never seen again.",
    many="{count} messages are unaccounted for: stored, and never seen again.",
    each="{queue}, place {seq}: stored at {stored_us}, never seen again",
)
def lost(unsettled: DataFrame, waiting: DataFrame, messages: DataFrame, deletions: DataFrame) -> DataFrame:
    """Messages that were stored, never left their queue, and neither wait there nor were deleted with it."""
    left_over = unsettled.select("queue", "seq", "stored_us").join(waiting, ["queue", "seq"], "left_anti")
    return left_over.join(F.broadcast(deletions), "queue", "left_anti").unionByName(_beyond(messages, deletions))


@variant_of(lost)
def lost_by_marks(_unsettled: DataFrame, marks: DataFrame, messages: DataFrame, deletions: DataFrame) -> DataFrame:
    """Messages that never left their queue beyond the number that the last high-water mark says were waiting.

    Asked where it is not known what waits in the store. For a deleted queue, beyond the number that were deleted with
    it.
    """
    said = marks.selectExpr("queue", "place as mark", "stored - consumed as waiting").unionByName(deletions)
    return _beyond(messages, aggregate(said, "queue", waiting="max_by(waiting, mark)", mark="max(mark)"))


def _beyond(messages: DataFrame, marks: DataFrame) -> DataFrame:
    """Messages that never left their queue beyond the `waiting` of the queue's one `mark`.

    A mark counts but does not name: what left after it did wait, and of the rest the oldest are taken for the lost.
    """
    likeliest_first = Window.partitionBy("queue").orderBy(F.expr("left_count = 0"), F.desc("stored_place"))
    return (
        _waiting_at(messages, marks)
        .withColumn("rank", F.row_number().over(likeliest_first))
        .where("rank > waiting and left_count = 0")
        .select("queue", "seq", "stored_us")
    )


def _waiting_at(messages: DataFrame, marks: DataFrame) -> DataFrame:
    """Messages that, by the facts, waited in their queue at its `mark`."""
    marked = messages.join(F.broadcast(marks), "queue")
    return marked.where("stored_place < mark and (left_place is null or left_place > mark)")


@check(
    "resurrected",
    of="messages",
    where="left_count > 0",
    holds="No message that was consumed waits again.",
    one="1 message of {queue} left it at {left_us} and waits there again: place {seq}.",
    many="{count} messages left their queues and wait there again.",
    each="{queue}, place {seq}: left at {left_us}, waits again",
)
def resurrected(left: DataFrame, waiting: DataFrame) -> DataFrame:
    """Messages that left their queue and wait there all the same."""
    return left.select("queue", "seq", "left_us").join(waiting, ["queue", "seq"], "left_semi")


@check(
    "used after deletion",
    of="deletions",
    holds="Nothing was stored in a deleted queue, and nothing left it.",
    one="1 message was stored in {queue}, or left it, after the queue had been deleted: place {seq}.",
    many="{count} messages were stored in deleted queues, or left them.",
    each="{queue}, place {seq}: stored at {stored_us}, left at {left_us}",
)
def used_after_deletion(deletions: DataFrame, messages: DataFrame) -> DataFrame:
    """Messages that were stored in a queue, or left it, after it had been deleted."""
    used = messages.join(F.broadcast(deletions), "queue").where("stored_place > mark or left_place > mark")
    return used.select("queue", "seq", "stored_us", "left_us")


@check(
    "deleted, not counted",
    of="deletions",
    where="waiting > 0",
    holds="With every deleted queue went the messages that waited in it, and no others.",
    one="{waiting} messages are said to have been deleted with {queue}, in which {waiting_found} waited.",
    many="With {count} deleted queues more messages are said to have gone than waited in them.",
    each="{queue}: {waiting} messages deleted with it, {waiting_found} waited",
)
def deleted_uncounted(deletions: DataFrame, messages: DataFrame) -> DataFrame:
    """Deleted queues with which more messages are said to have been deleted than waited in them."""
    found = aggregate(_waiting_at(messages, deletions), "queue", waiting_found="count(*)")
    counted = deletions.join(found, "queue", "left").selectExpr(
        "queue", "waiting", "coalesce(waiting_found, 0) as waiting_found"
    )
    return counted.where("waiting > waiting_found")

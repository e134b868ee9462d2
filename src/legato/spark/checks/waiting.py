"""Checks of what waits: messages that are gone, that came back, and those of deleted queues."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from legato.spark.checks.check import Check, Says
from legato.spark.ledger.fact_frames import aggregate


def lost(unsettled: DataFrame, waiting: DataFrame, lifecycle: DataFrame, deletions: DataFrame) -> DataFrame:
    """Messages that were stored, never left their queue, and neither wait there nor were deleted with it."""
    left_over = unsettled.select("queue", "seq", "stored_us").join(waiting, ["queue", "seq"], "left_anti")
    return left_over.join(F.broadcast(deletions), "queue", "left_anti").unionByName(_beyond(lifecycle, deletions))


def lost_by_marks(_unsettled: DataFrame, marks: DataFrame, lifecycle: DataFrame, deletions: DataFrame) -> DataFrame:
    """Messages that never left their queue beyond the number that the last high-water mark says were waiting.

    For a deleted queue, beyond the number that were deleted with it.
    """
    said = marks.selectExpr("queue", "place as mark", "stored - consumed as waiting").unionByName(deletions)
    return _beyond(lifecycle, aggregate(said, "queue", waiting="max_by(waiting, mark)", mark="max(mark)"))


def _beyond(lifecycle: DataFrame, marks: DataFrame) -> DataFrame:
    """Messages that never left their queue beyond the `waiting` of the queue's one `mark`.

    A mark counts but does not name: what left after it did wait, and of the rest the oldest are taken for the lost.
    """
    likeliest_first = Window.partitionBy("queue").orderBy(F.expr("left_count = 0"), F.desc("stored_place"))
    return (
        _waiting_at(lifecycle, marks)
        .withColumn("rank", F.row_number().over(likeliest_first))
        .where("rank > waiting and left_count = 0")
        .select("queue", "seq", "stored_us")
    )


def _waiting_at(lifecycle: DataFrame, marks: DataFrame) -> DataFrame:
    """Messages that, by the facts, waited in their queue at its `mark`."""
    marked = lifecycle.join(F.broadcast(marks), "queue")
    return marked.where("stored_place < mark and (left_place is null or left_place > mark)")


def resurrected(left: DataFrame, waiting: DataFrame) -> DataFrame:
    """Messages that left their queue and wait there all the same."""
    return left.select("queue", "seq", "left_us").join(waiting, ["queue", "seq"], "left_semi")


def used_after_deletion(deletions: DataFrame, lifecycle: DataFrame) -> DataFrame:
    """Messages that were stored in a queue, or left it, after it had been deleted."""
    used = lifecycle.join(F.broadcast(deletions), "queue").where("stored_place > mark or left_place > mark")
    return used.select("queue", "seq", "stored_us", "left_us")


def deleted_uncounted(deletions: DataFrame, lifecycle: DataFrame) -> DataFrame:
    """Deleted queues with which more messages are said to have been deleted than waited in them."""
    found = aggregate(_waiting_at(lifecycle, deletions), "queue", waiting_found="count(*)")
    counted = deletions.join(found, "queue", "left").selectExpr(
        "queue", "waiting", "coalesce(waiting_found, 0) as waiting_found"
    )
    return counted.where("waiting > waiting_found")


_UNSETTLED = "stored_count > 0 and left_count = 0"

LOST = Check(
    "lost",
    Says(
        "No message was lost: what was stored was consumed, moved away, deleted with its queue or still waits.",
        "1 message of {queue} is unaccounted for: stored at {stored_us}, never seen again.",
        "{count} messages are unaccounted for: stored, and never seen again.",
        "{queue}, place {seq}: stored at {stored_us}, never seen again",
    ),
    "lifecycle",
    _UNSETTLED,
    lost,
    ("waiting", "lifecycle", "deletions"),
)

LOST_BY_MARKS = LOST._replace(find=lost_by_marks, others=("marks", "lifecycle", "deletions"))
"""The same where it is not known exactly what waits."""

RESURRECTED = Check(
    "resurrected",
    Says(
        "No message that was consumed waits again.",
        "1 message of {queue} left it at {left_us} and waits there again: place {seq}.",
        "{count} messages left their queues and wait there again.",
        "{queue}, place {seq}: left at {left_us}, waits again",
    ),
    "lifecycle",
    "left_count > 0",
    resurrected,
    ("waiting",),
)

USED_AFTER_DELETION = Check(
    "used after deletion",
    Says(
        "Nothing was stored in a deleted queue, and nothing left it.",
        "1 message was stored in {queue}, or left it, after the queue had been deleted: place {seq}.",
        "{count} messages were stored in deleted queues, or left them.",
        "{queue}, place {seq}: stored at {stored_us}, left at {left_us}",
    ),
    "deletions",
    "true",
    used_after_deletion,
    ("lifecycle",),
)

DELETED_UNCOUNTED = Check(
    "deleted, not counted",
    Says(
        "With every deleted queue went the messages that waited in it, and no others.",
        "{waiting} messages are said to have been deleted with {queue}, in which {waiting_found} waited.",
        "With {count} deleted queues more messages are said to have gone than waited in them.",
        "{queue}: {waiting} messages deleted with it, {waiting_found} waited",
    ),
    "deletions",
    "waiting > 0",
    deleted_uncounted,
    ("lifecycle",),
)

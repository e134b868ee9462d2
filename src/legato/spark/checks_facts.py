"""Checks of what happened: facts of which one does not go with another."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from legato.core.lanes import LANE_SHIFT
from legato.spark.check import Check
from legato.spark.ledger import PLACE, aggregate
from legato.spark.those import SENT, Those, is_kind


def number_stored_twice(numbered: DataFrame) -> DataFrame:
    """Messages of numbered producers that were stored more than once (promise 1)."""
    # Counting each number of its own would cost as much as all else. A bit for each of 64 finds the few to count.
    blocks = aggregate(
        numbered.selectExpr("producer", "number >> 6 as block", "1L << cast(number & 63 as int) as bit"),
        "producer, block",
        numbers="count(*)",
        bits="bit_or(bit)",
    ).where("numbers > bit_count(bits)")
    doubtful = numbered.withColumn("block", F.expr("number >> 6")).join(
        F.broadcast(blocks.select("producer", "block")), ["producer", "block"], "left_semi"
    )
    return aggregate(
        doubtful, "producer, number", times="count(*)", queue="min(queue)", seq="min(seq)", again="max(seq)"
    ).where("times > 1")


def duplicate_id_stored_twice(kept: DataFrame) -> DataFrame:
    """Messages stored though their address remembered their duplicate id."""
    ids = kept.selectExpr("queue", "duplicate_id", "message_id", "stored as window", f"{PLACE} as place")
    nth = ids.withColumn("nth", F.row_number().over(Window.partitionBy("queue").orderBy("place")))
    same = Window.partitionBy("queue", "duplicate_id").orderBy("place")
    again = nth.withColumn("nth_before", F.lag("nth").over(same)).where("nth - nth_before <= window")
    return again.selectExpr("queue", "message_id", "hex(duplicate_id) as duplicate_id", "window")


_SEEN = is_kind("MessageSeen", "MessagePresented")
_RELEASED = is_kind("MessageReleased")
_NEW = Those(("MessageDelivered",), denied=("flagged",))


def redelivered_without_flag(_new: DataFrame, facts: DataFrame) -> DataFrame:
    """Messages that an application had had, and that went out again as if nobody had (CONTRACT A17)."""
    kinds = ("MessageDelivered", "MessageSeen", "MessagePresented", "MessageReleased")
    events = facts.where(is_kind(*kinds)).selectExpr(
        "queue",
        "seq",
        "consumer",
        f"{_NEW} as is_new",
        f"{PLACE} as place",
        f"if({_SEEN}, {PLACE}, null) as seen_place",
        f"if({_RELEASED}, {PLACE}, null) as released_place",
    )
    before = Window.partitionBy("queue", "seq").orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    known = events.withColumn("seen", F.max("seen_place").over(before)).withColumn(
        "released", F.max("released_place").over(before)
    )
    # What its consumer released it had not used, whatever it had said of it.
    offending = known.where("is_new and seen > coalesce(released, -1)")
    return offending.selectExpr("queue", "seq", "consumer", "place >> 20 as position")


def out_of_order_in_group(delivered: DataFrame) -> DataFrame:
    """Messages that came to a consumer for the first time after a later one of their group and priority had."""
    first = aggregate(
        delivered.withColumn("place", F.expr(PLACE)),
        "queue, seq, group_id",
        place="min(place)",
        consumer="min_by(consumer, place)",
    ).withColumn("lane", F.expr(f"shiftright(seq, {LANE_SHIFT})"))
    before = Window.partitionBy("queue", "group_id", "lane", "consumer").orderBy("place")
    latest = first.withColumn("after", F.max("seq").over(before.rowsBetween(Window.unboundedPreceding, -1)))
    return latest.where("after > seq").selectExpr(
        "queue", "seq", "group_id", "consumer", "after", "place >> 20 as position"
    )


def dead_letter_missing(dead: DataFrame, facts: DataFrame) -> DataFrame:
    """Dead-lettered messages that did not arrive in the dead-letter queue."""
    arrived = _arrivals(facts, "dead_queue", "dead_seq")
    return dead.select("queue", "seq", "dead_queue", "dead_seq").join(
        arrived, ["queue", "seq", "dead_queue", "dead_seq"], "left_anti"
    )


def moved_message_missing(moved: DataFrame, facts: DataFrame) -> DataFrame:
    """Messages that left for another queue and did not arrive there in the same commit."""
    arrived = _arrivals(facts, "to_queue", "to_seq")
    return moved.select("queue", "seq", "position", "cause", "to_queue", "to_seq").join(
        arrived, ["position", "queue", "seq", "to_queue", "to_seq"], "left_anti"
    )


def _arrivals(facts: DataFrame, to_queue: str, to_seq: str) -> DataFrame:
    """Where messages came to that the broker itself moved, and from where; to topics also."""
    return facts.where("origin_seq is not null").selectExpr(
        "position", "origin_queue as queue", "origin_seq as seq", f"queue as {to_queue}", f"seq as {to_seq}"
    )


NUMBER_STORED_TWICE = Check(
    "number stored twice",
    "No send was stored twice, however often its producer had to send it again.",
    "facts",
    SENT._replace(known=("number",)),
    number_stored_twice,
)

DUPLICATE_ID_STORED_TWICE = Check(
    "duplicate id stored twice",
    "No address stored two messages with a duplicate id that it remembered.",
    "facts",
    Those(("DuplicateIdKept",)),
    duplicate_id_stored_twice,
)

REDELIVERED_WITHOUT_FLAG = Check(
    "redelivered without flag",
    "No message that an application had had was delivered again as if it were new (known at detail `all`).",
    "facts",
    _NEW,
    redelivered_without_flag,
    ("facts",),
)

OUT_OF_ORDER_IN_GROUP = Check(
    "out of order in a group",
    "No consumer was given the messages of a group out of order (known at detail `all`).",
    "facts",
    _NEW._replace(known=("group_id",)),
    out_of_order_in_group,
)

DEAD_LETTER_MISSING = Check(
    "dead letter missing",
    "Every dead-lettered message is in its dead-letter queue.",
    "facts",
    Those(("MessageDeadLettered",), other_than_zero=("dead_queue",)),
    dead_letter_missing,
    ("facts",),
)

MOVED_MESSAGE_MISSING = Check(
    "moved message missing",
    "Every message that was moved is where it was moved to.",
    "facts",
    Those(("MessageMoved",), known=("to_queue",)),
    moved_message_missing,
    ("facts",),
)

"""What must not be in a ledger: each check is a question to it, and its answer is the rows that offend.

An empty answer passes. Every check finds its own kind of fault only, so that a report names causes, not echoes.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from legato.core.lanes import LANE_SHIFT
from legato.spark.ledger import PLACE, SENT, aggregate

Frames = Mapping[str, DataFrame]


class Check(NamedTuple):
    """A question to the ledger.

    `sentence` says what holds when nothing is found; `frames` names the frames that `find` is given, in order.
    `find` answers with the offending rows: whole rows that a person can follow up.
    """

    name: str
    sentence: str
    frames: tuple[str, ...]
    find: Callable[..., DataFrame]


def lost(lifecycle: DataFrame, waiting: DataFrame, deletions: DataFrame) -> DataFrame:
    """Messages that were stored, never left their queue, and neither wait there nor were deleted with it."""
    unsettled = lifecycle.where("stored_count > 0 and left_count = 0").select("queue", "seq", "stored_us")
    gone = unsettled.join(waiting, ["queue", "seq"], "left_anti").join(F.broadcast(deletions), "queue", "left_anti")
    return gone.unionByName(_beyond(lifecycle, deletions))


def lost_by_marks(lifecycle: DataFrame, marks: DataFrame, deletions: DataFrame) -> DataFrame:
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


def deleted_uncounted(lifecycle: DataFrame, deletions: DataFrame) -> DataFrame:
    """Deleted queues with which more messages are said to have been deleted than waited in them."""
    found = aggregate(_waiting_at(lifecycle, deletions), "queue", waiting_found="count(*)")
    counted = deletions.join(found, "queue", "left").selectExpr(
        "queue", "waiting", "coalesce(waiting_found, 0) as waiting_found"
    )
    return counted.where("waiting > waiting_found")


def resurrected(lifecycle: DataFrame, waiting: DataFrame) -> DataFrame:
    """Messages that left their queue and wait there all the same."""
    left = lifecycle.where("left_count > 0").select("queue", "seq", "left_us")
    return left.join(waiting, ["queue", "seq"], "left_semi")


def number_stored_twice(facts: DataFrame) -> DataFrame:
    """Messages of numbered producers that were stored more than once (promise 1)."""
    numbered = facts.where(f"{SENT} and number is not null")
    # Counting each number of its own would cost as much as all else. A bit for each of 64 finds the few to count.
    blocks = aggregate(
        numbered.selectExpr("producer", "number >> 6 as block", "1L << cast(number & 63 as int) as bit"),
        "producer, block",
        numbers="count(*)",
        bits="bit_or(bit)",
    ).where("numbers > bit_count(bits)")
    suspects = numbered.withColumn("block", F.expr("number >> 6")).join(
        F.broadcast(blocks.select("producer", "block")), ["producer", "block"], "left_semi"
    )
    return aggregate(
        suspects, "producer, number", times="count(*)", queue="min(queue)", seq="min(seq)", again="max(seq)"
    ).where("times > 1")


def duplicate_id_stored_twice(facts: DataFrame) -> DataFrame:
    """Messages stored though their address remembered their duplicate id."""
    kept = facts.where("kind = 'DuplicateIdKept'").selectExpr(
        "queue", "duplicate_id", "message_id", "stored as window", f"{PLACE} as place"
    )
    nth = kept.withColumn("nth", F.row_number().over(Window.partitionBy("queue").orderBy("place")))
    same = Window.partitionBy("queue", "duplicate_id").orderBy("place")
    again = nth.withColumn("nth_before", F.lag("nth").over(same)).where("nth - nth_before <= window")
    return again.selectExpr("queue", "message_id", "hex(duplicate_id) as duplicate_id", "window")


def place_taken_twice(lifecycle: DataFrame) -> DataFrame:
    """Places of a queue at which more than one message was stored."""
    return lifecycle.where("stored_count > 1").select("queue", "seq", "stored_count")


def consumed_twice(lifecycle: DataFrame) -> DataFrame:
    """Messages that left their queue more than once."""
    return lifecycle.where("left_count > 1").select("queue", "seq", "consumed_count", "dead_count", "moved_count")


def consumed_never_stored(lifecycle: DataFrame) -> DataFrame:
    """Messages that left their queue though they were never stored in it."""
    return lifecycle.where("left_count > 0 and stored_count = 0").select("queue", "seq", "left_us")


def consumed_before_stored(lifecycle: DataFrame) -> DataFrame:
    """Messages that left their queue at a place of the log before the one where they were stored."""
    return lifecycle.where("left_place < stored_place").select("queue", "seq", "stored_us", "left_us")


def attempt_forgotten(lifecycle: DataFrame) -> DataFrame:
    """Messages consumed with a delivery count that forgets deliveries which are on record (promise 4)."""
    # A delivery that its application claimed again had been counted, and counts once when it ends.
    forgotten = lifecycle.where("attempt <= returned_attempt - claimed")
    return forgotten.select("queue", "seq", "attempt", "returned_attempt", "claimed")


def redelivered_without_flag(facts: DataFrame) -> DataFrame:
    """Messages that an application had had, and that went out again as if nobody had (CONTRACT A17)."""
    kinds = "'MessageDelivered', 'MessageSeen', 'MessagePresented', 'MessageReleased'"
    events = facts.where(f"kind in ({kinds})").selectExpr(
        "queue",
        "seq",
        "consumer",
        "kind = 'MessageDelivered' and not flagged as is_new",
        f"{PLACE} as place",
        f"if(kind in ('MessageSeen', 'MessagePresented'), {PLACE}, null) as seen_place",
        f"if(kind = 'MessageReleased', {PLACE}, null) as released_place",
    )
    before = Window.partitionBy("queue", "seq").orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    known = events.withColumn("seen", F.max("seen_place").over(before)).withColumn(
        "released", F.max("released_place").over(before)
    )
    # What its consumer released it had not used, whatever it had said of it.
    offending = known.where("is_new and seen > coalesce(released, -1)")
    return offending.selectExpr("queue", "seq", "consumer", "place div 1048576 as position")


def out_of_order_in_group(facts: DataFrame) -> DataFrame:
    """Messages that came to a consumer for the first time after a later one of their group and priority had."""
    delivered = facts.where("kind = 'MessageDelivered' and group_id is not null and not flagged")
    first = aggregate(
        delivered.withColumn("place", F.expr(PLACE)),
        "queue, seq, group_id",
        place="min(place)",
        consumer="min_by(consumer, place)",
    ).withColumn("lane", F.expr(f"shiftright(seq, {LANE_SHIFT})"))
    before = Window.partitionBy("queue", "group_id", "lane", "consumer").orderBy("place")
    latest = first.withColumn("after", F.max("seq").over(before.rowsBetween(Window.unboundedPreceding, -1)))
    return latest.where("after > seq").selectExpr(
        "queue", "seq", "group_id", "consumer", "after", "place div 1048576 as position"
    )


def attempt_invented(lifecycle: DataFrame) -> DataFrame:
    """Messages consumed with a delivery count that more deliveries should have led to than are on record."""
    # A delivery that was presented when its broker died counts too.
    invented = lifecycle.where("attempt > coalesce(returned_attempt, 0) + presented_count + 1")
    return invented.select("queue", "seq", "attempt", "returned_attempt", "presented_count")


def expired_consumed(facts: DataFrame, lifecycle: DataFrame) -> DataFrame:
    """Messages first delivered after they had expired, and consumed (Jakarta Messaging 3.4.9).

    What its application had before, and claimed when it came back, is on record as presented or claimed.
    """
    expiring = facts.where("kind = 'MessageStored' and expires_us is not null").select("queue", "seq", "expires_us")
    first = lifecycle.where("consumed_count > 0 and attempt = 1 and claimed = 0 and presented_count = 0")
    consumed = first.select("queue", "seq", "delivered_us")
    return expiring.join(consumed, ["queue", "seq"]).where("delivered_us > expires_us")


def used_after_deletion(lifecycle: DataFrame, deletions: DataFrame) -> DataFrame:
    """Messages that were stored in a queue, or left it, after it had been deleted."""
    used = lifecycle.join(F.broadcast(deletions), "queue").where("stored_place > mark or left_place > mark")
    return used.select("queue", "seq", "stored_us", "left_us")


def queue_unknown(lifecycle: DataFrame, queues: DataFrame) -> DataFrame:
    """Messages in queues that were never created."""
    unknown = lifecycle.join(F.broadcast(queues.select("queue")), "queue", "left_anti")
    return unknown.select("queue", "seq", "stored_us")


def dead_letter_missing(facts: DataFrame) -> DataFrame:
    """Dead-lettered messages that did not arrive in the dead-letter queue."""
    dead = facts.where("kind = 'MessageDeadLettered' and dead_queue <> 0").select(
        "queue", "seq", "dead_queue", "dead_seq"
    )
    arrived = _arrivals(facts, "dead_queue", "dead_seq")
    return dead.join(arrived, ["queue", "seq", "dead_queue", "dead_seq"], "left_anti")


def moved_message_missing(facts: DataFrame) -> DataFrame:
    """Messages that left for another queue and did not arrive there in the same commit."""
    moved = facts.where("kind = 'MessageMoved' and to_queue is not null")
    arrived = _arrivals(facts, "to_queue", "to_seq")
    return moved.select("queue", "seq", "position", "cause", "to_queue", "to_seq").join(
        arrived, ["position", "queue", "seq", "to_queue", "to_seq"], "left_anti"
    )


def _arrivals(facts: DataFrame, to_queue: str, to_seq: str) -> DataFrame:
    """Where messages came to that the broker itself moved, and from where; to topics also."""
    return facts.where("origin_seq is not null").selectExpr(
        "position", "origin_queue as queue", "origin_seq as seq", f"queue as {to_queue}", f"seq as {to_seq}"
    )


def uncommitted_work(transactions: DataFrame) -> DataFrame:
    """Transactions that stored or consumed messages without having been committed."""
    offending = transactions.where("committed = 0 and stored + consumed > 0")
    return offending.selectExpr("hex(txn) as txn", "stored", "consumed", "rolled_back")


def partial_transactions(transactions: DataFrame) -> DataFrame:
    """Committed transactions of which not all work, or more than all, took place."""
    offending = transactions.where("committed > 0 and (stored <> stored_said or consumed <> consumed_said)")
    return offending.selectExpr("hex(txn) as txn", "stored", "stored_said", "consumed", "consumed_said")


def two_outcomes(transactions: DataFrame) -> DataFrame:
    """Transactions with more than one outcome (promise 2)."""
    offending = transactions.where("committed > 0 and committed + rolled_back > 1")
    return offending.selectExpr("hex(txn) as txn", "committed", "rolled_back")


def epochs_mixed(records: DataFrame) -> DataFrame:
    """Commits of an epoch after a later epoch had begun: a fenced primary that still wrote (promise 7)."""
    so_far = Window.orderBy("position").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    newest = records.select("position", "epoch", F.max("epoch").over(so_far).alias("newest_epoch"))
    return newest.where("epoch < newest_epoch")


def positions_missing(records: DataFrame) -> DataFrame:
    """Positions of the log, from 1 on, that no segment of the ledger holds."""
    previous = F.lag("position", 1, 0).over(Window.orderBy("position"))
    gaps = records.select("position", previous.alias("previous")).where("position > previous + 1")
    return gaps.selectExpr("previous + 1 as first_missing", "position - 1 as last_missing")


def records_torn(records: DataFrame) -> DataFrame:
    """Commits of which the ledger holds too few facts, or some twice."""
    return records.where("facts <> facts_said").select("position", "facts", "facts_said")


def marks_missed(marks: DataFrame) -> DataFrame:
    """High-water marks that the facts before them do not amount to, the record of a lost tail.

    A mark may be beyond the last message: places that were given to refused messages stay empty.
    That a message left its queue off the record is not for this check: it shows as a lost message.
    """
    wrong = "(in_order and seq < seq_found) or stored <> stored_found or consumed < consumed_found"
    return marks.where(wrong).select(
        "queue", "position", "seq", "seq_found", "stored", "stored_found", "consumed", "consumed_found"
    )


CHECKS = (
    Check(
        "lost",
        "No message was lost: what was stored was consumed, moved away, deleted with its queue or still waits.",
        ("lifecycle", "waiting", "deletions"),
        lost,
    ),
    Check("resurrected", "No message that was consumed waits again.", ("lifecycle", "waiting"), resurrected),
    Check(
        "number stored twice",
        "No send was stored twice, however often its producer had to send it again.",
        ("facts",),
        number_stored_twice,
    ),
    Check(
        "duplicate id stored twice",
        "No address stored two messages with a duplicate id that it remembered.",
        ("facts",),
        duplicate_id_stored_twice,
    ),
    Check("place taken twice", "No two messages have the same place in a queue.", ("lifecycle",), place_taken_twice),
    Check("consumed twice", "No message was consumed twice.", ("lifecycle",), consumed_twice),
    Check(
        "consumed, never stored",
        "No message was consumed that had not been stored.",
        ("lifecycle",),
        consumed_never_stored,
    ),
    Check(
        "consumed before stored",
        "Every message was stored before it was consumed.",
        ("lifecycle",),
        consumed_before_stored,
    ),
    Check(
        "attempt forgotten",
        "Every delivery that failed was remembered by the ones after it.",
        ("lifecycle",),
        attempt_forgotten,
    ),
    Check(
        "attempt invented",
        "No message was consumed with a delivery count that nothing on record explains.",
        ("lifecycle",),
        attempt_invented,
    ),
    Check(
        "redelivered without flag",
        "No message that an application had had was delivered again as if it were new (known at detail `all`).",
        ("facts",),
        redelivered_without_flag,
    ),
    Check(
        "out of order in a group",
        "No consumer was given the messages of a group out of order (known at detail `all`).",
        ("facts",),
        out_of_order_in_group,
    ),
    Check(
        "expired, consumed",
        "No message was delivered for the first time, and consumed, that had expired.",
        ("facts", "lifecycle"),
        expired_consumed,
    ),
    Check(
        "used after deletion",
        "Nothing was stored in a deleted queue, and nothing left it.",
        ("lifecycle", "deletions"),
        used_after_deletion,
    ),
    Check("queue unknown", "Every message is in a queue that was created.", ("lifecycle", "queues"), queue_unknown),
    Check(
        "dead letter missing",
        "Every dead-lettered message is in its dead-letter queue.",
        ("facts",),
        dead_letter_missing,
    ),
    Check(
        "moved message missing",
        "Every message that was moved is where it was moved to.",
        ("facts",),
        moved_message_missing,
    ),
    Check(
        "deleted, not counted",
        "With every deleted queue went the messages that waited in it, and no others.",
        ("lifecycle", "deletions"),
        deleted_uncounted,
    ),
    Check(
        "uncommitted work",
        "Only committed transactions had an effect.",
        ("transactions",),
        uncommitted_work,
    ),
    Check(
        "partial transaction",
        "Every committed transaction took place as a whole.",
        ("transactions",),
        partial_transactions,
    ),
    Check("two outcomes", "Every transaction has one outcome.", ("transactions",), two_outcomes),
    Check(
        "epochs mixed",
        "Once a new primary had begun, no former one wrote.",
        ("records",),
        epochs_mixed,
    ),
    Check("positions missing", "The ledger holds the whole log.", ("records",), positions_missing),
    Check("records torn", "The ledger holds every commit whole and once.", ("records",), records_torn),
    Check(
        "marks missed",
        "The facts add up to what the broker counted on the way.",
        ("marks",),
        marks_missed,
    ),
)
"""All checks, in the order in which a reader wants the answers."""

"""Checks of deliveries, expiry, dead letters and moves: facts that contradict other facts of the same message."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from legato.core.dead_letters import MAXIMUM_DELIVERIES
from legato.core.lanes import LANE_SHIFT
from legato.core.router import EXPIRED
from legato.spark.checks.check import check
from legato.spark.ledger.fact_filter import FactFilter, is_kind
from legato.spark.ledger.fact_frames import PLACE, aggregate
from legato.spark.summaries.message_summary import CARRIED, CLAIMED

_SEEN = is_kind("MessageSeen", "MessagePresented")
_RELEASED = is_kind("MessageReleased")
_NEW = FactFilter(("MessageDelivered",), false=("flagged",))


@check(
    "redelivered without flag",
    of="facts",
    where=_NEW,
    holds="No message that an application had had was delivered again as if it were new (known at detail `all`).",
    one=(
        "1 message of {queue} was delivered again as if it were new, though an application had had it: place {seq}, to "
        "{consumer}."
    ),
    many="{count} messages were delivered again as if they were new, though an application had had them.",
    each="{queue}, place {seq}: delivered to {consumer} in commit {position}",
)
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


@check(
    "out of order in a group",
    of="facts",
    where=_NEW._replace(not_null=("group_id",)),
    holds="No consumer was given the messages of a group out of order (known at detail `all`).",
    one="1 message of {queue} came to {consumer} after a later one of its group {group_id}: place {seq} after {after}.",
    many="{count} messages came to their consumer after a later one of their group.",
    each="{queue}, group {group_id}: place {seq} came to {consumer} after place {after}",
)
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


_GONE = ("MessageConsumed", "MessageDeadLettered", "MessageMoved")


@check(
    "second holder",
    of="facts",
    where=FactFilter(("MessageDelivered",)),
    holds="No message was delivered to a consumer while another one had it (known at detail `all`).",
    one="1 message of {queue} was delivered to {consumer} while {holder} had it: place {seq}.",
    many="{count} messages were delivered to a consumer while another one had them.",
    each="{queue}, place {seq}: delivered to {consumer} in commit {position}, while {holder} had it",
)
def second_holder(delivered: DataFrame, facts: DataFrame) -> DataFrame:
    """Messages that were delivered to a consumer while another one had them.

    A holding ends when its message leaves or comes back, and with its epoch. An application that was cut off takes what
    it had to its next consumer: that attached since, with the same container and, where it is known, the same link.
    """
    several = aggregate(delivered, "queue, seq", first="min(consumer)", last="max(consumer)").where("first <> last")
    kinds = ("MessageDelivered", "MessageSeen", "MessagePresented", "MessageReleased", "MessageReturned", *_GONE)
    events = (
        facts.where(is_kind(*kinds))
        .join(F.broadcast(several.select("queue", "seq")), ["queue", "seq"], "left_semi")
        .selectExpr(
            *("queue", "seq", "consumer", "epoch", "position", "flagged", f"{PLACE} as place"),
            f"{is_kind('MessageDelivered')} as is_given",
            f"{_SEEN} as is_seen",
            f"""{is_kind("MessageReleased", *_GONE)} or {is_kind("MessageReturned")} and consumer <> 0
                and cause not in ('{CARRIED}', '{CLAIMED}') as is_end""",
        )
    )
    until = Window.partitionBy("queue", "seq", "epoch").orderBy("place").rowsBetween(Window.unboundedPreceding, -1)
    known = events.select(
        "*",
        F.max(F.expr("if(is_given, struct(place, consumer), null)")).over(until).alias("given"),
        F.max(F.expr("if(is_seen, place, null)")).over(until).alias("seen_place"),
        F.max(F.expr("if(is_end, place, null)")).over(until).alias("end_place"),
    ).where("is_given and given.consumer <> consumer and given.place > coalesce(end_place, -1)")
    attached = facts.where(is_kind("ConsumerAttached")).selectExpr(
        "consumer", "name as container", "link", f"{PLACE} as attached_place"
    )
    had = attached.selectExpr("consumer as holder", "container as holder_container", "link as holder_link")
    told = (
        known.withColumn("holder", F.expr("given.consumer"))
        .join(attached, "consumer", "left")
        .join(had, "holder", "left")
    )
    came_back = """coalesce(container = holder_container, false) and coalesce(link = holder_link, true)
        and attached_place > given.place and flagged and seen_place > given.place"""
    return told.where(f"not ({came_back})").select("queue", "seq", "consumer", "holder", "position")


@check(
    "expired too early",
    of="facts",
    where=FactFilter(("MessageMoved",), equal=(("cause", EXPIRED),)),
    holds="Every message that left as expired had a time to live, and it was over.",
    one="1 message of {queue} is lost: it was dropped as expired at {expired_us}, and was to live until {expires_us}.",
    many="{count} messages are lost: dropped as expired before their time, or without a time to live.",
    each="{queue}, place {seq}: dropped as expired at {expired_us}, was to live until {expires_us}",
)
def expired_too_early(expired: DataFrame, facts: DataFrame) -> DataFrame:
    """Messages that left as expired, and had no time to live, or had some left."""
    # What is stored by a run or assigned has no size of its own: its time to live is not in the ledger.
    stored = facts.where(f"{is_kind('MessageStored')} and size is not null").select("queue", "seq", "expires_us")
    left = expired.selectExpr("queue", "seq", "position", "coalesce(expired_us, time_us) as expired_us")
    return left.join(stored, ["queue", "seq"]).where("expires_us is null or expired_us < expires_us")


@check(
    "dead too early",
    of="facts",
    where=FactFilter(("MessageDeadLettered",), equal=(("cause", MAXIMUM_DELIVERIES),)),
    holds="Every message that is dead after too many deliveries had been delivered as often.",
    one="1 message of {queue} is a dead letter of too many deliveries, though {failed} failed: place {seq}.",
    many="{count} messages are dead letters of too many deliveries, though fewer failed.",
    each=(
        "{queue}, place {seq}: {failed} failed deliveries on record, counted as {counted}, dead after {deliveries_max}"
    ),
)
def died_too_early(dead: DataFrame, facts: DataFrame) -> DataFrame:
    """Dead letters of too many deliveries that had not failed so often, by what is on record of them."""
    died = dead.select("queue", "seq", "position", "deliveries_max")
    events = facts.where(is_kind("MessageReturned", "MessagePresented")).join(
        F.broadcast(died.select("queue", "seq")), ["queue", "seq"], "left_semi"
    )
    is_returned, is_carried = is_kind("MessageReturned"), f"coalesce(cause = '{CARRIED}', false)"
    failed = aggregate(
        events,
        "queue, seq",
        failed=f"count_if({is_returned} and coalesce(cause not in ('{CARRIED}', '{CLAIMED}'), true))",
        counted=f"max(attempt) filter (where {is_returned})",
        carried=f"coalesce(max(attempt) filter (where {is_returned} and {is_carried}), 0)",
        presented=f"count_if({is_kind('MessagePresented')})",
    )
    told = died.join(failed, ["queue", "seq"], "left").selectExpr(
        *(
            "queue",
            "seq",
            "position",
            "deliveries_max",
            "coalesce(failed, 0) as failed",
            "coalesce(counted, 0) as counted",
        ),
        "coalesce(carried + presented, 0) as besides",
    )
    return told.where("failed = 0 or counted < coalesce(deliveries_max, 1) or counted > failed + besides").selectExpr(
        "queue", "seq", "position", "deliveries_max", "counted", "failed"
    )


@check(
    "dead letter missing",
    of="facts",
    where=FactFilter(("MessageDeadLettered",), nonzero=("dead_queue",)),
    holds="Every dead-lettered message is in its dead-letter queue.",
    one="1 dead letter of {queue} is missing: place {seq} was to come to place {dead_seq} of {dead_queue}.",
    many="{count} dead letters are missing in their dead-letter queues.",
    each="{queue}, place {seq}: not at place {dead_seq} of {dead_queue}",
)
def dead_letter_missing(dead: DataFrame, facts: DataFrame) -> DataFrame:
    """Dead-lettered messages that did not arrive in the dead-letter queue."""
    arrived = _arrivals(facts, "dead_queue", "dead_seq")
    return dead.select("queue", "seq", "dead_queue", "dead_seq").join(
        arrived, ["queue", "seq", "dead_queue", "dead_seq"], "left_anti"
    )


@check(
    "moved message missing",
    of="facts",
    where=FactFilter(("MessageMoved",), not_null=("to_queue",)),
    holds="Every message that was moved is where it was moved to.",
    one="1 message of {queue} is missing: it was moved ({cause}) to place {to_seq} of {to_queue}, and is not there.",
    many="{count} messages are missing where they were moved to.",
    each="{queue}, place {seq}: moved ({cause}) to place {to_seq} of {to_queue} in commit {position}, not there",
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


@check(
    "acknowledged, not assigned",
    of="facts",
    where=FactFilter(("AssignmentAcknowledged",)),
    holds="No pipeline acknowledged more than was assigned to it.",
    one="1 acknowledgement of {queue} reaches to number {through}, and only {assigned} were assigned.",
    many="{count} acknowledgements of pipelines reach beyond what was assigned to them.",
    each="{queue}: acknowledged up to {through} in commit {position}, assigned up to {assigned}",
)
def acknowledged_unassigned(acknowledged: DataFrame, facts: DataFrame) -> DataFrame:
    """Acknowledgements of pipelines that reach beyond what had been assigned to them."""
    assigned = facts.where(is_kind("MessagesAssigned")).selectExpr(
        "to_queue as queue", f"{PLACE} as place", "stored as count", "to_seq + stored - 1 as last"
    )
    said = acknowledged.selectExpr("queue", f"{PLACE} as place", "seq as through", "consumed", "position")
    so_far = Window.partitionBy("queue").orderBy("place").rowsBetween(Window.unboundedPreceding, 0)
    both = said.unionByName(assigned, allowMissingColumns=True).select(
        "*", F.sum("count").over(so_far).alias("sum"), F.max("last").over(so_far).alias("assigned")
    )
    return both.where("through > least(coalesce(sum, 0), coalesce(assigned, 0))").selectExpr(
        "queue", "through", "least(coalesce(sum, 0), coalesce(assigned, 0)) as assigned", "position"
    )

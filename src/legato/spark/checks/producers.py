"""Checks of producers: sends stored once and in order, and no duplicate dropped that had not been stored."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from legato.core.lanes import LANE_SHIFT
from legato.core.producers import ONCE_PREFIX, SINK_PREFIX
from legato.spark.checks.check import check
from legato.spark.ledger.fact_filter import NUMBERED, REGISTERED, FactFilter
from legato.spark.ledger.fact_frames import PLACE, aggregate
from legato.spark.ledger.fact_schema import PLACE_SHIFT

_RUNS = FactFilter(("RunStored",), nonzero=("producer",))
_BATCHES = FactFilter(("RunStored", "BatchPublished"), nonzero=("producer",))
_HANDLED = f"({NUMBERED} or {_BATCHES} or {FactFilter(('DuplicateIdDropped',), not_null=('producer',))})"
"""SQL: what becomes of a number: a message or batch is stored, or dropped because another one has its duplicate id."""


def _is_sink(name: str) -> str:
    """SQL: the producer's numbers are batches: all messages of one commit have the same."""
    return f"(startswith({name}, '{SINK_PREFIX}') or startswith({name}, '{ONCE_PREFIX}'))"


@check(
    "number stored twice",
    of="odd_numbers",
    where="doubtful",
    holds="No send was stored twice, however often its producer had to send it again.",
    one="1 send of {producer} was stored twice: its number {number}, in {queue}.",
    many="{count} sends were stored more than once.",
    each="{producer}, number {number}: stored {times} times, in {queue} at places {seq} and {again}",
)
def number_stored_twice(doubtful: DataFrame, facts: DataFrame) -> DataFrame:
    """Messages of numbered producers that were stored more than once (promise 1)."""
    numbered = facts.where(str(NUMBERED)).join(
        F.broadcast(doubtful.select("producer").distinct()), "producer", "left_semi"
    )
    # Counting each number of its own would cost as much as all else. A bit for each of 64 finds the few to count.
    blocks = aggregate(
        numbered.selectExpr("producer", "number >> 6 as block", "1L << cast(number & 63 as int) as bit"),
        "producer, block",
        numbers="count(*)",
        bits="bit_or(bit)",
    ).where("numbers > bit_count(bits)")
    again = numbered.withColumn("block", F.expr("number >> 6")).join(
        F.broadcast(blocks.select("producer", "block")), ["producer", "block"], "left_semi"
    )
    twice = aggregate(
        again,
        "producer, number",
        times="count(*)",
        commits="count(distinct position)",
        queue="min_by(queue, seq)",
        seq="min(seq)",
        again="max(seq)",
    ).where("times > 1")
    # A batch has one number, and is stored in one commit; one that was published again is for the check of batches.
    sinks = facts.where(f"{REGISTERED} and {_is_sink('name')}").select("producer", F.lit(True).alias("sink"))
    published = aggregate(facts.where(str(_BATCHES)), "producer, number", again_in="count(distinct position)")
    batches = published.where("again_in > 1")
    told = twice.join(F.broadcast(sinks.distinct()), "producer", "left").join(batches, ["producer", "number"], "left")
    return told.where("sink is null or commits > 1 and again_in is null").select(
        "producer", "number", "times", "queue", "seq", "again"
    )


@check(
    "batch stored twice",
    of="facts",
    where=_BATCHES,
    holds="No batch of a sink was published twice.",
    one=(
        "1 batch of {producer} was published {commits} times: its number {number}, in commits "
        "{first_position} to {last_position}."
    ),
    many="{count} batches of sinks were published more than once.",
    each="{producer}, number {number}: {messages} messages in all, from commit {first_position} to {last_position}",
)
def batch_stored_twice(batches: DataFrame) -> DataFrame:
    """Batches of sinks that were stored in more than one commit."""
    found = aggregate(
        batches,
        "producer, number",
        commits="count(distinct position)",
        queue="min_by(queue, position) filter (where queue is not null)",
        first_position="min(position)",
        last_position="max(position)",
        # Of former versions there are runs only, and of batches without runs what was published.
        messages=f"greatest(sum(stored) filter (where {_RUNS}), sum(stored) filter (where not {_RUNS}))",
    )
    return found.where("commits > 1")


@check(
    "sent out of order",
    of="odd_numbers",
    where="disordered",
    holds="What a producer sent to an address with one priority is there in the order in which it was sent.",
    one=(
        "1 message of {queue} is out of order: number {number} of {producer} is at place {seq} (commit {position}), "
        "its number {number_before} at place {seq_before} (commit {position_before})."
    ),
    many="{count} messages are out of order among those of their producers.",
    each=(
        "{queue}: number {number} of {producer} at place {seq} (commit {position}), number {number_before} at place "
        "{seq_before} (commit {position_before})"
    ),
)
def sent_out_of_order(disordered: DataFrame, facts: DataFrame) -> DataFrame:
    """Messages of a producer that are in a lane of an address before one that it had sent earlier.

    What was refused comes again only while nothing later is stored (docs/decisions/0042).
    """
    lanes = disordered.selectExpr("cast(producer as int) as producer", "cast(queue as int) as queue", "lane")
    sent = (
        facts.where(str(NUMBERED))
        .join(F.broadcast(lanes.select("producer").distinct()), "producer", "left_semi")
        .selectExpr(
            "producer",
            "queue",
            f"shiftright(seq, {LANE_SHIFT}) as lane",
            "seq",
            "number",
            "position",
            f"{PLACE} as place",
        )
    )
    # What is stored a second time is for the check of numbers, or else a sink's batch.
    first = sent.withColumn("nth", F.row_number().over(Window.partitionBy("producer", "number").orderBy("place")))
    by_place = Window.partitionBy("producer", "queue", "lane").orderBy("seq", "place")
    before = (
        first.where("nth = 1")
        .join(F.broadcast(lanes), ["producer", "queue", "lane"], "left_semi")
        .select(
            "*",
            *(F.lag(name).over(by_place).alias(f"{name}_before") for name in ("seq", "number", "position", "place")),
        )
    )
    return before.where("number < number_before or place < place_before").select(
        "queue", "seq", "producer", "number", "seq_before", "number_before", "position", "position_before"
    )


@check(
    "stored again after registering anew",
    of="reregistered",
    holds="No message was stored twice because the broker had forgotten its producer.",
    one=(
        "1 message of {queue} was stored twice ({what}): the broker had forgotten its producer {producer_name}, and "
        "registered it anew between {stored_us} and {again_us}."
    ),
    many="{count} messages were stored twice: the broker had forgotten their producers, and registered them anew.",
    each="{queue}, place {seq}: {what} of {producer_name}, stored at {stored_us} and again at {again_us}",
)
def stored_again_anew(reregistered: DataFrame, facts: DataFrame) -> DataFrame:
    """Messages and batches stored a second time because their producer was forgotten, and registered anew.

    Of a sink that was forgotten by command the next query begins with the same numbers: its rows are others.
    """
    again = facts.join(F.broadcast(reregistered.withColumnRenamed("name", "producer_name")), "producer")
    messages = again.where(f"{NUMBERED} and message_id <> ''").selectExpr(
        "producer_name", "message_id as what", "'' as digest", "producer", "number", "queue", "seq", "time_us"
    )
    batches = aggregate(
        again.where(str(_BATCHES)),
        "producer_name, producer, number",
        what="concat('batch ', max(number))",
        digest="coalesce(max(hex(duplicate_id)), '')",
        queue="min_by(queue, seq)",
        seq="min(seq)",
        time_us="min(time_us)",
    )
    found = aggregate(
        messages.unionByName(batches),
        "producer_name, what, digest",
        producers="count(distinct producer)",
        producer="max_by(producer, time_us)",
        number="max_by(number, time_us)",
        queue="max_by(queue, time_us)",
        seq="max_by(seq, time_us)",
        stored_us="min(time_us)",
        again_us="max(time_us)",
    ).where("producers > 1")
    return found.select("queue", "seq", "producer", "producer_name", "what", "number", "stored_us", "again_us")


@check(
    "duplicate never stored",
    of="facts",
    where=FactFilter(("DuplicateDropped",)),
    holds="Every send that was confirmed as a duplicate had been stored.",
    one=(
        "1 message is lost: the number {number} of {producer} was confirmed as a duplicate, and nothing was stored "
        "under it before."
    ),
    many="{count} messages are lost: confirmed as duplicates of numbers that nothing was stored under before.",
    each="{producer}, number {number}: confirmed in commit {position}, not stored before",
)
def duplicate_never_stored(dropped: DataFrame, facts: DataFrame, trimmed: DataFrame) -> DataFrame:
    """Messages confirmed as duplicates of a number that nothing was stored under.

    Of a number below all that are on record since the ledger was trimmed nothing is known. A producer that was
    registered anew goes on with its numbers. Of a sink, whose batch may be empty, only a number is wrong that is beyond
    all that it stored.
    """
    names = facts.where(str(REGISTERED)).select("producer", "name").distinct()
    own = F.coalesce("name", F.concat(F.lit("producer "), "producer"))
    wanted = (
        dropped.selectExpr("producer", "number", "position", f"{PLACE} as place")
        .join(names, "producer", "left")
        .withColumn("who", own)
    )
    numbers = wanted.select("producer", "who", "number").distinct()
    asked = numbers.select("who").distinct()
    ids = (
        names.withColumn("who", own).select("producer", "who").unionByName(numbers.select("producer", "who")).distinct()
    )
    handled = (
        facts.where(_HANDLED)
        .selectExpr("producer", "number as handled", f"{PLACE} as handled_place")
        .join(F.broadcast(ids.join(asked, "who", "left_semi")), "producer")
    )
    is_sink = _is_sink("who")
    first = aggregate(handled.withColumnRenamed("handled", "number"), "who, number", first="min(handled_place)")
    since = handled.crossJoin(F.broadcast(trimmed))
    furthest = aggregate(
        since,
        "who",
        furthest="max(handled)",
        lowest=f"min(handled) filter (where handled_place >> {PLACE_SHIFT} > through)",
    )
    told = (
        wanted.join(first, ["who", "number"], "left")
        .join(furthest, "who", "left")
        .crossJoin(F.broadcast(trimmed))
        .where("through = 0 or number >= lowest")
    )
    return told.where(
        f"(first is null or first > place) and not ({is_sink} and number < coalesce(furthest, 0))"
    ).select("producer", "number", "position")


@check(
    "duplicate id stored twice",
    of="facts",
    where=FactFilter(("DuplicateIdKept",)),
    holds="No address stored two messages with a duplicate id that it remembered.",
    one="1 message of {queue} was stored though the address remembered its duplicate id {duplicate_id}.",
    many="{count} messages were stored though their address remembered their duplicate ids.",
    each="{queue}: message {message_id}, duplicate id {duplicate_id}; the last {window} ids are remembered",
)
def duplicate_id_stored_twice(kept: DataFrame) -> DataFrame:
    """Messages stored though their address remembered their duplicate id."""
    ids = kept.selectExpr("queue", "duplicate_id", "message_id", "stored as window", f"{PLACE} as place")
    nth = ids.withColumn("nth", F.row_number().over(Window.partitionBy("queue").orderBy("place")))
    same = Window.partitionBy("queue", "duplicate_id").orderBy("place")
    again = nth.withColumn("nth_before", F.lag("nth").over(same)).where("nth - nth_before <= window")
    return again.selectExpr("queue", "message_id", "hex(duplicate_id) as duplicate_id", "window")


@check(
    "duplicate id never kept",
    of="facts",
    where=FactFilter(("DuplicateIdDropped",)),
    holds="Every message that was dropped for its duplicate id had a predecessor of that id at its address.",
    one=(
        "1 message for {queue} is lost: it was dropped for its duplicate id {duplicate_id}, which no message there had "
        "had."
    ),
    many="{count} messages are lost: dropped for duplicate ids that no message at their address had had.",
    each="{queue}: message {message_id}, duplicate id {duplicate_id}, dropped in commit {position}",
)
def duplicate_id_never_kept(dropped: DataFrame, facts: DataFrame) -> DataFrame:
    """Messages confirmed as duplicates of an id that no message of their address had been stored under."""
    wanted = dropped.selectExpr("queue", "duplicate_id", "message_id", "position", f"{PLACE} as place")
    kept = facts.where(str(FactFilter(("DuplicateIdKept",)))).selectExpr(
        "queue", "duplicate_id", f"{PLACE} as kept_place"
    )
    first = aggregate(kept, "queue, duplicate_id", first="min(kept_place)")
    told = wanted.join(first, ["queue", "duplicate_id"], "left").where("first is null or first > place")
    return told.selectExpr("queue", "message_id", "hex(duplicate_id) as duplicate_id", "position")

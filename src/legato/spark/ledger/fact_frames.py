"""Facts as Spark frames, and frames of queues, commits, epochs and transactions derived from them."""

from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from legato.core.lanes import LANE_SHIFT
from legato.spark.ledger.fact_filter import SENT, is_kind
from legato.spark.ledger.fact_schema import PLACE_SHIFT, TAGS
from legato.spark.ledger.segments import live, spans, superseded

SCHEMA = """
    position bigint, ordinal int, epoch int, time_us bigint, kind string, queue int, seq bigint, size int,
    message_id string, producer int, number bigint, txn binary, consumer int, delivered_us bigint, attempt int,
    flagged boolean, cause string, origin_queue int, origin_seq bigint, dead_queue int, dead_seq bigint, name string,
    stored bigint, consumed bigint, topic int, expires_us bigint, to_queue int, to_seq bigint, waiting bigint,
    paused boolean, queue_kind tinyint, temporary boolean, shared boolean, selector string, no_local boolean,
    container string, duplicate_id binary, group_id string,
    flow_id string, trace_id string, stage string, call string, tag tinyint, link string, deliveries_max int,
    expired_us bigint, at_us bigint, detection_us bigint,
    event string, operation string, object_type string, to_name string, decision string, user_name string,
    origin string, mechanism string, reason string, omitted bigint
"""

PLACE = f"(position << {PLACE_SHIFT} | ordinal)"
"""SQL: where a fact stands in the log, in one number (a record holds far fewer than 2**20 facts)."""


READ_OPTIONS = {"pathGlobFilter": "facts-*.parquet", "parquet.page.verify-checksum.enabled": "true"}
"""How Spark reads segments."""

TAG = f"coalesce(tag, case kind {' '.join(f'when {kind!r} then {tag}Y' for kind, tag in TAGS.items())} end)"
"""SQL: the number of the fact's kind, also of segments that do not hold it."""

KIND = f"case tag {' '.join(f'when {tag}Y then {kind!r}' for kind, tag in TAGS.items())} end"
"""SQL: the kind that a number stands for."""

FIRST_LANE = f"seq < {1 << LANE_SHIFT}L"
"""SQL: the message has the priority of most."""


def aggregate(frame: DataFrame, by: str, **columns: str) -> DataFrame:
    """One row for each value of the columns `by`, with further columns that are SQL expressions over its rows.

    Not `SparkSession.sql`: given frames as arguments, it forgets that they were cached.
    """
    return frame.groupBy(*by.split(", ")).agg(*(F.expr(text).alias(name) for name, text in columns.items()))


def read_ledger(spark: SparkSession, ledger: Path | str) -> DataFrame:
    """All facts of a ledger, a row each, in the columns of `FACTS_SCHEMA`; segments of former versions lack some.

    Args:
        spark: a session.
        ledger: directory of the segments, as Spark names it: a path, or a URL such as `s3a://bucket/ledger`.

    Returns:
        A frame with `position bigint, ordinal int` (where the fact stands in the log), `epoch int`, `time_us bigint`,
        `kind string` (the fact's name), `queue int, seq bigint` (which message), and what each kind has besides: see
        docs/reference/facts.md.
    """
    return read_segments(spark, paths_of(str(ledger)))


def paths_of(ledger: str) -> list[str]:
    """The directory, or what is to be read in it if that is not all (`segments.live`)."""
    found = [] if "://" in ledger else list(spans(Path(ledger)))
    if not superseded(found):
        return [ledger]
    return [str(Path(ledger) / span.file_name) for span in live(found)]


def read_segments(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """The facts of some segments, or of all in a directory."""
    return spark.read.schema(SCHEMA).options(**READ_OPTIONS).parquet(*paths)


def queues(facts: DataFrame) -> DataFrame:
    """One row a queue, topic or subscription: its number, its name, its `Kind`, and whether it is temporary."""
    return created(queue_facts(facts))


def queue_facts(facts: DataFrame) -> DataFrame:
    """One row for each queue, topic or subscription that was created or deleted: what is said of it in both."""
    is_created, is_deleted = is_kind("QueueCreated"), is_kind("QueueDeleted")
    return aggregate(
        facts.where(is_kind("QueueCreated", "QueueDeleted")),
        "queue",
        is_created=f"count_if({is_created}) > 0",
        name=f"min(name) filter (where {is_created})",
        queue_kind=f"coalesce(max(queue_kind) filter (where {is_created}), 0Y)",
        temporary=f"coalesce(bool_or(temporary) filter (where {is_created}), false)",
        mark=f"min({PLACE}) filter (where {is_deleted})",
        waiting=f"max(waiting) filter (where {is_deleted})",
    )


def created(told: DataFrame) -> DataFrame:
    """The queues among `queue_facts`."""
    return told.where("is_created").select("queue", "name", "queue_kind", "temporary")


def deletions(told: DataFrame) -> DataFrame:
    """One row for each of `queue_facts` that was deleted: where in the log, and how many messages waited in it."""
    return told.where("mark is not null").select("queue", "mark", "waiting")


def commits(facts: DataFrame, **also: str) -> DataFrame:
    """One row for each commit, queue, kind and cause: how many facts, and what they come to; in one look at all facts.

    `said` is the sum of what `stored` says (the copies of publications), `done` of what `consumed` says, `heard` counts
    publications with copies, `copies` the rows of copies, and `last_seq` is lane 0's. `also` are further columns, SQL
    over the facts of a row.
    """
    counted = aggregate(
        facts.withColumn("tag", F.expr(TAG)),
        "position, epoch, queue, tag, cause",
        time_us="min(time_us)",
        facts="count(*)",
        first_ordinal="min(ordinal)",
        last_ordinal="max(ordinal)",
        said="sum(stored)",
        done="sum(consumed)",
        heard="count_if(stored > 0)",
        copies="count(topic)",
        last_seq=f"max(if({FIRST_LANE} and (stored is null or stored > 0), seq, null))",
        **also,
    )
    return with_kind(counted)


def with_kind(commits: DataFrame) -> DataFrame:
    """The same rows, with the kinds that their numbers stand for."""
    return commits.withColumn("kind", F.expr(KIND)).drop("tag")


def records(commits: DataFrame) -> DataFrame:
    """One row a commit: its position and epoch, and how many rows there are of it, and should be."""
    return aggregate(
        commits,
        "position, epoch",
        facts="sum(facts)",
        facts_said=f"max(last_ordinal) + 1 + coalesce(sum({FURTHER}), 0)",
    )


FURTHER = """case kind when 'MessagePublished' then said when 'RunStored' then said
    when 'MessagesAssigned' then 2 * said when 'AssignmentAcknowledged' then done end"""
"""SQL: how many further rows, of one message each, some facts of a commit have: see `fact_schema.COLUMNS`."""


def epochs(records: DataFrame) -> DataFrame:
    """One row an epoch: its first and last position, how many it has, and the last of all epochs before it."""
    own = aggregate(records, "epoch", first="min(position)", last="max(position)", commits="count(*)")
    before = Window.orderBy("epoch").rowsBetween(Window.unboundedPreceding, -1)
    return own.withColumn("last_before", F.coalesce(F.max("last").over(before), F.lit(0)))


def transactions(facts: DataFrame) -> DataFrame:
    """One row a transaction: what it stored and consumed and in which queues, what it said it did, its outcomes."""
    committed = is_kind("TransactionCommitted")
    return aggregate(
        facts.where("txn is not null"),
        "txn",
        stored=f"count_if({SENT})",
        consumed=f"count_if({is_kind('MessageConsumed')})",
        committed=f"count_if({committed})",
        rolled_back=f"count_if({is_kind('TransactionRolledBack')})",
        stored_said=f"max(stored) filter (where {committed})",
        consumed_said=f"max(consumed) filter (where {committed})",
        stored_queue_min=f"min(queue) filter (where {SENT})",
        stored_queue_max=f"max(queue) filter (where {SENT})",
    )


def transactions_added_up(rows: DataFrame) -> DataFrame:
    """The same of rows that tell of parts of the ledger each."""
    how = {"stored_said": "max", "consumed_said": "max", "stored_queue_min": "min", "stored_queue_max": "max"}
    counts = dict.fromkeys(("stored", "consumed", "committed", "rolled_back"), "sum")
    return aggregate(rows, "txn", **{name: f"{sums}({name})" for name, sums in (counts | how).items()})

"""High-water marks: what the broker counted so far, compared with what the facts before each mark add up to."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from legato.core.facts import Kind
from legato.spark.ledger.fact_filter import OF_QUEUES_AND_EPOCHS, is_kind, kind_in
from legato.spark.ledger.fact_frames import FIRST_LANE, PLACE
from legato.spark.summaries.message_summary import LEFT_KINDS

_AT_THE_END = (1 << 31) - 1
"""As the ordinal of what a commit comes to: after all of its facts."""

_IS_GONE = kind_in(*LEFT_KINDS)
_IS_STORED = "(kind = 'MessageStored' or kind = 'MessagePublished' and stored > 0)"
_UNORDERED = f"coalesce({is_kind('QueueCreated')} and queue_kind = {Kind.SCHEDULE:d}, false)"


def queue_and_epoch_facts(facts: DataFrame) -> DataFrame:
    """What is said of queues and epochs, and all facts of commits with marks: all that `marks` asks of facts."""
    marked = F.broadcast(facts.where(is_kind("QueueMarked")).select("position", F.expr("true as marked")).distinct())
    return facts.join(marked, "position", "left").where(f"marked or {OF_QUEUES_AND_EPOCHS}").drop("marked")


def marks(queue_and_epoch_facts: DataFrame, commits: DataFrame) -> DataFrame:
    """One row a high-water mark: what the broker said of a queue, and what the facts before that place amount to.

    What a topic stores are bodies: those of publications with copies. `in_order` says that no message's place is beyond
    the last one's: not so in the schedule.

    A commit counts at its end, as a whole. In commits with marks each fact counts at its own place until then.
    """
    counts = _by_fact(queue_and_epoch_facts).unionByName(_by_commit(commits), allowMissingColumns=True)
    until_here = Window.partitionBy("queue").orderBy("position", "ordinal").rowsBetween(Window.unboundedPreceding, 0)
    found = counts.select(
        *("queue", "position", "ordinal", "seq", "stored", "consumed", "is_mark"),
        F.sum("more_stored").over(until_here).alias("stored_found"),
        F.sum("more_consumed").over(until_here).alias("consumed_found"),
        F.max("stored_seq").over(until_here).alias("seq_found"),
        F.max("unordered").over(until_here).alias("unordered"),
    )
    return found.where("is_mark").selectExpr(
        *("queue", "position", "ordinal", "seq", "stored", "consumed", f"{PLACE} as place"),
        "not unordered as in_order",
        *("stored_found", "consumed_found", "coalesce(seq_found, 0L) as seq_found"),
    )


def _by_commit(commits: DataFrame) -> DataFrame:
    return commits.where(f"kind in ('MessageStored', 'MessagePublished') or {_IS_GONE}").selectExpr(
        "queue",
        "position",
        f"{_AT_THE_END} as ordinal",
        "case kind when 'MessageStored' then facts when 'MessagePublished' then heard else 0L end as more_stored",
        f"if({_IS_GONE}, facts, 0L) as more_consumed",
        f"if({_IS_GONE}, null, last_seq) as stored_seq",
    )


def _by_fact(queue_and_epoch_facts: DataFrame) -> DataFrame:
    """Marks, and what counts in their commits: at its own place, and less as much at the end, where the commit does."""
    counts = queue_and_epoch_facts.selectExpr(
        *("queue", "position", "ordinal", "seq", "stored", "consumed"),
        f"if({_IS_STORED}, 1L, 0L) as more_stored",
        f"if({_IS_GONE}, 1L, 0L) as more_consumed",
        f"if({_IS_STORED} and {FIRST_LANE}, seq, null) as stored_seq",
        f"{is_kind('QueueMarked')} as is_mark",
        f"{_UNORDERED} as unordered",
    ).where("is_mark or unordered or more_stored + more_consumed > 0")
    taken_back = counts.where("more_stored + more_consumed > 0").selectExpr(
        "queue",
        "position",
        f"{_AT_THE_END} as ordinal",
        "-more_stored as more_stored",
        "-more_consumed as more_consumed",
    )
    return counts.unionByName(taken_back, allowMissingColumns=True)

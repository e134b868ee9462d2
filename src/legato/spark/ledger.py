"""The ledger's facts as Spark frames: as they are, and one row for each message, commit and transaction."""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

SCHEMA = """
    position bigint, ordinal int, epoch int, time_us bigint, kind string, queue int, seq bigint, size int,
    message_id string, producer int, number bigint, txn binary, consumer int, delivered_us bigint, attempt int,
    flagged boolean, cause string, origin_queue int, origin_seq bigint, dead_queue int, dead_seq bigint, name string,
    stored bigint, consumed bigint
"""


def query(text: str, **frames: DataFrame) -> DataFrame:
    """The answer to a question in SQL, in which `{name}` stands for the frame of that name."""
    session = next(iter(frames.values())).sparkSession
    return session.sql(text, None, **frames)


def read_facts(spark: SparkSession, ledger: Path) -> DataFrame:
    """All facts of a ledger, one row each, in the columns of `legato.spark.table`."""
    return spark.read.schema(SCHEMA).option("pathGlobFilter", "facts-*.parquet").parquet(str(ledger))


def queue_names(facts: DataFrame) -> DataFrame:
    """One row a queue: its number and its name."""
    return query("select queue, min(name) name from {facts} where kind = 'QueueCreated' group by queue", facts=facts)


def records(facts: DataFrame) -> DataFrame:
    """One row a commit: its position and epoch, and how many facts there are of it, and should be."""
    return query(
        """
        select position, epoch, min(time_us) time_us, count(*) facts, max(ordinal) + 1 facts_said
        from {facts} group by position, epoch
        """,
        facts=facts,
    )


def lifecycle(facts: DataFrame) -> DataFrame:
    """One row a message: how often it was stored and left its queue, when, at which place of the log, by which try.

    A place is position and ordinal in one number (a record holds far fewer than 2**20 facts). Only numbers are
    aggregated: with strings among them Spark would have to sort instead of hash.
    """
    return query(
        """
        select queue, seq,
          count_if(is_stored) stored_count,
          count_if(is_consumed) consumed_count,
          count_if(is_dead) dead_count,
          count_if(is_consumed or is_dead) left_count,
          count_if(is_returned) returned_count,
          min(time_us) filter (where is_stored) stored_us,
          max(delivered_us) filter (where is_consumed) delivered_us,
          max(time_us) filter (where is_consumed or is_dead) left_us,
          min(place) filter (where is_stored) stored_place,
          max(place) filter (where is_consumed or is_dead) left_place,
          max(attempt) filter (where is_consumed) attempt,
          max(attempt) filter (where is_returned) returned_attempt
        from (
          select *,
            position * 1048576 + ordinal as place,
            kind = 'MessageStored' as is_stored,
            kind = 'MessageConsumed' as is_consumed,
            kind = 'MessageDeadLettered' as is_dead,
            kind = 'MessageReturned' as is_returned
          from {facts}
          where kind in ('MessageStored', 'MessageConsumed', 'MessageDeadLettered', 'MessageReturned')
        )
        group by queue, seq
        """,
        facts=facts,
    )


def transactions(facts: DataFrame) -> DataFrame:
    """One row a transaction: what it stored and consumed and in which queues, what it said it did, its outcomes."""
    return query(
        """
        select txn,
          count_if(kind = 'MessageStored') stored,
          count_if(kind = 'MessageConsumed') consumed,
          count_if(kind = 'TransactionCommitted') committed,
          count_if(kind = 'TransactionRolledBack') rolled_back,
          max(stored) filter (where kind = 'TransactionCommitted') stored_said,
          max(consumed) filter (where kind = 'TransactionCommitted') consumed_said,
          min(queue) filter (where kind = 'MessageStored') stored_queue_min,
          max(queue) filter (where kind = 'MessageStored') stored_queue_max
        from {facts} where txn is not null group by txn
        """,
        facts=facts,
    )


def marks(facts: DataFrame) -> DataFrame:
    """One row a high-water mark: what the broker said of a queue, and what the facts before that place amount to."""
    return query(
        """
        with
        said as (
          select queue, position, ordinal, seq, stored, consumed from {facts} where kind = 'QueueMarked'
        ),
        moved as (
          select f.queue, f.position * 2 + if(f.ordinal > said.ordinal, 1, 0) as half,
            count_if(f.kind = 'MessageStored') stored,
            count_if(f.kind <> 'MessageStored') consumed,
            max(f.seq) filter (where f.kind = 'MessageStored') seq
          from {facts} f left join said on f.queue = said.queue and f.position = said.position
          where f.kind in ('MessageStored', 'MessageConsumed', 'MessageDeadLettered')
          group by 1, 2
        ),
        both as (
          select queue, half, stored, consumed, seq, null as said_at from moved
          union all
          select queue, position * 2, 0, 0, null, position * 1048576 + ordinal from said
        ),
        summed as (
          select queue, said_at,
            sum(stored) over upto stored_found, sum(consumed) over upto consumed_found, max(seq) over upto seq_found
          from both window upto as (partition by queue order by half range unbounded preceding)
        )
        select said.queue, said.position, said_at place, said.seq, said.stored, said.consumed,
          coalesce(seq_found, 0) seq_found, stored_found, consumed_found
        from summed join said
          on summed.queue = said.queue and summed.said_at = said.position * 1048576 + said.ordinal
        """,
        facts=facts,
    )

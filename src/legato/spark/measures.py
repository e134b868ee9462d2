"""What a ledger says of speed: takeovers, throughput over time, and how long messages took."""

from pyspark.sql import DataFrame

from legato.spark.ledger import query

LATENCY_BUCKETS_PER_DECADE = 20
"""Latency histograms have this many buckets for a factor of ten: each is 12 % wide."""


def takeovers(facts: DataFrame) -> DataFrame:
    """One row for each epoch after the first: when it began and served, and how the one before it ended.

    `duration_us` runs from the last commit of the former primary to the first of the new one; `served_us` is the
    first time after it at which a message was stored or consumed.
    """
    return query(
        """
        with epochs as (
          select epoch,
            min(time_us) filter (where kind = 'EpochBegan') began_us,
            max(time_us) last_us,
            count_if(kind = 'EpochEnded') > 0 ended,
            min(time_us) filter (where kind in ('MessageStored', 'MessageConsumed')) served_us
          from {facts} group by epoch
        ),
        brokers as (
          select epoch, min(name) name from {facts} where kind = 'EpochBegan' group by epoch
        )
        select e.epoch, b.name broker, former.name former_broker, f.ended clean, f.last_us former_last_us, e.began_us,
          e.began_us - f.last_us duration_us, e.served_us
        from epochs e join epochs f on f.epoch = e.epoch - 1
          join brokers b on b.epoch = e.epoch left join brokers former on former.epoch = f.epoch
        order by e.epoch
        """,
        facts=facts,
    )


def throughput(facts: DataFrame, start_us: int, bucket_us: int) -> DataFrame:
    """Messages stored, consumed and dead-lettered in each queue and each `bucket_us` from `start_us` on."""
    return query(
        f"""
        select queue, div(time_us - {start_us}, {bucket_us}) bucket,
          count_if(kind = 'MessageStored') stored,
          count_if(kind = 'MessageConsumed') consumed,
          count_if(kind = 'MessageDeadLettered') dead_lettered
        from {{facts}} where kind in ('MessageStored', 'MessageConsumed', 'MessageDeadLettered')
        group by 1, 2
        """,
        facts=facts,
    )


def latencies(lifecycle: DataFrame) -> DataFrame:
    """Per queue, percentiles in microseconds of queueing (stored to delivered), processing (to consumed) and both."""
    return query(
        """
        select queue, stage, count(*) messages, percentile_approx(us, array(0.5D, 0.95D, 0.99D), 10000) percentiles,
          max(us) longest
        from (
          select queue, stack(3,
            'queueing', delivered_us - stored_us,
            'processing', left_us - delivered_us,
            'end to end', left_us - stored_us) as (stage, us)
          from {lifecycle} where consumed_count > 0 and stored_count > 0
        ) group by queue, stage
        """,
        lifecycle=lifecycle,
    )


def latency_histogram(lifecycle: DataFrame, start_us: int, bucket_us: int) -> DataFrame:
    """Messages per queue, time bucket of their consumption and logarithmic bucket of their end-to-end time."""
    return query(
        f"""
        select queue, div(left_us - {start_us}, {bucket_us}) bucket,
          cast(floor(log10(greatest(left_us - stored_us, 1)) * {LATENCY_BUCKETS_PER_DECADE}) as int) latency,
          count(*) messages
        from {{lifecycle}} where consumed_count > 0 and stored_count > 0
        group by 1, 2, 3
        """,
        lifecycle=lifecycle,
    )


def queue_totals(lifecycle: DataFrame) -> DataFrame:
    """Per queue, how many messages were stored, consumed, dead-lettered, redelivered, done twice, or never left."""
    return query(
        """
        select queue,
          count_if(stored_count > 0) stored,
          count_if(consumed_count > 0) consumed,
          count_if(dead_count > 0) dead_lettered,
          count_if(stored_count > 0 and left_count = 0) unsettled,
          sum(greatest(left_count - 1, 0) + greatest(stored_count - 1, 0)) done_twice,
          count_if(returned_count > 0) redelivered
        from {lifecycle} group by queue
        """,
        lifecycle=lifecycle,
    )


def forwarded(facts: DataFrame, transactions: DataFrame) -> DataFrame:
    """Per queue, how many messages were consumed in a committed transaction that stored one in another queue."""
    return query(
        """
        select f.queue, count(*) forwarded
        from {facts} f join {transactions} t on f.txn = t.txn
        where f.kind = 'MessageConsumed' and t.committed > 0
          and (t.stored_queue_min <> f.queue or t.stored_queue_max <> f.queue)
        group by f.queue
        """,
        facts=facts,
        transactions=transactions,
    )


def span(facts: DataFrame) -> DataFrame:
    """One row: how many facts and commits' worth of time the ledger covers."""
    return query(
        "select count(*) facts, min(time_us) first_us, max(time_us) last_us, max(position) last_position from {facts}",
        facts=facts,
    )

"""Gold: the steps from facts and messages to hourly tables, each one SQL query over named frames.

A step answers for a portion of the ledger, and answers for portions add up: that is why lengths of time are counted by
value (to three digits) and not as percentiles. `VIEWS` makes of them what people want to see.
"""

from string import Formatter
from typing import Any, NamedTuple

from pyspark.sql import DataFrame

from legato.spark.auditor.metrics import EPOCH_BEGAN, LAST_SERVED, SHARES, THREE_DIGITS
from legato.spark.ledger.fact_filter import is_kind
from legato.spark.ledger.fact_frames import KIND, TAG

HOUR_US = 3_600_000_000


class Step(NamedTuple):
    """A table: its name, a sentence on what it holds, and its query, in which `{name}` is the frame of that name."""

    name: str
    sentence: str
    sql: str

    @property
    def inputs(self) -> list[str]:
        """The names of the frames that the query asks."""
        return sorted({name for _, name, _, _ in Formatter().parse(self.sql) if name})

    def of(self, **frames: Any) -> DataFrame:
        """Ask the query of frames: a pure function of them."""
        first: DataFrame = next(iter(frames.values()))
        return first.sparkSession.sql(self.sql, **frames)


def _hour(time_us: str) -> str:
    return f"timestamp_micros({time_us} div {HOUR_US}L * {HOUR_US}L)"


BRONZE = Step(
    "bronze",
    "The facts as the segments hold them, with the hour in which they happened.",
    f"select *, {_hour('time_us')} as hour from {{segments}}",
)

ACTIVITY = Step(
    "activity",
    "How many facts of each kind and cause there were for each queue, epoch and hour, and when the first and last.",
    f"""
    select epoch, timestamp_micros(hours * {HOUR_US}L) as hour, queue, {KIND} as kind, cause, broker, producer,
           facts, bytes, first_us, last_us, at_us, detection_us
    from (select epoch, hours, queue, tag, cause, broker, producer,
                 count(*) as facts, sum(size) as bytes, min(time_us) as first_us, max(time_us) as last_us,
                 min(at_us) as at_us, max(detection_us) as detection_us
          from (select epoch, time_us div {HOUR_US}L as hours, queue, cause, size, time_us, at_us, detection_us,
                       {TAG} as tag,
                       if({is_kind("EpochBegan")}, name, null) as broker,
                       if({is_kind("DuplicateDropped", "DuplicateIdDropped")}, producer, null) as producer
                from {{facts}})
          group by epoch, hours, queue, tag, cause, broker, producer)
    """,
)

NAMES = Step(
    "names",
    "The number and the name of each queue, topic and subscription.",
    f"""
    select queue, name, coalesce(queue_kind, 0Y) as queue_kind, coalesce(temporary, false) as temporary
    from {{facts}} where {is_kind("QueueCreated")}
    """,
)

_ENDED = is_kind("TransactionCommitted", "TransactionRolledBack")

TRANSACTION_TIMES = Step(
    "transaction_times",
    "How many transactions ended in which way, by hour, and how long after the first delivery to them.",
    f"""
    select hour, outcome, cause, received, sent, rounded, count(*) as messages, max(us) as longest
    from (select *, {THREE_DIGITS} as rounded
          from (select hour, outcome, cause, received, sent,
                       if(ended_us < delivered_us, 0L, ended_us - delivered_us) as us
                from (select txn, max(hour) as hour,
                             if(count_if({is_kind("TransactionCommitted")}) > 0, 'committed', 'rolled back') as outcome,
                             max(if({is_kind("TransactionRolledBack")}, cause, null)) as cause,
                             max(if({_ENDED}, consumed, null)) as received,
                             max(if({_ENDED}, stored, null)) as sent,
                             max(if({_ENDED}, time_us, null)) as ended_us,
                             min(delivered_us) as delivered_us
                      from {{facts}} where txn is not null group by txn)
                where ended_us is not null))
    group by hour, outcome, cause, received, sent, rounded
    """,
)

LATENCY = Step(
    "latency",
    "How many messages took how long: queueing (stored to delivered), processing (to consumed), and both.",
    f"""
    select queue, timestamp_micros(hours * {HOUR_US}L) as hour,
           case stage when 0Y then 'queueing' when 1Y then 'processing' else 'end to end' end as stage,
           rounded, messages, longest
    from (select queue, hours, stage, rounded, count(*) as messages, max(us) as longest
          from (select queue, hours, stage, us, {THREE_DIGITS} as rounded
                from (select queue, left_us div {HOUR_US}L as hours,
                             stack(3, 0Y, greatest(delivered_us - stored_us, 0L),
                                      1Y, greatest(left_us - delivered_us, 0L),
                                      2Y, greatest(left_us - stored_us, 0L)) as (stage, us)
                      from {{messages}} where consumed_count > 0 and stored_count > 0))
          group by queue, hours, stage, rounded)
    """,
)

SETTLED = Step(
    "settled",
    "How many messages left each queue in each hour, how many had been delivered before, and how many left twice.",
    f"""
    select queue, {_hour("left_us")} as hour, count(*) as messages,
           count_if(returned_count > 0 or attempt > 1) as redelivered,
           sum(greatest(left_count - 1, 0)) as left_twice, sum(greatest(stored_count - 1, 0)) as stored_twice,
           max(attempt) as attempts_max
    from {{messages}} group by queue, {_hour("left_us")}
    """,
)

WHO_DID_WHAT = Step(
    "audited_actions",
    "What the audit trail has: who operated the broker, or was denied something.",
    f"""
    select timestamp_micros(time_us) as at, epoch, event, user_name as user, origin, container as client, mechanism,
           operation, object_type as type, name as object, to_name as to,
           message_id, decision, reason, omitted
    from {{facts}} where {is_kind("ActionAudited")}
    """,
)

OF_FACTS = (ACTIVITY, NAMES, TRANSACTION_TIMES, WHO_DID_WHAT)
OF_MESSAGES = (LATENCY, SETTLED)
"""What is written for each portion of the ledger."""


def _percentiles(source: str, by: str) -> str:
    shares = ", ".join(
        f"min(rounded) filter (where rank >= {share}D * total) / 1000D as p{round(share * 100)}_ms" for share in SHARES
    )
    return f"""
    select {by}, sum(messages) as messages, {shares}, max(longest) / 1000D as longest_ms
    from (select *, sum(messages) over (partition by {by} order by rounded) as rank,
                 sum(messages) over (partition by {by}) as total
          from (select {by}, rounded, sum(messages) as messages, max(longest) as longest
                from {source} where rounded is not null group by {by}, rounded))
    group by {by}
    """


_BEGAN = EPOCH_BEGAN.replace("time_us", "first_us")

VIEWS = (
    Step(
        "audit",
        "The account of each destination, hour by hour: what came, and what became of it.",
        """
        select coalesce(n.name, concat('queue ', a.queue)) as destination, a.hour,
               coalesce(sum(facts) filter (where kind = 'MessageStored'), 0) as stored,
               coalesce(sum(facts) filter (where kind = 'MessagePublished'), 0) as published,
               coalesce(sum(facts) filter (where kind = 'MessageConsumed'), 0) as consumed,
               coalesce(sum(facts) filter (where kind = 'MessageDeadLettered'), 0) as dead_lettered,
               coalesce(sum(facts) filter (where kind = 'MessageMoved'), 0) as moved,
               coalesce(sum(facts) filter (where kind = 'MessageReturned' and cause <> 'carried'), 0) as returned,
               coalesce(max(s.left_twice), 0) as left_twice, coalesce(max(s.stored_twice), 0) as stored_twice,
               coalesce(sum(bytes) filter (where kind in ('MessageStored', 'RunStored')), 0) as bytes
        from {activity} a
        left join (select distinct queue, name from {names}) n on a.queue = n.queue
        left join (select queue, hour, sum(left_twice) as left_twice, sum(stored_twice) as stored_twice
                   from {settled} group by queue, hour) s on a.queue = s.queue and a.hour = s.hour
        where a.queue is not null and (kind like 'Message%' or kind = 'RunStored')
        group by 1, a.hour, a.queue order by 1, 2
        """,
    ),
    Step(
        "latencies",
        "Percentiles of how long messages took, by destination and hour.",
        f"""
        select coalesce(n.name, concat('queue ', p.queue)) as destination, p.* except (queue)
        from ({_percentiles("{latency}", "queue, hour, stage")}) p
        left join (select distinct queue, name from {{names}}) n on p.queue = n.queue order by 1, hour, stage
        """,
    ),
    Step(
        "failovers",
        "Each takeover: who from whom, how that had ended, how long nobody served, and what was undone.",
        f"""
        select epoch, broker, former_broker, if(former_broker is null, null, former_ended is not null) as clean,
               timestamp_micros(began_us) as began,
               if(began_us < lost_us, 0L, began_us - lost_us) / 1000D as gap_ms,
               if(served_us < lost_us, 0L, served_us - lost_us) / 1000D as serving_after_ms,
               waiting_before, rolled_back, returned,
               if(former_broker is null, null, coalesce(former_ended, 'crash')) as how,
               former_broker is not null and former_ended is null and seen_us is null as at_most
        from (select *, {LAST_SERVED} as lost_us
              from (select *, lag(broker) over (order by epoch) as former_broker,
                           lag(ended) over (order by epoch) as former_ended,
                           lag(last_us) over (order by epoch) as former_last_us,
                           coalesce(sum(change) over (order by epoch rows between unbounded preceding and 1 preceding),
                                    0) as waiting_before
              from (select epoch, max(broker) as broker, {_BEGAN} as began_us, max(last_us) as last_us,
                           max(cause) filter (where kind = 'EpochEnded') as ended,
                           coalesce(min(at_us), {_BEGAN}) as served_us,
                           {_BEGAN} - max(if(kind = 'ServingBegan' and cause <> 'start', detection_us, null))
                               as seen_us,
                           coalesce(sum(case when kind = 'MessageStored' then facts
                                             when kind in ('MessageConsumed', 'MessageDeadLettered', 'MessageMoved')
                                             then -facts end), 0) as change,
                           coalesce(sum(facts) filter (where kind = 'TransactionRolledBack'), 0) as rolled_back,
                           coalesce(sum(facts) filter (where kind = 'MessageReturned' and cause = 'disconnect'), 0)
                               as returned
                    from {{activity}} group by epoch)))
        order by epoch
        """,
    ),
    Step(
        "causes",
        "Why messages came back, left as dead letters or were moved, by destination and hour.",
        """
        select coalesce(n.name, concat('queue ', a.queue)) as destination, hour,
               case kind when 'MessageReturned' then 'redelivered' when 'MessageMoved' then 'moved'
                         else 'dead-lettered' end as what, cause, sum(facts) as messages
        from {activity} a left join (select distinct queue, name from {names}) n on a.queue = n.queue
        where kind in ('MessageReturned', 'MessageDeadLettered', 'MessageMoved')
        group by 1, 2, 3, 4 order by 1, 2, 3, 4
        """,
    ),
    Step(
        "queue_names",
        "What the numbers of queues in silver stand for: the name and kind of each queue, topic and subscription.",
        """
        select queue, max(name) as destination,
               element_at(array('queue', 'topic', 'subscription', 'schedule', 'assignment'), max(queue_kind) + 1)
                   as kind,
               bool_or(temporary) as temporary
        from {names} group by queue order by queue
        """,
    ),
    Step(
        "actions",
        "Who did what, and when: purges, moves, edits, switchovers and the like, and what was denied to whom.",
        """
        select at, epoch, event, `user`, origin, client, mechanism, operation, `type`, object, `to`, message_id,
               decision, reason, omitted
        from {audited_actions} order by at
        """,
    ),
    Step(
        "duplicates",
        "How many messages came again and were not stored again, by hour: found by number or by duplicate id.",
        """
        select if(kind = 'DuplicateDropped', 'number', 'duplicate id') as found_by, producer, n.name as destination,
               hour, sum(facts) as dropped
        from {activity} a left join (select distinct queue, name from {names}) n on a.queue = n.queue
        where kind like 'Duplicate%Dropped' group by 1, 2, 3, 4 order by 1, 2, 3, 4
        """,
    ),
    Step(
        "transactions",
        "Transactions by outcome and cause, hour by hour: what they did, and how long they took.",
        f"""
        select c.hour, c.outcome, c.cause, c.transactions, c.received, c.sent,
               p.p50_ms, p.p95_ms, p.p99_ms, p.longest_ms
        from (select hour, outcome, cause, sum(messages) as transactions, sum(received * messages) as received,
                     sum(sent * messages) as sent
              from {{transaction_times}} group by hour, outcome, cause) c
        left join ({_percentiles("{transaction_times}", "hour, outcome, cause")}) p
        on c.hour = p.hour and c.outcome = p.outcome and c.cause <=> p.cause order by 1, 2, 3
        """,
    ),
)
"""The tables of gold, made of what was written for each portion."""


def gold_steps() -> tuple[Step, ...]:
    """Every step from facts (`{facts}`) and messages (`{messages}`) to the tables of gold; a step asks earlier ones."""
    return (*OF_FACTS, *OF_MESSAGES, *VIEWS)

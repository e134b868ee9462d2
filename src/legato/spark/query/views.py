"""Views over the segments of a ledger, as DuckDB's SQL: what `legato ledger query` asks.

`facts` are the segments as they are (bronze). The other views are made of it alone, each by the views above it.
Times are UTC.
"""

from typing import NamedTuple

from legato.core.facts import Kind
from legato.core.lanes import LANE_SHIFT
from legato.spark.summaries.message_summary import CARRIED, CLAIMED, KINDS, LEFT_KINDS

FACTS = "facts"


class View(NamedTuple):
    """A view: its name, a sentence on what it holds, and its query."""

    name: str
    sentence: str
    sql: str


def _texts(*words: str) -> str:
    return ", ".join(f"'{word}'" for word in words)


_IS_STORED = "kind = 'MessageStored'"
_LEFT = f"kind in ({_texts(*LEFT_KINDS)})"
_QUEUE_KINDS = " ".join(f"when {kind:d} then '{kind.name.lower()}'" for kind in Kind)

QUEUES = View(
    "queues",
    "each queue, topic and subscription: its number in other views, its name, and when it was created and deleted",
    f"""
    select c.queue, c.name as destination, case coalesce(c.queue_kind, 0) {_QUEUE_KINDS} end as type,
           t.name as topic, coalesce(c.temporary, false) as temporary, c.selector,
           make_timestamp(c.time_us) as created_at, make_timestamp(d.time_us) as deleted_at
    from (select queue, max_by(name, position) as name, max(queue_kind) as queue_kind, max(topic) as topic,
                 bool_or(temporary) as temporary, max(selector) as selector, min(time_us) as time_us
          from facts where kind = 'QueueCreated' group by queue) c
    left join (select queue, max(name) as name from facts where kind = 'QueueCreated' group by queue) t
           on t.queue = c.topic
    left join (select queue, max(time_us) as time_us from facts where kind = 'QueueDeleted' group by queue) d
           on d.queue = c.queue
    """,
)

PRODUCERS = View(
    "producers",
    "each producer that numbers its messages: its number in other views, and its name",
    """
    select producer, max_by(name, position) as name, make_timestamp(min(time_us)) as registered_at
    from facts where kind = 'ProducerRegistered' group by producer
    """,
)

CONSUMERS = View(
    "consumers",
    "each consumer that attached: its number in other views, its queue, the client id, the name of its link",
    """
    select f.consumer, f.queue, q.destination, f.name as client, f.link, f.epoch,
           make_timestamp(f.time_us) as attached_at
    from facts f left join queues q on q.queue = f.queue where f.kind = 'ConsumerAttached'
    """,
)

_STATE = """
    case when s.stored_count = 0 then 'never stored'
         when s.left_count = 0 then if(q.deleted_at is null, 'waiting', 'deleted with its queue')
         when s.last_left = 'MessageConsumed' then 'consumed'
         when s.last_left = 'MessageDeadLettered' then 'dead letter'
         else coalesce(s.last_cause, 'moved') end"""
_FACTS_OF_MESSAGES = f"kind in ({_texts(*KINDS)})"
_STORED_PLACE = "min_by({}, (position, ordinal)) filter (where {})"

MESSAGES = View(
    "messages",
    "each message, once for each queue and subscription: what became of it, when, and how long it waited",
    f"""
    select q.destination, s.queue, s.seq, coalesce(s.message_id, p.message_id) as message_id, {_STATE} as state,
           make_timestamp(s.stored_us) as stored_at, make_timestamp(s.first_delivered_us) as first_delivered_at,
           make_timestamp(s.delivered_us) as delivered_at, make_timestamp(s.left_us) as left_at,
           if(s.stored_count = 0 or s.consumed_count = 0, null,
              greatest(s.delivered_us - s.stored_us, 0) / 1000) as waited_ms,
           if(s.consumed_count = 0, null, greatest(s.left_us - s.delivered_us, 0) / 1000) as worked_ms,
           if(s.stored_count = 0 or s.left_count = 0, null, greatest(s.left_us - s.stored_us, 0) / 1000) as took_ms,
           s.attempt, s.last_cause as cause, d.name as producer, s.producer as producer_number, s.number,
           c.client, s.consumer, coalesce(s.size, p.size) as size_bytes,
           case s.seq >> {LANE_SHIFT} when 0 then 4 else (s.seq >> {LANE_SHIFT}) - 1 end as priority,
           make_timestamp(coalesce(s.expires_us, p.expires_us)) as expires_at,
           s.stored_count, s.consumed_count, s.dead_count, s.moved_count, s.left_count, s.returned_count,
           s.presented_count, s.first_epoch, s.last_epoch,
           hex(coalesce(s.sent_txn, p.txn)) as sent_txn, hex(s.consumed_txn) as consumed_txn,
           make_timestamp(s.stored_us)::date as day
    from (select queue, seq,
                 count(*) filter (where {_IS_STORED}) as stored_count,
                 count(*) filter (where kind = 'MessageConsumed') as consumed_count,
                 count(*) filter (where kind = 'MessageDeadLettered') as dead_count,
                 count(*) filter (where kind = 'MessageMoved') as moved_count,
                 count(*) filter (where {_LEFT}) as left_count,
                 count(*) filter (where kind = 'MessageReturned' and cause not in ('{CLAIMED}', '{CARRIED}'))
                     as returned_count,
                 count(*) filter (where kind = 'MessagePresented') as presented_count,
                 min(time_us) filter (where {_IS_STORED}) as stored_us,
                 min(delivered_us) as first_delivered_us, max(delivered_us) as delivered_us,
                 max(time_us) filter (where {_LEFT}) as left_us,
                 max_by(kind, (position, ordinal)) filter (where {_LEFT}) as last_left,
                 max_by(cause, (position, ordinal)) filter (where {_LEFT}) as last_cause,
                 max(attempt) filter (where kind = 'MessageConsumed') as attempt,
                 max(consumer) filter (where kind = 'MessageConsumed') as consumer,
                 nullif(max(message_id) filter (where {_IS_STORED}), '') as message_id,
                 max(size) filter (where {_IS_STORED}) as size,
                 max(producer) filter (where {_IS_STORED}) as producer,
                 max(number) filter (where {_IS_STORED}) as number,
                 max(expires_us) filter (where {_IS_STORED}) as expires_us,
                 max(txn) filter (where {_IS_STORED}) as sent_txn,
                 max(txn) filter (where kind = 'MessageConsumed') as consumed_txn,
                 min(position) filter (where {_IS_STORED}) as stored_position,
                 max(topic) filter (where {_IS_STORED}) as topic,
                 min(epoch) as first_epoch, max(epoch) as last_epoch
          from facts where {_FACTS_OF_MESSAGES} group by queue, seq) s
    left join queues q on q.queue = s.queue
    -- What a copy's row does not say, the publication's does.
    left join facts p on p.kind = 'MessagePublished' and p.queue = s.topic and p.seq = s.seq
                     and p.position = s.stored_position
    left join producers d on d.producer = coalesce(s.producer, p.producer)
    left join (select consumer, max(client) as client from consumers group by consumer) c on c.consumer = s.consumer
    """,
)

DELIVERIES = View(
    "deliveries",
    "what happened between messages and consumers: delivered and seen (with [ledger] detail = all), presented, "
    "returned, released, consumed",
    """
    select make_timestamp(f.time_us) as happened_at, q.destination, f.queue, f.seq,
           case f.kind when 'MessageDelivered' then 'delivered' when 'MessageSeen' then 'seen'
                       when 'MessagePresented' then 'presented' when 'MessageReturned' then 'returned'
                       when 'MessageReleased' then 'released' else 'consumed' end as what,
           f.attempt, f.cause, f.flagged, c.client, f.consumer, make_timestamp(f.delivered_us) as delivered_at,
           hex(f.txn) as txn, f.epoch, f.position
    from facts f left join queues q on q.queue = f.queue
    left join (select consumer, max(client) as client from consumers group by consumer) c on c.consumer = f.consumer
    where f.kind in ('MessageDelivered', 'MessageSeen', 'MessagePresented', 'MessageReturned', 'MessageReleased',
                     'MessageConsumed')
    """,
)

DEAD_LETTERS = View(
    "dead_letters",
    "each message that became a dead letter: from where, why, and where it is",
    """
    select make_timestamp(f.time_us) as happened_at, q.destination, f.queue, f.seq, m.message_id, f.cause,
           f.deliveries_max, d.destination as dead_letter_queue, f.dead_queue, f.dead_seq, f.epoch, f.position
    from facts f left join queues q on q.queue = f.queue left join queues d on d.queue = f.dead_queue
    left join messages m on m.queue = f.queue and m.seq = f.seq
    where f.kind = 'MessageDeadLettered'
    """,
)

TRANSACTIONS = View(
    "transactions",
    "each transaction that did work: its outcome, why it was rolled back, how many messages it received and sent",
    """
    select hex(txn) as txn, make_timestamp(time_us) as happened_at,
           if(kind = 'TransactionCommitted', 'committed', 'rolled back') as outcome, cause,
           consumed as received, stored as sent, epoch, position
    from facts where kind in ('TransactionCommitted', 'TransactionRolledBack')
    """,
)

TAKEOVERS = View(
    "takeovers",
    "each epoch of a primary: since when it served, who had served before it, how that ended, how long nobody served",
    """
    select epoch, broker, make_timestamp(began_us) as began_at, make_timestamp(served_us) as serving_at,
           former_broker, if(former_broker is null, null, coalesce(former_ended, 'crash')) as how,
           if(former_broker is null, null, greatest(served_us - lost_us, 0) / 1000) as nobody_served_ms,
           if(former_broker is null, null, former_ended is null and seen_us is null) as at_most
    from (select *, if(former_ended is null, greatest(former_last_us, coalesce(seen_us, former_last_us)),
                       former_last_us) as lost_us
          from (select *, lag(broker) over (order by epoch) as former_broker,
                       lag(ended) over (order by epoch) as former_ended,
                       lag(last_us) over (order by epoch) as former_last_us
                from (select *, began_us - detected_us as seen_us, coalesce(at_us, began_us) as served_us
                      from (select epoch, max(name) filter (where kind = 'EpochBegan') as broker,
                                   coalesce(min(time_us) filter (where kind = 'EpochBegan'), min(time_us)) as began_us,
                                   min(at_us) as at_us, max(time_us) as last_us,
                                   max(cause) filter (where kind = 'EpochEnded') as ended,
                                   max(detection_us) filter (where kind = 'ServingBegan' and cause <> 'start')
                                       as detected_us
                            from facts group by epoch))))
    order by epoch
    """,
)

DUPLICATES = View(
    "duplicates",
    "each message that came again and was not stored again",
    """
    select make_timestamp(f.time_us) as happened_at,
           if(f.kind = 'DuplicateDropped', 'number', 'duplicate id') as found_by,
           q.destination, p.name as producer, f.number, f.message_id, f.name as first_message_id,
           hex(f.duplicate_id) as duplicate_id, f.epoch, f.position
    from facts f left join queues q on q.queue = f.queue left join producers p on p.producer = f.producer
    where f.kind in ('DuplicateDropped', 'DuplicateIdDropped')
    """,
)

CALLS = View(
    "calls",
    "each message that carries a call of a flow: the flow, the stage, and the message",
    """
    select make_timestamp(f.time_us) as happened_at, f.flow_id, f.trace_id, f.stage, f.call, f.number,
           f.stored as bundled, q.destination, f.queue, f.seq, f.epoch, f.position
    from facts f left join queues q on q.queue = f.queue where f.kind = 'MessageOfFlow'
    """,
)

ACTIONS = View(
    "actions",
    "who operated the broker and when, and what was denied to whom",
    """
    select make_timestamp(time_us) as happened_at, epoch, event, user_name, origin, container as client, mechanism,
           operation, object_type as type, name as object, to_name as to_object, message_id, decision, reason, omitted
    from facts where kind = 'ActionAudited'
    """,
)

VIEWS = (
    *(QUEUES, PRODUCERS, CONSUMERS, MESSAGES, DELIVERIES, DEAD_LETTERS),
    *(TRANSACTIONS, TAKEOVERS, DUPLICATES, CALLS, ACTIONS),
)
"""All views over `facts`, each after those that it asks."""

FACTS_SENTENCE = "the segments as they are, a row for each fact: docs/reference/facts.md says what each column means"

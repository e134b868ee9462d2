"""Silver: one row for each message and subscription, from facts that may come in any number of portions.

A row is first a *tally*: sums, least and greatest values, so that tallies of two portions of the ledger add up to the
tally of both. What an hour's run reads is therefore that hour's facts, and the tallies of the messages still open.
"""

from pyspark.sql import DataFrame

from legato.ids import TXN_ID_BYTES
from legato.spark.ledger import LEFT_KINDS, PLACE, TAG, aggregate, is_kind
from legato.spark.table import TAGS

_WEIGHTS = {"MessageStored": 1, "MessageConsumed": 1 << 8, "MessageDeadLettered": 1 << 16, "MessageMoved": 1 << 24}
"""How often each of these happened, in one number: fewer sums are faster, and nothing happens 255 times unnoticed."""

KINDS = ("MessageStored", *LEFT_KINDS, "MessageReturned", "MessagePresented", "MessageDelivered")
"""What is told of messages."""

_STORED, _CONSUMED, _RETURNED, _PRESENTED = (
    TAGS[f"Message{what}"] for what in ("Stored", "Consumed", "Returned", "Presented")
)

_ONE_PRESENTED = 1 << 24
_ONE_CLAIMED = 1 << 48
"""In the number that counts what came back: the lowest three bytes are how often a delivery failed."""

_MERGED = {
    "left": "sum(left)",
    "back": "sum(back)",
    "stored_us": "min(stored_us)",
    "first_delivered_us": "min(first_delivered_us)",
    "delivered_us": "max(delivered_us)",
    "left_us": "max(left_us)",
    "stored_place": "min(stored_place)",
    "left_place": "max(left_place)",
    "attempt": "max(attempt)",
    "returned_attempt": "max(returned_attempt)",
    "first_epoch": "min(first_epoch)",
    "last_epoch": "max(last_epoch)",
    "producer": "max(producer)",
    "sent_txn": "max(sent_txn)",
    "consumed_txn": "max(consumed_txn)",
}
"""How each column of a tally adds up."""

MESSAGE = ("queue", "seq")

MESSAGES_SCHEMA = """
    queue int, seq bigint, stored_count bigint, consumed_count bigint, dead_count bigint, moved_count bigint,
    left_count bigint, returned_count bigint, presented_count bigint, stored_us bigint, delivered_us bigint,
    left_us bigint, stored_place bigint, left_place bigint, attempt int, returned_attempt int, claimed bigint,
    first_epoch int, last_epoch int, first_delivered_us bigint, producer int, sent_txn bigint, consumed_txn bigint
"""

_TXN = f"if({{}} and txn is not null, cast(conv(hex(substring(txn, {TXN_ID_BYTES - 7})), 16, 10) as bigint), null)"
"""SQL: the counter in a transaction's id, which no other of its store has; the epoch is before it."""


def tallies(facts: DataFrame) -> DataFrame:
    """What each fact adds to the tally of its message: a copy is a message of its subscription.

    Only numbers: with strings among the columns that are aggregated Spark would have to sort instead of hash, and to
    compare texts for each column would cost as much as to read them.
    """
    weights = " ".join(f"when {TAGS[kind]}Y then {weight}L" for kind, weight in _WEIGHTS.items())
    is_left = f"if(what in ({', '.join(str(TAGS[kind]) for kind in LEFT_KINDS)}), {{}}, null)"
    is_stored = f"if(what = {_STORED}, {{}}, null)"
    numbered = facts.where(is_kind(*KINDS)).selectExpr(
        *("queue", "seq", "position", "ordinal", "epoch", "time_us", "delivered_us", "attempt", "cause"),
        *("producer", "txn"),
        f"{TAG} as what",
    )
    return numbered.selectExpr(
        "queue",
        "seq",
        f"case what {weights} else 0L end as left",
        f"""case what when {_RETURNED}Y then
                case cause when 'claimed' then {_ONE_CLAIMED}L when 'carried' then 0L else 1L end
            when {_PRESENTED}Y then {_ONE_PRESENTED}L else 0L end as back""",
        f"{is_stored.format('time_us')} as stored_us",
        "delivered_us as first_delivered_us",
        "delivered_us",
        f"{is_left.format('time_us')} as left_us",
        f"{is_stored.format(PLACE)} as stored_place",
        f"{is_left.format(PLACE)} as left_place",
        f"if(what = {_CONSUMED}, attempt, null) as attempt",
        f"if(what = {_RETURNED}, attempt, null) as returned_attempt",
        "epoch as first_epoch",
        "epoch as last_epoch",
        "producer",
        f"{_TXN.format(f'what = {_STORED}')} as sent_txn",
        f"{_TXN.format(f'what = {_CONSUMED}')} as consumed_txn",
    )


def added_up(tallies: DataFrame) -> DataFrame:
    """One tally for each message, from tallies of portions of the ledger."""
    return aggregate(tallies, ", ".join(MESSAGE), **_MERGED)


OPEN = "stored_count = 0 or left_count = 0"
"""SQL: the message may still leave its queue, or has left it and was not seen to be stored."""


_COUNTS = {
    "stored_count": "left & 255",
    "consumed_count": "(left >> 8) & 255",
    "dead_count": "(left >> 16) & 255",
    "moved_count": "left >> 24",
    "left_count": "((left >> 8) & 255) + ((left >> 16) & 255) + (left >> 24)",
    "returned_count": f"back & {_ONE_PRESENTED - 1}L",
    "presented_count": f"(back >> 24) & {_ONE_PRESENTED - 1}L",
    "claimed": "back >> 48",
}
"""What is counted in the two sums of a tally."""

_COLUMNS = [column.split()[0] for column in MESSAGES_SCHEMA.split(",")]


def messages(tallies: DataFrame) -> DataFrame:
    """One row for each message: how often it was stored and left its queue, when, where in the log, by which try.

    Columns that the tallies do not have are left out.
    """
    return tallies.selectExpr(
        *(
            f"{_COUNTS[name]} as {name}" if name in _COUNTS else name
            for name in _COLUMNS
            if name in _COUNTS or name in tallies.columns
        )
    )


def tallied(messages: DataFrame) -> DataFrame:
    """The tallies from which these rows were made."""
    return messages.selectExpr(
        *MESSAGE,
        "stored_count + (consumed_count << 8) + (dead_count << 16) + (moved_count << 24) as left",
        "returned_count + (presented_count << 24) + (claimed << 48) as back",
        *(name for name in _MERGED if name not in ("left", "back")),
    )


def lifecycle(facts: DataFrame) -> DataFrame:
    """One row for each message of a whole ledger."""
    return messages(added_up(tallies(facts)))


AUDITED = (
    *("left", "back", "stored_us", "delivered_us", "left_us", "stored_place", "left_place", "attempt"),
    "returned_attempt",
)
"""Columns of a tally that an audit needs: each one less is less to add up and to keep."""


def audited(facts: DataFrame) -> DataFrame:
    """The tallies of a whole ledger, as far as an audit needs them."""
    return added_up(tallies(facts)).select(*MESSAGE, *AUDITED)

"""Silver: one row for each message and subscription, from facts that may come in any number of portions.

A row is first a *tally*: sums, least and greatest values, so that tallies of two portions of the ledger add up to the
tally of both. What an hour's run reads is therefore that hour's facts, and the tallies of the messages still open.
"""

from pyspark.sql import DataFrame

from legato.spark.ledger import PLACE, aggregate

_WEIGHTS = {"MessageStored": 1, "MessageConsumed": 1 << 8, "MessageDeadLettered": 1 << 16, "MessageMoved": 1 << 24}
"""How often each of these happened, in one number: fewer sums are faster, and nothing happens 255 times unnoticed."""

_PRESENTED = 1 << 32

_LEFT = "kind in ('MessageConsumed', 'MessageDeadLettered', 'MessageMoved')"
_OF_MESSAGES = f"(kind in ('MessageStored', 'MessageReturned', 'MessagePresented') or {_LEFT})"

_MERGED = {
    "left": "sum(left)",
    "back": "sum(back)",
    "stored_us": "min(stored_us)",
    "delivered_us": "max(delivered_us)",
    "left_us": "max(left_us)",
    "stored_place": "min(stored_place)",
    "left_place": "max(left_place)",
    "attempt": "max(attempt)",
    "returned_attempt": "max(returned_attempt)",
    "claimed": "sum(claimed)",
    "first_epoch": "min(first_epoch)",
    "last_epoch": "max(last_epoch)",
}
"""How each column of a tally adds up."""

MESSAGE = ("queue", "seq")

MESSAGES_SCHEMA = """
    queue int, seq bigint, stored_count bigint, consumed_count bigint, dead_count bigint, moved_count bigint,
    left_count bigint, returned_count bigint, presented_count bigint, stored_us bigint, delivered_us bigint,
    left_us bigint, stored_place bigint, left_place bigint, attempt int, returned_attempt int, claimed bigint,
    first_epoch int, last_epoch int
"""


def tallies(facts: DataFrame) -> DataFrame:
    """What each fact adds to the tally of its message: a copy is a message of its subscription.

    Only numbers: with strings among the columns that are aggregated Spark would have to sort instead of hash.
    """
    weights = " ".join(f"when '{kind}' then {weight}L" for kind, weight in _WEIGHTS.items())
    is_left = f"if({_LEFT}, {{}}, null)"
    is_stored = "if(kind = 'MessageStored', {}, null)"
    return facts.where(_OF_MESSAGES).selectExpr(
        "queue",
        "seq",
        f"case kind {weights} else 0L end as left",
        f"""case when kind = 'MessagePresented' then {_PRESENTED}L
            when kind = 'MessageReturned' and cause not in ('carried', 'claimed') then 1L else 0L end as back""",
        f"{is_stored.format('time_us')} as stored_us",
        "delivered_us",
        f"{is_left.format('time_us')} as left_us",
        f"{is_stored.format(PLACE)} as stored_place",
        f"{is_left.format(PLACE)} as left_place",
        "if(kind = 'MessageConsumed', attempt, null) as attempt",
        "if(kind = 'MessageReturned', attempt, null) as returned_attempt",
        "if(kind = 'MessageReturned' and cause = 'claimed', 1L, 0L) as claimed",
        "epoch as first_epoch",
        "epoch as last_epoch",
    )


def added_up(tallies: DataFrame) -> DataFrame:
    """One tally for each message, from tallies of portions of the ledger."""
    return aggregate(tallies, ", ".join(MESSAGE), **_MERGED)


OPEN = "stored_count = 0 or left_count = 0"
"""SQL: the message may still leave its queue, or has left it and was not seen to be stored."""


def messages(tallies: DataFrame) -> DataFrame:
    """One row for each message: how often it was stored and left its queue, when, where in the log, by which try."""
    return tallies.selectExpr(
        *MESSAGE,
        "left & 255 as stored_count",
        "(left >> 8) & 255 as consumed_count",
        "(left >> 16) & 255 as dead_count",
        "left >> 24 as moved_count",
        "((left >> 8) & 255) + ((left >> 16) & 255) + (left >> 24) as left_count",
        f"back & {_PRESENTED - 1}L as returned_count",
        "back >> 32 as presented_count",
        "stored_us",
        "delivered_us",
        "left_us",
        "stored_place",
        "left_place",
        "attempt",
        "returned_attempt",
        "claimed",
        "first_epoch",
        "last_epoch",
    )


def tallied(messages: DataFrame) -> DataFrame:
    """The tallies from which these rows were made."""
    return messages.selectExpr(
        *MESSAGE,
        "stored_count + (consumed_count << 8) + (dead_count << 16) + (moved_count << 24) as left",
        "returned_count + (presented_count << 32) as back",
        *(name for name in _MERGED if name not in ("left", "back")),
    )


def lifecycle(facts: DataFrame) -> DataFrame:
    """One row for each message of a whole ledger."""
    return messages(added_up(tallies(facts)))

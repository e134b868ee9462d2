"""Message summaries in SQL, and silver made of them: one row for each message and subscription.

A row is first a *tally* (`message_summary.py`): tallies of two portions of the ledger add up to the tally of both. What
an hour's run reads is therefore that hour's facts, and the tallies of the messages still open.
"""

from collections.abc import Collection

from pyspark.sql import DataFrame

from legato.ids import TXN_ID_BYTES
from legato.spark.ledger.fact_filter import is_kind
from legato.spark.ledger.fact_frames import PLACE, TAG, aggregate
from legato.spark.ledger.fact_schema import TAGS
from legato.spark.summaries.message_summary import (
    CARRIED,
    CLAIMED,
    CONSUMED,
    COUNTS,
    KINDS,
    LEFT_COUNTS,
    LEFT_KINDS,
    MESSAGE,
    MESSAGE_TYPES,
    ONE_CLAIMED,
    ONE_PRESENTED,
    PRESENTED,
    RETURNED,
    STORED,
    TALLY,
    WEIGHTS,
)

_TXN = f"if({{}} and txn is not null, cast(conv(hex(substring(txn, {TXN_ID_BYTES - 7}, 8)), 16, 10) as bigint), null)"
"""SQL: the counter in a transaction's id, which no other of its store has; the epoch is before it, and behind it what
tells of a group of brokers."""


def tallies(facts: DataFrame) -> DataFrame:
    """What each fact adds to the tally of its message: a copy is a message of its subscription.

    Only numbers: with strings among the columns that are aggregated Spark would have to sort instead of hash, and to
    compare texts for each column would cost as much as to read them.
    """
    weights = " ".join(f"when {TAGS[kind]}Y then {weight}L" for kind, weight in WEIGHTS.items())
    is_left = f"if(what in ({', '.join(str(TAGS[kind]) for kind in LEFT_KINDS)}), {{}}, null)"
    is_stored = f"if(what = {STORED}, {{}}, null)"
    numbered = facts.where(is_kind(*KINDS)).selectExpr(
        *("queue", "seq", "position", "ordinal", "epoch", "time_us", "delivered_us", "attempt", "cause"),
        *("producer", "txn"),
        f"{TAG} as what",
    )
    return numbered.selectExpr(
        "queue",
        "seq",
        f"case what {weights} else 0L end as left",
        f"""case what when {RETURNED}Y then
                case cause when '{CLAIMED}' then {ONE_CLAIMED}L when '{CARRIED}' then 0L else 1L end
            when {PRESENTED}Y then {ONE_PRESENTED}L else 0L end as back""",
        f"{is_stored.format('time_us')} as stored_us",
        "delivered_us as first_delivered_us",
        "delivered_us",
        f"{is_left.format('time_us')} as left_us",
        f"{is_stored.format(PLACE)} as stored_place",
        f"{is_left.format(PLACE)} as left_place",
        f"if(what = {CONSUMED}, attempt, null) as attempt",
        f"if(what = {RETURNED}, attempt, null) as returned_attempt",
        "epoch as first_epoch",
        "epoch as last_epoch",
        "producer",
        f"{_TXN.format(f'what = {STORED}')} as sent_txn",
        f"{_TXN.format(f'what = {CONSUMED}')} as consumed_txn",
    )


def added_up(tallies: DataFrame) -> DataFrame:
    """One tally for each message, from tallies of portions of the ledger."""
    return aggregate(tallies, ", ".join(MESSAGE), **{name: f"{how}({name})" for name, how in TALLY.items()})


OPEN = "stored_count = 0 or left_count = 0"
"""SQL: the message may still leave its queue, or has left it and was not seen to be stored."""


def _count(name: str) -> str:
    column, shift, bits = COUNTS[name]
    return f"(({column} >> {shift}) & {(1 << bits) - 1}L)"


_COUNTED = {name: _count(name) for name in COUNTS} | {"left_count": " + ".join(map(_count, LEFT_COUNTS))}


def messages(tallies: DataFrame, columns: Collection[str] = (*MESSAGE, *TALLY)) -> DataFrame:
    """One row for each message: how often it was stored and left its queue, when, where in the log, by which try.

    Args:
        columns: those of the tallies, which are not asked: in a declarative pipeline they must not be.
    """
    return tallies.selectExpr(
        *(
            f"{_COUNTED[name]} as {name}" if name in _COUNTED else name
            for name in MESSAGE_TYPES
            if name in _COUNTED or name in columns
        )
    )


def tallied(messages: DataFrame) -> DataFrame:
    """The tallies from which these rows were made."""
    sums = [
        " + ".join(f"({name} << {count.shift})" for name, count in COUNTS.items() if count.column == column)
        + f" as {column}"
        for column in ("left", "back")
    ]
    return messages.selectExpr(*MESSAGE, *sums, *(name for name in TALLY if name not in ("left", "back")))


def lifecycle(facts: DataFrame) -> DataFrame:
    """One row for each message of a whole ledger."""
    return messages(added_up(tallies(facts)))


def silver(facts: DataFrame) -> DataFrame:
    """One row for each message and subscription of a ledger: what became of it.

    Args:
        facts: all facts of a ledger, as `read_ledger` reads them.

    Returns:
        A frame with the columns of `MESSAGES_SCHEMA`, and `open boolean`: the message may still leave its queue.
    """
    return lifecycle(facts).selectExpr("*", f"{OPEN} as open")


AUDITED = (
    *MESSAGE,
    *("left", "back", "stored_us", "delivered_us", "left_us", "stored_place", "left_place", "attempt"),
    "returned_attempt",
)
"""Columns of a tally that an audit needs: each one less is less to add up and to keep."""


def audited(facts: DataFrame) -> DataFrame:
    """The tallies of a whole ledger, as far as an audit needs them."""
    return added_up(tallies(facts)).select(*AUDITED)

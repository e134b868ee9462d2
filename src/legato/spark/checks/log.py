"""Checks of the log: missing or torn commits, mixed epochs, transactions, high-water marks."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from legato.spark import result
from legato.spark.checks.check import check


# Only where epochs overlap can a commit come after one of a later epoch.
@check(
    "epochs mixed",
    of="epochs",
    where="first <= last_before",
    holds="Once a new primary had begun, no former one wrote.",
    one=(
        "1 commit was written by a former primary: commit {position} of epoch {epoch}, after epoch {newest_epoch} had "
        "begun."
    ),
    many="{count} commits were written by former primaries after a later epoch had begun.",
    each="commit {position} of epoch {epoch}, after epoch {newest_epoch} had begun",
)
def epochs_mixed(_epochs: DataFrame, records: DataFrame) -> DataFrame:
    """Commits of an epoch after a later epoch had begun: a fenced primary that still wrote (promise 7)."""
    so_far = Window.orderBy("position").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    newest = records.select("position", "epoch", F.max("epoch").over(so_far).alias("newest_epoch"))
    return newest.where("epoch < newest_epoch")


# Epochs without a gap, each of which begins at most one position after all before it, leave nothing out.
@check(
    result.POSITIONS_MISSING,
    of="epochs",
    where="commits < last - first + 1 or first > last_before + 1",
    holds="The ledger holds the whole log.",
    one="The ledger is incomplete: commits {first_missing}-{last_missing} are missing.",
    many="The ledger is incomplete: commits are missing in {count} places.",
    each="commits {first_missing}-{last_missing}: {segment}",
    remedy=(
        "A segment file ({segment}, or several of that range) was deleted or not copied; restore it. Until then no "
        "total below is proof."
    ),
)
def positions_missing(_epochs: DataFrame, records: DataFrame, trimmed: DataFrame) -> DataFrame:
    """Positions of the log, from 1 on, that no segment holds, nor the one in the place of what was trimmed."""
    previous = F.lag("position", 1, 0).over(Window.orderBy("position"))
    gaps = (
        records.select("position", previous.alias("previous"))
        .crossJoin(F.broadcast(trimmed))
        .selectExpr("position", "greatest(previous, through) as previous")
        .where("position > previous + 1")
    )
    before = trimmed.where("begins_with > 1").selectExpr("1L as first_missing", "begins_with - 1 as last_missing")
    return gaps.selectExpr("previous + 1 as first_missing", "position - 1 as last_missing").unionAll(before)


@check(
    "uncommitted work",
    of="transactions",
    where="committed = 0 and stored + consumed > 0",
    holds="Only committed transactions had an effect.",
    one="1 transaction had an effect and was not committed: {txn} stored {stored} messages and consumed {consumed}.",
    many="{count} transactions had an effect and were not committed.",
    each="transaction {txn}: {stored} messages stored, {consumed} consumed, {rolled_back} times rolled back",
)
def uncommitted_work(transactions: DataFrame) -> DataFrame:
    """Transactions that stored or consumed messages and were not committed."""
    return transactions.selectExpr("hex(txn) as txn", "stored", "consumed", "rolled_back")


@check(
    "partial transaction",
    of="transactions",
    where="committed > 0 and (stored <> stored_said or consumed <> consumed_said)",
    holds="Every committed transaction took place as a whole.",
    one=(
        "1 committed transaction took place in part: {txn} stored {stored} of {stored_said} messages and consumed "
        "{consumed} of {consumed_said}."
    ),
    many="{count} committed transactions took place in part.",
    each="transaction {txn}: {stored} of {stored_said} messages stored, {consumed} of {consumed_said} consumed",
)
def partial_transaction(transactions: DataFrame) -> DataFrame:
    """Committed transactions of which not all that they did is in the ledger, or more than that."""
    return transactions.selectExpr("hex(txn) as txn", "stored", "stored_said", "consumed", "consumed_said")


@check(
    "two outcomes",
    of="transactions",
    where="committed > 0 and committed + rolled_back > 1",
    holds="Every transaction has one outcome.",
    one="1 transaction has two outcomes: {txn} was committed {committed} times and rolled back {rolled_back} times.",
    many="{count} transactions have more than one outcome.",
    each="transaction {txn}: {committed} times committed, {rolled_back} times rolled back",
)
def two_outcomes(transactions: DataFrame) -> DataFrame:
    """Transactions that were committed twice, or committed and rolled back (promise 2)."""
    return transactions.selectExpr("hex(txn) as txn", "committed", "rolled_back")


@check(
    result.RECORDS_TORN,
    of="records",
    where="facts <> facts_said",
    holds="The ledger holds every commit whole and once.",
    one="The ledger holds commit {position} not as it was written: {facts} facts of it instead of {facts_said}.",
    many="The ledger holds {count} commits not as they were written.",
    each="commit {position}: {facts} facts instead of {facts_said}",
    remedy=(
        "A segment file was changed, or one of its commits is in two files; restore the directory from a copy. Until "
        "then no total below is proof."
    ),
)
def records_torn(records: DataFrame) -> DataFrame:
    """Commits of which the ledger holds more or fewer facts than were written."""
    return records.selectExpr("position", "facts", "facts_said")


# A mark may be beyond the last message: places that were given to refused messages stay empty. That a message left its
# queue off the record is not for this check: it shows as a lost message.
@check(
    "marks missed",
    of="marks",
    where="(in_order and seq < seq_found) or stored <> stored_found or consumed < consumed_found",
    holds="The facts add up to what the broker counted on the way.",
    one=(
        "The facts of {queue} do not add up to what the broker had counted by commit {position}: {stored} messages "
        "stored (found: {stored_found}), {consumed} gone (found: {consumed_found}), the last at place {seq} (found: "
        "{seq_found})."
    ),
    many="The facts do not add up to what the broker had counted, {count} times.",
    each=(
        "{queue}, commit {position}: {stored} stored (found: {stored_found}), {consumed} gone (found: "
        "{consumed_found}), last place {seq} (found: {seq_found})"
    ),
    remedy="Facts are missing from the ledger, or were added to it.",
)
def marks_missed(marks: DataFrame) -> DataFrame:
    """High-water marks that say something else than the facts before them come to."""
    return marks.selectExpr(
        "queue", "position", "seq", "seq_found", "stored", "stored_found", "consumed", "consumed_found"
    )

"""Checks of the log: transactions, epochs, commits, and what the broker counted on the way."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from legato.spark import result
from legato.spark.checks.check import Check, Says, all_of_them


def epochs_mixed(_suspects: DataFrame, records: DataFrame) -> DataFrame:
    """Commits of an epoch after a later epoch had begun: a fenced primary that still wrote (promise 7)."""
    so_far = Window.orderBy("position").rowsBetween(Window.unboundedPreceding, Window.currentRow)
    newest = records.select("position", "epoch", F.max("epoch").over(so_far).alias("newest_epoch"))
    return newest.where("epoch < newest_epoch")


def positions_missing(_suspects: DataFrame, records: DataFrame) -> DataFrame:
    """Positions of the log, from 1 on, that no segment of the ledger holds."""
    previous = F.lag("position", 1, 0).over(Window.orderBy("position"))
    gaps = records.select("position", previous.alias("previous")).where("position > previous + 1")
    return gaps.selectExpr("previous + 1 as first_missing", "position - 1 as last_missing")


UNCOMMITTED_WORK = Check(
    "uncommitted work",
    Says(
        "Only committed transactions had an effect.",
        "1 transaction had an effect and was not committed: {txn} stored {stored} messages and consumed {consumed}.",
        "{count} transactions had an effect and were not committed.",
        "transaction {txn}: {stored} messages stored, {consumed} consumed, {rolled_back} times rolled back",
    ),
    "transactions",
    "committed = 0 and stored + consumed > 0",
    all_of_them("hex(txn) as txn", "stored", "consumed", "rolled_back"),
)

PARTIAL_TRANSACTION = Check(
    "partial transaction",
    Says(
        "Every committed transaction took place as a whole.",
        "1 committed transaction took place in part: {txn} stored {stored} of {stored_said} messages and consumed "
        "{consumed} of {consumed_said}.",
        "{count} committed transactions took place in part.",
        "transaction {txn}: {stored} of {stored_said} messages stored, {consumed} of {consumed_said} consumed",
    ),
    "transactions",
    "committed > 0 and (stored <> stored_said or consumed <> consumed_said)",
    all_of_them("hex(txn) as txn", "stored", "stored_said", "consumed", "consumed_said"),
)

TWO_OUTCOMES = Check(
    "two outcomes",
    Says(
        "Every transaction has one outcome.",  # promise 2
        "1 transaction has two outcomes: {txn} was committed {committed} times and rolled back {rolled_back} times.",
        "{count} transactions have more than one outcome.",
        "transaction {txn}: {committed} times committed, {rolled_back} times rolled back",
    ),
    "transactions",
    "committed > 0 and committed + rolled_back > 1",
    all_of_them("hex(txn) as txn", "committed", "rolled_back"),
)

# Only where epochs overlap can a commit come after one of a later epoch.
EPOCHS_MIXED = Check(
    "epochs mixed",
    Says(
        "Once a new primary had begun, no former one wrote.",
        "1 commit was written by a former primary: commit {position} of epoch {epoch}, after epoch {newest_epoch} had "
        "begun.",
        "{count} commits were written by former primaries after a later epoch had begun.",
        "commit {position} of epoch {epoch}, after epoch {newest_epoch} had begun",
    ),
    "epochs",
    "first <= last_before",
    epochs_mixed,
    ("records",),
)

# Epochs without a gap, each of which begins at most one position after all before it, leave nothing out.
POSITIONS_MISSING = Check(
    result.POSITIONS_MISSING,
    Says(
        "The ledger holds the whole log.",
        "The ledger is incomplete: commits {first_missing}-{last_missing} are missing.",
        "The ledger is incomplete: commits are missing in {count} places.",
        "commits {first_missing}-{last_missing}: {segment}",
        "A segment file ({segment}, or several of that range) was deleted or not copied; restore it. Until then no "
        "total below is proof.",
    ),
    "epochs",
    "commits < last - first + 1 or first > last_before + 1",
    positions_missing,
    ("records",),
)

RECORDS_TORN = Check(
    result.RECORDS_TORN,
    Says(
        "The ledger holds every commit whole and once.",
        "The ledger holds commit {position} not as it was written: {facts} facts of it instead of {facts_said}.",
        "The ledger holds {count} commits not as they were written.",
        "commit {position}: {facts} facts instead of {facts_said}",
        "A segment file was changed, or one of its commits is in two files; restore the directory from a copy. Until "
        "then no total below is proof.",
    ),
    "records",
    "facts <> facts_said",
    all_of_them("position", "facts", "facts_said"),
)

# A mark may be beyond the last message: places that were given to refused messages stay empty. That a message left its
# queue off the record is not for this check: it shows as a lost message.
MARKS_MISSED = Check(
    "marks missed",
    Says(
        "The facts add up to what the broker counted on the way.",
        "The facts of {queue} do not add up to what the broker had counted by commit {position}: {stored} messages "
        "stored (found: {stored_found}), {consumed} gone (found: {consumed_found}), the last at place {seq} (found: "
        "{seq_found}).",
        "The facts do not add up to what the broker had counted, {count} times.",
        "{queue}, commit {position}: {stored} stored (found: {stored_found}), {consumed} gone (found: "
        "{consumed_found}), last place {seq} (found: {seq_found})",
        "Facts are missing from the ledger, or were added to it.",
    ),
    "marks",
    "(in_order and seq < seq_found) or stored <> stored_found or consumed < consumed_found",
    all_of_them("queue", "position", "seq", "seq_found", "stored", "stored_found", "consumed", "consumed_found"),
)

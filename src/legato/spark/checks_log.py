"""Checks of the log: transactions, epochs, commits, and what the broker counted on the way."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from legato.spark.check import Check, all_of_them


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
    "Only committed transactions had an effect.",
    "transactions",
    "committed = 0 and stored + consumed > 0",
    all_of_them("hex(txn) as txn", "stored", "consumed", "rolled_back"),
)

PARTIAL_TRANSACTION = Check(
    "partial transaction",
    "Every committed transaction took place as a whole.",
    "transactions",
    "committed > 0 and (stored <> stored_said or consumed <> consumed_said)",
    all_of_them("hex(txn) as txn", "stored", "stored_said", "consumed", "consumed_said"),
)

TWO_OUTCOMES = Check(
    "two outcomes",
    "Every transaction has one outcome.",  # promise 2
    "transactions",
    "committed > 0 and committed + rolled_back > 1",
    all_of_them("hex(txn) as txn", "committed", "rolled_back"),
)

# Only where epochs overlap can a commit come after one of a later epoch.
EPOCHS_MIXED = Check(
    "epochs mixed",
    "Once a new primary had begun, no former one wrote.",
    "epochs",
    "first <= last_before",
    epochs_mixed,
    ("records",),
)

# Epochs without a gap, each of which begins at most one position after all before it, leave nothing out.
POSITIONS_MISSING = Check(
    "positions missing",
    "The ledger holds the whole log.",
    "epochs",
    "commits < last - first + 1 or first > last_before + 1",
    positions_missing,
    ("records",),
)

RECORDS_TORN = Check(
    "records torn",
    "The ledger holds every commit whole and once.",
    "records",
    "facts <> facts_said",
    all_of_them("position", "facts", "facts_said"),
)

# A mark may be beyond the last message: places that were given to refused messages stay empty. That a message left its
# queue off the record is not for this check: it shows as a lost message.
MARKS_MISSED = Check(
    "marks missed",
    "The facts add up to what the broker counted on the way.",
    "marks",
    "(in_order and seq < seq_found) or stored <> stored_found or consumed < consumed_found",
    all_of_them("queue", "position", "seq", "seq_found", "stored", "stored_found", "consumed", "consumed_found"),
)

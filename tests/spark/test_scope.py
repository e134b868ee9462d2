"""An audit of a part of the ledger accounts for that part, with all that became of it."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from legato.core.facts import MessageConsumed
from legato.errors import ConfigError
from legato.spark.auditor.audit import audit
from legato.spark.auditor.scope import Scope
from legato.spark.ledger.segments import write_segment
from tests.spark.history import INVOICES, history, ms_us, without

LOST_INVOICE = MessageConsumed(INVOICES, 4, 2, ms_us(312), 1)
TAKEOVER_US = ms_us(240)


def test_only_messages_of_the_span_of_time_and_destination_are_in_the_account(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_segment(tmp_path, list(enumerate(without(history(), LOST_INVOICE), 1)))
    later = audit(tmp_path, spark, scope=Scope(from_us=TAKEOVER_US))
    assert {each.name: (each.stored, each.consumed, each.lost) for each in later.queues} == {
        "orders": (1, 0, 0),
        "invoices": (2, 1, 1),
        "DLQ": (1, 0, 0),
    }
    (lost,) = [check for check in later.checks if check.count]
    assert lost.name == "lost"
    ((name, story),) = lost.stories.items()
    assert name == f"invoices 4 ({INVOICES}/4) ID:i4"
    assert [line.partition(": ")[2].partition(",")[0] for line in story] == ["stored"]
    earlier = audit(tmp_path, spark, scope=Scope(to_us=TAKEOVER_US, destination="orders"))
    assert earlier.passes, "what was lost came later"
    (orders,) = earlier.queues
    assert (orders.stored, orders.consumed, orders.dead_lettered) == (5, 4, 1), "also what became of them later"
    with pytest.raises(ConfigError, match="no destination nowhere"):
        audit(tmp_path, spark, scope=Scope(destination="nowhere"))


def test_a_span_that_ends_before_it_begins_is_refused() -> None:
    """Nothing is in it, and of nothing an audit would say that every message is accounted for."""
    with pytest.raises(ConfigError, match=r"1970-01-01 00:00:02 .* 1970-01-01 00:00:01"):
        Scope(from_us=2_000_000, to_us=1_000_000)

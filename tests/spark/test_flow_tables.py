"""The table of flows, made portion by portion, says what the audit says of the whole ledger."""

import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from legato.core.facts import LogRecord
from legato.spark.ledger.segments import write_segment
from legato.spark.tables.flow_tables import FAILED_FLOW, FLOW
from legato.spark.tables.gold_tables import read_table
from legato.spark.tables.ledger_tables import LedgerTables
from tests.spark.test_flows import flow_history

HISTORY = [*flow_history(), LogRecord(1, 1_000_001_070_000, [])]
CUTS = ((0, 7), (7, len(HISTORY) - 1), (len(HISTORY) - 1, len(HISTORY)))
"""The first cut parts flows from their ends, and messages from what became of them; the last portion is of no flow."""


@pytest.mark.slow
def test_flows_are_counted_once_however_the_ledger_comes_in(spark: SparkSession, tmp_path: Path) -> None:
    ledger, tables = tmp_path / "ledger", tmp_path / "tables"
    ledger.mkdir()
    for number, (begin, end) in enumerate(CUTS):
        span = write_segment(ledger, list(enumerate(HISTORY, 1))[begin:end])
        os.utime(ledger / span.file_name, (number, number))
    LedgerTables(spark, str(ledger), tables, segments_per_batch=1).run_once()
    rows = read_table(spark, tables, "flows").collect()
    found = {(row["stage"], row["what"]): (row["messages"], row["p50_ms"], row["longest_ms"]) for row in rows}
    assert found.pop(("Order.check", FLOW)) == (1, 45.0, 45.0)
    assert found.pop(("Order.check", FAILED_FLOW)) == (1, 50.0, 50.0)
    assert {key: value for key, value in found.items() if key[0].startswith("Order")} == {
        ("Order.check", "queueing"): (2, 5.0, 15.0),
        ("Order.check", "processing"): (2, 5.0, 5.0),
        ("Order.check", "end to end"): (2, 10.0, 20.0),
        ("Order.place", "queueing"): (1, 20.0, 20.0),
        ("Order.place", "processing"): (1, 10.0, 10.0),
        ("Order.place", "end to end"): (1, 30.0, 30.0),
        ("Order.sum", "queueing"): (200, 1.0, 1.0),
        ("Order.sum", "processing"): (200, 1.0, 1.0),
        ("Order.sum", "end to end"): (200, 2.0, 2.0),
    }
    assert sorted(path.name for path in (tables / "flow_calls").iterdir()) == ["batch=1", "batch=2"]

"""Who did what, by Spark: on the page, in the terminal, and as a table."""

from io import StringIO
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from legato.core.facts import ActionAudited, EpochBegan, LogRecord, QueueCreated
from legato.spark.auditor.audit import audit
from legato.spark.ledger.fact_frames import read_ledger
from legato.spark.report.audit_page import report_page
from legato.spark.report.audit_terminal import print_audit
from legato.spark.tables.gold import VIEWS, WHO_DID_WHAT
from legato.terminal import Terminal
from tests.spark.conftest import Audit, MakeFacts

HOSTILE = "<script>\x1b[2J\u202e</script>"


def purged(user: str, port: int) -> ActionAudited:
    return ActionAudited("management", "purge", "salaries", "allowed", user, f"192.0.2.7:{port}", object_type="queue")


RECORDS = [
    LogRecord(1, 1_000_000, [EpochBegan("one"), QueueCreated(1, "salaries")]),
    LogRecord(1, 2_000_000, [purged("ann", 1)]),
    LogRecord(1, 3_000_000, [purged("ann", 2)]),
    LogRecord(
        1,
        4_000_000,
        [
            ActionAudited("denial", "attach a sender", HOSTILE, "denied", "eve", reason=HOSTILE, omitted=7),
            ActionAudited("management", "move", "a", "allowed", "op", object_type="queue", to="b c", message_id="ID:1"),
        ],
    ),
]


@pytest.mark.slow
def test_the_page_and_the_terminal_say_who_did_what(audit_of: Audit) -> None:
    result = audit_of(RECORDS)
    assert result.passes
    assert result.actions is not None
    assert (result.actions.total, result.actions.omitted) == (4, 7)
    [purge] = [each for each in result.actions.latest if each.operation == "purge"]
    assert (purge.user, purge.origin, purge.object, purge.count, purge.time_us) == (
        *("ann", "192.0.2.7", "salaries"),
        *(2, 3_000_000),
    )
    page = report_page(result, None, {}, "Audit")
    assert "Who did what" in page
    assert "purge queue salaries" in page
    assert "move queue a to &#39;b c&#39; message ID:1" in page
    assert "7 denials more were not recorded" in page
    assert "<script>" not in page
    shown = StringIO()
    print_audit(result, Terminal(file=shown, width=160))
    assert "purge queue salaries (2 times)" in shown.getvalue()
    for text in (page, shown.getvalue()):
        assert not [character for character in text if not character.isprintable() and character != "\n"]


def test_the_table_of_actions_has_each(facts_of: MakeFacts, spark: SparkSession) -> None:
    view = next(step for step in VIEWS if step.name == "actions")
    rows = view.of(audited_actions=WHO_DID_WHAT.of(facts=facts_of(RECORDS))).collect()
    assert [(row["user"], row["operation"], row["object"], row["to"], row["decision"]) for row in rows[:2]] == [
        ("ann", "purge", "salaries", None, "allowed")
    ] * 2
    assert {(row["user"], row["to"], row["message_id"], row["omitted"]) for row in rows[2:]} == {
        ("eve", None, None, 7),
        ("op", "b c", "ID:1", None),
    }


@pytest.mark.slow
def test_a_ledger_of_a_former_version_is_read(facts_of: MakeFacts, spark: SparkSession, tmp_path: Path) -> None:
    """Its segments lack the columns of the audit trail."""
    facts_of(RECORDS[:1])
    [segment] = tmp_path.glob("facts-*.parquet")
    table = pq.read_table(segment)
    former = table.drop_columns(table.column_names[table.column_names.index("event") :])
    pq.write_table(former, segment)
    assert WHO_DID_WHAT.of(facts=read_ledger(spark, tmp_path)).count() == 0
    result = audit(tmp_path, spark)
    assert (result.passes, result.facts, result.actions) == (True, 2, None)

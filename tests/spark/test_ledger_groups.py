"""Ledgers of several groups in Spark: one table, one verdict, one set of tables."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from legato.cli.main import app
from legato.core.facts import LogRecord, MessageConsumed
from legato.errors import ConfigError
from legato.spark import GroupTables, audit, audit_groups, read_ledger, read_ledgers, read_table
from legato.spark.auditor.scope import Scope
from legato.spark.ledger.ledger_groups import ledgers_of
from legato.spark.ledger.segments import write_segment
from tests.spark.history import history, news_history


def spoilt() -> list[LogRecord]:
    """A history in which a message of the first queue was consumed twice."""
    records = history()
    twice = next(fact for record in records for fact in record.facts if isinstance(fact, MessageConsumed))
    return [*records, LogRecord(2, records[-1].time_us + 1000, [twice])]


def written(root: Path, **groups: list[LogRecord]) -> dict[str, Path]:
    for name, records in groups.items():
        directory = root / f"broker_group={name}"
        directory.mkdir()
        for first in range(0, len(records), 6):
            write_segment(directory, list(enumerate(records, 1))[first : first + 6])
    return ledgers_of([root])


@pytest.fixture
def groups(tmp_path: Path) -> dict[str, Path]:
    root = tmp_path / "ledgers"
    root.mkdir()
    return written(root, orders=history(), news=news_history())


def test_all_facts_are_one_table(spark: SparkSession, groups: dict[str, Path], tmp_path: Path) -> None:
    found = {
        row["broker_group"]: row["count"]
        for row in read_ledgers(spark, groups).groupBy("broker_group").count().collect()
    }
    assert found == {name: read_ledger(spark, ledger).count() for name, ledger in groups.items()}
    one = read_ledgers(spark, groups)
    assert one.columns == ["broker_group", *read_ledger(spark, groups["news"]).columns]
    # Elsewhere, under other names, the rows are the same.
    moved = {"a": tmp_path / "somewhere", "b": groups["orders"]}
    groups["news"].rename(moved["a"])
    other = read_ledgers(spark, moved)
    assert other.columns == one.columns
    assert other.where("broker_group = 'a'").count() == found["news"]
    assert other.where("broker_group = 'b'").count() == found["orders"]


def test_only_the_groups_that_are_asked_for_are_read(spark: SparkSession, groups: dict[str, Path]) -> None:
    (groups["orders"] / "facts-0000000000000999-0000000000000999.parquet").write_bytes(b"not a segment")
    assert read_ledgers(spark, groups).where("broker_group = 'news'").count() > 0


@pytest.mark.slow
def test_each_group_is_audited_on_its_own_terms(spark: SparkSession, tmp_path: Path) -> None:
    groups = written(tmp_path, good=history(), news=news_history(), twice=spoilt())
    heard: list[str] = []
    audits = audit_groups(groups, spark, tell=lambda name, _result: heard.append(name))
    assert heard == list(groups)
    assert audits.failed == ["twice"]
    assert not audits.passes
    assert audits.verdict == "Of 3 groups 1 do not pass: twice."
    assert audits.groups["good"].queues == audit(groups["good"], spark).queues
    assert audits.total("stored") == sum(audit(ledger, spark).total("stored") for ledger in groups.values())
    document = json.loads(audits.to_json())
    assert document["groups"]["twice"]["passes"] is False
    assert document["groups"]["good"]["passes"] is True


def test_a_destination_is_looked_for_in_all_groups(spark: SparkSession, groups: dict[str, Path]) -> None:
    audits = audit_groups(groups, spark, Scope(destination="invoices"))
    assert list(audits.groups) == ["orders"]
    with pytest.raises(ConfigError, match="knows no destination none"):
        audit_groups(groups, spark, Scope(destination="none"))


def test_the_command_has_one_verdict_and_a_page_for_each(spark: SparkSession, tmp_path: Path) -> None:
    root = tmp_path / "ledgers"
    root.mkdir()
    written(root, good=history(), twice=spoilt())
    page = tmp_path / "audit.html"
    answer = CliRunner().invoke(app, ["audit", str(root), "--report", str(page)])
    assert answer.exit_code == 1
    assert "group 'twice'" in answer.output
    assert "Of 2 groups 1 do not pass: twice." in answer.output
    assert {path.name for path in tmp_path.glob("*.html")} == {"audit-good.html", "audit-twice.html"}


@pytest.mark.slow
def test_the_command_passes_if_all_groups_do(spark: SparkSession, tmp_path: Path) -> None:
    good = written(tmp_path, good=history())["good"]
    answer = CliRunner().invoke(app, ["audit", f"one={good}", f"two={good}"])
    assert answer.exit_code == 0, answer.output
    assert "Every message of 2 groups is accounted for." in answer.output


@pytest.mark.slow
def test_tables_of_all_groups_are_read_as_one(spark: SparkSession, groups: dict[str, Path], tmp_path: Path) -> None:
    tables = tmp_path / "tables"
    made = GroupTables(spark, groups, tables)
    made.run_once()
    gold = read_table(spark, tables, "audit")
    assert {row["broker_group"] for row in gold.select("broker_group").distinct().collect()} == {"news", "orders"}
    silver = {row["broker_group"]: row["count"] for row in made.silver().groupBy("broker_group").count().collect()}
    for name in groups:
        own = read_table(spark, tables / f"broker_group={name}", "audit")
        assert gold.where(f"broker_group = '{name}'").count() == own.count()
        assert silver[name] > 0
    shown = CliRunner().invoke(app, ["ledger", "show", str(tables)])
    assert shown.exit_code == 0, shown.output
    assert "broker_group" in shown.output

"""The steps of the ledger's tables fit together and can be read. No Spark, no JVM."""

from typer.testing import CliRunner

from legato.cli.main import app
from legato.spark.tables.gold import BRONZE, OF_FACTS, OF_MESSAGES, VIEWS


def test_each_view_asks_only_what_is_written_for_each_portion() -> None:
    written = {step.name for step in (*OF_FACTS, *OF_MESSAGES)}
    assert {name for step in VIEWS for name in step.inputs} <= written
    assert [step.inputs for step in OF_FACTS] == [["facts"]] * len(OF_FACTS)
    assert [step.inputs for step in OF_MESSAGES] == [["messages"]] * len(OF_MESSAGES)


def test_every_query_is_shown_with_its_sentence() -> None:
    shown = CliRunner().invoke(app, ["ledger", "sql"])
    assert shown.exit_code == 0
    for step in (BRONZE, *OF_FACTS, *OF_MESSAGES, *VIEWS):
        assert f"-- {step.name}: {step.sentence}" in shown.stdout
        assert step.sentence.endswith(".")

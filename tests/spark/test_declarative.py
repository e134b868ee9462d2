"""What `examples/declarative_ledger` asks for can be planned without a look at Spark, which pipelines do not allow."""

from typing import NoReturn

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from legato.spark.ledger.fact_frames import SCHEMA
from legato.spark.summaries.message_summary import MESSAGES_SCHEMA
from legato.spark.summaries.message_summary_sql import OPEN, lifecycle
from legato.spark.tables.gold import BRONZE, OF_FACTS, OF_MESSAGES, VIEWS, inputs


@pytest.fixture
def unasked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks a frame for its columns or rows fails."""

    def refuse(*_: object) -> NoReturn:
        raise AssertionError("ATTEMPT_ANALYSIS_IN_PIPELINE_QUERY_FUNCTION")

    for name in ("columns", "schema", "dtypes"):
        monkeypatch.setattr(DataFrame, name, property(refuse))
    for name in ("collect", "first", "count", "toArrow"):
        monkeypatch.setattr(DataFrame, name, refuse)


@pytest.mark.usefixtures("unasked")
def test_silver_is_planned_without_a_look_at_the_facts(spark: SparkSession) -> None:
    facts = BRONZE.of(segments=spark.createDataFrame([], SCHEMA))
    lifecycle(facts).selectExpr("*", f"{OPEN} as open")


@pytest.mark.usefixtures("unasked")
def test_each_step_of_gold_is_planned_without_a_look_at_what_it_asks(spark: SparkSession) -> None:
    facts = BRONZE.of(segments=spark.createDataFrame([], SCHEMA))
    known = {"facts": facts, "messages": spark.createDataFrame([], MESSAGES_SCHEMA)}
    for step in (*OF_FACTS, *OF_MESSAGES, *VIEWS):
        known[step.name] = step.of(**{name: known[name] for name in inputs(step)})

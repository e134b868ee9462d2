"""What `examples/declarative_ledger` asks for can be planned without a look at Spark, which pipelines do not allow."""

from typing import NoReturn

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.classic.dataframe import DataFrame

from legato.spark import BRONZE, FACTS_SCHEMA, MESSAGES_SCHEMA, gold_steps, silver


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
    facts = BRONZE.of(segments=spark.createDataFrame([], FACTS_SCHEMA))
    silver(facts)


@pytest.mark.usefixtures("unasked")
def test_each_step_of_gold_is_planned_without_a_look_at_what_it_asks(spark: SparkSession) -> None:
    facts = BRONZE.of(segments=spark.createDataFrame([], FACTS_SCHEMA))
    known = {"facts": facts, "messages": spark.createDataFrame([], MESSAGES_SCHEMA)}
    for step in gold_steps():
        known[step.name] = step.of(**{name: known[name] for name in step.inputs})

"""Gold: the steps of `legato ledger sql`, each a table; their queries name the tables that they ask."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from legato.spark import Step, gold_steps

spark = SparkSession.active()


def asked(name: str) -> DataFrame:
    """The frame that a query calls so."""
    if name == "messages":
        return spark.read.table("silver").where("not open")
    return spark.read.table("bronze" if name == "facts" else name)


def define(step: Step) -> None:
    """Make a step a table of the pipeline."""

    @dp.materialized_view(name=step.name, comment=step.sentence)
    def table() -> DataFrame:
        return step.of(**{name: asked(name) for name in step.inputs})


for step in gold_steps():
    define(step)

"""Silver: one row for each message and subscription."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from legato.spark.summaries.message_summary_sql import OPEN, lifecycle

spark = SparkSession.active()


@dp.materialized_view(comment="What became of each message; `open` ones may still leave their queue.")
def silver() -> DataFrame:
    return lifecycle(spark.read.table("bronze")).selectExpr("*", f"{OPEN} as open")

"""Silver: one row for each message and subscription."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from legato.spark import silver as message_rows

spark = SparkSession.active()


@dp.materialized_view(comment="What became of each message; `open` ones may still leave their queue.")
def silver() -> DataFrame:
    return message_rows(spark.read.table("bronze"))

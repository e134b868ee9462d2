"""Bronze: the facts as the ledger's segments hold them, each segment once."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from legato.spark import BRONZE, FACTS_SCHEMA

spark = SparkSession.active()


@dp.table(comment=BRONZE.sentence)
def bronze() -> DataFrame:
    segments = spark.readStream.schema(FACTS_SCHEMA).option("pathGlobFilter", "facts-*.parquet")
    return BRONZE.of(segments=segments.parquet(os.environ["LEGATO_LEDGER"]))

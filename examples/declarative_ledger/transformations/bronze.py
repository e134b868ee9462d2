"""Bronze: the facts as the ledger's segments hold them, each segment once."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

from legato.spark.ledger.fact_frames import SCHEMA
from legato.spark.tables.gold import BRONZE

spark = SparkSession.active()


@dp.table(comment=BRONZE.sentence)
def bronze() -> DataFrame:
    segments = spark.readStream.schema(SCHEMA).option("pathGlobFilter", "facts-*.parquet")
    return BRONZE.of(segments=segments.parquet(os.environ["LEGATO_LEDGER"]))

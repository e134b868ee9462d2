"""A queue becomes a table, and rows of it become messages of another queue, each exactly once."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

URL = os.environ["LEGATO_URL"]
spark = SparkSession.active()


@dp.table
def orders() -> DataFrame:
    queue = spark.readStream.format("legato").option("url", URL).option("queue", "orders")
    received = queue.option("subscription", "declarative").option("payload", "text").load()
    return received.select("message_id", "timestamp", F.col("body").cast("int").alias("amount"))


dp.create_sink("large_orders", "legato", {"url": URL, "queue": "large-orders"})


@dp.append_flow(target="large_orders")
def announce() -> DataFrame:
    return spark.readStream.table("orders").where("amount >= 500").selectExpr("cast(amount as string) as body")

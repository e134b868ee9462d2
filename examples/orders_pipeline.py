"""Orders come from a queue; all of them go to a table, large ones to another queue: each exactly once.

    pip install 'legato[broker,spark]'
    legato serve --store ./store          # in another terminal
    python orders_pipeline.py             # again and again: it goes on where it was

Kill it whenever you like, or the broker, and run it again: no order is counted twice, and none is missing.
"""

import json
import random
import sys
from pathlib import Path

from pyspark.sql import functions as F

from legato.client import ConnectionFactory
from legato.spark import start_session

URL = "amqp://localhost:5672"
ORDER = "number long, customer string, amount double"


def send_orders(url: str, count: int) -> None:
    """What other programs do all day: send orders, as JSON."""
    customers = ["ann", "bob", "cleo", "dan"]
    with ConnectionFactory(url).create_connection() as connection, connection.create_session() as session:
        producer = session.create_producer(session.create_queue("orders"))
        for number in range(count):
            order = {"number": number, "customer": random.choice(customers), "amount": number % 1000}
            producer.send(json.dumps(order))


def main(url: str = URL, out: Path = Path("pipeline-out"), count: int = 1000) -> tuple[int, int]:
    """Send orders, take all that wait, and say how many are in the table, and how many large ones in the queue."""
    send_orders(url, count)
    spark = start_session("orders")

    # From the queue into a table of Parquet files. The broker keeps under the name of the subscription what Spark has
    # taken; the messages are acknowledged when Spark's checkpoint says that they are in the table.
    orders = (
        spark.readStream.format("legato")
        .option("url", url)
        .option("queue", "orders")
        .option("subscription", "table")
        .option("payload", "text")
        .load()
        .select(F.from_json("body", ORDER).alias("order"))
        .select("order.*")
    )
    into_table = (
        orders.writeStream.format("parquet")
        .option("path", f"{out}/orders")
        .option("checkpointLocation", f"{out}/checkpoints/orders")
        .trigger(availableNow=True)
        .start()
    )
    into_table.awaitTermination()

    # From the table into another queue. The broker knows each batch by the checkpoint's id, and publishes it once.
    large = spark.readStream.schema(ORDER).parquet(f"{out}/orders").where("amount >= 950")
    into_queue = (
        large.select(F.to_json(F.struct("*")).alias("body"), "customer")
        .select("body", F.create_map(F.lit("customer"), "customer").alias("properties"))
        .writeStream.format("legato")
        .option("url", url)
        .option("queue", "large-orders")
        .option("checkpointLocation", f"{out}/checkpoints/large")
        .trigger(availableNow=True)
        .start()
    )
    into_queue.awaitTermination()

    table = spark.read.parquet(f"{out}/orders")
    spent = table.groupBy("customer").agg(F.count("*").alias("orders"), F.sum("amount").alias("spent"))
    spent.orderBy("customer").show()
    waiting = spark.read.format("legato").option("url", url).option("queue", "large-orders").load()
    return table.count(), waiting.count()


if __name__ == "__main__":
    counted, alerts = main(*sys.argv[1:2])
    print(f"{counted:,} orders in the table, {alerts:,} large ones in the queue large-orders")

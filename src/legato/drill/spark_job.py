"""The Spark job in a drill's load: copies messages from one queue to another."""

import sys

import msgspec

SUBSCRIPTION = "drill"
ROWS_OF_A_BATCH = 1_000
"""So few that a job which has been away for long works off what waits in several batches."""


class SparkOrders(msgspec.Struct, frozen=True):
    """Orders of the drill to the job, on its command line.

    Args:
        source: the queue that it reads.
        sink: the queue that it writes into.
        checkpoint: a directory, the same in all lives of the job.
        until_empty: whether it ends once it has published what waits as it starts.
    """

    url: str
    source: str
    sink: str
    checkpoint: str
    until_empty: bool = False


def main() -> None:
    """Entry point of `python -m legato.drill.spark_job ORDERS`; runs until it is killed, or until nothing is left."""
    from legato.spark.runtime.session import start_session

    orders = msgspec.json.decode(sys.argv[1], type=SparkOrders)
    spark = start_session("legato-drill", master="local[2]", driver_memory="1g")
    rows = (
        spark.readStream.format("legato")
        .option("url", orders.url)
        .option("queue", orders.source)
        .option("subscription", SUBSCRIPTION)
        .option("payload", "text")
        .option("maxOffsetsPerTrigger", ROWS_OF_A_BATCH)
        .load()
    )
    writer = (
        rows.select("body")
        .writeStream.format("legato")
        .option("url", orders.url)
        .option("queue", orders.sink)
        .option("checkpointLocation", orders.checkpoint)
    )
    writer = writer.trigger(availableNow=True) if orders.until_empty else writer.trigger(processingTime="0 seconds")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()

"""The job of `interop/run-cluster`: reads a queue as a table, streams it on, and reports which hosts worked."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import functions as F

from legato.spark import start_session


def main() -> None:
    """Say it as JSON."""
    parser = argparse.ArgumentParser()
    for name in ("url", "source", "sink", "checkpoint"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--master")
    options = parser.parse_args()

    def places(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        # An executor works in a directory of its own, inside its worker's.
        for batch in batches:
            yield pa.RecordBatch.from_pydict({"place": [os.getcwd()] * batch.num_rows})

    spark = start_session("legato-cluster-job", master=options.master, driver_memory="1g")
    queue = spark.read.format("legato").option("url", options.url).option("queue", options.source)
    waiting = queue.option("minPartitions", 8).load()
    found = waiting.mapInArrow(places, "place string").groupBy("place").agg(F.count("*").alias("rows")).collect()
    stream = (
        spark.readStream.format("legato")
        .option("url", options.url)
        .option("queue", options.source)
        .option("subscription", "cluster")
        .option("minPartitions", 4)
        .load()
    )
    writer = (
        stream.select("body")
        .writeStream.format("legato")
        .option("url", options.url)
        .option("queue", options.sink)
        .option("checkpointLocation", options.checkpoint)
    )
    writer.trigger(availableNow=True).start().awaitTermination()
    sink = spark.read.format("legato").option("url", options.url).option("queue", options.sink)
    told = {
        "waiting": sum(row["rows"] for row in found),
        "places": [row["place"] for row in found],
        "passed_on": sink.load().count(),
    }
    print(json.dumps(told))


if __name__ == "__main__":
    main()

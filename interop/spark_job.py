"""The job that `interop/run-spark` kills: it copies messages from one queue to another, in capitals."""

from __future__ import annotations

import argparse
from pathlib import Path

from pyspark.sql import functions as F

from legato.spark import start_session


def main() -> None:
    """Run until killed, or until nothing is left."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    parser.add_argument("--source", required=True)
    parser.add_argument("--sink", required=True)
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--batch", type=int, default=5000, help="rows of a micro-batch at most")
    parser.add_argument("--until-empty", action="store_true")
    options = parser.parse_args()
    spark = start_session("legato-chaos", master="local[2]", driver_memory="1g")
    # A driver that is killed while it writes its first offsets leaves what Spark would otherwise not start over.
    spark.conf.set("spark.sql.streaming.verifyCheckpointDirectoryEmptyOnStart", "false")
    rows = (
        spark.readStream.format("legato")
        .option("url", options.url)
        .option("queue", options.source)
        .option("subscription", "chaos")
        .option("payload", "text")
        .option("maxOffsetsPerTrigger", options.batch)
        .load()
    )
    writer = (
        rows.select(F.upper("body").alias("body"))
        .writeStream.format("legato")
        .option("url", options.url)
        .option("queue", options.sink)
        .option("checkpointLocation", str(options.checkpoint))
    )
    writer = writer.trigger(availableNow=True) if options.until_empty else writer.trigger(processingTime="0 seconds")
    writer.start().awaitTermination()


if __name__ == "__main__":
    main()

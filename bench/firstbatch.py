"""A fresh driver: starts Spark, writes one small stream; prints as JSON how long that took, and its processor time."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from bench.formats import Format, session
from bench.processes import processor_s_of_all


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["legato", "kafka"])
    parser.add_argument("--address", required=True, help="URL, or servers")
    parser.add_argument("--place", required=True, help="queue or topic")
    parser.add_argument("--rows", type=Path, required=True, help="directory of Parquet")
    parser.add_argument("--checkpoint", type=Path, required=True)
    parser.add_argument("--jars", default="", help="comma-separated")
    given = parser.parse_args()
    target = Format(given.what, given.address)
    with session([Path(jar) for jar in given.jars.split(",") if jar]) as spark:
        began, before_s = time.monotonic(), processor_s_of_all()
        rows = spark.readStream.schema("key string, value binary").parquet(str(given.rows))
        writer = target.outgoing(rows).writeStream.format(target.name).options(**target.sink(given.place))
        query = writer.option("checkpointLocation", str(given.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        took, spent = time.monotonic() - began, processor_s_of_all() - before_s
    print(json.dumps({"s": took, "processor_s": spent}), flush=True)


if __name__ == "__main__":
    main()

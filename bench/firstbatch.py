"""A fresh driver: starts Spark, then writes one small stream; prints how long that took from its start, as JSON."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

from bench.formats import Format, session


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
        began = time.monotonic()
        rows = spark.readStream.schema("key string, value binary").parquet(str(given.rows))
        writer = target.outgoing(rows).writeStream.format(target.name).options(**target.sink(given.place))
        query = writer.option("checkpointLocation", str(given.checkpoint)).trigger(availableNow=True).start()
        query.awaitTermination()
        took = time.monotonic() - began
    print(json.dumps({"s": took}), flush=True)


if __name__ == "__main__":
    main()

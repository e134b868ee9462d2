"""Flights come from a queue; delays go to Parquet files, alerts to another queue: each exactly once, whoever is killed.

The pipeline is the first half of this file. Run as it is, it is put to the trial: a primary and a backup are started, a
part of the year's flights is sent, brokers and Spark's driver are killed meanwhile, and in the end all that came out is
compared with what the data say.

    python examples/flights_pipeline.py
    python examples/flights_pipeline.py --flights 200000 --kills 12

With `--url` it is the pipeline alone, over brokers of yours, until SIGTERM; `spark-submit` takes it as well.
"""

import argparse
import signal
import sys
import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

FLIGHT = "year int, month int, day int, sched_dep_time int, carrier string, origin string, dep_delay int"
DELAYS = """
    begins timestamp, carrier string, origin string,
    flights bigint, departed bigint, late bigint, delay_min bigint, longest_min int, mean_min double
"""


def flights(spark: SparkSession, url: str) -> DataFrame:
    """The flights of the queue: each leaves it when Spark has on record what became of it."""
    messages = (
        spark.readStream.format("legato")
        .option("url", url)
        .option("queue", "flights")
        .option("subscription", "delays")
        .option("payload", "text")
        .option("maxOffsetsPerTrigger", 20_000)
        .load()
    )
    scheduled = "make_timestamp(year, month, day, sched_dep_time div 100, sched_dep_time % 100, 0) as scheduled"
    return messages.select(F.from_json("body", FLIGHT).alias("flight")).select("flight.*").selectExpr("*", scheduled)


def delays(flights: DataFrame) -> DataFrame:
    """Delays by carrier and airport, a row for each six hours, when a flight of an hour later has been seen."""
    by = [F.window("scheduled", "6 hours").alias("hours"), "carrier", "origin"]
    return (
        flights.withWatermark("scheduled", "1 hour")
        .groupBy(*by)
        .agg(
            F.count("*").alias("flights"),
            F.count("dep_delay").alias("departed"),
            F.expr("count_if(dep_delay >= 15)").alias("late"),
            F.expr("coalesce(sum(dep_delay), 0)").alias("delay_min"),
            F.max("dep_delay").alias("longest_min"),
            F.mean("dep_delay").alias("mean_min"),
        )
        .selectExpr("hours.start as begins", "* except (hours)")
    )


def alerts(delays: DataFrame) -> DataFrame:
    """A message for each carrier that left an airport 45 minutes late on average."""
    return delays.where("departed >= 5 and mean_min >= 45").selectExpr(
        "to_json(struct(begins, carrier, origin, departed, mean_min)) as body",
        "if(mean_min >= 90, 9, 4) as priority",
        "map('carrier', carrier, 'origin', origin) as properties",
    )


def pipeline(spark: SparkSession, url: str, out: str) -> tuple[DataStreamWriter, DataStreamWriter]:
    """Both streams, to be started in this order: from the queue to the table, and from the table to the other queue."""
    to_table = (
        delays(flights(spark, url))
        .writeStream.format("parquet")
        .option("path", f"{out}/delays")
        .option("checkpointLocation", f"{out}/checkpoints/delays")
    )
    to_queue = (
        alerts(spark.readStream.schema(DELAYS).parquet(f"{out}/delays"))
        .writeStream.format("legato")
        .option("url", url)
        .option("queue", "alerts")
        .option("checkpointLocation", f"{out}/checkpoints/alerts")
    )
    return to_table, to_queue


def run(url: str, out: Path, stop: threading.Event) -> None:
    """The pipeline until it is asked to stop; then what is there is finished."""
    from legato.spark import start_session

    (out / "delays").mkdir(parents=True, exist_ok=True)
    spark = start_session("flights")
    queries = [writer.trigger(processingTime="1 second").start() for writer in pipeline(spark, url, out.as_uri())]
    while not stop.wait(0.5):
        for query in queries:
            if not query.isActive:
                query.awaitTermination()
    for query in queries:
        query.processAllAvailable()
        query.stop()
    spark.stop()


def main() -> int:
    usage, _, more = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        description=usage, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--flights", type=int, default=40_000, metavar="N", help="how many are sent (40000)")
    parser.add_argument("--kills", type=int, default=4, metavar="K", help="how often somebody is killed (4)")
    parser.add_argument("--seed", type=int, metavar="S", help="repeat who is killed, and about when")
    parser.add_argument("--out", type=Path, metavar="DIR", help="keep table, checkpoints, store and logs here")
    parser.add_argument("--url", metavar="URL", help="run the pipeline alone over these brokers; needs --out")
    options = parser.parse_args()
    if options.url is None:
        from flights_trial.trial import trial

        return trial(Path(__file__), options.flights, options.kills, options.seed, options.out)
    if options.out is None:
        parser.error("--url needs --out")
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    run(options.url, options.out.absolute(), stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())

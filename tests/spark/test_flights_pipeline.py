"""The pipeline of `examples/flights_pipeline.py`, stopped and started again, over a broker that is killed.

With a driver that is killed it is a program of its own (`docs/howto/pipeline.md`), as drivers take long to start.
"""

import importlib
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from legato.testing import broker_pair

FLIGHTS = 2_000
EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example() -> dict[str, Any]:
    """The pipeline's module and those of its trial, as the script finds them."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        names = ("flights_pipeline", "flights_trial.sending", "flights_trial.truth")
        return {name.split(".")[-1]: importlib.import_module(name) for name in names}
    finally:
        sys.path.remove(str(EXAMPLES))


@pytest.mark.slow
def test_each_flight_counts_once_and_each_alert_comes_once(
    spark: SparkSession, example: dict[str, Any], tmp_path: Path
) -> None:
    sending, truth = example["sending"], example["truth"]
    table = tmp_path / "delays"
    table.mkdir()

    def started(url: str) -> list[StreamingQuery]:
        writers = example["flights_pipeline"].pipeline(spark, url, tmp_path.as_uri())
        return [writer.trigger(processingTime="0 seconds").start() for writer in writers]

    def finish(queries: list[StreamingQuery]) -> None:
        for query in queries:
            query.processAllAvailable()
            query.stop()

    flights = sending.flights_in_order(FLIGHTS)
    with broker_pair(tmp_path) as pair:
        sender = sending.Sender(pair.url, flights, per_s=100_000)
        sender.start()
        sender.allow(FLIGHTS // 2)
        queries = started(pair.url)
        pair.fail_over()
        finish(queries)
        sender.allow(FLIGHTS)
        sender.join()
        finish(started(pair.url))
        alerts = [truth.window_of_alert(body) for body in sending.read_alerts(pair.url)]
    verdict = truth.judge(truth.true_delays(flights), truth.found_delays(table), alerts)
    assert verdict.faults == []
    assert verdict.flights == FLIGHTS
    assert verdict.alerts > 0
    assert len(truth.committed_files(table)) == len(spark.read.parquet(str(table)).inputFiles())

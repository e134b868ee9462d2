"""The totals of what came out equal those of the source, or Spark says where they differ."""

from pathlib import Path

import pyarrow.parquet as pq
from pyspark.sql import SparkSession

from legato.demo.records import Departure, departure_of, departures_table, load_flights, write_source_csv
from legato.spark.report.flights import TotalsComparison, compare_flights

FLIGHTS = 900
"""Enough to have some that were cancelled."""


def compare(spark: SparkSession, tmp_path: Path, departures: list[Departure]) -> TotalsComparison:
    source, collected = tmp_path / "source.csv", tmp_path / "collected"
    assert write_source_csv(source, FLIGHTS) == FLIGHTS
    collected.mkdir()
    half = len(departures) // 2
    pq.write_table(departures_table(departures[:half]), collected / "part-0.parquet")
    pq.write_table(departures_table(departures[half:]), collected / "part-1.parquet")
    return compare_flights(spark, source, collected)


def departures() -> list[Departure]:
    return [departure_of(flight) for flight in load_flights(FLIGHTS)]


def test_totals_of_all_departures_are_equal_to_the_last_digit(spark: SparkSession, tmp_path: Path) -> None:
    expected = departures()
    assert any(departure.dep_delay is None for departure in expected)
    result = compare(spark, tmp_path, expected)
    assert result.equal
    united = next(each.collected for each in result.carriers if each.carrier == "UA")
    own = [departure for departure in expected if departure.carrier == "UA"]
    assert united.flights == len(own)
    assert united.dep_delay == sum(departure.dep_delay or 0 for departure in own)
    assert united.arr_delay_known == sum(departure.arr_delay is not None for departure in own)
    assert united.distance == sum(departure.distance for departure in own)


def test_every_way_to_be_wrong_is_counted(spark: SparkSession, tmp_path: Path) -> None:
    found = departures()
    lost = found.pop(3)
    found += [found[5], found[5], departure_of(list(load_flights(FLIGHTS + 1))[-1])]
    found[10].distance += 1
    result = compare(spark, tmp_path, found)
    assert (result.missing, result.duplicated, result.unexpected) == (1, 2, 1)
    assert any(f"{lost.carrier}{lost.flight} " in example for example in result.examples)
    assert found[10].carrier in {each.carrier for each in result.differences}
    assert not result.equal


def test_a_delay_that_became_unknown_is_a_difference_even_if_it_was_zero(spark: SparkSession, tmp_path: Path) -> None:
    found = departures()
    on_time = next(departure for departure in found if departure.dep_delay == 0)
    on_time.dep_delay = None
    result = compare(spark, tmp_path, found)
    assert [each.carrier for each in result.differences] == [on_time.carrier]
    assert not result.equal

"""The totals that the demo's flows keep in their database, against those of the source."""

import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import astuple

from legato.demo.carriers import FILE, add_to_totals, create_totals, read_totals
from legato.demo.job import database_equals
from legato.demo.records import Flight, departure_of, load_flights
from legato.spark.report.flights import CarrierComparison, CarrierTotals, TotalsComparison

FLIGHTS = 500


@pytest.fixture
def out(tmp_path: Path) -> Path:
    """A run's directory with the totals of a few flights."""
    create_totals(tmp_path)
    with sqlite3.connect(tmp_path / FILE) as database:
        for flight in load_flights(FLIGHTS):
            add_to_totals(database, departure_of(flight))
    return tmp_path


def numbers_of(flight: Flight) -> tuple[int, ...]:
    departed, arrived = flight.dep_delay, flight.arr_delay
    return (1, departed or 0, departed is not None, arrived or 0, arrived is not None, flight.distance)


def source() -> TotalsComparison:
    """The same, added up here."""
    sums: dict[str, CarrierTotals] = {}
    for flight in load_flights(FLIGHTS):
        before = astuple(sums.get(flight.carrier, CarrierTotals()))
        sums[flight.carrier] = CarrierTotals(*map(sum, zip(before, numbers_of(flight), strict=True)))
    none = CarrierTotals()
    carriers = [CarrierComparison(carrier, totals, none) for carrier, totals in sums.items()]
    return TotalsComparison([*carriers, CarrierComparison("XX", none, none)], missing=0, duplicated=0, unexpected=0)


def test_the_database_has_the_sums_of_the_source(out: Path) -> None:
    totals = read_totals(out)
    assert database_equals(source(), totals)
    assert sum(row[0] for row in totals.values()) == FLIGHTS


@pytest.mark.parametrize(
    "mistake",
    [
        "UPDATE carriers SET distance = distance + 1 WHERE carrier = 'UA'",
        "DELETE FROM carriers WHERE carrier = 'UA'",
        "INSERT INTO carriers VALUES ('YY', 1, 0, 0, 0, 0, 0)",
    ],
)
def test_one_that_was_added_twice_left_out_or_made_up_is_found(out: Path, mistake: str) -> None:
    with sqlite3.connect(out / FILE) as database:
        database.execute(mistake)
    assert not database_equals(source(), read_totals(out))

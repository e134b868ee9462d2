"""Table of totals for each carrier, kept by the demo's flows in the database of their stages."""

import sqlite3
from collections.abc import Mapping
from pathlib import Path

from legato.demo.records import Departure

FILE = "carriers.db"
TOTALS = ("flights", "dep_delay", "dep_delay_known", "arr_delay", "arr_delay_known", "distance")
"""The columns, those of `legato.spark.report.flights.CarrierTotals`."""

_CREATE = (
    f"CREATE TABLE carriers (carrier TEXT PRIMARY KEY, {', '.join(f'{name} INTEGER NOT NULL' for name in TOTALS)})"
)
_ADD = (
    f"INSERT INTO carriers VALUES (?, {', '.join('?' for _ in TOTALS)}) ON CONFLICT (carrier) DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in TOTALS)
)


def database_url(out: Path) -> str:
    """Database URL of a run, for SQLAlchemy."""
    return f"sqlite:///{out / FILE}"


def create_totals(out: Path) -> None:
    """Make the table, empty."""
    with sqlite3.connect(out / FILE) as connection:
        connection.execute(_CREATE)
    connection.close()


def add_to_totals(database: sqlite3.Connection, departure: Departure) -> None:
    """Add a flight to its carrier's totals: twice is once too often, which is what the demo is about."""
    departed, arrived = departure.dep_delay, departure.arr_delay
    database.execute(
        _ADD,
        (
            departure.carrier,
            1,
            departed or 0,
            departed is not None,
            arrived or 0,
            arrived is not None,
            departure.distance,
        ),
    )


def read_totals(out: Path) -> Mapping[str, tuple[int, ...]]:
    """The totals of each carrier, in the order of `TOTALS`."""
    connection = sqlite3.connect(out / FILE)
    try:
        rows = connection.execute(f"SELECT carrier, {', '.join(TOTALS)} FROM carriers").fetchall()
    finally:
        connection.close()
    return {carrier: tuple(values) for carrier, *values in rows}

